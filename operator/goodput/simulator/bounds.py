"""Bounds that no law can pass or should miss: a static peak above, a clairvoyant oracle below.

Both know what a replica can serve. The oracle also knows the load to come; replicas take their start-up for it too,
paid from creation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

_MINUTE_SECONDS = 60.0
_EXACT = 1e-9


def static_peak(offsets: Sequence[float], replica_rps: float) -> int:
    """Replicas for the busiest minute, for the whole run: its requests/s over the rate at which one holds the SLO.

    Minutes are those of the run's clock, from its start. At least one replica.
    """
    per_minute = Counter(int(offset // _MINUTE_SECONDS) for offset in offsets)
    busiest_rps = max(per_minute.values(), default=0) / _MINUTE_SECONDS
    return max(1, ceil(busiest_rps / replica_rps - _EXACT))


def required_replicas(
    offsets: Sequence[float],
    replica_rps: float,
    run_seconds: float,
    slot_seconds: float = 10.0,
    reach_slots: int = 3,
) -> tuple[int, ...]:
    """Replicas that each slot of a run needs: the mean rate from `reach_slots` before it to as many after it, over the
    rate of one. At the ends of the run what there is of them counts. About a minute in all keeps the chance of single
    arrivals out of it.
    """
    slots = max(1, ceil(run_seconds / slot_seconds - _EXACT))
    arrivals = [0] * slots
    for offset in offsets:
        if 0.0 <= offset < run_seconds:
            arrivals[min(slots - 1, int(offset / slot_seconds))] += 1
    needs = []
    for slot in range(slots):
        first, last = max(0, slot - reach_slots), min(slots - 1, slot + reach_slots)
        covered = min(run_seconds, (last + 1) * slot_seconds) - first * slot_seconds
        needs.append(ceil(sum(arrivals[first : last + 1]) / covered / replica_rps - _EXACT))
    return tuple(needs)


@dataclass(frozen=True, slots=True)
class Holding:
    """One replica's life, in seconds of the run: created, ready, deleted.

    It is paid from its creation on. One that serves at the start of the run was ready at 0 and is paid from 0.
    """

    created: float
    ready: float
    deleted: float


@dataclass(frozen=True, slots=True)
class Oracle:
    """The cheapest holdings that have as many replicas ready as are needed, at any time."""

    holdings: tuple[Holding, ...]

    @property
    def replica_seconds(self) -> float:
        """What is paid; times the GPUs of a replica, GPU-seconds."""
        return sum(holding.deleted - holding.created for holding in self.holdings)

    @property
    def starts(self) -> int:
        """Replicas that had to start up."""
        return sum(holding.ready > holding.created for holding in self.holdings)

    def replicas(self, now: float) -> int:
        """Replicas to ask for at a time, starting ones included."""
        return sum(holding.created <= now < holding.deleted for holding in self.holdings)

    def changes(self) -> tuple[tuple[float, int], ...]:
        """When the number to ask for changes and to what, from the first creation on."""
        times = sorted({time for holding in self.holdings for time in (holding.created, holding.deleted)})
        counts = [(time, self.replicas(time)) for time in times]
        return tuple(counts[:1]) + tuple(new for old, new in pairwise(counts) if new[1] != old[1])


def oracle(
    required: Sequence[int], slot_seconds: float, startup_seconds: float, ready_at_start: int = 0, minimum: int = 0
) -> Oracle:
    """The least replica-seconds that have `required` replicas ready in each slot, at least `minimum` of them.

    Exact: paying start-ups and time, what is needed beyond the first k - 1 replicas can be provided for by itself, for
    each k, since both prices add up over k. The k-th replica is held through a gap that is no longer than a start-up
    and deleted in a longer one, to be created again one start-up before its next need. Gaps nest: where the k-th one's
    are short so are those of all before it. What is needed sooner than a start-up and not `ready_at_start` is created
    before the run and paid in full.
    """
    needs = [max(minimum, need) for need in required]
    holdings: list[Holding] = []
    for level in range(1, max(needs, default=0) + 1):
        waits = level <= ready_at_start  # serves at 0, if it is worth holding until its first need
        begin: float | None = None
        until = 0.0
        for slot, need in enumerate(needs):
            if need < level:
                continue
            at = slot * slot_seconds
            if begin is None:
                begin = 0.0 if waits and at <= startup_seconds else at
            elif at - until > startup_seconds:
                holdings.append(_holding(begin, until, startup_seconds, waits))
                begin = at
            until = at + slot_seconds
        if begin is not None:
            holdings.append(_holding(begin, until, startup_seconds, waits))
    return Oracle(tuple(holdings))


def _holding(ready: float, deleted: float, startup_seconds: float, waits: bool) -> Holding:
    """A holding that is ready at `ready`; one that serves at the start of the run pays no start-up."""
    created = ready if waits and ready <= 0.0 else ready - startup_seconds
    return Holding(created, ready, deleted)
