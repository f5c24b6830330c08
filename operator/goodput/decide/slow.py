"""Pods that are slower than the others of their pool: a throttled GPU, a bad link.

What one pod does is seen without a query more: requests that finished for each second that one ran. At a like batch
that is a pod's speed, and routers keep batches alike. It says nothing of a pool that is slow as a whole: that is the
correction's part.
"""

from __future__ import annotations

from statistics import median_high

from goodput.decide.policy import Policy
from goodput.domain.memory import BUSY, SERVED, SLOW_SINCE
from goodput.domain.observed import PodState, PoolView
from goodput.domain.percent import percent
from goodput.domain.podtable import PodTable
from goodput.domain.values import Value

# Fewer requests than this of late say nothing about a pod.
_LEAST_SERVED = 15.0
# As fast as the others again is a pod at this many times the share below which it is slow.
_AGAIN = 1.15


class Slow(Value, frozen=True):
    """Pods that look slow, with their share of the speed of the others; `known` are slow for long enough to act on."""

    suspected: tuple[tuple[str, float], ...] = ()
    known: tuple[tuple[str, float], ...] = ()

    @property
    def lacking(self) -> float:
        """Replicas that known slow pods lack together."""
        return sum(1.0 - speed for _, speed in self.known)

    @property
    def slowest(self) -> str:
        """The one to replace first; empty: none."""
        return min(self.known, key=lambda pod: pod[1])[0] if self.known else ""

    @property
    def message(self) -> str:
        """Which pods are slow, and what is done about it; empty: none is known to be."""
        if not self.known:
            return ""
        pods = ", ".join(f"{name} at {percent(speed)}" for name, speed in self.known[:3])
        return f"{pods} of the speed of the others: {self.slowest} is replaced"


NONE_SLOW = Slow()


def find(marks: PodTable, pool: PoolView, now: float, policy: Policy) -> tuple[PodTable, Slow]:
    """`marks` that say since when each pod is slow, and which are."""
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
        if pod in ready and busy >= _LEAST_SERVED and served >= 1.0
    }
    # With one pod fewer there is nobody to compare with.
    usual = median_high(speeds.values()) if len(speeds) > 1 else 0.0
    suspected, known = [], []
    since = marks.column(SLOW_SINCE).tolist()
    before = list(since)
    for row in range(len(marks)):
        share = speeds[row] / usual if usual > 0.0 and row in speeds else 1.0
        limit = policy.slow_share * (_AGAIN if since[row] else 1.0)
        since[row] = (since[row] or now) if share < limit else 0.0
        if since[row]:
            suspected.append((marks.pods[row], round(share, 2)))
            if now - since[row] >= policy.slow_seconds:
                known.append((marks.pods[row], round(share, 2)))
    if since != before:
        values = marks.values.copy()
        values[:, SLOW_SINCE] = since
        marks = PodTable(marks.pods, values)
    return marks, Slow(tuple(suspected), tuple(known)) if suspected else NONE_SLOW
