"""Why an option of placement lost, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from goodput.domain.intent import GpuType, Objective
from goodput.domain.percent import MOST_DECIMALS, percent
from goodput.perfmodel.capacity import Latency, Wall
from goodput.perfmodel.lengths import Lengths

if TYPE_CHECKING:
    from goodput.perfmodel.judging import Option

# What binds a replica at its capacity, as a reason.
_BINDS = {
    Wall.TTFT: "time to first token binds",
    Wall.TPOT: "time per token binds",
    Wall.E2E: "the end-to-end time binds",
    Wall.TIME: "its time is used up",
    Wall.KV: "its KV cache is full",
    Wall.SEQUENCES: "max-num-seqs binds",
}


# A share of good requests that was found by search is off by no more than this.
_SEARCHED = 1e-9


def duration(seconds: float) -> str:
    """Such as `84 ms`, `1.2 s` or `2 h`."""
    if seconds < 1.0:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 600.0:
        return f"{seconds:.3g} s"
    return f"{seconds / 60.0:.3g} min" if seconds < 7200.0 else f"{seconds / 3600.0:.3g} h"


def binds(wall: Wall) -> str:
    """What keeps a replica from carrying more."""
    return _BINDS[wall]


def _rows(objective: Objective, lengths: Lengths, at: Latency) -> list[tuple[str, float, float, float]]:
    """(objective, its bound, the mean of a replica, share that misses) for every bound that is set; seconds."""
    whole = at.ttft_mean_seconds + (lengths.output_mean - 1.0) * at.tpot_mean_seconds
    rows = (
        ("TTFT", objective.ttft_seconds, at.ttft_mean_seconds, at.ttft_misses),
        ("TPOT", objective.tpot_seconds, at.tpot_mean_seconds, at.tpot_misses),
        ("end-to-end time", objective.e2e_seconds, whole, at.e2e_misses),
    )
    return [(name, bound, mean, misses) for name, bound, mean, misses in rows if bound is not None]


def shortfall(objective: Objective, lengths: Lengths, idle: Latency) -> float:
    """How far an idle replica is from the objective: 1 where its mean meets every bound, else times the worst."""
    return max([1.0, *(mean / bound for _, bound, mean, _ in _rows(objective, lengths, idle))]) + 1.0 - idle.good


def missed(objective: Objective, lengths: Lengths, idle: Latency) -> str:
    """Which objectives an idle replica misses, and by how much."""
    rows = _rows(objective, lengths, idle)
    allowed = 1.0 - objective.attainment
    worst = [row for row in rows if row[3] > allowed] or [max(rows, key=lambda row: row[3])]
    told = []
    for name, bound, mean, misses in sorted(worst, key=lambda row: (-row[3], -row[2] / row[1])):
        allowed_time = f"{duration(bound)} allowed"
        if mean > bound:
            times = mean / bound
            ratio = f"{times:.2g}" if times < 100.0 else f"{times:,.0f}"
            told.append(f"{name} is {duration(mean)} even when idle, {ratio} x the {allowed_time}")
        else:
            told.append(
                f"{name} is met for {percent(1.0 - misses, 1)} of requests even when idle, not for "
                f"{percent(objective.attainment, MOST_DECIMALS)}: {duration(mean)} on average, {allowed_time}"
            )
    return "; ".join(told)


def short_of(objective: Objective, at: Latency) -> float:
    """Share of requests that the objective asks for beyond those that meet it; 0 where enough do."""
    short = objective.attainment - at.good
    return short if short > _SEARCHED else 0.0


def busy(objective: Objective, lengths: Lengths, idle: Latency, at: Latency, rps: float) -> str:
    """What a replica misses at `rps`, little as that is, where it would meet the SLO if it were idle."""
    asked = percent(objective.attainment, MOST_DECIMALS)
    name, bound, mean, _ = max(_rows(objective, lengths, at), key=lambda row: row[3])
    return (
        f"{percent(at.good, 1)} of requests meet it at {rps:.3g} requests/s a replica, not {asked}: {name} is "
        f"{duration(mean)} on average, {duration(bound)} allowed; an idle one meets it for {percent(idle.good, 1)}"
    )


def dearer(gpu: GpuType, least: float) -> str:
    """Of a larger replica than one of the same type that meets the SLO."""
    if gpu.price_per_hour is None:
        return f"takes more than the {least:.0f} GPUs that smaller replicas of it need"
    return f"costs more than the {least:.2f} $/h of smaller replicas of it"


def lost(option: Option, winner: Option) -> str:
    """Why `option` lost to `winner`."""
    fleet, best = option.fleet, winner.fleet
    if option.why or fleet is None or best is None:
        return option.why
    if (winner.starts, winner.available) > (option.starts, option.available):
        return f"{fleet.gpus} GPUs are needed, fewer are free: {option.free}"
    if best.cost.per_hour is None:
        return f"{fleet.gpus} GPUs, against {best.gpus} of {winner.gpu.name}"
    if fleet.cost.per_hour is None:
        return f"what {option.gpu.name} costs is unknown: set pricePerHour of a GPUType of that name"
    why = f"; {binds(option.capacity.wall)} at {option.capacity.rps:.3g} requests/s" if option.capacity else ""
    if fleet.cost.per_hour > best.cost.per_hour * 1.0005:
        times = fleet.cost.per_hour / best.cost.per_hour
        more = f"{times:.2g} x" if times >= 2.0 else f"{100.0 * (times - 1.0):.2g} % above"
        return f"{more} the cost of {winner.label}{why}"
    if fleet.gpus > best.gpus:
        return f"costs the same as {winner.label} on more GPUs{why}"
    if option.gpus > winner.gpus:
        return f"costs the same as {winner.label} in fewer, larger replicas"
    return f"costs the same as {winner.label}, which comes first by name"
