"""Small fleets for tests: one plant, loads of several kinds, and policies that follow a script."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from goodput.domain.intent import Objective
from goodput.perfmodel import built_in_gpu_types
from goodput.simulator.capacity import engine_config
from goodput.simulator.fleet.requests import Ask
from goodput.simulator.fleet.settings import FleetSettings
from goodput.simulator.fleet.view import FleetView
from goodput.simulator.plant import Plant

# Llama-3.1-8B on an L40S whose efficiencies are not those of the prior.
PLANT = Plant(
    weights_bytes=16.06e9,
    flops_per_token=15e9,
    kv_bytes_per_token=131072,
    bandwidth_bytes_per_second=864e9,
    peak_flops_per_second=362e12,
    mbu=0.74,
    mfu=0.62,
    step_overhead_seconds=0.0012,
    per_sequence_overhead_seconds=2e-5,
    kv_pool_tokens=197_353,
    startup_seconds=45.0,
    host_memory_bytes=1e10,
    request_overhead_seconds=0.015,
    attention_flops_per_token_pair=524_288.0,
)
# What the law believes of the GPU are the priors that it ships with.
TYPES = built_in_gpu_types()
CHAT = Objective(ttft_seconds=0.5, tpot_seconds=0.05, e2e_seconds=None)


def settings(seconds: float = 300.0, **changes: Any) -> FleetSettings:
    """Llama-3.1-8B on L40S cards, a new replica in about 45 s."""
    base: dict[str, Any] = {
        "plant": PLANT,
        "engine": engine_config(PLANT),
        "objective": CHAT,
        "seconds": seconds,
        "startup_seconds": 45.0,
    }
    return FleetSettings(**{**base, **changes})


def poisson(rps: float, seconds: float, *, seed: int = 1, lengths: tuple[int, int] = (600, 60)) -> list[Ask]:
    """Poisson arrivals of equal requests."""
    draw, now, asks = random.Random(seed), 0.0, []
    while True:
        now += draw.expovariate(rps)
        if now >= seconds:
            return asks
        asks.append(Ask(now, *lengths))


def _lognormal(draw: random.Random, mean: float, variation: float, most: int) -> int:
    sigma = math.sqrt(math.log(1.0 + variation * variation))
    return max(2, min(most, round(mean * math.exp(draw.gauss(0.0, sigma) - sigma * sigma / 2.0))))


def conversations(rate: Callable[[float], float], seconds: float, *, seed: int) -> list[Ask]:
    """Poisson arrivals of `rate(t)` requests/s, with lengths of public conversations."""
    draw, now, asks = random.Random(seed), 0.0, []
    while True:
        now += draw.expovariate(rate(now))
        if now >= seconds:
            return asks
        asks.append(Ask(now, _lognormal(draw, 1155.0, 0.85, 8000), _lognormal(draw, 211.0, 0.75, 1500)))


class Script:
    """Replicas by time; remembers every view."""

    name = "script"

    def __init__(self, steps: Sequence[tuple[float, int]], interval_seconds: float = 10.0) -> None:
        self.interval_seconds = interval_seconds
        self.views: list[FleetView] = []
        self._steps = steps

    def decide(self, view: FleetView, now: float) -> int:
        self.views.append(view)
        return [replicas for at, replicas in self._steps if at <= now][-1]

    def at(self, seconds: float) -> FleetView:
        """The first view at that time or later."""
        return next(view for view in self.views if view.now >= seconds)


def steady(replicas: int) -> Script:
    """Always as many."""
    return Script([(-1e9, replicas)])
