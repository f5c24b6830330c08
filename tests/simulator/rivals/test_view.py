"""Histograms as Prometheus has them, and the counts of a view."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulator.rivals.views import pending, ready, starting, view

from goodput.simulator.rivals.view import Histogram

EDGES = (0.1, 0.5, 1.0, 2.0)


def test_a_quantile_is_linear_within_its_bucket():
    """Ten observations, 4 up to 0.1 and 6 in (0.1, 0.5]: rank 9 is 5/6 through the second bucket."""
    histogram = Histogram(EDGES, (4.0, 6.0, 0.0, 0.0, 0.0))

    assert histogram.quantile(0.9) == pytest.approx(0.1 + 0.4 * 5 / 6)
    assert histogram.quantile(0.2) == pytest.approx(0.05)


def test_a_quantile_beyond_the_last_edge_is_that_edge():
    """Prometheus knows no more than that it is at least 2."""
    assert Histogram(EDGES, (0.0, 0.0, 0.0, 0.0, 3.0)).quantile(0.9) == 2.0


def test_nothing_seen_has_no_quantile():
    """PromQL's NaN is None."""
    assert Histogram().quantile(0.9) is None
    assert Histogram(EDGES, (0.0,) * 5).quantile(0.9) is None


@given(st.lists(st.floats(0.0, 10.0), min_size=1), st.floats(0.01, 1.0))
def test_a_quantile_lies_in_the_bucket_of_the_true_one(values, share):
    """Or at an end of it."""
    histogram = Histogram.of(values, EDGES)
    ranked = sorted(values)
    true = ranked[min(len(ranked) - 1, max(0, int(-(-share * len(ranked) // 1)) - 1))]
    upper = min((edge for edge in EDGES if true <= edge), default=2.0)
    lower = max((edge for edge in EDGES if edge < true), default=0.0)
    got = histogram.quantile(share)

    assert got is not None
    assert min(lower, 2.0) - 1e-9 <= got <= upper + 1e-9


@pytest.mark.parametrize(("edges", "counts"), [((1.0, 1.0), (0.0, 0.0, 0.0)), ((1.0, 2.0), (0.0, 0.0))])
def test_a_histogram_that_cannot_be_is_refused(edges, counts):
    """Edges that do not rise, a count too few."""
    with pytest.raises(ValueError, match="histogram"):
        Histogram(edges, counts)


def test_a_view_counts_what_is_asked_for_and_what_serves():
    """Two ready, one starting, one pending; bounds clamp."""
    pool = view(*ready(2), *starting(1), *pending(1), min_replicas=2, max_replicas=5)

    assert (pool.replicas, len(pool.ready)) == (4, 2)
    assert [pool.clamp(n) for n in (0, 3, 9)] == [2, 3, 5]
