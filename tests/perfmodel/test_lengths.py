"""Classes of lengths: their moments are those of the distribution."""

from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput.perfmodel import Lengths
from goodput.perfmodel.lengths import INPUT_EDGES, OUTPUT_EDGES, classes, percentile


@given(mean=st.floats(50, 50_000), variation=st.floats(0.1, 2.0), edges=st.sampled_from([INPUT_EDGES, OUTPUT_EDGES]))
def test_classes_keep_mean_and_variation(mean, variation, edges):
    """Cut however, the classes together have the moments of the whole, and rise."""
    found = classes(mean, variation, edges)
    assert sum(each.share for each in found) == pytest.approx(1.0)
    if min(each.tokens for each in found) > 1.0:
        assert sum(each.share * each.tokens for each in found) == pytest.approx(mean)
        square = sum(each.share * (each.tokens**2 + each.deviation**2) for each in found)
        assert sqrt(square - mean * mean) / mean == pytest.approx(variation)
    tokens = [each.tokens for each in found]
    assert tokens == sorted(tokens)


def test_the_tail_of_inputs_is_cut_finer():
    """One request in a hundred is a class of its own: it misses a TTFT objective first."""
    found = classes(1000.0, 0.9, INPUT_EDGES)
    assert found[-1].share == pytest.approx(0.01)
    assert found[-1].tokens > percentile(1000.0, 0.9, 0.99)


def test_percentiles_lie_round_the_mean():
    """A log-normal distribution leans to short requests."""
    assert percentile(1000.0, 0.9, 0.5) < 1000.0 < percentile(1000.0, 0.9, 0.95)


@given(value=st.floats(1.0, 1e7), other=st.floats(0.0, 3.0))
def test_rounding_moves_little_and_only_once(value, other):
    """Lengths in steps of 2-3 % from some twenty tokens on."""
    once = Lengths(value, value, other, other).rounded()
    assert once.rounded() == once
    if value > 20.0:
        assert once.input_mean == pytest.approx(value, rel=0.03)


@pytest.mark.parametrize("mean", [1.0, 1.01, 1.5, 3.0])
def test_no_class_is_shorter_than_a_token_and_the_mean_stays(mean):
    found = classes(mean, 0.8, OUTPUT_EDGES)
    assert min(each.tokens for each in found) == pytest.approx(1.0, abs=1e-6)
    assert sum(each.share * each.tokens for each in found) == pytest.approx(mean, rel=1e-6)


def test_answers_of_one_token_have_no_spread():
    assert [each.tokens for each in classes(1.0, 0.8, OUTPUT_EDGES)] == pytest.approx([1.0] * 10)
