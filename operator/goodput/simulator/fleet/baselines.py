"""Policies that look at nothing: a fixed fleet, one sized for the peak, and one that knows the future."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from goodput.simulator.fleet.requests import Ask
from goodput.simulator.fleet.view import FleetView

_MINUTE = 60.0


def by_minute(asks: Iterable[Ask]) -> Counter[int]:
    """Requests of each minute of a trace."""
    return Counter(int(ask.seconds // _MINUTE) for ask in asks)


def replicas_for(rps: float, replica_rps: float) -> int:
    """Replicas that hold a rate, of which one holds `replica_rps`."""
    return math.ceil(rps / replica_rps - 1e-9)


def static_peak(asks: Iterable[Ask], replica_rps: float) -> Static:
    """As many replicas as the busiest minute needs, all the time."""
    busiest = max(by_minute(asks).values(), default=0)
    return Static(max(1, replicas_for(busiest / _MINUTE, replica_rps)), name="static-peak")


@dataclass(frozen=True, slots=True)
class Static:
    """The same number of replicas, always."""

    replicas: int
    name: str = "static"
    interval_seconds: float = 60.0

    def decide(self, view: FleetView, now: float) -> int:
        """The number."""
        return self.replicas


class Oracle:
    """Knows each minute of the trace beforehand: replicas are asked for as late as they can be and still be ready.

    A replica that will be needed again before a new one could be ready stays.
    """

    name = "oracle"
    interval_seconds = 10.0

    def __init__(self, asks: Iterable[Ask], replica_rps: float, lead_seconds: float) -> None:
        """`lead_seconds` pass from asking for a replica until it serves."""
        counted = by_minute(asks)
        minutes = range(max(counted, default=-1) + 1)
        self._needed = [max(1, replicas_for(counted[minute] / _MINUTE, replica_rps)) for minute in minutes]
        self._lead_seconds = lead_seconds

    def decide(self, view: FleetView, now: float) -> int:
        """The most that any minute needs until a replica asked for at the next decision would be ready."""
        first = max(0, int(now // _MINUTE))
        last = int((now + self._lead_seconds + self.interval_seconds) // _MINUTE)
        return max(self._needed[first : last + 1], default=1)
