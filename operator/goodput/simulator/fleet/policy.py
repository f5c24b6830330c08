"""What decides how many replicas there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from goodput.simulator.fleet.view import FleetView


@dataclass(frozen=True, slots=True)
class Desired:
    """So many replicas, and which pods go first if there are more."""

    replicas: int
    victims: tuple[str, ...] = ()


class Policy(Protocol):
    """A law: asked every `interval_seconds`. It may remember; a run has a policy of its own."""

    @property
    def name(self) -> str:
        """What tables call it."""

    @property
    def interval_seconds(self) -> float:
        """Time between two decisions."""

    def decide(self, view: FleetView, now: float) -> int | Desired:
        """How many replicas there should be; the fleet keeps it within its bounds."""
