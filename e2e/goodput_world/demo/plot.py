"""A picture of one demo: demand, goodput and replicas over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from goodput_world.replay.records import Objectives, Record

_BIN_SECONDS = 15.0


def binned_rps(records: Sequence[Record], objectives: Objectives, seconds: float) -> tuple[list[float], list[float]]:
    """Offered and good requests per second in bins of 15 s by the instant a request was scheduled.

    A good request counts where it was offered, so the gap between the two is what missed the SLO. The last bin may be
    shorter.
    """
    bins = max(1, math.ceil(seconds / _BIN_SECONDS))
    offered, good = [0.0] * bins, [0.0] * bins
    for record in records:
        index = min(bins - 1, int(record.scheduled_seconds // _BIN_SECONDS))
        width_seconds = min(_BIN_SECONDS, seconds - index * _BIN_SECONDS)
        offered[index] += 1 / width_seconds
        good[index] += record.met(objectives) / width_seconds
    return offered, good


def plot(summary: dict[str, Any], records: Sequence[Record], objectives: Objectives, paths: Sequence[Path]) -> None:
    """Draw the picture to every path; the suffix is the format."""
    import matplotlib as mpl

    mpl.use("Agg")
    # The same run gives the same file, so that a committed picture changes only with its run.
    mpl.rcParams["svg.hashsalt"] = "goodput"
    from matplotlib import pyplot as plt

    seconds = summary["replay_seconds"]
    offered, good = binned_rps(records, objectives, seconds)
    edges = [min(seconds, index * _BIN_SECONDS) for index in range(len(offered) + 1)]
    figure, (load, fleet) = plt.subplots(2, 1, figsize=(10, 6), sharex=True, height_ratios=(3, 2), layout="constrained")

    load.stairs(offered, edges, color="#c44e52", label="offered", linewidth=1.2)
    load.stairs(good, edges, fill=True, color="#55a868", alpha=0.55, label="met the SLO (goodput)")
    load.set_ylabel("requests/s")
    load.legend(loc="upper left", frameon=False)
    load.set_title(_title(summary), loc="left", fontsize=10)

    rows = summary["replicas_timeline"]
    times = [row["t"] for row in rows] + [summary["duration_seconds"]]
    for name, label, colour in (
        ("paid", "running or starting or draining (paid)", "#8c8c8c"),
        ("ready", "ready", "#4c72b0"),
    ):
        values = [row["ready"] + (row["starting"] + row["terminating"] if name == "paid" else 0) for row in rows]
        fleet.stairs(values, times, color=colour, label=label, baseline=None, linewidth=1.6)
    fleet.axhline(summary["static_peak_replicas"], color="black", linestyle=":", linewidth=1, label="static peak")
    fleet.set_ylabel("replicas")
    fleet.yaxis.get_major_locator().set_params(integer=True)
    fleet.set_xlabel("seconds since the start of the replay")
    fleet.set_ylim(0, max(summary["static_peak_replicas"], summary["replicas_max"]) + 0.6)
    fleet.legend(loc="upper left", frameon=False)
    for axis in (load, fleet):
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_ylim(bottom=0)

    for path in paths:
        # No date: see the salt above.
        figure.savefig(path, dpi=140, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def _title(summary: dict[str, Any]) -> str:
    saved = 1 - summary["gpu_hours"] / summary["static_peak_gpu_hours"]
    attainment = "no request" if summary["attainment"] is None else f"{summary['attainment'] * 100:.1f} % met the SLO"
    return (
        f"{summary['requests']} requests, {attainment}; {summary['requests_lost']} lost; "
        f"{summary['gpu_hours']:.2f} GPU-hours, {saved * 100:.0f} % below static peak"
    )
