"""True over believed speed of decode and of prefill, from how long steps and prompts took on live engines."""

from __future__ import annotations

from functools import lru_cache
from math import ceil, sqrt

from goodput.domain.architecture import Architecture
from goodput.domain.intent import GpuType
from goodput.domain.remembered import for_each_model
from goodput.domain.values import Value
from goodput.perfmodel.lengths import Lengths, percentile
from goodput.perfmodel.load import load
from goodput.perfmodel.replica import Replica, Shape, replica, replica_times

_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)


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

    The engine observes it once per output of a step, however many tokens a draft made of it. Prompts that arrive during
    such a step add to it what the model says; the rest is decode.
    """
    one = replica(arch, gpu, shape, lengths.rounded())
    stages = shape.pipeline_parallel
    believed = load(one, min(rps / stages * itl_seconds, one.most_arrivals))
    step = one.times.step(max(1.0, batch / stages), one.context)
    return step / (itl_seconds * (1.0 - believed.prompt_share))


class Prefill(Value, frozen=True):
    """What a live mean says of prefill: `speed` is true over believed, `share` how much of the time it speaks of."""

    speed: float
    share: float  # 0..1 of the believed time that is prefill, not the decode steps around it


class _Prompt(Value, frozen=True, kw_only=True):
    """A mean prompt on one replica: steps that take it in, seconds that it adds to them, seconds that reads hide."""

    steps: float
    added: float
    hidden: float
    replica: Replica


@lru_cache(maxsize=for_each_model(1))
def _prompt(arch: Architecture, gpu: GpuType, shape: Shape, lengths: Lengths) -> _Prompt:
    one, times = replica(arch, gpu, shape, lengths), replica_times(arch, gpu, shape)
    raw = [percentile(lengths.input_mean, lengths.input_variation, share) for share in _SHARES]
    scale = lengths.input_mean * len(raw) / sum(raw)
    prompts = [max(1.0, tokens * scale) for tokens in raw]
    chunk = one.batched_tokens
    steps = sum(ceil(tokens / chunk) for tokens in prompts) / len(prompts)
    added = sum(times.prefill(tokens, chunk)[1] for tokens in prompts) / len(prompts)
    return _Prompt(steps=steps, added=added, hidden=steps * times.reads(1.0), replica=one)


def observed_prefill(
    arch: Architecture,
    gpu: GpuType,
    shape: Shape,
    lengths: Lengths,
    *,
    batch: float,
    rps: float,
    prefill_seconds: float,
    correction: float = 1.0,
) -> Prefill:
    """Speed of prefill from the mean `prefill_seconds` between being scheduled and the first token.

    That time is n decode steps of s seconds (at the speed `correction` of decode), which take in the own prompt and
    those that arrive meanwhile at r requests/s. A prompt adds its arithmetic c, of which the weight reads w of those
    steps hide a part: t = n s + (hypot(c / speed, n w) - n w) (1 + r n s).
    """
    stages = shape.pipeline_parallel
    mean = _prompt(arch, gpu, shape, lengths.rounded())
    one, added, hidden = mean.replica, mean.added, mean.hidden
    decoding = mean.steps * one.times.step(max(1.0, batch / stages), one.context) / correction
    prompts = 1.0 + rps / stages * decoding
    if added <= 0.0:
        return Prefill(1.0, 0.0)
    taken = (prefill_seconds - decoding) / prompts
    speed = _arithmetic(added, hidden) / _arithmetic(taken, hidden) if taken > 0.0 else float("inf")
    return Prefill(speed, added * prompts / (added * prompts + decoding))


def _arithmetic(added: float, hidden: float) -> float:
    """Seconds of arithmetic that adds so much to reads of `hidden` seconds."""
    return sqrt(added * (added + 2.0 * hidden))
