"""The rate up to which one replica holds an objective, and what stops it there.

The search is over arrivals per step (see `replica`): everything else follows from it without a fixed point, and misses
only grow with it.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from math import log

from msgspec.structs import replace

from goodput.domain.architecture import Architecture
from goodput.domain.intent import GpuType, Objective
from goodput.domain.remembered import for_each_model
from goodput.domain.values import Value
from goodput.perfmodel.lengths import Lengths
from goodput.perfmodel.load import Load, load, load_at
from goodput.perfmodel.queueing import NEVER_SECONDS, Latency, latency_of
from goodput.perfmodel.replica import Replica, Shape, replica, replica_pool, replica_times
from goodput.perfmodel.search import crossing

__all__ = [
    "KV_SHARE",
    "LEAST_SHARE",
    "THROUGHPUT_SHARE",
    "Capacity",
    "Latency",
    "Shape",
    "Wall",
    "capacity",
    "capacity_of",
    "highest_rate",
    "latency",
    "replica_pool",
    "replica_times",
]

# Share of KV tokens that sequences in flight may hold on average; above it preemption begins.
KV_SHARE = 0.9
# Nearly idle replicas wait for nobody: to spread the same requests over more of them buys next to nothing. So a replica
# is given at least this share of the highest rate that it keeps up with, whatever the objective says.
LEAST_SHARE = 0.1
# Where nothing can be met a replica is sized for throughput: requests are at least served.
THROUGHPUT_SHARE = 0.7
# Misses of an idle replica beyond what the objective allows (as a share of what it asks for) from which on only those
# requests count that an idle replica serves in time. Up to there one goes over into the other.
_GIVEN_UP = 0.1
_NO_MISSES = 1e-9
# More replicas than this even out hardly more; so equal work is done once.
_MOST_EVENING = 8


class Wall(StrEnum):
    """What binds first as the rate grows."""

    TTFT = "ttft"
    TPOT = "tpot"
    E2E = "e2e"
    TIME = "time"
    KV = "kv"
    SEQUENCES = "sequences"


class Capacity(Value, frozen=True, kw_only=True):
    """The highest rate of one replica that still meets the objective, and how it looks there."""

    rps: float
    wall: Wall
    max_num_seqs: int
    sequences: float  # in flight at that rate
    prefill_tokens_per_second: float  # of a replica that does nothing else
    output_tokens_per_second: float  # at that rate
    at_capacity: Latency  # of one pipeline stage's share
    idle: Latency
    arrivals: (
        float | None
    )  # per step of one pipeline stage, at that rate; None: it is more than the replica keeps up with
    feasible: bool  # whether an idle replica meets the objective at all
    kv_tokens: int


def capacity(
    arch: Architecture,
    gpu: GpuType,
    shape: Shape,
    lengths: Lengths,
    objective: Objective,
    *,
    correction: float = 1.0,
    prefill_correction: float = 1.0,
    replicas: int = 1,
) -> Capacity:
    """Capacity of one replica in requests per second.

    `correction` is true over believed speed of decode, `prefill_correction` of prefill. It is one of `replicas` among
    which a router evens out what comes: each meets less of a burst than one alone. Arguments are rounded to steps of
    2-3 %, so that equal work is done once.
    Raises `ModelDoesNotFit`.
    """
    return _capacity(
        arch,
        gpu,
        shape,
        lengths.rounded(),
        objective,
        correction=round(correction, 2),
        prefill_correction=round(prefill_correction, 2),
        replicas=min(replicas, _MOST_EVENING),
    )


def latency(
    arch: Architecture,
    gpu: GpuType,
    shape: Shape,
    lengths: Lengths,
    objective: Objective,
    *,
    rps: float,
    within: Capacity | None = None,
    correction: float = 1.0,
    prefill_correction: float = 1.0,
) -> Latency:
    """Latency of one replica at `rps`; of a pipeline, that of one stage's share of the requests.

    `within` is its capacity, where that is known and `rps` no more.
    """
    one = replica(
        arch,
        gpu,
        shape,
        lengths.rounded(),
        correction=round(correction, 2),
        prefill_correction=round(prefill_correction, 2),
    )
    most = None if within is None else within.arrivals
    return latency_of(one, load_at(one, rps / shape.pipeline_parallel, most), objective)


@lru_cache(maxsize=for_each_model(1))
def overload_sequences(arch: Architecture, gpu: GpuType, shape: Shape, lengths: Lengths, objective: Objective) -> float:
    """Sequences in flight at which the mean request misses an objective, at least those at capacity.

    More of them only spoil each other. Raises `ModelDoesNotFit`.
    """
    one = replica(arch, gpu, shape, lengths.rounded())
    tpot_limit = objective.tpot_seconds or NEVER_SECONDS
    ttft_limit = objective.ttft_seconds or NEVER_SECONDS

    def late(arrivals: float) -> float:
        at = latency_of(one, load(one, arrivals), objective)
        return max(at.tpot_mean_seconds / tpot_limit, at.ttft_mean_seconds / ttft_limit) - 1.0

    full = _within_slots(one)
    alone, loaded = late(0.0), late(full)
    most = full
    if loaded > 0.0:
        most = crossing(late, 0.0, full, at_low=alone, at_high=loaded)[0] if alone < 0.0 else 0.0
    sequences = latency_of(one, load(one, most), objective).sequences * shape.pipeline_parallel
    return max(sequences, capacity(arch, gpu, shape, lengths, objective).sequences)


def highest_rate(arch: Architecture, gpu: GpuType, shape: Shape, lengths: Lengths) -> float:
    """Requests per second that one replica keeps up with, were KV cache and max-num-seqs no bound.

    Raises `ModelDoesNotFit`.
    """
    one = replica(arch, gpu, shape, lengths.rounded())
    return load(one, one.most_arrivals).rps * shape.pipeline_parallel


@lru_cache(maxsize=for_each_model(3))
def _capacity(
    arch: Architecture,
    gpu: GpuType,
    shape: Shape,
    lengths: Lengths,
    objective: Objective,
    *,
    correction: float,
    prefill_correction: float,
    replicas: int,
) -> Capacity:
    one = replica(arch, gpu, shape, lengths, correction=correction, prefill_correction=prefill_correction)
    one = replace(one, dispersion=1.0 / replicas)
    return capacity_of(one, objective, stages=shape.pipeline_parallel)


def capacity_of(one: Replica, objective: Objective, *, stages: int = 1) -> Capacity:
    """Capacity of a pipeline of `stages`, each of which serves its share as `one` does."""
    idle = latency_of(one, load(one, 0.0), objective)
    feasible = idle.good >= objective.attainment
    full = _within_slots(one)
    stable = load(one, full).rps
    arrivals, wall = _highest(one, objective, full, objective.attainment if feasible else 1.0, idle.good)
    at_load: Load | None = load(one, arrivals)
    rate = load(one, arrivals).rps
    if not feasible:
        rate, wall = _salvaged(one, objective, full, idle.good)
        at_load = load_at(one, rate)
    elif rate < LEAST_SHARE * stable:
        rate = LEAST_SHARE * stable
        at_load = load_at(one, rate)
    at = latency_of(one, at_load, objective)
    return Capacity(
        rps=rate * stages,
        wall=wall,
        max_num_seqs=round(one.sequences_limit * stages),
        sequences=at.sequences * stages,
        prefill_tokens_per_second=one.input_mean / one.alone_mean * stages,
        output_tokens_per_second=rate * one.output_mean * stages,
        at_capacity=at,
        idle=idle,
        arrivals=None if at_load is None else at_load.arrivals,
        feasible=feasible,
        kv_tokens=one.kv_tokens,
    )


def _within_slots(one: Replica) -> float:
    """Arrivals per step up to which the sequences that run find room, on average."""
    limit = min(KV_SHARE * one.kv_sequences, one.sequences_limit)

    def beyond(arrivals: float) -> float:
        at = load(one, arrivals)
        return at.batch + at.rps * one.alone_mean - limit

    most = beyond(one.most_arrivals)
    if most <= 0.0:
        return one.most_arrivals
    return crossing(beyond, 0.0, one.most_arrivals, at_low=-limit, at_high=most)[0]


def _highest(one: Replica, objective: Objective, full: float, wanted: float, idle_good: float) -> tuple[float, Wall]:
    """(most arrivals per step at which the share `wanted` is good, up to `full`; what stops there)."""

    def at(arrivals: float) -> Latency:
        return latency_of(one, load(one, arrivals), objective)

    if wanted >= 1.0:
        return 0.0, Wall.TIME

    def beyond(good: float) -> float:
        # Misses grow exponentially: their logarithm is nearly straight.
        return log(max(_NO_MISSES, 1.0 - good) / (1.0 - wanted))

    lacking = beyond(at(full).good)
    if lacking <= 0.0:
        if full >= one.most_arrivals:
            return full, Wall.TIME
        return full, _slot_wall(one)
    low, high = crossing(
        lambda arrivals: beyond(at(arrivals).good), 0.0, full, at_low=beyond(idle_good), at_high=lacking
    )
    return low, _binding(one, at(high), at(low))


def _salvaged(one: Replica, objective: Objective, full: float, good: float) -> tuple[float, Wall]:
    """(rate, wall) where an idle replica is `good` to fewer than asked.

    Those that it cannot serve in time are lost at any rate and no reason for replicas: of the others the share asked
    for is served well. Close to the edge it goes over into the least rate of a replica, and where hardly anyone can be
    served well into that for throughput.
    """
    stable = load(one, full).rps
    helped, wall = _highest(one, objective, full, objective.attainment * good, good) if good > 0.0 else (0.0, Wall.TIME)
    rate = good * load(one, helped).rps + (1.0 - good) * THROUGHPUT_SHARE * stable
    given_up = min(1.0, (1.0 - good / objective.attainment) / _GIVEN_UP)
    # A pool that holds no request of these lengths serves none; a rate is still more than nothing.
    floor = max(1e-6, LEAST_SHARE * stable)
    return max(floor, floor * (max(rate, floor) / floor) ** given_up), wall if good > 0.5 else Wall.TIME


def _slot_wall(one: Replica) -> Wall:
    return Wall.KV if KV_SHARE * one.kv_sequences < one.sequences_limit else Wall.SEQUENCES


def _binding(one: Replica, beyond: Latency, at: Latency) -> Wall:
    """The objective whose misses grow most where the rate is just too high."""
    if beyond.tpot_mean_seconds >= NEVER_SECONDS:
        return Wall.TIME
    growth = (
        (beyond.ttft_misses - at.ttft_misses * 0.5, Wall.TTFT),
        (beyond.tpot_misses - at.tpot_misses * 0.5, Wall.TPOT),
        (beyond.e2e_misses - at.e2e_misses * 0.5, Wall.E2E),
    )
    wall = max(growth, key=lambda pair: pair[0])[1]
    late = beyond.ttft.late_share * beyond.ttft.late_seconds
    waits_for_slot = {
        Wall.TTFT: beyond.slot_misses > 0.5 * beyond.ttft_misses,
        Wall.E2E: late > 0.5 * beyond.ttft_mean_seconds,
    }
    return _slot_wall(one) if waits_for_slot.get(wall, False) else wall
