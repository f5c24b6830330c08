"""What searching the rivals' grids gave: attainment and GPU-hours of each variant, kept in the repository.

Laws of rivals do not change with ours, so a search is made once and used again: only which variant is chosen follows
from it, the chosen ones are always run anew.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.autoscale.runs import Spec
from benchmarks.autoscale.store import ROOT
from benchmarks.autoscale.verdicts import Row

SEARCHED = ROOT / "benchmarks" / "data" / "autoscaling" / "grids.csv"
# The plant and the requests of this seed.
SEED = 1
_COLUMNS = ("scenario", "startup_seconds", "policy", "point", "attainment", "gpu_hours", "given_up")

# Scenario, start-up and law -> (attainment, GPU-hours) by point; None: not worth its end.
Grids = dict[tuple[str, float, str], dict[int, tuple[float, float] | None]]


def read(path: Path = SEARCHED) -> Grids:
    """What was searched before; nothing where there is no such file."""
    grids: Grids = {}
    if not path.exists():
        return grids
    with path.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            points = grids.setdefault((row["scenario"], float(row["startup_seconds"]), row["policy"]), {})
            left = bool(row["given_up"])
            points[int(row["point"])] = None if left else (float(row["attainment"]), float(row["gpu_hours"]))
    return grids


def merged(grids: Grids, results: Mapping[Spec, Mapping[str, Any]]) -> Grids:
    """The same with the results of a search."""
    merged_grids = {key: dict(points) for key, points in grids.items()}
    for spec, result in results.items():
        points = merged_grids.setdefault((spec.scenario, spec.startup_seconds, spec.policy), {})
        points[spec.point] = None if "given_up" in result else (result["attainment"], result["gpu_hours"])
    return merged_grids


def write(grids: Grids, path: Path = SEARCHED) -> None:
    """Keep a search."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for (scenario, startup, policy), points in sorted(grids.items()):
            for point, found in sorted(points.items()):
                figures = ("", "", "left") if found is None else (f"{found[0]:.4f}", f"{found[1]:.4f}", "")
                writer.writerow((scenario, f"{startup:g}", policy, point, *figures))


def rows(points: Mapping[int, tuple[float, float] | None]) -> list[Row]:
    """The variants that were run to their end, by number."""
    return [
        Row(name=str(point), attainment=found[0], gpu_hours=found[1])
        for point, found in sorted(points.items())
        if found is not None
    ]


def numbers(chosen: Iterable[Row | None]) -> set[int]:
    """The numbers of variants that were chosen."""
    return {int(row.name) for row in chosen if row is not None}
