"""Generated traces: rates, lengths, burstiness, and the same again for the same seed."""

import random
from itertools import pairwise
from statistics import mean, pstdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goodput.simulator.traces.curves import CONSTANT_SPACING, POISSON, Phase, filled, renewal, wave
from goodput.simulator.traces.generators import (
    PUBLISHED_LENGTHS,
    PUBLISHED_RAMP,
    follow,
    published_ramp,
    slow_wave,
    steady,
)
from goodput.simulator.traces.lengths import Empirical, Normal
from goodput.simulator.traces.request import TraceRequest

CURVES = st.lists(st.builds(Phase, st.floats(0.1, 100.0), st.floats(0.0, 5.0)), min_size=1, max_size=8)


def test_the_published_ramp_has_its_stages_at_constant_spacing():
    """2 requests/s for 330 s, then 4, 6, 8, 10, 4 for 360 s each, 1 for 300 s: 12,480 requests in 2,430 s."""
    ramp = published_ramp(seed=1)
    starts = [0, 330, 690, 1050, 1410, 1770, 2130, 2430]
    counts = [sum(begin <= each.offset_seconds < end for each in ramp) for begin, end in pairwise(starts)]
    gaps = [later.offset_seconds - each.offset_seconds for each, later in pairwise(ramp)]

    assert counts == [660, 1440, 2160, 2880, 3600, 1440, 300]
    assert ramp[0].offset_seconds == 0.0
    assert gaps[:659] == pytest.approx([0.5] * 659)
    assert gaps[660:2099] == pytest.approx([0.25] * 1439)


def test_the_lengths_of_the_published_ramp():
    """N(4000, 300) and N(1000, 80)."""
    ramp = published_ramp(seed=1)
    given, made = [each.input_tokens for each in ramp], [each.output_tokens for each in ramp]

    assert mean(given) == pytest.approx(4000, abs=10)
    assert pstdev(given) == pytest.approx(300, rel=0.03)
    assert mean(made) == pytest.approx(1000, abs=3)
    assert pstdev(made) == pytest.approx(80, rel=0.03)


@pytest.mark.parametrize("variation", [CONSTANT_SPACING, POISSON])
def test_a_seed_gives_the_same_trace_and_another_one_another(variation):
    """And arrivals do not touch the lengths of the n-th request."""
    first, again, other = (published_ramp(seed, variation) for seed in (1, 1, 2))

    assert first == again
    assert first != other
    assert first[0].input_tokens == published_ramp(1)[0].input_tokens


def test_poisson_counts_vary_as_they_should():
    """Of 400 minutes at 60 requests each: variance over mean of 1 within its noise; gaps of variation 1."""
    trace = steady(1.0, 24_000.0, PUBLISHED_LENGTHS, seed=5)
    counts = [0] * 400
    for each in trace:
        counts[int(each.offset_seconds // 60)] += 1

    assert mean(counts) == pytest.approx(60, rel=0.03)
    assert pstdev(counts) ** 2 / mean(counts) == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("variation", [0.5, 1.0, 2.0, 4.0])
def test_gamma_gaps_have_their_variation(variation):
    """At a constant rate."""
    times = renewal([Phase(50_000.0, 2.0)], variation, random.Random(3))
    gaps = [later - earlier for earlier, later in pairwise(times)]

    assert mean(gaps) == pytest.approx(0.5, rel=0.05)
    assert pstdev(gaps) / mean(gaps) == pytest.approx(variation, rel=0.05)


@given(CURVES, st.sampled_from([0.0, 0.5, 1.0, 3.0]), st.integers(0, 99))
def test_arrivals_rise_and_stay_within_the_curve(curve, variation, seed):
    """Whatever the rates."""
    times = renewal(curve, variation, random.Random(seed))

    assert times == sorted(times)
    assert all(0.0 <= at <= sum(phase.seconds for phase in curve) for at in times)


@given(CURVES)
def test_constant_spacing_counts_what_the_curve_says(curve):
    """The first at once, then one for each whole request of rate."""
    times = renewal(curve, CONSTANT_SPACING, random.Random(0))
    whole = sum(phase.seconds * phase.rps for phase in curve)

    assert len(times) == pytest.approx(whole + 0.5, abs=0.5 + 1e-6)


@settings(max_examples=50)
@given(CURVES, st.sampled_from([0.0, 1.0, 3.0, 55.0, 500.0]), st.integers(0, 99))
def test_a_filled_curve_has_its_counts_however_bursty(curve, variation, seed):
    """To one request in every prefix of it."""
    times = filled(curve, [variation] * len(curve), random.Random(seed))
    begin = whole = 0.0
    for phase in curve:
        whole += phase.seconds * phase.rps
        begin += phase.seconds
        assert -1e-6 <= whole - sum(at < begin for at in times) <= 1.0 + 1e-6

    assert times == sorted(times)


def test_filled_phases_have_their_variation():
    """2.0 within a phase of 5,000 requests."""
    times = filled([Phase(1000.0, 5.0)], [2.0], random.Random(1))
    gaps = [later - earlier for earlier, later in pairwise(times)]

    assert pstdev(gaps) / mean(gaps) == pytest.approx(2.0, rel=0.1)


def test_a_wave_swings_round_its_mean_from_its_lowest():
    """An hour up and down by half."""
    curve = wave(4.0, 0.5, 3600.0, 7200.0)
    rates = [phase.rps for phase in curve]

    assert sum(phase.seconds for phase in curve) == pytest.approx(7200.0)
    assert mean(rates) == pytest.approx(4.0)
    assert (min(rates), max(rates)) == (pytest.approx(2.0, abs=0.01), pytest.approx(6.0, abs=0.01))
    assert rates[0] == min(rates)
    assert rates[180] == pytest.approx(6.0, abs=0.01)


def test_a_slow_wave_follows_its_rate():
    """The half-hour round the crest has more requests than the one round the trough."""
    trace = slow_wave(mean_rps=2.0, swing=0.8, period_seconds=3600.0, seconds=3600.0, lengths=PUBLISHED_LENGTHS, seed=2)
    crest = sum(900 <= each.offset_seconds < 2700 for each in trace)

    assert crest / (len(trace) - crest) == pytest.approx((1 + 1.6 / 3.1416) / (1 - 1.6 / 3.1416), rel=0.1)


@pytest.mark.parametrize(("seconds", "rps"), [(0.0, 1.0), (-1.0, 1.0), (1.0, -1.0), (float("nan"), 1.0)])
def test_phases_that_cannot_be_are_refused(seconds, rps):
    """By name."""
    with pytest.raises(ValueError, match="phase"):
        Phase(seconds, rps)


def test_swings_and_variations_that_cannot_be_are_refused():
    """By name."""
    with pytest.raises(ValueError, match="swing"):
        wave(1.0, 1.5, 60.0, 60.0)
    with pytest.raises(ValueError, match="variation"):
        renewal([Phase(1.0, 1.0)], -1.0, random.Random(0))


def test_lengths_of_a_trace_are_drawn_as_pairs():
    """Long prompts keep their long answers; scaled to other means, unscaled as they were."""
    lengths = Empirical.of([TraceRequest(0.0, 100, 10), TraceRequest(1.0, 300, 30)])
    draw = random.Random(0)

    assert (lengths.mean_input, lengths.mean_output) == (200.0, 20.0)
    assert {lengths.as_seen()(draw) for _ in range(50)} == {(100, 10), (300, 30)}
    assert {lengths.scaled(400.0, 2.0)(draw) for _ in range(50)} == {(200, 1), (600, 3)}
    with pytest.raises(ValueError, match="lengths"):
        Empirical.of([])


def test_lengths_are_at_least_one_token():
    """Of any distribution."""
    assert Normal(-50.0, 1.0).draw(random.Random(0)) == 1


def test_following_a_curve_uses_all_of_it():
    """The published curve with Poisson arrivals: about as many requests."""
    assert len(follow(PUBLISHED_RAMP, PUBLISHED_LENGTHS, 3)) == pytest.approx(12_480, rel=0.03)
