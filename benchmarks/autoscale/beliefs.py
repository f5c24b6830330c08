"""GPU types whose figures make our law believe a capacity that somebody chose."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from msgspec.structs import replace

from goodput.domain.intent import GpuType, ModelIntent
from goodput.perfmodel import Lengths, Shape, capacity
from goodput.simulator.fleet.requests import Ask

# Figures of the type are scaled within these shares; beyond them something else binds, the KV pool as a rule.
_LEAST, _MOST, _STEPS = 1.0 / 16.0, 16.0, 20


def lengths_of(asks: Sequence[Ask], computed_share: float = 1.0) -> Lengths:
    """Means and variations of the requests; of the prompts only the share that no prefix cache supplies."""
    given = [ask.input_tokens * computed_share for ask in asks]
    made = [float(ask.output_tokens) for ask in asks]
    return Lengths(_mean(given), _mean(made), _variation(given), _variation(made))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _variation(values: Sequence[float]) -> float:
    return statistics.pstdev(values) / _mean(values)


def believed_rps(gpu: GpuType, intent: ModelIntent, lengths: Lengths) -> float:
    """Requests a second that one replica is believed to hold."""
    assert intent.architecture is not None
    assert intent.objective is not None
    shape = Shape(tensor_parallel=intent.tensor_parallel or 1)
    return capacity(intent.architecture, gpu, shape, lengths, intent.objective).rps


def believing(gpu: GpuType, intent: ModelIntent, lengths: Lengths, rps: float) -> GpuType:
    """`gpu` with bandwidth and arithmetic scaled alike, so that one replica is believed to hold `rps`.

    Where no such scale reaches it, the nearest.
    """
    low, high = _LEAST, _MOST
    for _ in range(_STEPS):
        middle = (low * high) ** 0.5
        holds = believed_rps(_scaled(gpu, middle), intent, lengths)
        low, high = (middle, high) if holds < rps else (low, middle)
    return _scaled(gpu, high)


def _scaled(gpu: GpuType, factor: float) -> GpuType:
    return replace(
        gpu,
        memory_bandwidth_bytes_per_second=factor * gpu.memory_bandwidth_bytes_per_second,
        flops=tuple((precision, factor * flops) for precision, flops in gpu.flops),
    )
