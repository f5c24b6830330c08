"""Constant load: requests of one length that arrive as a Poisson process. Pure and seeded."""

from __future__ import annotations

import random

from goodput_world.replay.schedule import Request


def poisson(rate_rps: float, start_seconds: float, end_seconds: float, rng: random.Random) -> list[float]:
    """Arrival instants in [start, end) of a Poisson process."""
    instants = []
    at = start_seconds + rng.expovariate(rate_rps)
    while at < end_seconds:
        instants.append(at)
        at += rng.expovariate(rate_rps)
    return instants


def constant_load(rate_rps: float, seconds: float, input_tokens: int, output_tokens: int, seed: int) -> list[Request]:
    """Requests of a run of `seconds` at a constant rate."""
    instants = poisson(rate_rps, 0.0, seconds, random.Random(seed))
    return [Request(at, input_tokens, output_tokens, str(index)) for index, at in enumerate(instants)]
