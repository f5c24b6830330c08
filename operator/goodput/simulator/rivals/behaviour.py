"""The `behavior` of a HorizontalPodAutoscaler (autoscaling/v2): stabilisation windows, then limits of change.

KEDA's ScaledObjects and the plain HPA end here both. As in the controller: the recommendation of each sync is kept,
unclamped; going up the lowest one of the window counts, going down the highest; then the policies bound the change
counted from the replicas at the start of their period, the widest policy wins, and the pool's bounds come last.
"""

from __future__ import annotations

from dataclasses import dataclass

from goodput.simulator.rivals.law import down, up
from goodput.simulator.rivals.view import PoolView

Timed = tuple[tuple[float, int], ...]


@dataclass(frozen=True, slots=True)
class Limit:
    """A scaling policy: at most `pods`, or `percent` of the replicas at the start of the period, per period."""

    period_seconds: float
    pods: int | None = None
    percent: float | None = None

    def __post_init__(self) -> None:
        """Raise `ValueError` unless exactly one of pods and percent is set."""
        if (self.pods is None) == (self.percent is None):
            raise ValueError("limit: set pods or percent, not both")

    def ceiling(self, start: int) -> int:
        """The most replicas after going up from `start`."""
        if self.pods is not None:
            return start + self.pods
        return up(start * (1.0 + (self.percent or 0.0) / 100.0))

    def floor(self, start: int) -> int:
        """The fewest replicas after going down from `start`; the controller cuts fractions off."""
        if self.pods is not None:
            return start - self.pods
        return down(start * (1.0 - (self.percent or 0.0) / 100.0))


@dataclass(frozen=True, slots=True)
class Direction:
    """`scaleUp` or `scaleDown`."""

    stabilisation_seconds: float
    limits: tuple[Limit, ...]


@dataclass(frozen=True, slots=True)
class HpaState:
    """What the controller remembers: recommendations, and replicas it added or took away, each with its time."""

    recommendations: Timed = ()
    added: Timed = ()
    removed: Timed = ()


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Both directions."""

    scale_up: Direction
    scale_down: Direction

    def apply(self, proposal: int, view: PoolView, state: HpaState, now: float) -> tuple[int, HpaState]:
        """The replicas that the controller sets when its metrics propose `proposal`."""
        current = view.replicas
        known = state.recommendations or ((now, current),)
        longest = max(self.scale_up.stabilisation_seconds, self.scale_down.stabilisation_seconds)
        kept = (*_since(known, now - longest), (now, proposal))
        target = self._limited(self._stabilised(kept, current, now), view, state, now)
        periods = [limit.period_seconds for limit in (*self.scale_up.limits, *self.scale_down.limits)]
        oldest = now - max(periods, default=0.0)
        added, removed = _since(state.added, oldest), _since(state.removed, oldest)
        if target > current:
            added = (*added, (now, target - current))
        elif target < current:
            removed = (*removed, (now, current - target))
        return target, HpaState(kept, added, removed)

    def _stabilised(self, recommendations: Timed, current: int, now: float) -> int:
        newest = recommendations[-1][1]
        lowest = min(_counts(recommendations, now - self.scale_up.stabilisation_seconds), default=newest)
        highest = max(_counts(recommendations, now - self.scale_down.stabilisation_seconds), default=newest)
        return min(max(current, min(lowest, newest)), max(highest, newest))

    def _limited(self, wanted: int, view: PoolView, state: HpaState, now: float) -> int:
        current = view.replicas

        def start(limit: Limit) -> int:
            since = now - limit.period_seconds
            return current - sum(_counts(state.added, since)) + sum(_counts(state.removed, since))

        if wanted > current:
            most = max((limit.ceiling(start(limit)) for limit in self.scale_up.limits), default=wanted)
            return view.clamp(min(wanted, max(current, most)))
        if wanted < current:
            fewest = min((limit.floor(start(limit)) for limit in self.scale_down.limits), default=wanted)
            return view.clamp(max(wanted, min(current, fewest)))
        return view.clamp(current)


def _since(entries: Timed, after: float) -> Timed:
    return tuple(entry for entry in entries if entry[0] > after)


def _counts(entries: Timed, after: float) -> list[int]:
    return [count for at, count in entries if at > after]


# What the API server fills in where `behavior` is not set.
KUBERNETES_DEFAULT = Behaviour(
    Direction(0.0, (Limit(15.0, percent=100.0), Limit(15.0, pods=4))),
    Direction(300.0, (Limit(15.0, percent=100.0),)),
)
# The ScaledObject of llm-d's SLO-aware guide.
LLMD_SLO_AWARE = Behaviour(
    Direction(30.0, (Limit(60.0, percent=100.0), Limit(60.0, pods=4))),
    Direction(180.0, (Limit(120.0, pods=1),)),
)
# The ScaledObject of llm-d's token-aware guide.
LLMD_TOKEN_AWARE = Behaviour(
    Direction(0.0, (Limit(180.0, pods=1),)),
    Direction(300.0, (Limit(300.0, pods=1),)),
)
