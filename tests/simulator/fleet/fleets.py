"""Small fleets for tests: one plant, steady and Poisson loads, and policies that follow a script."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tests.decide.closed_loop import PLANT

from goodput.domain.intent import Objective
from goodput.simulator.capacity import engine_config
from goodput.simulator.fleet.requests import Ask
from goodput.simulator.fleet.settings import FleetSettings
from goodput.simulator.fleet.view import FleetView

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
