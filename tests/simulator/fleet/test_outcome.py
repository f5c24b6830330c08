"""Who was served well, and what it cost: sums by hand."""

import math

import pytest
from tests.simulator.fleet.fleets import CHAT

from goodput.domain.intent import Objective
from goodput.simulator.fleet.outcome import Quantiles, outcome
from goodput.simulator.fleet.requests import Ask, End, Record, counts, good


def _record(at: float = 0.0, end: End = End.FINISHED, *, ttft: float | None = 0.2, tpot: float = 0.03) -> Record:
    first = None if ttft is None else at + ttft
    last = None if first is None else first + 10 * tpot
    return Record(Ask(at, 100, 11), end, last, first, last, 11)


@pytest.mark.parametrize(
    ("record", "is_good", "is_counted"),
    [
        (_record(), True, True),
        (_record(ttft=0.6), False, True),
        (_record(tpot=0.06), False, True),
        (_record(end=End.REFUSED, ttft=None), False, True),
        (_record(end=End.FAILED), False, True),
        (_record(end=End.UNFINISHED), False, True),
        (_record(end=End.ABORTED, ttft=0.2), False, False),  # left after a timely first token
        (_record(end=End.ABORTED, ttft=0.7), False, True),
        (_record(end=End.ABORTED, ttft=None), False, True),  # given up in the queue
    ],
)
def test_a_request_is_good_counted_or_neither(record, is_good, is_counted):
    assert (good(record, CHAT), counts(record, CHAT)) == (is_good, is_counted)


def test_the_whole_time_may_be_bounded_too():
    bound = Objective(ttft_seconds=None, tpot_seconds=None, e2e_seconds=0.4)
    assert not good(_record(), bound)
    assert good(_record(tpot=0.01), bound)


def test_sums_of_a_short_run():
    """Two minutes, of which the second is bad; replicas 2, then 3 from 60 s (ready at 90 s), then 1."""
    first = [_record(at=float(second)) for second in range(20)]
    second = [_record(at=60.0 + second, ttft=0.2 if second < 5 else 0.9) for second in range(20)]
    gone = [_record(at=30.0, end=End.ABORTED), _record(at=31.0, end=End.REFUSED, ttft=None)]
    history = [(-120.0, 2, 0), (-120.0, 2, 2), (60.0, 3, 2), (90.0, 3, 3), (110.0, 1, 1)]
    found = outcome("x", CHAT, 120.0, records=[*first, *second, *gone], history=history, gpu_seconds=7200.0)
    assert (found.requests, found.counted, found.good, found.lost, found.aborted) == (42, 41, 25, 1, 1)
    assert found.attainment == 25 / 41
    assert found.goodput_rps == 25 / 120.0
    assert found.offered_rps == 42 / 120.0
    assert found.worst_minute_attainment == 5 / 20
    assert found.gpu_hours == 2.0
    assert found.replica_seconds == pytest.approx(2 * 60.0 + 3 * 50.0 + 1 * 10.0)
    assert [(each.at_seconds, each.before, each.after) for each in found.scale_events] == [(60.0, 2, 3), (110.0, 3, 1)]
    assert (found.scale_ups, found.scale_downs, found.direction_changes) == (1, 1, 1)
    one, two = found.timeline
    assert (one.offered, one.good, one.desired, one.ready) == (22, 20, 2.0, 2.0)
    assert (two.offered, two.good) == (20, 5)
    assert two.desired == pytest.approx((3 * 50.0 + 10.0) / 60.0)
    assert two.ready == pytest.approx((2 * 30.0 + 3 * 20.0 + 10.0) / 60.0)


def test_an_idle_run_is_fine():
    found = outcome("x", CHAT, 60.0, records=[], history=[(-1.0, 1, 1)], gpu_seconds=60.0)
    assert (found.attainment, found.worst_minute_attainment) == (1.0, 1.0)
    assert math.isnan(found.ttft.p95)


def test_quantiles_are_of_the_times_that_exist():
    assert Quantiles.of([*map(float, range(1, 101)), None]) == Quantiles(50.0, 95.0, 99.0)
    assert Quantiles.of([3.0]) == Quantiles(3.0, 3.0, 3.0)
