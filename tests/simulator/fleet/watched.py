"""The operator's law in a simulated fleet, every decision of it kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.decide.builders import intent
from tests.simulator.fleet.fleets import TYPES, settings

from goodput.decide.memory_codec import dumps, loads
from goodput.domain.conditions import Condition, ConditionType
from goodput.domain.plan import ModelPlan
from goodput.simulator.fleet.clients import Clients
from goodput.simulator.fleet.ours import GoodputPolicy
from goodput.simulator.fleet.outcome import Outcome
from goodput.simulator.fleet.policy import Desired
from goodput.simulator.fleet.simulation import simulate
from goodput.simulator.fleet.view import FleetView


@dataclass(frozen=True)
class Tick:
    """One decision, `seconds` after the start of the run."""

    seconds: float
    replicas: int
    plan: ModelPlan

    def condition(self, kind: ConditionType) -> Condition:
        return next(each for each in self.plan.conditions if each.type is kind)


class Watched:
    """Our policy, with its decisions. `doctor` changes what it sees. At `restarts` seconds it starts anew with what it
    wrote down of its memory; `forgetful`: with nothing."""

    def __init__(
        self,
        *,
        doctor: Callable[[FleetView], FleetView] | None = None,
        restarts: Sequence[float] = (),
        forgetful: bool = False,
    ) -> None:
        self._policy = GoodputPolicy(intent(), TYPES, "l40s")
        self._doctor = doctor
        self._restarts = list(restarts)
        self._forgetful = forgetful
        self.name, self.interval_seconds = self._policy.name, self._policy.interval_seconds
        self.render = self._policy.render
        self.ticks: list[Tick] = []

    def decide(self, view: FleetView, now: float) -> Desired:
        if self._restarts and now >= self._restarts[0]:
            del self._restarts[0]
            known = self._policy.memory
            assert known is not None
            written = None if self._forgetful else loads(dumps(known))
            self._policy = GoodputPolicy(intent(), TYPES, "l40s", memory=written)
        found = self._policy.decide(self._doctor(view) if self._doctor is not None else view, now)
        assert self._policy.last is not None
        self.ticks.append(Tick(now, found.replicas, self._policy.last))
        return found


@dataclass(frozen=True)
class Run:
    """What a run gave, and how it came to it."""

    outcome: Outcome
    ticks: list[Tick]

    def replicas(self, begin: float, end: float) -> list[int]:
        """What was asked for from one time to another."""
        return [tick.replicas for tick in self.ticks if begin <= tick.seconds < end]

    def at(self, seconds: float) -> Tick:
        """The last decision by then."""
        return [tick for tick in self.ticks if tick.seconds <= seconds][-1]


def ours(clients: Clients, seconds: float, policy: Watched | None = None, **changes: Any) -> Run:
    """Our law with engines as it renders them; `changes` are fields of the fleet."""
    policy = policy or Watched()
    fleet = policy.render(settings(seconds, **changes))
    return Run(simulate(fleet, clients, policy), policy.ticks)
