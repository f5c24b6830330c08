"""What one replica can do: the rate at which the share of good requests just meets the objective.

Time: an aggregated replica shares its steps between prefill and decode, so at r requests/s
  TPOT = step(B) / (1 - r * e),  B = r * O * TPOT,
where e is what the prompt of a request adds to the steps that take it in. Requests differ: TPOT of one request has the
variance of the prompts that arrive while it decodes, TTFT is the wait behind other prompts (an M/G/1 queue with an
exponential tail, Kingman) plus its own chunks. KV cache and max-num-seqs bound the sequences in flight.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from math import erfc, exp, sqrt

from goodput.domain.architecture import Architecture
from goodput.domain.intent import GpuType, Objective
from goodput.domain.speculation import Speculation
from goodput.domain.values import Value
from goodput.perfmodel.drafters import added_weight_bytes, drafter, with_drafter
from goodput.perfmodel.families import REQUEST_SECONDS
from goodput.perfmodel.lengths import Lengths, points
from goodput.perfmodel.memory import KvPool, engine_defaults, fit
from goodput.perfmodel.roofline import StepTimes, step_times
from goodput.perfmodel.speculation import Drafts, SpeculativeTimes

# Share of KV tokens that sequences in flight may hold on average; above it preemption begins.
KV_SHARE = 0.9
# Beyond this share of its time a replica's queue has no useful average.
BUSY_LIMIT = 0.97
_HALVINGS = 16
# Shares of the highest stable rate that a replica is given whatever the objective says. Nearly idle replicas wait for
# nobody: to spread the same requests over more of them buys next to nothing. Where even an idle replica misses the
# objective, that is so from a third of the load on.
LEAST_SHARE = 0.1
LEAST_SHARE_INFEASIBLE = 0.35
_NO_TIME = 1e6


class Wall(StrEnum):
    """What binds first as the rate grows."""

    TTFT = "ttft"
    TPOT = "tpot"
    E2E = "e2e"
    TIME = "time"
    KV = "kv"
    SEQUENCES = "sequences"


class Shape(Value, frozen=True, kw_only=True):
    """Parallelism and limits of one replica."""

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    max_num_seqs: int | None = None  # None: the engine's default
    max_num_batched_tokens: int | None = None
    kv_dtype: str = "auto"  # precision of the KV cache, as the engine names it
    # Who drafts, which takes memory, and what its drafts are worth. Both or none: plain decoding.
    speculation: Speculation | None = None
    drafts: Drafts | None = None


class Latency(Value, frozen=True, kw_only=True):
    """Latency of a replica at one rate; times in seconds, misses as shares of requests (0..1)."""

    rps: float
    step_seconds: float  # per emitted token where the replica speculates
    batch: float
    ttft_mean_seconds: float
    tpot_mean_seconds: float
    prefill_share: float  # of the replica's time
    ttft_misses: float
    tpot_misses: float
    e2e_misses: float

    @property
    def good(self) -> float:
        """Share of requests that meet every objective, misses taken as independent."""
        return (1.0 - self.ttft_misses) * (1.0 - self.tpot_misses) * (1.0 - self.e2e_misses)


class Capacity(Value, frozen=True, kw_only=True):
    """The highest rate of one replica that still meets the objective, and how it looks there."""

    rps: float
    wall: Wall
    max_num_seqs: int
    sequences: float  # in flight at that rate
    overload_sequences: float  # in flight where even the mean request misses its objective
    prefill_tokens_per_second: float  # of a replica that does nothing else
    at_capacity: Latency
    idle: Latency
    feasible: bool  # whether an idle replica meets the objective at all
    kv_tokens: int


class _Replica(Value, frozen=True):
    """Everything that is constant while the rate varies."""

    times: StepTimes | SpeculativeTimes
    chunk_tokens: int
    inputs: tuple[float, ...]
    outputs: tuple[float, ...]
    busy: tuple[float, ...]  # per input point: time of the steps that take it in
    busy_mean: float
    busy_square: float
    extra_mean: float
    extra_square: float
    output_mean: float
    context: float  # mean context of a sequence in flight


def capacity(
    arch: Architecture,
    gpu: GpuType,
    shape: Shape,
    lengths: Lengths,
    objective: Objective,
    *,
    correction: float = 1.0,
) -> Capacity:
    """Capacity of one replica in requests per second.

    `correction` is true over believed speed of decode. Arguments are rounded to steps of 2-3 %, so that equal work is
    done once.
    Raises `ModelDoesNotFit`.
    """
    return _capacity(arch, gpu, shape, _rounded(lengths), objective, correction=round(correction, 2))


def latency(
    arch: Architecture,
    gpu: GpuType,
    shape: Shape,
    lengths: Lengths,
    objective: Objective,
    *,
    rps: float,
    correction: float = 1.0,
) -> Latency:
    """Latency of one replica at `rps`."""
    replica = _replica(arch, gpu, shape, _rounded(lengths), round(correction, 2))
    return _latency(replica, objective, rps / shape.pipeline_parallel)


def observed_speed(
    arch: Architecture,
    gpu: GpuType,
    shape: Shape,
    lengths: Lengths,
    *,
    batch: float,
    rps: float,
    itl_seconds: float,
) -> float:
    """True over believed speed of decode, from the mean inter-token latency at `batch` sequences and `rps` requests/s.

    The engine observes it once per output of a step, however many tokens a draft made of it.

    Solves itl = (step / speed) / (1 - rps * e) for the speed; e is what the prompt of a request adds to steps.
    """
    replica = _replica(arch, gpu, shape, _rounded(lengths), 1.0)
    step = replica.times.step(max(1.0, batch / shape.pipeline_parallel), replica.context)
    free = max(1.0 - BUSY_LIMIT, 1.0 - rps / shape.pipeline_parallel * replica.extra_mean)
    return step / (itl_seconds * free)


def _rounded(lengths: Lengths) -> Lengths:
    return Lengths(
        _geometric(lengths.input_mean),
        _geometric(lengths.output_mean),
        round(lengths.input_variation, 1) or 0.1,
        round(lengths.output_variation, 1) or 0.1,
    )


def _geometric(value: float) -> float:
    """`value` to two and a half significant digits: at most 2.5 % off."""
    bounded = min(max(value, 1.0), 1e7)
    step = 1.0
    while step * 20.0 <= bounded:
        step *= 2.0
    return round(bounded / step) * step


@lru_cache(maxsize=4096)
def _capacity(
    arch: Architecture, gpu: GpuType, shape: Shape, lengths: Lengths, objective: Objective, *, correction: float
) -> Capacity:
    pool = replica_pool(arch, gpu, shape)
    replica = _replica(arch, gpu, shape, lengths, correction)
    stages = shape.pipeline_parallel
    sequences_limit = shape.max_num_seqs or engine_defaults(gpu)[0]
    idle = _latency(replica, objective, 0.0)
    # An objective that an idle replica misses for some requests is missed by those at any rate: they do not count.
    allowed = (1.0 - objective.attainment) + (1.0 - idle.good)
    feasible = idle.good >= objective.attainment
    low, high = 0.0, BUSY_LIMIT / replica.busy_mean
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        at = _latency(replica, objective, middle)
        fits = at.tpot_mean_seconds < _NO_TIME and 1.0 - at.good <= allowed
        low, high = (middle, high) if fits and allowed < 1.0 else (low, middle)
    wall = _binding(_latency(replica, objective, high), _latency(replica, objective, low))
    rate = low
    if allowed >= 1.0:
        # Nothing can be met: size for throughput instead, so that requests are at least served.
        rate, wall = 0.7 * _stable_rate(replica), Wall.TIME
    rate = max(rate, (LEAST_SHARE if feasible else LEAST_SHARE_INFEASIBLE) * _stable_rate(replica))
    rate, wall = _bounded(replica, objective, pool, sequences_limit, rate=rate, wall=wall, stages=stages)
    at = _latency(replica, objective, rate)
    mean_prompt = lengths.input_mean
    busy, _ = replica.times.prefill(mean_prompt, replica.chunk_tokens)
    return Capacity(
        rps=rate * stages,
        wall=wall,
        max_num_seqs=sequences_limit,
        sequences=_in_flight(replica, at) * stages,
        overload_sequences=max(_in_flight(replica, at), _overload(replica, objective)) * stages,
        prefill_tokens_per_second=mean_prompt / busy * stages,
        at_capacity=at,
        idle=idle,
        feasible=feasible,
        kv_tokens=pool.tokens,
    )


def replica_pool(arch: Architecture, gpu: GpuType, shape: Shape) -> KvPool:
    """Memory of one replica, its drafter's weights (spread over the tensor ranks) and KV layers included.

    Raises `ModelDoesNotFit`.
    """
    speculation = shape.speculation
    added = 0.0 if speculation is None else added_weight_bytes(arch, speculation) / shape.tensor_parallel
    return fit(
        with_drafter(arch, speculation),
        gpu,
        shape.tensor_parallel,
        shape.pipeline_parallel,
        kv_dtype=shape.kv_dtype,
        max_num_seqs=shape.max_num_seqs,
        max_num_batched_tokens=shape.max_num_batched_tokens,
        extra_weight_bytes=added,
        speculative_tokens=0 if shape.drafts is None else shape.drafts.tokens,
    )


def replica_times(
    arch: Architecture, gpu: GpuType, shape: Shape, correction: float = 1.0
) -> StepTimes | SpeculativeTimes:
    """Step times of one pipeline stage set; where the replica speculates, in time per emitted token."""
    target = step_times(arch, gpu, shape.tensor_parallel, correction)
    if shape.speculation is None or shape.drafts is None:
        return target
    drafting = drafter(arch, shape.speculation)
    draft = None if drafting is None else step_times(drafting, gpu, shape.tensor_parallel, correction)
    return SpeculativeTimes(target=target, draft=draft, drafts=shape.drafts)


@lru_cache(maxsize=4096)
def _replica(arch: Architecture, gpu: GpuType, shape: Shape, lengths: Lengths, correction: float) -> _Replica:
    times = replica_times(arch, gpu, shape, correction)
    chunk = shape.max_num_batched_tokens or engine_defaults(gpu)[1]
    inputs = points(lengths.input_mean, lengths.input_variation)
    outputs = points(lengths.output_mean, lengths.output_variation)
    prefills = [times.prefill(tokens, chunk) for tokens in inputs]
    busy = tuple(pair[0] for pair in prefills)
    count = len(inputs)
    output_square = sum(value * value for value in outputs) / len(outputs)
    return _Replica(
        times=times,
        chunk_tokens=chunk,
        inputs=inputs,
        outputs=outputs,
        busy=busy,
        busy_mean=sum(busy) / count,
        busy_square=sum(value * value for value in busy) / count,
        extra_mean=sum(pair[1] for pair in prefills) / count,
        extra_square=sum(pair[1] * pair[1] for pair in prefills) / count,
        output_mean=lengths.output_mean,
        # Long outputs are in flight longer: a sequence in flight has seen E[O^2]/(2 E[O]) of its output.
        context=lengths.input_mean + output_square / (2.0 * lengths.output_mean),
    )


def _steady(replica: _Replica, rps: float) -> tuple[float, float, float]:
    """(step time, mean TPOT, batch) at `rps`, by the fixed point of TPOT = step(B)/(1 - r e), B = r O TPOT."""
    free = 1.0 - rps * replica.extra_mean
    if free <= 1.0 - BUSY_LIMIT:
        return _NO_TIME, _NO_TIME, _NO_TIME
    batch = 1.0 if rps > 0 else 0.0
    step = tpot = 0.0
    for _ in range(60):
        step = replica.times.decode(max(batch, 1.0), replica.context)
        tpot = step / free
        following = rps * replica.output_mean * tpot
        if abs(following - batch) < 0.01:
            return step, tpot, following
        if following > 1e5:
            break
        batch = following
    else:
        return step, tpot, batch
    return _NO_TIME, _NO_TIME, _NO_TIME


def _latency(replica: _Replica, objective: Objective, rps: float) -> Latency:
    step, tpot, batch = _steady(replica, rps)
    if tpot >= _NO_TIME:
        return Latency(
            rps=rps,
            step_seconds=step,
            batch=batch,
            ttft_mean_seconds=_NO_TIME,
            tpot_mean_seconds=_NO_TIME,
            prefill_share=1.0,
            ttft_misses=1.0,
            tpot_misses=1.0,
            e2e_misses=1.0,
        )
    share = min(rps * replica.busy_mean, BUSY_LIMIT)
    wait_mean = rps * replica.busy_square / (2.0 * (1.0 - share))
    # Given that it waits at all (with probability `share`), a request waits this long on average.
    wait_scale = wait_mean / share if share > 0 else 0.0
    # A request that meets a running step waits for half of it; below one sequence in flight most meet none.
    occupied = min(1.0, batch)
    whole = step * replica.times.tokens_per_step
    lead = REQUEST_SECONDS + occupied * whole / 2.0
    mixed = occupied * max(0.0, whole - replica.times.reads(max(batch, 1.0)) - replica.times.fixed)
    return Latency(
        rps=rps,
        step_seconds=step,
        batch=batch,
        ttft_mean_seconds=lead + replica.busy_mean + mixed + wait_mean,
        tpot_mean_seconds=tpot,
        prefill_share=share,
        ttft_misses=_ttft_misses(replica, objective.ttft_seconds, lead + mixed, share, wait_scale),
        tpot_misses=_tpot_misses(replica, objective.tpot_seconds, rps, tpot, batch),
        e2e_misses=_e2e_misses(
            replica, objective.e2e_seconds, rps, tpot=tpot, ttft=lead + replica.busy_mean + wait_mean, wait=wait_mean
        ),
    )


def _ttft_misses(
    replica: _Replica, objective: float | None, lead: float, waiting_share: float, wait_scale: float
) -> float:
    if objective is None:
        return 0.0
    misses = 0.0
    for busy in replica.busy:
        room = objective - lead - busy
        if room < 0.0:
            misses += 1.0
        elif wait_scale > 0.0:
            misses += waiting_share * exp(-room / wait_scale)
    return misses / len(replica.busy)


def _decode_variance(replica: _Replica, rps: float, seconds: float) -> float:
    """Variance of the time that prompts of others add to a decode of `seconds` (compound Poisson, served at once)."""
    free = 1.0 - rps * replica.extra_mean
    return rps * replica.extra_square * seconds / (free * free)


def _tpot_misses(replica: _Replica, objective: float | None, rps: float, tpot: float, batch: float) -> float:
    if objective is None:
        return 0.0
    free = 1.0 - rps * replica.extra_mean
    per_sequence = replica.context * replica.times.kv_token / free
    drift = per_sequence * per_sequence * batch  # the batch itself varies like a Poisson number
    misses = 0.0
    for output in replica.outputs:
        gaps = max(1.0, output - 1.0)
        variance = _decode_variance(replica, rps, gaps * tpot) / (gaps * gaps) + drift
        misses += _above(objective, tpot, variance)
    return misses / len(replica.outputs)


def _e2e_misses(
    replica: _Replica, objective: float | None, rps: float, *, tpot: float, ttft: float, wait: float
) -> float:
    if objective is None:
        return 0.0
    misses = 0.0
    for output in replica.outputs:
        seconds = (output - 1.0) * tpot
        variance = _decode_variance(replica, rps, seconds) + wait * wait + replica.busy_square - replica.busy_mean**2
        misses += _above(objective, ttft + seconds, max(0.0, variance))
    return misses / len(replica.outputs)


def _above(limit: float, mean: float, variance: float) -> float:
    """Probability that a normal value exceeds `limit`."""
    if variance <= 1e-18:
        return 1.0 if mean > limit else 0.0
    return 0.5 * erfc((limit - mean) / sqrt(2.0 * variance))


def _binding(beyond: Latency, at: Latency) -> Wall:
    """The objective whose misses grow most where the rate is just too high."""
    growth = (
        (beyond.ttft_misses - at.ttft_misses * 0.5, Wall.TTFT),
        (beyond.tpot_misses - at.tpot_misses * 0.5, Wall.TPOT),
        (beyond.e2e_misses - at.e2e_misses * 0.5, Wall.E2E),
    )
    best = max(growth, key=lambda pair: pair[0])
    return best[1] if best[0] > 0 and beyond.tpot_mean_seconds < _NO_TIME else Wall.TIME


def _in_flight(replica: _Replica, at: Latency) -> float:
    residence = at.ttft_mean_seconds + replica.output_mean * at.tpot_mean_seconds
    return at.rps * residence


def _stable_rate(replica: _Replica) -> float:
    """The highest rate at which the fixed point exists."""
    low, high = 0.0, BUSY_LIMIT / replica.busy_mean
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _steady(replica, middle)[1] < _NO_TIME else (low, middle)
    return low


def _bounded(
    replica: _Replica,
    objective: Objective,
    pool: KvPool,
    sequences_limit: int,
    *,
    rate: float,
    wall: Wall,
    stages: int,
) -> tuple[float, Wall]:
    """`rate` lowered until sequences in flight fit the KV cache and max-num-seqs."""
    kv_limit = KV_SHARE * pool.sequences(replica.context) / stages
    own_limit = sequences_limit / stages
    limit = min(kv_limit, own_limit)
    if _in_flight(replica, _latency(replica, objective, rate)) <= limit:
        return rate, wall
    low, high = 0.0, rate
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        at = _latency(replica, objective, middle)
        low, high = (middle, high) if _in_flight(replica, at) <= limit else (low, middle)
    return low, Wall.KV if kv_limit < own_limit else Wall.SEQUENCES


def _overload(replica: _Replica, objective: Objective) -> float:
    """Sequences in flight at which the mean request misses an objective: more of them only spoil each other."""
    low, high = 0.0, BUSY_LIMIT / replica.busy_mean
    tpot_limit = objective.tpot_seconds or _NO_TIME / 2.0
    ttft_limit = objective.ttft_seconds or _NO_TIME / 2.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        at = _latency(replica, objective, middle)
        fits = at.tpot_mean_seconds <= tpot_limit and at.ttft_mean_seconds <= ttft_limit
        low, high = (middle, high) if fits else (low, middle)
    at = _latency(replica, objective, low)
    return 0.0 if at.tpot_mean_seconds >= _NO_TIME else _in_flight(replica, at)
