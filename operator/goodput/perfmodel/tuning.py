"""Engine limits of an option, and a quick look at whether it can be cheap enough."""

from __future__ import annotations

from functools import lru_cache
from math import floor

from msgspec.structs import replace

from goodput.domain.intent import GpuType
from goodput.domain.remembered import for_each_model
from goodput.perfmodel.capacity import LEAST_SHARE, Shape, Wall, highest_rate, latency
from goodput.perfmodel.cost import price_per_hour
from goodput.perfmodel.judging import Option, holds, judge
from goodput.perfmodel.memory import engine_defaults
from goodput.perfmodel.requirements import Requirements

# What a replica for throughput is started with: as many sequences as its KV cache holds, and large steps.
THROUGHPUT_SEQUENCES = 1024
THROUGHPUT_TOKENS = 16384


def for_throughput(gpu: GpuType, shape: Shape) -> Shape:
    """`shape` with engine limits for throughput."""
    sequences = max(THROUGHPUT_SEQUENCES, engine_defaults(gpu)[0])
    return replace(shape, max_num_seqs=sequences, max_num_batched_tokens=THROUGHPUT_TOKENS)


def _more_sequences(gpu: GpuType, shape: Shape) -> Shape:
    few = engine_defaults(gpu)[0] < THROUGHPUT_SEQUENCES
    return replace(shape, max_num_seqs=THROUGHPUT_SEQUENCES) if few else shape


@lru_cache(maxsize=for_each_model(8))
def tuned(wanted: Requirements, gpu: GpuType, shape: Shape) -> Option:
    """The option with the engine's own limits, or with others where a replica carries more with these.

    Others are those for throughput where latency does not matter, and more sequences where max-num-seqs binds. The
    demand has no say: limits are flags of pods, which are not to restart when more of them are wanted.
    """
    option = judge(wanted, gpu, shape)
    if option.capacity is None or option.capacity.wall is Wall.KV:
        return option
    if wanted.patient:
        other = judge(wanted, gpu, for_throughput(gpu, shape))
    elif option.capacity.wall is Wall.SEQUENCES and _more_sequences(gpu, shape) != shape:
        other = judge(wanted, gpu, _more_sequences(gpu, shape))
    else:
        return option
    return other if other.capacity is not None and other.capacity.rps > option.capacity.rps else option


def may_cost(wanted: Requirements, gpu: GpuType, shape: Shape, cost_per_hour: float) -> bool:
    """Whether a fleet of at most this cost might meet the SLO: False is certain, True is not.

    Without KV cache in the way a replica carries more, so one look at its latency is a bound.
    """
    # Of a bought GPU only what is written off is sure.
    price = price_per_hour(gpu, 0.0)
    if price is None:
        price = 1.0
    most = floor(cost_per_hour / (price * shape.tensor_parallel * shape.pipeline_parallel) + 1e-9)
    if most < max(1, wanted.min_replicas):
        return False
    # What drafts make of its latency is not known before they are chosen.
    if wanted.speculation is not None or not holds(wanted, gpu, shape):
        return True
    # Whichever limits it would be given: a replica whose max-num-seqs bind waits for slots, and is no bound.
    other = for_throughput(gpu, shape) if wanted.patient else _more_sequences(gpu, shape)
    tried = (shape,) if other == shape else (other, shape)
    return any(_may_hold(wanted, gpu, each, wanted.load_rps / most) for each in tried)


def _may_hold(wanted: Requirements, gpu: GpuType, shape: Shape, rps: float) -> bool:
    """Whether a replica might hold the SLO at this rate, by its latency alone."""
    if not holds(wanted, gpu, shape):
        return False
    idle, at = (latency(wanted.arch, gpu, shape, wanted.lengths, wanted.objective, rps=rate) for rate in (0.0, rps))
    if idle.good < wanted.objective.attainment:
        return True
    # A nearly idle replica is given its share whatever it misses (`LEAST_SHARE`).
    least = LEAST_SHARE * highest_rate(wanted.arch, gpu, shape, wanted.lengths)
    return rps <= least or at.good >= wanted.objective.attainment
