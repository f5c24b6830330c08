"""What counting makes of a steady load, and what clients make of refusals: neither is load to provide for."""

import random
from math import sqrt

import pytest
from msgspec.structs import replace
from tests.decide.builders import START, counters, engine_mark, one, pod, pool, telemetry, view
from tests.decide.test_replicas import loaded, replicas, steady

from goodput.decide import Policy
from goodput.decide.demand import Demand, Intervals, as_before, distinct, estimate, latest, meant
from goodput.decide.forecast import learn_ratio
from goodput.decide.history import Attainment, spends_budget
from goodput.decide.replicas import Situation, Wanted, once_fewer
from goodput.domain.decision import Rule
from goodput.domain.memory import LoopMemory, PodMark
from goodput.domain.observed import PodState
from goodput.domain.samples import Sample, Samples

POLICY = Policy()


def counted(draw: random.Random, rps: float, number: int) -> list[float]:
    """Poisson counts of so many scrape intervals."""
    found = []
    for _ in range(number):
        at, count = draw.expovariate(rps), 0
        while at < POLICY.scrape_seconds:
            at, count = at + draw.expovariate(rps), count + 1
        found.append(float(count))
    return found


def known(counts: list[float]) -> Demand:
    found = estimate(Intervals(counts, len(counts)), POLICY)
    assert found is not None
    return found


def test_a_steady_load_is_known_to_two_percent_after_ten_minutes():
    """6 requests/s: 3,600 requests, error 1.7 %; in the mean of 200 looks twice that at most, never 20 % off."""
    draw = random.Random(7)
    off = [abs(known(counted(draw, 6.0, 40)).rps / 6.0 - 1.0) for _ in range(200)]
    assert sum(off) / len(off) < 0.034
    assert sum(each > 0.10 for each in off) <= 4
    found = known([90.0] * 40)
    assert (found.rps, found.seconds) == (6.0, 600.0)
    assert found.error == pytest.approx(sqrt(3600.0) / 600.0)


def test_a_load_that_moved_is_averaged_since_then():
    """From 3 to 6 requests/s two minutes ago: what is older is left out."""
    found = known([90.0] * 8 + [45.0] * 32)
    assert found.rps == pytest.approx(6.0, rel=0.05)
    assert found.seconds <= 150.0


def test_a_load_that_fell_is_taken_for_as_low_as_its_last_minute():
    """5 % less of late agree with the ten minutes: for fewer replicas the latest counts, with the error of its time."""
    found = known([86.0] * 5 + [90.0] * 35)
    assert found.rps == pytest.approx(5.97, abs=0.01)
    lower = latest(found, POLICY)
    assert lower.rps == pytest.approx(86.0 / 15.0)
    assert lower.error == pytest.approx(sqrt(430.0) / 75.0)
    assert latest(lower, POLICY) is lower


def test_a_minute_of_noise_is_neither_a_step_nor_a_trend():
    """Counts that were taken for 7.3 and 10.8 requests/s, of constant 6 and 9."""
    low = [115, 103, 86, 87, 82, 83, 74, 101, 87, 88, 97, 97, *([90] * 28)]
    high = [164, 159, 140, 123, 125, 127, 123, 127, 148, 156, 143, 134, *([135] * 28)]
    assert known([float(each) for each in low]).rps < 6.3
    assert known([float(each) for each in high]).rps < 9.4


def test_a_steady_load_teaches_no_growth():
    """The highest 75 s of a horizon exceed a load that does not grow: that is no growth."""
    draw = random.Random(3)
    memory = LoopMemory(ratio_at=START - 120.0)
    grown = []
    for _ in range(60):
        counts = counted(draw, 6.0, 40)
        samples = Samples.of(
            Sample(at=START - 15.0 * index, seconds=15.0, offered=counts[index]) for index in reversed(range(40))
        )
        ratios, _ = learn_ratio(memory, samples, START, 118.0, POLICY)
        grown.append(ratios[-1])
    assert sorted(grown)[53] <= 1.06
    assert sum(each == 1.0 for each in grown) >= 40


def test_a_load_is_as_before_if_both_sides_of_a_burst_agree():
    """A minute of 9 requests/s in 6, for which a replica was added 120 s ago: it is the load of before again."""
    burst = [90.0] * 8 + [135.0] * 4 + [90.0] * 20
    rise = [135.0] * 12 + [90.0] * 20
    for counts, same in ((burst, True), (rise, False), ([90.0] * 12, False)):
        seen = Intervals(counts, len(counts))
        assert as_before(seen, known(counts), 120.0, POLICY) is same


def test_what_noise_asked_for_is_kept_while_the_load_is_the_same():
    """6.2 requests/s on three where two hold 7.2: noise would ask for the third again, so it stays for an hour."""
    memory = steady(6.2, 3, last_scale_up_at=START - 500.0)
    assert replicas(one(loaded(6.2, 3), memory)) == 2
    kept = replace(memory, steady_until=START + 100.0)
    plan = one(loaded(6.2, 3), kept)
    assert (replicas(plan), plan.decision.rule) == (3, Rule.SCALE_DOWN_WAITING)
    assert replicas(one(loaded(3.0, 3), steady(3.0, 3, last_scale_up_at=START - 500.0, steady_until=START + 100.0))) < 3


def test_a_replica_that_had_to_come_back_stays_while_the_others_would_be_as_strained():
    """Two at 2.6 each missed the objective, the third that was taken away came back: 5.2 is not tried with two."""
    memory = steady(5.2, 3, last_scale_up_at=START - 500.0, steady_until=START + 100.0)
    assert replicas(one(loaded(5.2, 3), memory)) == 2
    assert replicas(one(loaded(5.2, 3), replace(memory, strained_rps=2.6))) == 3
    assert replicas(one(loaded(4.8, 3), replace(steady(4.8, 3), steady_until=START + 100.0, strained_rps=2.6))) == 2


def _situation(**changes: object) -> Situation:
    base = Situation(
        current=3,
        load_rps=6.0,
        floor_rps=6.6,
        demand_rps=6.0,
        noisy_rps=6.0,
        lacking=0.0,
        capacity_rps=3.5,
        plain_capacity_rps=3.5,
        certain_misses=False,
        coming=0,
        rolling_out=False,
        failing=False,
        fresh=True,
        startup_seconds=45.0,
        drain_seconds=20.0,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(("each", "left"), [(3.4, 2), (3.2, 3), (0.0, 3)])
def test_a_fleet_shrinks_only_if_fewer_hold_the_load_by_themselves(each, left):
    """6.6 requests/s on two: each is believed 3.5 among three, and less among two."""
    law = once_fewer(Wanted(2, Rule.SCALE_DOWN_ALLOWED), _situation(), each)
    if each > 0.0:
        assert law.replicas == left
        assert (law.rule is Rule.SCALE_DOWN_ALLOWED) is (left == 2)


def test_nothing_shrinks_while_pods_fail():
    """Load for one, six asked for, one of them in a crash loop."""
    crashed = pod("bad", PodState.FAILED, trouble="CrashLoopBackOff")
    plan = one(loaded(1.0, 5, extra=(crashed,)), steady(1.0, 6))
    assert (replicas(plan), plan.decision.rule) == (6, Rule.HOLD_FAILING)


@pytest.mark.parametrize(
    ("refused", "share"),
    [(0.0, 1.0), (0.5, 1.0 / 1.75), (0.7, 1.0 / 2.19), (0.9, 0.2), (1.0, 0.0)],
)
def test_what_is_refused_is_taken_to_come_back(refused, share):
    """Asked up to three times in all: 1 + r + r^2 of each; and never more than twice what is served."""
    assert distinct(refused, POLICY) == pytest.approx(share)


def test_repeats_are_no_trend():
    demand = Demand(30.0, 30.0, 40.0, 0.5, "trend", 40, 3.0, 1.0, 75.0)
    found = meant(demand, 0.5)
    assert (found.rps, found.slope, found.error) == (15.0, 0.0, 0.5)
    assert meant(demand, 1.0) is demand


def test_clients_who_repeat_what_was_refused_ask_for_what_they_mean():
    """60 requests/s of which 48 were refused: twice what was served, not sixty; and nothing shrinks meanwhile."""
    storm = Samples.of(each._replace(failed=0.8 * each.offered, rejected=3.0 * each.offered) for each in _storm())
    told = one(loaded(60.0, 4), steady(60.0, 4, samples=storm))
    meant_rps = 60.0 / (1.0 + 0.8 + 0.64)
    assert told.figures.forecast_rps == pytest.approx(meant_rps * 1.1, rel=0.05)
    assert "count once" in told.decision.message
    everyone = one(loaded(60.0, 4), steady(60.0, 4, samples=_storm()))
    assert replicas(told) < 0.5 * replicas(everyone)
    calm = one(loaded(60.0, 19), steady(60.0, 19, samples=storm))
    assert replicas(calm) >= 19


def _storm() -> Samples:
    return steady(60.0, 4).samples


@pytest.mark.parametrize(
    ("window", "recent", "spent"),
    [(0.99, 0.90, False), (0.99, 0.50, True), (0.93, 0.90, True), (0.98, 0.88, False), (0.98, 0.85, True)],
)
def test_misses_act_if_half_as_many_again_break_the_objective_over_the_window(window, recent, spent):
    """3,600 requests in ten minutes, 540 in the last ninety seconds, 95 % asked for: 180 may miss."""
    whole = Attainment(3600.0, window, window, good_lower=window * 3600.0, good_upper=window * 3600.0)
    last = Attainment(540.0, recent, recent)
    assert spends_budget(whole, last, 0.95, 3600.0) is spent
    young = Attainment(540.0, recent, recent, good_lower=recent * 540.0, good_upper=recent * 540.0)
    assert spends_budget(young, last, 0.95, 3600.0), "without a history of good ones there is nothing to spend"


def test_a_pod_that_was_away_for_long_served_nothing_unseen():
    """Half an hour in a crash loop, twenty in flight at its last scrape: what may have ended well is of one scrape."""
    seen = engine_mark("pod-0", START - 1800.0, first_tokens=5000.0, finished=4980.0, running=20.0)
    memory = steady(
        2.0, 1, marks=seen, router_marks=(PodMark(pod="router-0", scraped_at=START, values=(0.0, 2.0, 0.0)),)
    )
    back = counters("pod-0", START, first_tokens=30.0, ttft_within=30.0, finished=25.0, tpot_within=25.0, running=5.0)
    plan = one(view(pool(pod("pod-0")), telemetry(back, requests=1000.0, at=START)), memory)
    assert plan.figures.good_upper_delta < 500.0
