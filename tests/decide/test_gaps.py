"""After a time in which nobody looked: what is told of ten minutes is of those, and rates are of their time."""

import pytest
from tests.decide.builders import START, counters, engine_mark, marks, one, pod, pool, router, telemetry, view
from tests.decide.test_replicas import condition

from goodput.decide.history import attainment, totals
from goodput.domain.conditions import ConditionReason, ConditionType
from goodput.domain.memory import LoopMemory, PodMark
from goodput.domain.plan import ModelPlan
from goodput.domain.samples import Sample, Samples

RPS = 2.0
PODS = ("a", "b")


def _after_a_gap(away: float, before: float, since: float) -> list[ModelPlan]:
    """Looks every 15 s after nobody looked for `away` seconds; shares of good requests in the gap and after it.

    2 requests/s come at all times.
    """
    counted = 1e5
    full = {"first_tokens": counted, "finished": counted, "ttft_within": counted, "tpot_within": counted}
    memory = LoopMemory(
        born_at=START - 90_000.0,
        desired=2,
        objective=(0.5, 0.05, None),
        marks=marks(*(engine_mark(name, START - away, **full) for name in PODS)),
        router_marks=(PodMark(pod="router-0", scraped_at=START - away, values=(2.0 * counted, RPS, 0.0)),),
    )
    engines = pool(*(pod(name, created_at=START - 80_000.0, ready_at=START - 79_900.0) for name in PODS))
    plans = []
    for tick in range(50):
        now, ended = START + 15.0 * tick, RPS / 2.0 * 15.0 * tick
        done = counted + RPS / 2.0 * away + ended
        good = counted + RPS / 2.0 * away * before + ended * since
        seen = {"first_tokens": done, "finished": done, "ttft_within": good, "tpot_within": done}
        told = telemetry(*(counters(name, now, **seen) for name in PODS), requests=2.0 * done)
        plan = one(view(engines, told, router=router(created_at=START - 80_000.0)), memory, now)
        plans.append(plan)
        memory = plan.memory
    return plans


def _reasons(plans: list[ModelPlan]) -> list[ConditionReason]:
    return [condition(plan, ConditionType.SLO_MET)[1] for plan in plans]


@pytest.mark.parametrize(
    ("before", "since", "told"),
    [(0.5, 1.0, ConditionReason.MEETING), (1.0, 0.0, ConditionReason.MISSING_OBJECTIVE)],
)
def test_a_gap_of_an_hour_is_not_told_of_as_ten_minutes(before, since, told):
    """Nothing is known at first; from twenty requests on, it is what came since."""
    plans = _after_a_gap(3500.0, before, since)
    assert _reasons(plans) == [ConditionReason.TOO_FEW_REQUESTS] + 49 * [told]
    assert [plan.figures.attainment_requests for plan in plans] == [int(30.0 * min(tick, 40)) for tick in range(50)]


def test_goodput_is_over_the_time_of_what_is_counted():
    """All of 2 requests/s are good before, in and after the gap: nothing is known, and then two."""
    plans = _after_a_gap(3500.0, 1.0, 1.0)
    assert plans[0].figures.goodput_lower_rps is None
    for plan in plans[1:]:
        assert plan.figures.goodput_lower_rps == pytest.approx(RPS)
        assert plan.figures.goodput_upper_rps == pytest.approx(RPS)


def test_a_gap_within_the_window_counts_until_it_began_before_it():
    """Five minutes of 2 requests/s: 600 requests more for another five, with the time that they took."""
    plans = _after_a_gap(300.0, 1.0, 1.0)
    numbers = [plan.figures.attainment_requests for plan in plans]
    assert numbers[:20] == [600 + 30 * tick for tick in range(20)]
    assert numbers[25:] == [30 * min(tick, 40) for tick in range(25, 50)]
    assert all(plan.figures.goodput_lower_rps == pytest.approx(RPS) for plan in plans)


def test_a_gap_of_one_engine_is_one_too():
    """The router and the other pods were looked at all the time: what one counted in an hour is not of now."""
    memory = LoopMemory(
        born_at=START - 90_000.0,
        desired=2,
        objective=(0.5, 0.05, None),
        marks=marks(engine_mark("a", START - 3500.0), engine_mark("b", START - 15.0)),
        router_marks=(PodMark(pod="router-0", scraped_at=START - 15.0, values=(0.0, RPS, 0.0)),),
    )
    told = telemetry(
        counters("a", START, first_tokens=3500.0, finished=3500.0, tpot_within=3500.0),
        counters("b", START, first_tokens=15.0, finished=15.0, ttft_within=15.0, tpot_within=15.0),
        requests=30.0,
    )
    plan = one(view(pool(*(pod(name, created_at=START - 80_000.0) for name in PODS)), told), memory)
    assert condition(plan, ConditionType.SLO_MET)[1] is ConditionReason.TOO_FEW_REQUESTS
    assert plan.figures.offered_delta == 30.0
    assert plan.decision.to_replicas == 2


def _one(at: float, seconds: float = 15.0, engine_seconds: float = 15.0) -> Sample:
    return Sample(at=at, seconds=seconds, offered=1.0, finished=1.0, engine_seconds=engine_seconds)


@pytest.mark.parametrize(
    ("samples", "seconds"),
    [
        ([_one(100.0), _one(115.0), _one(130.0)], 45.0),
        # Two routers that are scraped at unlike instants; engines alone; a time of which nothing is known.
        ([_one(100.0), _one(107.0), _one(115.0), _one(122.0)], 37.0),
        ([_one(100.0), _one(105.0, seconds=0.0), _one(115.0)], 30.0),
        ([_one(100.0), _one(105.0, seconds=0.0, engine_seconds=0.0), _one(115.0)], 30.0),
        ([_one(100.0), _one(300.0)], 30.0),
        ([_one(100.0, engine_seconds=3000.0), _one(115.0)], 15.0),
    ],
)
def test_seconds_that_samples_cover_count_once(samples, seconds):
    """Also those of the second of two Models, whose samples are older than those of the first."""
    later = Samples.of(each._replace(at=each.at + 9000.0) for each in samples)
    found = totals([later, Samples.of(samples)], [9050.0, 50.0], 40.0)
    assert [each.seconds for each in found] == [seconds, seconds]


def test_lengths_are_those_of_all_that_is_remembered():
    """Tokens of a long gap are tokens of requests; whether those were good is not of the window."""
    long = Sample(1000.0, 3000.0, 600.0, finished=600.0, good_upper=600.0, prompt_tokens=6e5, first_tokens=600.0)
    seen = totals([Samples.of([long])], [900.0], 40.0)[0]
    assert (seen.first_tokens, seen.prompt_tokens) == (600.0, 6e5)
    assert attainment(seen, 20.0, True).requests == 0.0
