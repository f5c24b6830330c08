"""Goodput from marginals: worked examples, and bounds that hold for every way requests can have been good."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goodput.decide.goodput import Carry, Window, aged, bounds

NOTHING = Carry(0.0, 0.0, 0.0, 0.0)

LONGEST = 5  # windows that a request of the plant takes at most


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
    found = bounds(window(finished, late, slow), NOTHING)
    assert (found.lower, found.upper) == (lower, upper)


def test_a_late_first_token_is_charged_when_its_request_finishes():
    """The miss is seen a window before the request ends: the lower bound must not count that request as good."""
    first = bounds(window(0, late=4, flight=4), NOTHING)
    assert (first.lower, first.upper) == (0, 0)
    assert first.carry.lower == first.carry.upper == 4
    second = bounds(window(10), first.carry)
    assert (second.lower, second.upper) == (6, 6)
    assert second.carry.lower == second.carry.upper == 0


def test_misses_that_cluster_are_not_spread_over_good_windows():
    """A window in which everything missed twice gives 0, not a debt for the windows after it."""
    bad = bounds(window(10, late=10, slow=10), NOTHING)
    assert (bad.lower, bad.upper) == (0, 0)
    good = bounds(window(10), bad.carry)
    assert (good.lower, good.upper) == (10, 10)


def test_a_late_request_that_was_aborted_is_charged_to_nobody_else():
    """It never finished: the upper bound keeps the finished ones."""
    found = bounds(Window(5, 0, 0, 0, 0, 2), Carry(2.0, 2.0, 0.0, 0.0))
    assert found.upper == 5


def test_misses_of_an_hour_ago_are_none_of_a_falling_load():
    """Ten late first tokens, an hour of calm at 20 in flight, then the load ends: its last requests are good."""
    carry = bounds(window(10, late=10, flight=20), NOTHING).carry
    for index in range(1, 240):
        found = bounds(window(10, flight=20), aged(carry, 15.0 * index, 90.0))
        carry = found.carry
    assert carry.upper == 0
    assert bounds(window(20), aged(carry, 3600.0, 90.0)).upper == 20


def test_a_late_first_token_is_carried_for_as_long_as_its_request_may_run():
    """Seen at 0 s and not in flight from 75 s on, where a request may take 90 s: charged, once."""
    carry = aged(NOTHING, 0.0, 90.0)
    carry = bounds(window(0, late=4, flight=10), carry).carry
    for at in (15.0, 30.0, 45.0, 60.0):
        carry = bounds(window(2, flight=8), aged(carry, at, 90.0)).carry
        assert carry.upper == 4
    assert bounds(window(10), aged(carry, 75.0, 90.0)).upper == 6


def test_after_a_gap_in_looking_nothing_old_is_carried():
    """The next scrape comes an hour later: none of what was in flight still is."""
    carry = bounds(window(0, late=4, flight=10), aged(NOTHING, 0.0, 90.0)).carry
    assert aged(carry, 3600.0, 90.0).upper == 0


def _plant(seed: int, requests: int, windows: int) -> tuple[list[Window], list[float]]:
    """Random requests with a first token, an end, and misses; as windows of counters, and the true good per window."""
    draw = random.Random(seed)
    starts, ends = [0] * requests, [0] * requests
    late, slow = [False] * requests, [False] * requests
    calm = draw.choice((2, 6))
    for index in range(requests):
        starts[index] = draw.randrange(windows)
        ends[index] = min(windows - 1, starts[index] + draw.choice((0, 0, 1, 2, LONGEST)))
        trouble = (starts[index] // 3) % calm == 0
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
@given(
    seed=st.integers(0, 10**6),
    requests=st.integers(0, 60),
    windows=st.integers(1, 30),
    kept=st.sampled_from([1, LONGEST, 1000]),
)
def test_cumulative_bounds_always_bracket_what_was_good(seed, requests, windows, kept):
    """Whatever requests did, at every instant: sum of lower <= good so far <= sum of upper.

    However long late first tokens are carried: to drop one only widens.
    """
    seen, good = _plant(seed, requests, windows)
    lower = upper = true = 0.0
    carry = NOTHING
    for at, (each, now_good) in enumerate(zip(seen, good, strict=True)):
        found = bounds(each, aged(carry, float(at), float(kept)))
        carry = found.carry
        assert 0 <= found.lower <= found.upper <= each.finished
        assert 0 <= carry.old <= carry.upper
        lower, upper, true = lower + found.lower, upper + found.upper, true + now_good
        assert lower <= true + 1e-9
        assert upper >= true - 1e-9


@settings(max_examples=200)
@given(seed=st.integers(0, 10**6), requests=st.integers(0, 150), windows=st.integers(1, 40))
def test_the_upper_bound_of_any_window_owes_only_to_what_may_still_run(seed, requests, windows):
    """Over any stretch of time: below what was good by the late first tokens of the time just before it, at most."""
    seen, good = _plant(seed, requests, windows)
    uppers = []
    carry = NOTHING
    for at, each in enumerate(seen):
        found = bounds(each, aged(carry, float(at), float(LONGEST)))
        carry = found.carry
        uppers.append(found.upper)
    for since in range(windows):
        before = sum(each.late_first for each in seen[max(0, since - 2 * LONGEST) : since])
        upper = true = 0.0
        for now_upper, now_good in zip(uppers[since:], good[since:], strict=True):
            upper, true = upper + now_upper, true + now_good
            assert upper >= true - before - 1e-9
