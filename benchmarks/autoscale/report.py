"""The tables, as Markdown. Every row that was run is printed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.autoscale.compared import Compared, Entry
from benchmarks.autoscale.verdicts import Verdict

_ROW_HEAD = (
    "| policy | attainment | good/s | GPU-h | cost | replicas | up/down | turns/h | worst minute | "
    "TTFT p50/p95/p99 s | TPOT p50/p95/p99 ms |\n|---|---|---|---|---|---|---|---|---|---|---|\n"
)
_VERDICT_HEAD = (
    "| trace | start-up s | attainment | GPU-h | best of the others | its GPU-h | floor GPU-h | gap closed | "
    "x floor | x static peak | variants searched | misses |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n"
)
# Bursts that no start-up can follow: there ours must not be dearer than static peak.
BURSTS = ("azure-code",)
# The ramp has figures of its own to keep.
NO_RATIO = ("ramp",)


def percent(share: float, digits: int = 1) -> str:
    """A share of 1, rounded down: 95 % is kept or not."""
    scale = 10.0**digits
    return "-" if math.isnan(share) else f"{math.floor(share * 100.0 * scale + 1e-9) / scale:.{digits}f} %"


def _three(entry: Entry, name: str, scale: float, digits: int) -> str:
    return "/".join(
        f"{entry.mean(lambda each, index=index: each[name][index] * scale):.{digits}f}"  # type: ignore[misc]
        for index in range(3)
    )


def row(entry: Entry) -> str:
    """One policy: means over seeds, the worst minute of all."""
    figures = entry.row
    worst = min(each["worst_minute"] for each in entry.results)
    cells = (
        entry.label,
        percent(figures.attainment, 2),
        f"{entry.mean(lambda each: each['goodput_rps']):.2f}",
        f"{figures.gpu_hours:.2f}",
        f"{entry.mean(lambda each: each['cost']):.2f}",
        f"{entry.mean(lambda each: each['mean_replicas']):.2f}",
        f"{entry.mean(lambda each: each['scale_ups']):.1f}/{entry.mean(lambda each: each['scale_downs']):.1f}",
        f"{entry.mean(lambda each: each['direction_changes_per_hour']):.1f}",
        percent(worst, 0),
        _three(entry, "ttft", 1.0, 2),
        _three(entry, "tpot", 1000.0, 0),
    )
    return "| " + " | ".join(cells) + " |\n"


def misses(found: Verdict, scenario: str) -> list[str]:
    """What the verdict does not show and should."""
    failed = []
    if not found.holds:
        failed.append("objective")
    if found.best is not None and found.ours.gpu_hours > found.best.gpu_hours:
        failed.append("dearer than the best")
    elif found.holds and not found.beats:
        failed.append("half of the gap")
    if scenario not in NO_RATIO and found.dear(against_static_peak=scenario in BURSTS):
        limit = "1.05 x static peak" if scenario in BURSTS else f"{found.most_over_floor:g} x floor"
        failed.append(limit)
    return failed


def verdict_row(each: Compared) -> str:
    """One trace at one start-up."""
    found = each.verdict
    gap = found.gap_closed
    cells = (
        each.scenario.title,
        f"{each.startup_seconds:g}",
        percent(found.ours.attainment, 2),
        f"{found.ours.gpu_hours:.2f}",
        "nobody reaches ours" if found.best is None else found.best.name,
        "-" if found.best is None else f"{found.best.gpu_hours:.2f}",
        f"{found.floor.gpu_hours:.2f} ({found.floor.name})",
        "-" if gap is None else f"{gap:.2f}",
        f"{found.over_floor:.2f}",
        f"{found.over_static_peak:.2f}",
        f"{each.searched[0]} of {each.searched[1]}",
        ", ".join(misses(found, each.scenario.name)) or "nothing",
    )
    return "| " + " | ".join(cells) + " |\n"


def verdicts(all_compared: Sequence[Compared]) -> str:
    """The table of verdicts."""
    return _VERDICT_HEAD + "".join(verdict_row(each) for each in all_compared)


def table(each: Compared) -> str:
    """All rows of one trace at one start-up."""
    known, total = each.searched
    offered = each.entries[0].mean(lambda result: result["offered_rps"])
    held = each.entries[0].mean(lambda result: result["replica_rps"])
    text = f"### {each.scenario.title}, start-up {each.startup_seconds:g} s\n\n"
    text += f"{each.scenario.notes}. TTFT {each.scenario.objective.ttft_seconds:g} s, "
    text += f"TPOT {(each.scenario.objective.tpot_seconds or 0.0) * 1000.0:g} ms, "
    text += f"{each.scenario.objective.attainment:.0%}; {offered:.2f} requests/s offered, one replica alone holds "
    text += f"{held:.2f}. "
    if known < total:
        text += f"Of the rivals' grids {known} of {total} variants were searched. "
    return text + "\n\n" + _ROW_HEAD + "".join(row(entry) for entry in each.entries) + "\n"


def ramp_table(rows: Sequence[tuple[str, Sequence[Mapping[str, Any]], float, float]]) -> str:
    """What is asked of ours on the published ramp: (name, results, least attainment, most average replicas)."""
    text = "| ramp, ours | seeds | attainment | replicas until back at 3 | over the run | asked | kept |\n"
    text += "|---|---|---|---|---|---|---|\n"
    for name, results, least, most in rows:
        attainment = sum(each["attainment"] for each in results) / len(results)
        replicas = sum(each["published_replicas"] for each in results) / len(results)
        whole = sum(each["mean_replicas"] for each in results) / len(results)
        kept = "yes" if attainment >= least and replicas <= most else "no"
        text += f"| {name} | {len(results)} | {percent(attainment, 2)} | {replicas:.2f} | {whole:.2f} | "
        text += f">= {least:.0%} at <= {most:g} | {kept} |\n"
    return text


_PAGE = """# Autoscaling benchmark

Written by `benchmarks/autoscaling.py --page`; how it is set up: [decision 27](decisions/0027-autoscaling-benchmark.md).

Means over seeds, each with a plant of its own; the worst minute is that of all seeds. GPU-hours count from the placing
of a pod until it is gone, replicas are those asked for, turns are changes of direction. A rival has a row as published,
and one for the variant of its grid that is cheapest at our attainment (or nearest to it), **chosen on the very trace,
plant and start-up that it is compared on**, which favours it; ours has one set of parameters. Best of the others: the
cheapest row of a rival, or static peak, that keeps the objective and reaches our attainment to a thousandth. Floor: the
oracle, or the fewest static replicas that hold the objective in hindsight, whichever is cheaper. Gap closed: (best -
ours) / (best - floor), to be at least 0.5. Where not all variants of the rivals' grids were searched, the best of the
others may be better than it looks.

![Azure conversation, start-up 100 s](images/autoscaling-azure-conversation.svg)
![Published ramp, start-up 100 s](images/autoscaling-ramp.svg)

"""


def page(text: str, seeds: int) -> str:
    """The report as a page of documentation."""
    run = f"Run with {seeds} seed{'s' if seeds > 1 else ''}; the searches of grids with one.\n\n"
    return _PAGE + run + text.rstrip() + "\n"
