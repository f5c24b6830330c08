"""Demand: averages, steps and trends from requests per scrape interval (newest first)."""

import random

import pytest

from goodput.decide import Policy
from goodput.decide.demand import Demand, Intervals, estimate, intervals
from goodput.decide.forecast import forecast, max_ratio
from goodput.domain.memory import LoopMemory
from goodput.domain.samples import Sample, Samples

POLICY = Policy()


def estimated(counts: list[float]) -> Demand | None:
    return estimate(Intervals(counts, len(counts)), POLICY)


def rps(counts: list[float]) -> float:
    found = estimated(counts)
    assert found is not None
    return found.rps


def test_nothing_seen_is_unknown_not_zero():
    """Without a full interval there is no estimate."""
    assert estimated([]) is None


def test_a_constant_load_is_its_average():
    """45 requests in each 15 s are 3 requests/s."""
    assert rps([45.0] * 8) == pytest.approx(3.0)


@pytest.mark.parametrize("step", [2.0, 1.5, 3.0])
def test_a_step_shows_once_two_intervals_hold_it(step):
    """Two full intervals of the new rate are enough; the average of 75 s would need a minute more."""
    counts = [60.0 * step] * 2 + [60.0] * 6
    assert rps(counts) >= 0.93 * 4.0 * step


def test_a_doubling_shows_after_one_full_interval():
    """The second interval may not be over yet: newest full, the one before still old."""
    assert rps([90.0, 45.0, 45, 45, 45, 45, 45, 45]) > 4.0


def test_one_noisy_interval_is_not_a_step():
    """A burst of 15 s is over before any replica could start."""
    assert rps([159.0, 100, 138, 119, 108, 115, 109, 98]) < 9.0


def test_noise_alone_rarely_moves_the_estimate():
    """Poisson load of 3 requests/s: beyond 25 % off in less than 3 % of looks."""
    draw = random.Random(4)

    def count() -> float:
        total, number = draw.expovariate(3.0), 0
        while total < 15.0:
            number += 1
            total += draw.expovariate(3.0)
        return float(number)

    off = sum(1 for _ in range(400) if abs(rps([count() for _ in range(8)]) - 3.0) > 0.75)
    assert off <= 12


def test_a_ramp_is_a_trend_and_its_level_is_now():
    """Rising by 0.025 requests/s each second: the level is that of the newest scrape, not of half a minute ago."""
    counts = [15.0 * (5.0 - 0.025 * 15.0 * (index + 0.5)) for index in range(8)]
    found = estimated(counts)
    assert found is not None
    assert found.source == "trend"
    assert found.rps == pytest.approx(5.0)
    assert found.slope == pytest.approx(0.025)


def test_a_step_up_has_the_level_of_its_newer_part_and_may_go_on():
    """Two levels explain it better than a line: the level is the new one and not beyond, and it is expected to rise."""
    found = estimated([90.0] * 4 + [30.0] * 4)
    assert found is not None
    assert found.rps == pytest.approx(6.0)
    assert found.slope > 0.0


def test_a_step_down_is_over():
    """What fell in one step is not expected to fall on."""
    found = estimated([30.0] * 4 + [90.0] * 4)
    assert found is not None
    assert found.slope == 0.0


def test_a_rise_that_pauses_is_still_a_rise():
    """Requests of a real morning in each 15 s, newest first: the next minute and a half brought 78 to 87."""
    found = estimated([39.0, 45.0, 35.0, 38.0, 13.0, 14.0, 8.0])
    assert found is not None
    ahead = forecast(found, LoopMemory(), 45.0, POLICY).rps
    assert ahead > 1.25 * found.rps


def test_a_forecast_covers_a_ramp_over_the_start_up():
    """The line reaches further than persistence does, and a longer start-up sees further."""
    found = estimated([15.0 * (5.0 - 0.03 * 15.0 * (index + 0.5)) for index in range(8)])
    assert found is not None
    near = forecast(found, LoopMemory(), 30.0, POLICY)
    far = forecast(found, LoopMemory(), 300.0, POLICY)
    assert 5.0 < near.rps < far.rps <= 15.0


def test_learned_growth_replaces_the_prior_by_count():
    """No experience: the prior. Twenty horizons: experience alone. Ten: half of each."""
    prior = max_ratio(LoopMemory(), 60.0, POLICY)
    assert prior == pytest.approx(1.0 + POLICY.prior_growth_per_minute)
    assert max_ratio(LoopMemory(max_ratios=(1.5,) * 20), 60.0, POLICY) == pytest.approx(1.5)
    half = max_ratio(LoopMemory(max_ratios=(1.0,) * 10), 60.0, POLICY)
    assert 1.0 < half < prior, "horizons without growth lower it one by one"


def test_a_single_jump_is_not_what_every_horizon_may_bring():
    """One step of 1 to 15 requests/s in one to three horizons: the quantile is over twenty from the first one on."""
    prior = max_ratio(LoopMemory(), 60.0, POLICY)
    for calm in range(3):
        seen = (15.0,) + (1.0,) * calm
        assert max_ratio(LoopMemory(max_ratios=seen), 60.0, POLICY) < 1.0 + 2.0 * (prior - 1.0)
    assert max_ratio(LoopMemory(max_ratios=(15.0,) * 4), 60.0, POLICY) == pytest.approx(15.0)


def test_scrapes_of_router_pods_at_different_instants_add_up():
    """Two pods of 2 requests/s each, scraped 7 s apart: 4 requests/s in every interval, the newest included."""
    samples = Samples.of(
        Sample(at=at, seconds=15.0, offered=30.0)
        for at in sorted([100.0 + 15 * k for k in range(10)] + [107.0 + 15 * k for k in range(10)])
    )
    end = 107.0 + 135.0
    counts = intervals(samples, ((235.0, 2.0), (end, 2.0)), end, POLICY)
    assert counts.counts == pytest.approx([60.0] * 10)
    assert counts.apart == 10


def test_an_interval_that_was_not_seen_in_full_does_not_count():
    """40 s of history are two intervals of 15 s, not three."""
    counts = intervals(Samples.of([Sample(at=40.0, seconds=40.0, offered=80.0)]), (), 40.0, POLICY)
    assert counts.counts == pytest.approx([30.0, 30.0])


def test_a_gap_in_looking_is_no_ramp():
    """1 request/s, then an operator that was away for 60 s in which 8 requests/s began: nothing is extrapolated.

    The even share of the gap lies between the old load and the new one: with them it looks like a line upwards.
    """
    known = tuple(Sample(at=1000.0 + 15.0 * k, seconds=15.0, offered=15.0) for k in range(10))
    away = Sample(at=1195.0, seconds=60.0, offered=270.0)
    back = tuple(Sample(at=1195.0 + 15.0 * k, seconds=15.0, offered=120.0) for k in (1, 2, 3))
    for number in range(4):
        samples = Samples.of((*known, away, *back[:number]))
        seen = intervals(samples, (), samples[-1].at, POLICY)
        assert seen.apart == number
        found = estimate(seen, POLICY)
        assert found is not None
        assert found.slope == 0.0
        assert found.rps <= 8.0


def test_a_load_that_begins_is_no_ramp():
    """The first requests after silence, with the noise of counting: a level, whose line would lead to twice as much."""
    found = estimated([30.0, 26.0, 25.0, 17.0, 10.0, 0.0, 0.0, 0.0])
    assert found is not None
    assert found.slope == 0.0
    assert found.rps <= 2.0
