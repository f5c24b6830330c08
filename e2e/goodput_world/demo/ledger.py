"""Pods and their GPUs over time: what ran, what it cost in GPU-seconds, when the fleet was resized. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PodSighting:
    """An engine pod as the API server shows it at one instant. Instants are Unix seconds."""

    uid: str
    created_epoch: float
    gpus: int
    ready: bool
    terminating: bool


@dataclass(frozen=True, slots=True)
class FleetState:
    """Replicas at one instant. `desired` is the Deployment's; None while there is no Deployment.

    `ready` serve, `starting` are on their way (pending ones included), `terminating` drain.
    """

    at_epoch: float
    desired: int | None
    ready: int
    starting: int
    terminating: int

    @property
    def counts(self) -> tuple[int | None, int, int, int]:
        """Everything but the instant."""
        return (self.desired, self.ready, self.starting, self.terminating)


@dataclass(frozen=True, slots=True)
class Resize:
    """The Deployment's replicas changed."""

    at_epoch: float
    before: int
    after: int


@dataclass(slots=True)
class _Life:
    created_epoch: float
    gpus: int
    removed_epoch: float | None = None

    def seconds_within(self, start_epoch: float, end_epoch: float) -> float:
        removed = end_epoch if self.removed_epoch is None else self.removed_epoch
        return max(0.0, min(removed, end_epoch) - max(self.created_epoch, start_epoch))


@dataclass(slots=True)
class Ledger:
    """Fed with what is there, again and again; remembers when each pod came and went.

    A pod counts from its creation to its removal: start-up and drain are paid for.
    """

    timeline: list[FleetState] = field(default_factory=list)
    resizes: list[Resize] = field(default_factory=list)
    latest: FleetState | None = None
    _lives: dict[str, _Life] = field(default_factory=dict)

    def observe(self, now_epoch: float, desired: int | None, pods: Iterable[PodSighting]) -> FleetState:
        """Take the fleet as it is now. A pod that is no longer among `pods` was removed just now."""
        seen = list(pods)
        for pod in seen:
            self._lives.setdefault(pod.uid, _Life(pod.created_epoch, pod.gpus))
        present = {pod.uid for pod in seen}
        for uid, life in self._lives.items():
            if uid not in present and life.removed_epoch is None:
                life.removed_epoch = now_epoch
        state = FleetState(
            at_epoch=now_epoch,
            desired=desired,
            ready=sum(pod.ready and not pod.terminating for pod in seen),
            starting=sum(not pod.ready and not pod.terminating for pod in seen),
            terminating=sum(pod.terminating for pod in seen),
        )
        self._note(state)
        return state

    def _note(self, state: FleetState) -> None:
        before = self.latest
        if before is None or before.counts != state.counts:
            self.timeline.append(state)
        if before is not None and before.desired is not None and state.desired not in (None, before.desired):
            self.resizes.append(Resize(state.at_epoch, before.desired, state.desired))
        self.latest = state

    def replica_seconds(self, start_epoch: float, end_epoch: float) -> float:
        """Seconds of all pods' lives within a span."""
        return sum(life.seconds_within(start_epoch, end_epoch) for life in self._lives.values())

    def gpu_seconds(self, start_epoch: float, end_epoch: float) -> float:
        """The same, times each pod's GPUs."""
        return sum(life.seconds_within(start_epoch, end_epoch) * life.gpus for life in self._lives.values())

    def states_within(self, start_epoch: float, end_epoch: float) -> list[FleetState]:
        """The timeline of a span, its first entry the state that held when the span began."""
        before = [state for state in self.timeline if state.at_epoch <= start_epoch]
        return [*before[-1:], *(state for state in self.timeline if start_epoch < state.at_epoch <= end_epoch)]

    def resizes_within(self, start_epoch: float, end_epoch: float) -> list[Resize]:
        """The resizes of a span."""
        return [resize for resize in self.resizes if start_epoch < resize.at_epoch <= end_epoch]


def last_quiet_span(
    instants_epoch: Iterable[float], start_epoch: float, end_epoch: float, seconds: float
) -> tuple[float, float] | None:
    """The last `seconds` without any of `instants_epoch` between start and end; None if there is no such stretch."""
    edges = [start_epoch, *sorted(at for at in instants_epoch if start_epoch < at < end_epoch), end_epoch]
    for before, after in zip(reversed(edges[:-1]), reversed(edges[1:]), strict=True):
        if after - before >= seconds:
            return after - seconds, after
    return None
