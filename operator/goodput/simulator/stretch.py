"""Steps of an engine in which nothing but decoding happens, in closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass

from goodput.simulator.plant import StepTimeModel


@dataclass(frozen=True, slots=True)
class Stretch:
    """`steps` steps from `started_at` (seconds), in each of which `batch` sequences get one token.

    The first one reads `kv_tokens` from the KV pool, each one `batch` more than the one before it.
    """

    started_at: float
    steps: int
    batch: int
    kv_tokens: int
    times: StepTimeModel

    @property
    def ends_at(self) -> float:
        """When the tokens of the last step exist."""
        return self.started_at + self.seconds(self.steps)

    def seconds(self, steps: int) -> float:
        """Seconds of the first `steps` of them: arithmetic bounds the first ones, memory those from some step on."""
        times = self.times
        arithmetic = times.flops(self.batch) * times.seconds_per_flop
        traffic = (times.weights_bytes + self.kv_tokens * times.kv_bytes_per_token) * times.seconds_per_byte
        growth = self.batch * times.kv_bytes_per_token * times.seconds_per_byte
        bound = min(steps, max(0, math.ceil((arithmetic - traffic) / growth))) if growth > 0.0 else 0
        if growth <= 0.0 and arithmetic > traffic:
            bound = steps
        rest = steps - bound
        read = rest * traffic + growth * rest * (bound + steps - 1) / 2.0
        overhead = times.step_overhead_seconds + self.batch * times.per_sequence_overhead_seconds
        return bound * arithmetic + read + steps * overhead

    def ended_by(self, at: float) -> int:
        """How many of them have ended at `at`."""
        low, high = 0, self.steps
        while low < high:
            middle = (low + high + 1) // 2
            if self.started_at + self.seconds(middle) <= at:
                low = middle
            else:
                high = middle - 1
        return low
