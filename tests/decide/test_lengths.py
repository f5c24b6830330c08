"""Lengths of requests as counters tell them: means, and how much prompts vary."""

import random
from math import exp, log, sqrt

import pytest

from goodput.decide.history import lengths, totals
from goodput.decide.policy import Policy
from goodput.domain.samples import Sample, Samples
from goodput.perfmodel import Lengths

EXPECTED = Lengths(1155.0, 211.0)


def _seen(prompts: list[list[float]]) -> Lengths:
    """What is taken from samples with these prompts each."""
    rows = [
        Sample(
            at=15.0 * number,
            seconds=15.0,
            offered=float(len(each)),
            finished=float(len(each)),
            ttft_misses=0.0,
            tpot_misses=0.0,
            e2e_misses=0.0,
            good_lower=float(len(each)),
            good_upper=float(len(each)),
            rejected=0.0,
            prompt_tokens=sum(each),
            cached_tokens=0.0,
            generation_tokens=200.0 * len(each),
            first_tokens=float(len(each)),
            failed=0.0,
            slow_missed=0.0,
        )
        for number, each in enumerate(prompts, 1)
    ]
    return lengths(totals([Samples.of(rows)], [0.0])[0], EXPECTED, Policy())[0]


def _drawn(variation: float, samples: int, seed: int = 1) -> list[list[float]]:
    draw, sigma = random.Random(seed), sqrt(log(1.0 + variation * variation))
    return [[2000.0 * exp(draw.gauss(-sigma * sigma / 2.0, sigma)) for _ in range(30)] for _ in range(samples)]


def test_prompts_that_are_alike_are_seen_to_be_after_three_samples():
    alike = [[2000.0] * number for number in (20, 34, 32)]
    assert _seen(alike[:2]).input_variation == EXPECTED.input_variation
    assert _seen(alike).input_variation == pytest.approx(0.3)


@pytest.mark.parametrize("seed", range(5))
def test_prompts_that_vary_as_expected_are_no_news(seed):
    assert _seen(_drawn(0.85, 40, seed)).input_variation == EXPECTED.input_variation


def test_prompts_that_vary_less_are_seen_to_with_room_for_noise():
    assert 0.4 <= _seen(_drawn(0.4, 40)).input_variation <= 0.65


def test_a_few_prompts_of_another_kind_are_no_wide_distribution():
    prompts = [[1000.0] * 50 for _ in range(30)]
    prompts[3] = [1000.0] * 40 + [30_000.0] * 10
    assert _seen(prompts).input_variation == EXPECTED.input_variation


def test_expected_lengths_give_way_to_what_contradicts_them():
    """Ten times as long as expected: after 90 prompts the mean is within a standard error of theirs, not two thirds."""
    long = [[12_000.0] * 30] * 3
    assert _seen(long).input_mean == pytest.approx(12_000.0 * (1.0 - 0.85 / sqrt(90.0)))
    # 50 requests are what is expected worth, as long as the two agree.
    alike = [[1300.0] * 30] * 3
    assert _seen(alike).input_mean == pytest.approx((50.0 * 1155.0 + 90.0 * 1300.0) / 140.0)


def test_expected_lengths_give_way_to_shorter_prompts_too():
    short = [[100.0] * 30] * 3
    assert _seen(short).input_mean == pytest.approx(100.0 * (1.0 + 0.85 / sqrt(90.0)))


def test_few_prompts_contradict_nothing():
    """The shortest of those that came are counted first."""
    assert _seen([[10.0] * 74]).input_mean == pytest.approx((50.0 * 1155.0 + 740.0) / 124.0)
