"""Generated traces, each a pure function of its arguments and a seed."""

from __future__ import annotations

import random

from goodput.simulator.traces.curves import CONSTANT_SPACING, POISSON, Curve, Phase, renewal, wave
from goodput.simulator.traces.lengths import Lengths, Normal, normal
from goodput.simulator.traces.request import Trace, TraceRequest

# The ramp of llm-d's published benchmark of its SLO-aware loop, and the lengths of its requests.
PUBLISHED_RAMP = (
    Phase(330.0, 2.0),
    Phase(360.0, 4.0),
    Phase(360.0, 6.0),
    Phase(360.0, 8.0),
    Phase(360.0, 10.0),
    Phase(360.0, 4.0),
    Phase(300.0, 1.0),
)
PUBLISHED_LENGTHS = normal(Normal(4000.0, 300.0), Normal(1000.0, 80.0))


def follow(curve: Curve, lengths: Lengths, seed: int, variation: float = POISSON) -> Trace:
    """Requests along a curve of rates; `variation` is the coefficient of variation of their gaps.

    Arrivals and lengths have streams of chance of their own: other arrivals leave the n-th request's lengths alone.
    """
    times = renewal(curve, variation, random.Random(f"{seed}/arrivals"))
    draw = random.Random(f"{seed}/lengths")
    return tuple(TraceRequest(at, *lengths(draw)) for at in times)


def published_ramp(seed: int, variation: float = CONSTANT_SPACING) -> Trace:
    """The published ramp: 2, 4, 6, 8, 10, 4, 1 requests/s in 2,430 s, evenly spaced as published."""
    return follow(PUBLISHED_RAMP, PUBLISHED_LENGTHS, seed, variation)


def steady(rps: float, seconds: float, lengths: Lengths, seed: int, variation: float = POISSON) -> Trace:
    """A constant rate."""
    return follow((Phase(seconds, rps),), lengths, seed, variation)


def slow_wave(
    *, mean_rps: float, swing: float, period_seconds: float, seconds: float, lengths: Lengths, seed: int
) -> Trace:
    """Poisson arrivals whose rate rises and falls by the share `swing`, lowest at the start."""
    return follow(wave(mean_rps, swing, period_seconds, seconds), lengths, seed)
