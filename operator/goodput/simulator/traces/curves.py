"""Rates over time, and arrivals that follow them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

CONSTANT_SPACING = 0.0
POISSON = 1.0
# A slow wave is made of stretches of constant rate of about this length.
_WAVE_STEP_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of constant rate."""

    seconds: float
    rps: float

    def __post_init__(self) -> None:
        """Raise `ValueError` for a phase that ends before it begins, or a negative rate."""
        if not (self.seconds > 0.0 and math.isfinite(self.seconds)):
            raise ValueError(f"phase: {self.seconds} s must be greater than 0")
        if not (self.rps >= 0.0 and math.isfinite(self.rps)):
            raise ValueError(f"phase: {self.rps} requests/s must not be negative")


Curve = Sequence[Phase]


def _gaps(variation: float, draw: random.Random) -> Iterator[float]:
    """Gaps of mean 1 with a coefficient of variation: even ones at 0, exponential ones at 1, gamma in general."""
    if variation < 0.0:
        raise ValueError(f"variation: {variation} must not be negative")
    if variation == CONSTANT_SPACING:
        yield 0.0  # the first request comes at once, as a load generator with constant spacing sends it
        while True:
            yield 1.0
    shape = 1.0 / variation**2
    while True:
        yield draw.gammavariate(shape, variation**2)


def renewal(curve: Curve, variation: float, draw: random.Random) -> list[float]:
    """Arrival times of a renewal process whose clock runs at the curve's rate."""
    gaps = _gaps(variation, draw)
    times: list[float] = []
    work = next(gaps)  # requests' worth of rate until the next arrival
    begin = 0.0
    for phase in curve:
        passed = 0.0
        total = phase.seconds * phase.rps
        # A sum of many ones must not spill over the edge that it meets exactly.
        while passed + work < total - 1e-9:
            passed += work
            times.append(begin + passed / phase.rps)
            work = next(gaps)
        work = max(0.0, work - (total - passed))
        begin += phase.seconds
    return times


def filled(curve: Curve, variations: Sequence[float], draw: random.Random) -> list[float]:
    """Arrival times where each phase gets as many requests as its rate says, with gamma gaps stretched to fill it.

    The gaps close a ring that is turned by chance, so that bursts fall anywhere in a phase.

    For curves that are counts themselves: a renewal process would add its own variation between the phases, and one
    long gap of a bursty phase would swallow those after it. Fractions of a request are carried on.
    """
    times: list[float] = []
    begin = owed = 0.0
    for phase, variation in zip(curve, variations, strict=True):
        owed += phase.seconds * phase.rps
        count = int(owed + 1e-9)
        owed -= count
        # A gamma distribution has some variation: one in a thousand stands in for even gaps.
        shape = 1.0 / max(variation, 1e-3) ** 2
        gaps = [draw.gammavariate(shape, 1.0 / shape) for _ in range(count)]
        # 0 where a phase is so bursty that every gap is too small for a float: all at once then.
        total = sum(gaps) or 1.0
        turn = draw.random()
        times += sorted(begin + phase.seconds * ((turn + part / total) % 1.0) for part in accumulate(gaps))
        begin += phase.seconds
    return times


def wave(mean_rps: float, swing: float, period_seconds: float, seconds: float) -> list[Phase]:
    """A slow envelope: a sine round `mean_rps` that rises and falls by the share `swing` of it, lowest at the start.

    Raises `ValueError` for a swing beyond 0..1.
    """
    if not 0.0 <= swing <= 1.0:
        raise ValueError(f"swing: {swing} must be within 0..1")
    steps = max(1, math.ceil(seconds / _WAVE_STEP_SECONDS))
    length = seconds / steps
    turns = (2.0 * math.pi * (index + 0.5) * length / period_seconds for index in range(steps))
    return [Phase(length, max(0.0, mean_rps * (1.0 - swing * math.cos(turn)))) for turn in turns]
