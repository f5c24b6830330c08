"""Predictors of Dynamo's planner."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput.simulator.rivals.predictors import Series


def series(*values):
    """A series that saw these."""
    got = Series()
    for value in values:
        got = got.observe(value)
    return got


def test_the_constant_predictor_is_the_last_value():
    """Whatever came before."""
    assert series(3.0, 9.0, 4.0).forecast(kalman=False) == 4.0


def test_the_filter_speaks_after_five_points():
    """Before that the last value."""
    assert series(1.0, 2.0, 3.0, 4.0).forecast(kalman=True) == 4.0
    assert series(1.0, 2.0, 3.0, 4.0, 5.0).forecast(kalman=True) != 5.0


def test_the_filter_follows_a_line():
    """10, 20, ... 200: the next is 210."""
    assert series(*(10.0 * n for n in range(1, 21))).forecast(kalman=True) == pytest.approx(210.0, rel=0.01)


def test_the_filter_s_first_update_by_hand():
    """10 then 14: the level's variance is 1000 + 1000 + 1 = 2001, its gain 2001 / 2011, the trend's 1000 / 2011."""
    got = series(10.0, 14.0)

    assert got.level == pytest.approx(10.0 + 4.0 * 2001 / 2011)
    assert got.trend == pytest.approx(4.0 * 1000 / 2011)


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=50))
def test_forecasts_are_never_negative(values):
    """Loads cannot be."""
    assert series(*values).forecast(kalman=True) >= 0.0


@given(st.floats(0.0, 1e6))
def test_a_constant_series_is_forecast_as_it_is(value):
    """By both."""
    assert series(*[value] * 8).forecast(kalman=True) == pytest.approx(value)
