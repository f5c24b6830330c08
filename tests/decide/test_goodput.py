"""Goodput from marginals: worked examples, and bounds that hold for every way requests can have been good."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goodput.decide.goodput import Window, bounds


def window(finished: float, late: float = 0, slow: float = 0, late_end: float = 0, flight: float = 0) -> Window:
    return Window(finished, late, slow, late_end, flight, 0.0)


@pytest.mark.parametrize(
    ("finished", "late", "slow", "lower", "upper"),
    [
        (100, 0, 0, 100, 100),
        (100, 3, 3, 94, 97),
        (100, 70, 0, 30, 30),
        (100, 60, 60, 0, 40),
        (0, 0, 0, 0, 0),
    ],
    ids=["all good", "97 % each is 94 % at worst", "30 of 100", "misses overlap at least by 20", "nothing"],
)
def test_joint_share_is_bounded_by_its_marginals(finished, late, slow, lower, upper):
    """max(0, a + b - 1) <= joint <= min(a, b)."""
    found = bounds(window(finished, late, slow), 0.0, 0.0)
    assert (found.lower, found.upper) == (lower, upper)


def test_a_late_first_token_is_charged_when_its_request_finishes():
    """The miss is seen a window before the request ends: the lower bound must not count that request as good."""
    first = bounds(window(0, late=4, flight=4), 0.0, 0.0)
    assert (first.lower, first.upper) == (0, 0)
    assert first.carry_lower == first.carry_upper == 4
    second = bounds(window(10), first.carry_lower, first.carry_upper)
    assert (second.lower, second.upper) == (6, 6)
    assert second.carry_lower == second.carry_upper == 0


def test_misses_that_cluster_are_not_spread_over_good_windows():
    """A window in which everything missed twice gives 0, not a debt for the windows after it."""
    bad = bounds(window(10, late=10, slow=10), 0.0, 0.0)
    assert (bad.lower, bad.upper) == (0, 0)
    good = bounds(window(10), bad.carry_lower, bad.carry_upper)
    assert (good.lower, good.upper) == (10, 10)


def test_a_late_request_that_was_aborted_is_charged_to_nobody_else():
    """It never finished: the upper bound keeps the finished ones."""
    found = bounds(Window(5, 0, 0, 0, 0, 2), 2.0, 2.0)
    assert found.upper == 5


def _plant(seed: int, requests: int, windows: int) -> tuple[list[Window], list[float]]:
    """Random requests with a first token, an end, and misses; as windows of counters, and the true good per window."""
    draw = random.Random(seed)
    starts, ends = [0] * requests, [0] * requests
    late, slow = [False] * requests, [False] * requests
    for index in range(requests):
        starts[index] = draw.randrange(windows)
        ends[index] = min(windows - 1, starts[index] + draw.choice((0, 0, 1, 2, 5)))
        trouble = (starts[index] // 3) % 2 == 0
        late[index] = draw.random() < (0.5 if trouble else 0.05)
        slow[index] = draw.random() < (0.6 if trouble else 0.05)
    seen, good = [], []
    for now in range(windows):
        done = [index for index in range(requests) if ends[index] == now]
        seen.append(
            Window(
                len(done),
                sum(1 for index in range(requests) if starts[index] == now and late[index]),
                sum(1 for index in done if slow[index]),
                0.0,
                sum(1 for index in range(requests) if starts[index] <= now < ends[index]),
                0.0,
            )
        )
        good.append(sum(1 for index in done if not late[index] and not slow[index]))
    return seen, good


@settings(max_examples=200)
@given(seed=st.integers(0, 10**6), requests=st.integers(0, 60), windows=st.integers(1, 12))
def test_cumulative_bounds_always_bracket_what_was_good(seed, requests, windows):
    """Whatever requests did, at every instant: sum of lower <= good so far, and good in the end <= sum of upper."""
    seen, good = _plant(seed, requests, windows)
    lower = upper = true = carry_lower = carry_upper = 0.0
    for each, now_good in zip(seen, good, strict=True):
        found = bounds(each, carry_lower, carry_upper)
        carry_lower, carry_upper = found.carry_lower, found.carry_upper
        assert 0 <= found.lower <= found.upper <= each.finished
        lower, upper, true = lower + found.lower, upper + found.upper, true + now_good
        assert lower <= true + 1e-9
        assert upper >= true - 1e-9
