"""Runs that are not worth their end: a variant that misses too much already, or has cost too much already."""

from __future__ import annotations

from collections.abc import Sequence

from goodput.domain.intent import Objective
from goodput.domain.observed import PodState
from goodput.simulator.fleet.clients import OpenLoop
from goodput.simulator.fleet.policy import Desired, Policy
from goodput.simulator.fleet.requests import Ask, Record, counts, good
from goodput.simulator.fleet.view import FleetView


class GivenUpError(Exception):
    """The run was left; the message says why."""


class FussyClients(OpenLoop):
    """Open-loop clients who leave when more than `allowed` requests have missed the objective for certain."""

    def __init__(self, asks: Sequence[Ask], objective: Objective, allowed: float) -> None:
        super().__init__(asks)
        self._objective = objective
        self._allowed = allowed
        self._missed = 0

    def after(self, record: Record, now: float) -> Ask | None:
        """Count one that ended."""
        self._missed += counts(record, self._objective) and not good(record, self._objective)
        if self._missed > self._allowed:
            raise GivenUpError("misses")
        return super().after(record, now)


class Thrifty:
    """A policy that gives up when its pods have cost more than `gpu_seconds` within the run."""

    def __init__(self, policy: Policy, gpu_seconds: float) -> None:
        self._policy = policy
        self._left = gpu_seconds
        self._before = 0.0

    @property
    def name(self) -> str:
        """The policy's."""
        return self._policy.name

    @property
    def interval_seconds(self) -> float:
        """The policy's."""
        return self._policy.interval_seconds

    def decide(self, view: FleetView, now: float) -> int | Desired:
        """Pay for what has GPUs now since the last look, and let the policy decide."""
        held = sum(pod.state is not PodState.PENDING for pod in view.pods)
        self._left -= held * view.gpus_per_replica * max(0.0, now - max(0.0, self._before))
        self._before = now
        if self._left < 0.0:
            raise GivenUpError("cost")
        return self._policy.decide(view, now)
