"""Policies that look at nothing: a fixed fleet, one sized for the peak, and one that knows the future."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from goodput.simulator import bounds
from goodput.simulator.fleet.requests import Ask
from goodput.simulator.fleet.view import FleetView

_SLOT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Static:
    """The same number of replicas, always."""

    replicas: int
    name: str = "static"
    interval_seconds: float = 60.0

    def decide(self, view: FleetView, now: float) -> int:
        """The number."""
        return self.replicas


def static_peak(asks: Sequence[Ask], replica_rps: float) -> Static:
    """As many replicas as the busiest minute needs, all the time."""
    return Static(bounds.static_peak([ask.seconds for ask in asks], replica_rps), name="static-peak")


class Oracle:
    """Knows the run beforehand: asks for replicas as late as they can be and still be ready, and keeps those that are
    needed again before new ones could be."""

    name = "oracle"
    interval_seconds = 5.0

    def __init__(
        self, asks: Sequence[Ask], replica_rps: float, *, seconds: float, lead_seconds: float, replicas: int = 1
    ) -> None:
        """One replica holds `replica_rps`; `lead_seconds` pass from asking for one until it serves, at most; `replicas`
        serve when the run begins."""
        needs = bounds.required_replicas([ask.seconds for ask in asks], replica_rps, seconds, _SLOT_SECONDS)
        self.plan = bounds.oracle(needs, _SLOT_SECONDS, lead_seconds, ready_at_start=replicas, minimum=1)

    def decide(self, view: FleetView, now: float) -> int:
        """What is to exist by the next decision."""
        return max(self.plan.replicas(max(0.0, at)) for at in (now, now + self.interval_seconds))
