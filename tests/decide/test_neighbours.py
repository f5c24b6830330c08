"""Why a decision is neither one replica fewer nor one more."""

from __future__ import annotations

import pytest

from goodput.decide.explain import neighbours


@pytest.mark.parametrize(
    ("replicas", "load", "peak", "fewest", "fewer"),
    [
        pytest.param(2, 2.5, 2.5, 1, "2.00 requests/s of capacity is less than the 2.50 to provide for", id="load"),
        pytest.param(2, 1.5, 2.5, 1, "2.00 requests/s of capacity is less than the highest load", id="peak"),
        pytest.param(2, 1.5, 1.5, 1, "load has not left room for the whole window", id="not-yet"),
        pytest.param(2, 1.5, 1.5, 2, "spec.scaling.minReplicas is 2", id="minimum"),
        pytest.param(1, 0.0, 0.0, 1, "spec.scaling.minReplicas is 1", id="none-of-one"),
    ],
)
def test_one_fewer_is_explained_by_what_forbids_it(
    replicas: int, load: float, peak: float, fewest: int, fewer: str
) -> None:
    """With a capacity of 2 requests/s each: the load, its highest in the window, the author, or time."""
    found = neighbours(replicas, load, peak, 2.0, fewest)
    assert found[0].option == f"{replicas - 1} replicas"
    assert found[0].reason.startswith(fewer)


def test_one_more_than_a_limit_allows_is_not_for_lack_of_load():
    """Three of five that the author asks for would carry the load."""
    assert neighbours(3, 1.5, 1.5, 2.0, 5)[1].reason == "a limit stops it"
