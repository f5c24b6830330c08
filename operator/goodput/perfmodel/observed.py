"""True over believed speed of prefill, from how long prompts took on live engines."""

from __future__ import annotations

from functools import lru_cache
from math import ceil

from goodput.domain.architecture import Architecture
from goodput.domain.intent import GpuType
from goodput.domain.values import Value
from goodput.perfmodel.lengths import Lengths, percentile
from goodput.perfmodel.memory import engine_defaults
from goodput.perfmodel.replica import Shape, replica, replica_times

_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)


class Prefill(Value, frozen=True):
    """What a live mean says of prefill: `speed` is true over believed, `share` how much of the time it speaks of."""

    speed: float
    share: float  # 0..1 of the believed time that is prefill, not the decode steps around it


@lru_cache(maxsize=1024)
def _prompt(
    arch: Architecture, gpu: GpuType, shape: Shape, input_mean: float, input_variation: float
) -> tuple[float, float, float]:
    """(steps that take in a mean prompt, seconds that it adds to them, seconds of it that their reads hide).

    Over the lengths of prompts.
    """
    times = replica_times(arch, gpu, shape)
    chunk = shape.max_num_batched_tokens or engine_defaults(gpu)[1]
    raw = [percentile(input_mean, input_variation, share) for share in _SHARES]
    scale = input_mean * len(raw) / sum(raw)
    prompts = [max(1.0, tokens * scale) for tokens in raw]
    steps = sum(ceil(tokens / chunk) for tokens in prompts) / len(prompts)
    added = sum(times.prefill(tokens, chunk)[1] for tokens in prompts) / len(prompts)
    return steps, added, steps * times.reads(1.0)


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
    steps hide a part: t = n s + (c / speed - n w) (1 + r n s).
    """
    stages = shape.pipeline_parallel
    # To two digits, so that equal work is done once.
    steps, added, hidden = _prompt(
        arch, gpu, shape, float(f"{lengths.input_mean:.2g}"), round(lengths.input_variation, 1)
    )
    one = replica(arch, gpu, shape, lengths.rounded())
    decoding = steps * one.times.step(max(1.0, batch / stages), one.context) / correction
    prompts = 1.0 + rps / stages * decoding
    if added <= 0.0:
        return Prefill(1.0, 0.0)
    arithmetic = (prefill_seconds - decoding) / prompts + hidden
    speed = (added + hidden) / arithmetic if arithmetic > 0.0 else float("inf")
    return Prefill(speed, added * prompts / (added * prompts + decoding))
