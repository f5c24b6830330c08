"""What a HorizontalPodAutoscaler proposes from a metric, before its `behavior`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from goodput.simulator.rivals.behaviour import KUBERNETES_DEFAULT, Behaviour, HpaState
from goodput.simulator.rivals.law import up
from goodput.simulator.rivals.view import PodPhase, PodView, PoolView

SYNC_SECONDS = 15.0
TOLERANCE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainHpa:
    """What every autoscaler on a Pods metric has, whatever it looks at."""

    tolerance: float = TOLERANCE
    behaviour: Behaviour = KUBERNETES_DEFAULT
    interval_seconds: float = SYNC_SECONDS
    window_seconds: float = SYNC_SECONDS

    def start(self) -> HpaState:
        """Nothing recommended yet."""
        return HpaState()


def external_average(view: PoolView, value: float, target: float, tolerance: float) -> int:
    """An External metric with an AverageValue target, as KEDA makes them: ceil(value / target).

    Nothing changes while value / (target x replicas) is within the tolerance of 1.
    """
    if view.replicas and _settled(value / (target * view.replicas), tolerance):
        return view.replicas
    return up(value / target)


def pods_average(view: PoolView, metric: Callable[[PodView], float], target: float, tolerance: float) -> int:
    """A Pods metric with an AverageValue target.

    Pods without a value count as 0 on the way up and as the target on the way down (pending ones are left out there);
    a proposal that they would turn round, or take into the tolerance, is dropped. Without any value nothing changes.
    """
    current = view.replicas
    values = [metric(pod) for pod in view.pods if pod.phase is PodPhase.READY]
    pending = sum(pod.phase is PodPhase.PENDING for pod in view.pods)
    missing = sum(pod.phase is PodPhase.STARTING for pod in view.pods)
    if not values:
        return current
    ratio = sum(values) / len(values) / target
    if not missing and not (pending and ratio > 1.0):
        return current if _settled(ratio, tolerance) else up(ratio * len(values))
    if ratio < 1.0:
        values += [target] * missing
    elif ratio > 1.0:
        values += [0.0] * (missing + pending)
    adjusted = sum(values) / len(values) / target
    if _settled(adjusted, tolerance) or (ratio < 1.0 < adjusted) or (adjusted < 1.0 < ratio):
        return current
    proposal = up(adjusted * len(values))
    if (adjusted < 1.0 and proposal > current) or (adjusted > 1.0 and proposal < current):
        return current
    return proposal


def _settled(ratio: float, tolerance: float) -> bool:
    return abs(ratio - 1.0) <= tolerance + 1e-9
