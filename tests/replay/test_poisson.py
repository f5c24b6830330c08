"""Constant load is Poisson: its mean, its spread, and the same for the same seed."""

from __future__ import annotations

import itertools
import random
import statistics

import pytest

from goodput_world.replay.poisson import constant_load, poisson


def test_arrivals_have_the_rate_and_the_spread_of_a_poisson_process() -> None:
    """Gaps are exponential: their mean is 1/rate and their standard deviation the same; all lie within the run."""
    instants = poisson(5.0, 100.0, 2100.0, random.Random(7))
    gaps = [after - before for before, after in itertools.pairwise(instants)]
    assert min(instants) >= 100.0
    assert max(instants) < 2100.0
    assert statistics.mean(gaps) == pytest.approx(0.2, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(0.2, rel=0.05)


def test_the_same_seed_gives_the_same_requests() -> None:
    """Requests have the length that was asked for, ids of their own, and repeat with the seed."""
    requests = constant_load(2.0, 60.0, 100, 10, seed=3)
    assert requests == constant_load(2.0, 60.0, 100, 10, seed=3)
    assert requests != constant_load(2.0, 60.0, 100, 10, seed=4)
    assert {(each.input_tokens, each.output_tokens) for each in requests} == {(100, 10)}
    assert len({each.id for each in requests}) == len(requests)
