"""The HPA controller's stabilisation and limits of change, worked by hand."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulator.rivals.views import ready, view

from goodput.simulator.rivals.behaviour import (
    KUBERNETES_DEFAULT,
    LLMD_SLO_AWARE,
    LLMD_TOKEN_AWARE,
    Behaviour,
    Direction,
    HpaState,
    Limit,
)


def follow(behaviour, proposals, replicas, interval=15.0, **bounds):
    """Replicas after each proposal, every `interval` seconds."""
    state = HpaState()
    seen = []
    for number, proposal in enumerate(proposals):
        replicas, state = behaviour.apply(proposal, view(*ready(replicas), **bounds), state, number * interval)
        seen.append(replicas)
    return seen


def test_up_waits_for_its_window_and_then_doubles_or_adds_four():
    """llm-d's loop at 3 replicas, 20 proposed: the initial recommendation of 3 counts for 30 s; then max(6, 7) = 7 in
    60 s from 3. At 90 s the 4 of t=30 are out of the period: from 7, max(14, 11) = 14; at 150 s the cap of 20."""
    seen = follow(LLMD_SLO_AWARE, [20] * 11, 3)

    assert seen == [3, 3, 7, 7, 7, 7, 14, 14, 14, 14, 20]


def test_down_takes_the_highest_of_its_window_and_one_each_two_minutes():
    """A single proposal of 8 keeps 8 for 180 s; then 1 per 120 s."""
    seen = follow(LLMD_SLO_AWARE, [8, *[3] * 24], 8)

    assert seen[:12] == [8] * 12
    assert seen[12:20] == [7] * 8
    assert seen[20:25] == [6] * 5


def test_the_default_of_kubernetes_goes_up_at_once_and_down_after_five_minutes():
    """3 to 10: max(6, 7) = 7 in the first 15 s, then max(14, 11) caps nothing. Down all at once after 300 s."""
    assert follow(KUBERNETES_DEFAULT, [10, 10, 10], 3) == [7, 10, 10]
    down = follow(KUBERNETES_DEFAULT, [10, *[2] * 21], 10)

    assert down[:20] == [10] * 20
    assert down[20:] == [2, 2]


def test_the_token_aware_guide_adds_one_each_three_minutes():
    """Whatever is asked for."""
    seen = follow(LLMD_TOKEN_AWARE, [9] * 25, 2)

    assert seen == [3] * 12 + [4] * 12 + [5]


def test_bounds_come_last_and_hold_even_when_nothing_changes():
    """A minimum of 5 lifts 3 at once; a maximum of 2 cuts it."""
    assert follow(LLMD_SLO_AWARE, [3], 3, min_replicas=5) == [5]
    assert follow(LLMD_SLO_AWARE, [3], 3, max_replicas=2) == [2]


def test_a_percentage_down_cuts_fractions_off():
    """A tenth of 7 is 6.3 left: 6, as the controller truncates."""
    tenth = Behaviour(Direction(0.0, ()), Direction(0.0, (Limit(60.0, percent=10.0),)))

    assert follow(tenth, [1], 7) == [6]


def test_a_limit_is_of_pods_or_of_percent():
    """Neither and both are refused."""
    for values in ({}, {"pods": 1, "percent": 1.0}):
        with pytest.raises(ValueError, match="limit"):
            Limit(60.0, **values)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.integers(1, 20))
def test_no_step_is_larger_than_the_limits_allow(proposals, replicas):
    """Up by max(100 %, 4) at most, down by one, never out of bounds."""
    seen = [replicas, *follow(LLMD_SLO_AWARE, proposals, replicas, min_replicas=1, max_replicas=20)]

    for old, new in pairwise(seen):
        assert old - 1 <= new <= max(2 * old, old + 4)
        assert 1 <= new <= 20
