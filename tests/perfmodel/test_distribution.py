"""Mixtures of shifted log-normal times."""

import random
from statistics import median, quantiles

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput.perfmodel.distribution import Mixture, Part


def test_tail_and_percentiles_are_those_of_drawn_values():
    """A tenth of outcomes late by an exponential time, over two log-normal parts."""
    parts = (Part(0.7, 0.1, 0.2, 0.01), Part(0.3, 0.5, 0.4, 0.09))
    found = Mixture(parts, 0.1, 2.0)
    draw = random.Random(1)
    values = []
    for part in draw.choices(parts, weights=[part.share for part in parts], k=40_000):
        square = 1.0 + part.variance / part.mean**2
        sigma, centre = draw_parameters(part.mean, square)
        value = part.shift + draw.lognormvariate(centre, sigma)
        values.append(value + (draw.expovariate(0.5) if draw.random() < 0.1 else 0.0))
    assert found.mean == pytest.approx(sum(values) / len(values), rel=0.02)
    cuts = quantiles(values, n=100)
    assert found.quantile(0.5) == pytest.approx(median(values), rel=0.05)
    assert found.quantile(0.95) == pytest.approx(cuts[94], rel=0.1)
    assert found.quantile(0.99) == pytest.approx(cuts[98], rel=0.1)


def draw_parameters(mean: float, square: float) -> tuple[float, float]:
    """(sigma, mu) of the logarithm of a log-normal value of this mean, E[x^2]/mean^2 = `square`."""
    from math import log, sqrt

    sigma = sqrt(log(square))
    return sigma, log(mean) - sigma * sigma / 2.0


def test_a_mean_hides_what_percentiles_tell():
    """The mean of 100, 102, 100, 100, 99, 104, 110, 90, 3000, 95 is 390; half of them took at most 100."""
    values = (100, 102, 100, 100, 99, 104, 110, 90, 3000, 95)
    found = Mixture(tuple(Part(0.1, float(value), 0.0, 0.0) for value in values))
    assert found.mean == pytest.approx(390.0)
    assert found.quantile(0.55) == pytest.approx(100.0, rel=0.002)
    assert found.quantile(0.5) == pytest.approx(100.0, rel=0.002)


def test_nothing_takes_no_time():
    """A replica whose requests have one token each has no time per token."""
    assert Mixture((Part(1.0, 0.0, 0.0, 0.0),)).quantile(0.95) == 0.0


@given(
    shift=st.floats(0.0, 10.0),
    mean=st.floats(0.0, 10.0),
    variance=st.floats(0.0, 100.0),
    limit=st.floats(0.0, 100.0),
    more=st.floats(0.0, 10.0),
)
def test_a_tail_is_a_share_that_falls(shift, mean, variance, limit, more):
    """Within 0..1, and never more beyond a later bound."""
    found = Mixture((Part(1.0, shift, mean, variance),), 0.2, 1.0)
    assert 0.0 <= found.above(limit + more) <= found.above(limit) <= 1.0
