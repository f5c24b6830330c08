"""Where a growing function crosses zero."""

from __future__ import annotations

from math import exp, tanh

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput.perfmodel.search import crossing


@given(
    root=st.floats(0.02, 0.98),
    shape=st.sampled_from(["line", "step", "late", "early"]),
    steepness=st.floats(1.0, 50.0),
    high=st.floats(0.1, 1e4),
)
def test_the_crossing_is_between_what_is_returned(root: float, shape: str, steepness: float, high: float) -> None:
    """Close together, on both sides of it, in few looks whatever the shape."""
    looks = 0

    def function(argument: float) -> float:
        nonlocal looks
        looks += 1
        x = argument / high - root
        if shape == "line":
            return steepness * x
        if shape == "step":
            return tanh(steepness * x)
        return exp(steepness * x) - 1.0 if shape == "late" else 1.0 - exp(-steepness * x)

    ends = function(0.0), function(high)
    looks = 0
    low, above = crossing(function, 0.0, high, at_low=ends[0], at_high=ends[1])
    assert function(low) <= 0.0 < function(above)
    assert above - low <= 1e-3 * max(above, 0.01 * high) * 1.0001
    assert looks <= 40


def test_a_crossing_at_nothing_ends() -> None:
    """A function that is above zero at once: the interval shrinks to nothing in a bounded number of looks."""
    low, above = crossing(lambda x: 1.0, 0.0, 100.0, at_low=0.0, at_high=1.0)
    assert low == 0.0
    assert above == pytest.approx(0.0, abs=1.0)


def test_rates_of_benchmarks_take_few_looks() -> None:
    """A straight line is found at once, but for the margins."""
    looks = []
    crossing(lambda x: looks.append(x) or x - 3.0, 0.0, 10.0, at_low=-3.0, at_high=7.0)
    assert len(looks) <= 4
