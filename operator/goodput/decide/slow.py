"""Pods that are slower than the others of their pool: a throttled GPU, a bad link.

What one pod does is seen without a query more: requests that finished for each second that one ran. At a like batch
that is a pod's speed, and routers keep batches alike. It says nothing of a pool that is slow as a whole: that is the
correction's part.
"""

from __future__ import annotations

from math import sqrt
from statistics import median_high

from goodput.decide.policy import Policy
from goodput.domain.memory import BUSY, SERVED, SLOW_SINCE, LoopMemory
from goodput.domain.observed import PodState, PoolView
from goodput.domain.percent import percent
from goodput.domain.podtable import PodTable
from goodput.domain.values import Value

# Less time than this in which a request ran, of late, says nothing about a pod.
_LEAST_BUSY_SECONDS = 15.0
# A pod becomes suspect if it finished fewer than the others in its place, by so many standard errors of a count.
_SIGMAS = 3.0
# As fast as the others again is a pod at this many times the share below which it is slow.
_AGAIN = 1.15


class Slow(Value, frozen=True):
    """Pods that look slow, with their share of the speed of the others; `known` are slow for long enough to act on.

    `replaced` is the one to replace now, '' if none: what is slow for its GPU or its requests is slow in its next place
    too, so that one goes in an hour.
    """

    suspected: tuple[tuple[str, float], ...] = ()
    known: tuple[tuple[str, float], ...] = ()
    replaced: str = ""

    @property
    def lacking(self) -> float:
        """Replicas that known slow pods lack together."""
        return sum(1.0 - speed for _, speed in self.known)

    @property
    def message(self) -> str:
        """Which pods are slow, and what is done about it; empty: none is known to be."""
        if not self.known:
            return ""
        pods = ", ".join(f"{name} at {percent(speed)}" for name, speed in self.known[:3])
        done = f"{self.replaced} is replaced" if self.replaced else "one was replaced within the last hour"
        return f"{pods} of the speed of the others: {done}"


NONE_SLOW = Slow()


def find(
    marks: PodTable, pool: PoolView, now: float, policy: Policy, memory: LoopMemory | None = None
) -> tuple[PodTable, Slow]:
    """`marks` that say since when each pod is slow, and which are; `memory` knows which was replaced last."""
    warm = now - 3.0 * policy.slow_halflife_seconds
    ready = {
        pod.name
        for pod in pool.pods
        if pod.state is PodState.READY and pod.ready_at is not None and pod.ready_at <= warm
    }
    speeds = {
        row: served / busy
        for row, (pod, served, busy) in enumerate(
            zip(marks.pods, marks.column(SERVED).tolist(), marks.column(BUSY).tolist(), strict=True)
        )
        if pod in ready and busy >= _LEAST_BUSY_SECONDS and served >= 1.0
    }
    # With one pod fewer there is nobody to compare with.
    usual = median_high(speeds.values()) if len(speeds) > 1 else 0.0
    suspected, known = [], []
    since, served = marks.column(SLOW_SINCE).tolist(), marks.column(SERVED).tolist()
    before = list(since)
    for row in range(len(marks)):
        share = speeds[row] / usual if usual > 0.0 and row in speeds else 1.0
        if since[row]:
            since[row] = since[row] if share < policy.slow_share * _AGAIN else 0.0
        elif share < policy.slow_share and _beyond_chance(share, served[row]):
            since[row] = now
        if since[row]:
            suspected.append((marks.pods[row], round(share, 2)))
            if now - since[row] >= policy.slow_seconds:
                known.append((marks.pods[row], round(share, 2)))
    if since != before:
        values = marks.values.copy()
        values[:, SLOW_SINCE] = since
        marks = PodTable(marks.pods, values)
    return marks, Slow(tuple(suspected), tuple(known), _next(known, now, policy, memory)) if suspected else NONE_SLOW


def _beyond_chance(share: float, served: float) -> bool:
    """Whether the others would have finished more in its place than chance explains."""
    expected = served / share if share > 0.0 else float("inf")
    return expected - served > _SIGMAS * sqrt(expected)


def _next(known: list[tuple[str, float]], now: float, policy: Policy, memory: LoopMemory | None) -> str:
    """The pod to replace: the one whose replacement is under way, else the slowest, if the last one is long ago."""
    names = {name for name, _ in known}
    if memory is not None and memory.slow_pod in names:
        return memory.slow_pod
    rested = memory is None or now - memory.slow_replaced_at >= policy.slow_replace_seconds
    return min(known, key=lambda pod: pod[1])[0] if known and rested else ""
