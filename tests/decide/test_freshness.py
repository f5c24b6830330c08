"""Passes between two ticks see what was read at the last one: fresh, at every legal pace of ticks and scrapes."""

from collections.abc import Iterator
from math import floor

import pytest
from tests.decide.builders import START, counters, one, pod, pool, telemetry, view

from goodput.decide import Policy
from goodput.domain.conditions import Condition, ConditionReason, ConditionStatus, ConditionType
from goodput.domain.memory import LoopMemory

PACES = pytest.mark.parametrize(
    ("tick", "scrape"), [(10.0, 15.0), (60.0, 15.0), (300.0, 15.0), (10.0, 2.0), (10.0, 3.0), (1.0, 1.0), (10.0, 120.0)]
)


def _passes(
    tick: float, scrape: float, *, lost: range, until: float, new_at: float | None = None
) -> Iterator[tuple[float, Condition]]:
    """(seconds, `MetricsFresh`) of passes at ticks and between them.

    A reading is a second late and sees scrapes of half a second ago. Scrapes of numbers in `lost` fail. A second pod
    turns ready at `new_at`.
    """
    policy, memory = Policy(tick_seconds=tick, scrape_seconds=scrape), None
    read: dict[str, float] = {}
    for number in range(int(until / tick)):
        for share in (0.0, 0.05, 0.5, 0.95):
            at = (number + share) * tick
            is_new = new_at is not None and at >= new_at
            if share == 0.05:
                newest = floor((number * tick - 0.5) / scrape)
                while newest in lost:
                    newest -= 1
                read = {"a": newest * scrape}
                if is_new and new_at is not None and newest * scrape > new_at:
                    read["b"] = newest * scrape
            if not read:
                continue
            pods = [pod("a")]
            if is_new and new_at is not None:
                pods.append(pod("b", created_at=START + new_at - 1.0, ready_at=START + new_at))
            seen = [counters(name, START + when) for name, when in read.items()]
            told = telemetry(*seen, at=START + read["a"])
            plan = one(view(pool(*pods), told), memory or LoopMemory(born_at=START - 9000.0), START + at, policy)
            memory = plan.memory
            yield at, next(each for each in plan.conditions if each.type is ConditionType.METRICS_FRESH)


@PACES
def test_no_pace_makes_fresh_metrics_stale(tick, scrape):
    """All the time, also with a scrape that fails and a pod that is new."""
    until = 8.0 * max(tick, scrape)
    failed = range(3, 4)
    found = list(_passes(tick, scrape, lost=failed, until=until, new_at=0.61 * until))
    assert len(found) > 20
    assert {condition.status for _, condition in found} == {ConditionStatus.TRUE}, found


@PACES
def test_scrapes_that_end_are_told_at_every_pace(tick, scrape):
    """Not before three scrapes, nor later than a tick after the last one is stale; and then for good."""
    ended = 3.0 * scrape
    policy = Policy(tick_seconds=tick, scrape_seconds=scrape)
    found = list(_passes(tick, scrape, lost=range(4, 10**6), until=ended + 3.0 * policy.stale_seconds + 3.0 * tick))
    stale = [at for at, condition in found if condition.reason is ConditionReason.METRICS_STALE]
    assert ended + 3.0 * scrape <= stale[0] <= ended + policy.stale_seconds + tick
    assert stale == [at for at, _ in found if at >= stale[0]]


def test_the_usual_pace_is_judged_by_three_scrapes():
    usual = Policy()
    assert (usual.stale_seconds, usual.settled_seconds) == (45.0, 30.0)
