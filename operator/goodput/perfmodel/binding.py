"""What takes the time of a phase: arithmetic, memory bandwidth, launches, communication, or handling requests.

Each is what a phase gets shorter by where that costs nothing, taken away one after the other: launches and fixed times
of layers, then communication. What is left is work of the GPU, and the slower of its arithmetic and its reads names it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from math import inf

from msgspec.structs import replace

from goodput.domain.architecture import Architecture
from goodput.domain.intent import GpuType
from goodput.domain.remembered import for_each_model
from goodput.domain.values import Value
from goodput.perfmodel.capacity import Capacity, Wall
from goodput.perfmodel.drafters import drafter
from goodput.perfmodel.efficiency import Efficiency, efficiency
from goodput.perfmodel.lengths import Lengths
from goodput.perfmodel.memory import engine_defaults
from goodput.perfmodel.replica import Shape, context_tokens
from goodput.perfmodel.roofline import StepTimes, step_times

# So much faster that it takes no time.
_FREE = 1e9


class Bottleneck(StrEnum):
    """What takes the time of a phase, or what a replica has too little of when it carries all it can."""

    COMPUTE = "compute"
    BANDWIDTH = "bandwidth"
    LAUNCHES = "launches"  # of kernels: fixed times of layers and steps, whatever is in them
    COMMUNICATION = "communication"  # between the GPUs of a replica
    HOST = "request handling"  # on the host, before a prompt is scheduled
    KV_CAPACITY = "KV capacity"
    QUEUE = "queue"  # max-num-seqs: requests wait though memory and time are left


class Taken(Value, frozen=True, kw_only=True):
    """Seconds of a phase by what takes them."""

    compute: float = 0.0
    bandwidth: float = 0.0
    launches: float = 0.0
    communication: float = 0.0
    host: float = 0.0

    @property
    def seconds(self) -> float:
        """All of them."""
        return self.compute + self.bandwidth + self.launches + self.communication + self.host

    @property
    def by_part(self) -> dict[Bottleneck, float]:
        """Seconds by what takes them."""
        return {
            Bottleneck.COMPUTE: self.compute,
            Bottleneck.BANDWIDTH: self.bandwidth,
            Bottleneck.LAUNCHES: self.launches,
            Bottleneck.COMMUNICATION: self.communication,
            Bottleneck.HOST: self.host,
        }

    @property
    def most(self) -> Bottleneck:
        """What takes most."""
        parts = self.by_part
        return max(parts, key=lambda each: parts[each])

    def share(self, part: Bottleneck) -> float:
        """Share (0..1) of the time that it takes."""
        return self.by_part[part] / self.seconds if self.seconds > 0.0 else 0.0

    def times(self, count: float) -> Taken:
        """Of so many such phases."""
        return Taken(
            compute=count * self.compute,
            bandwidth=count * self.bandwidth,
            launches=count * self.launches,
            communication=count * self.communication,
            host=count * self.host,
        )

    def plus(self, other: Taken) -> Taken:
        """Of both."""
        return Taken(
            compute=self.compute + other.compute,
            bandwidth=self.bandwidth + other.bandwidth,
            launches=self.launches + other.launches,
            communication=self.communication + other.communication,
            host=self.host + other.host,
        )


class _Peeled(Value, frozen=True, kw_only=True):
    """Step times as they are, and without one thing after the other."""

    whole: StepTimes
    launched: StepTimes  # launches are free
    alone: StepTimes  # and communication
    computing: StepTimes  # and memory
    reading: StepTimes  # and, instead of memory, arithmetic

    def taken(self, seconds: Callable[[StepTimes], float]) -> Taken:
        """What takes the time of a phase that takes so many `seconds`."""
        launched, alone = seconds(self.launched), seconds(self.alone)
        computes = seconds(self.computing) > seconds(self.reading)
        return Taken(
            compute=alone if computes else 0.0,
            bandwidth=0.0 if computes else alone,
            launches=seconds(self.whole) - launched,
            communication=launched - alone,
        )


@lru_cache(maxsize=for_each_model(1))
def _peeled(arch: Architecture, gpu: GpuType, tensor: int, pipeline: int, kv_dtype: str) -> _Peeled:
    reach = efficiency(gpu.name, gpu.scale_up_bytes_per_second)
    launched = _without_launches(reach)
    alone = _without_communication(launched)
    endless = replace(gpu, memory_bandwidth_bytes_per_second=_FREE * gpu.memory_bandwidth_bytes_per_second)
    quick = replace(gpu, flops=tuple((name, _FREE * flops) for name, flops in gpu.flops))

    def times(of: GpuType, reached: Efficiency) -> StepTimes:
        return step_times(arch, of, tensor, pipeline_parallel=pipeline, kv_dtype=kv_dtype, reached=reached)

    return _Peeled(
        whole=times(gpu, reach),
        launched=times(gpu, launched),
        alone=times(gpu, alone),
        computing=times(endless, alone),
        reading=times(quick, alone),
    )


def _without_launches(reach: Efficiency) -> Efficiency:
    return replace(
        reach,
        layer_seconds=0.0,
        sparse_layer_seconds=0.0,
        block_layer_seconds=0.0,
        step_seconds=0.0,
        sequence_seconds=0.0,
        prompt_layer_seconds=0.0,
        prompt_layer_doubling_seconds=0.0,
        sparse_prompt_layer_seconds=0.0,
    )


def _without_communication(reach: Efficiency) -> Efficiency:
    return replace(
        reach,
        all_reduce_seconds=0.0,
        all_reduce_doubling_seconds=0.0,
        all_reduce_bytes_per_second=inf,
        hand_over_seconds=0.0,
        data_parallel_seconds=0.0,
    )


def decode_taken(arch: Architecture, gpu: GpuType, shape: Shape, *, batch: float, context_tokens: float) -> Taken:
    """What takes the time of a step of `batch` sequences, drafts and their verification included."""
    drafts, draft = shape.drafts, _draft(arch, shape)
    verified = 1.0 if drafts is None else drafts.verified_per_step
    taken = _peeled_of(arch, gpu, shape).taken(lambda times: times.decode(batch, context_tokens, verified))
    if drafts is None or draft is None:
        return taken
    one = _peeled_of(draft, gpu, shape).taken(lambda times: times.decode(batch, context_tokens))
    return taken.plus(one.times(drafts.tokens))


def prefill_taken(arch: Architecture, gpu: GpuType, shape: Shape, lengths: Lengths) -> Taken:
    """What takes the time of a mean prompt that is alone on the replica, from its arrival on."""
    of, draft = _peeled_of(arch, gpu, shape), _draft(arch, shape)
    tokens, chunk = lengths.input_mean, shape.max_num_batched_tokens or engine_defaults(gpu)[1]

    def seconds(times: StepTimes) -> float:
        return times.prefill(tokens, chunk)[0]

    taken = of.taken(seconds)
    if draft is not None:
        # Who drafts with a model of its own takes the prompt in too.
        taken = taken.plus(_peeled_of(draft, gpu, shape).taken(seconds))
    return replace(taken, host=of.whole.request + tokens * of.whole.request_token)


def _peeled_of(arch: Architecture, gpu: GpuType, shape: Shape) -> _Peeled:
    return _peeled(arch, gpu, shape.tensor_parallel, shape.pipeline_parallel, shape.kv_dtype)


def _draft(arch: Architecture, shape: Shape) -> Architecture | None:
    return None if shape.speculation is None else drafter(arch, shape.speculation)


def load_taken(arch: Architecture, gpu: GpuType, shape: Shape, lengths: Lengths, *, rps: float, batch: float) -> Taken:
    """What takes the time of the steps of a second, at `rps` and `batch` sequences that decode together.

    Prompts take what decode steps leave of the second, at most: of their arithmetic, reads of those steps hide some.
    The host handles requests while the GPU works: that is not among it.
    """
    sequences = max(1.0, batch)
    gained = 1.0 if shape.drafts is None else shape.drafts.tokens_per_step
    step = decode_taken(arch, gpu, shape, batch=sequences, context_tokens=context_tokens(lengths))
    prompt = replace(prefill_taken(arch, gpu, shape, lengths), host=0.0)
    decoding = step.times(rps * max(0.0, lengths.output_mean - 1.0) / sequences / gained)
    prompts = min(rps, max(0.0, 1.0 - decoding.seconds) / prompt.seconds)
    return decoding.plus(prompt.times(prompts))


def bottleneck(arch: Architecture, gpu: GpuType, shape: Shape, lengths: Lengths, found: Capacity) -> Bottleneck:
    """What stands in the way of more requests a replica: memory, max-num-seqs, or what takes most of its steps."""
    if found.wall is Wall.KV:
        return Bottleneck.KV_CAPACITY
    if found.wall is Wall.SEQUENCES:
        return Bottleneck.QUEUE
    at = found.at_capacity
    return _most_at(arch, gpu, shape, lengths.rounded(), (float(f"{at.rps:.2g}"), float(f"{at.batch:.2g}")))


@lru_cache(maxsize=for_each_model(1))
def _most_at(arch: Architecture, gpu: GpuType, shape: Shape, lengths: Lengths, load: tuple[float, float]) -> Bottleneck:
    rps, batch = load
    return load_taken(arch, gpu, shape, lengths, rps=rps, batch=batch).most
