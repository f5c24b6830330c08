"""Static peak and oracle: by hand, and against all plans of small cases."""

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput.simulator.bounds import Holding, oracle, required_replicas, static_peak


def test_static_peak_is_the_busiest_minute_over_one_replica():
    """600 requests in a minute are 10/s; at 1.25 each 8, at 1.24 each 9."""
    offsets = [60.0 + n / 10 for n in range(600)] + list(range(60))

    assert static_peak(offsets, 1.25) == 8
    assert static_peak(offsets, 1.24) == 9
    assert static_peak([], 1.25) == 1


def test_required_replicas_are_a_rate_round_each_slot():
    """One request/s for 60 s, then three: slots of 10 s, means over three of them."""
    offsets = [float(n) for n in range(60)] + [60.0 + n / 3 for n in range(180)]

    # Rates 1 ... 1, (1 + 1 + 3) / 3, (1 + 3 + 3) / 3, 3 ... 3.
    assert required_replicas(offsets, 1.0, 120.0, reach_slots=1) == (1, 1, 1, 1, 1, 2, 3, 3, 3, 3, 3, 3)
    assert required_replicas(offsets, 1.0, 120.0, reach_slots=0) == (1,) * 6 + (3,) * 6
    assert required_replicas([], 1.0, 30.0) == (0, 0, 0)


def test_a_short_gap_is_held_through_and_a_long_one_is_not():
    """Need 2, 1 for 20 s, 2, 1 for 50 s, 2 in slots of 10 s; a start-up takes 30 s; one serves at the start."""
    need = [2, 1, 1, 2, 1, 1, 1, 1, 1, 2]
    plan = oracle(need, 10.0, 30.0, ready_at_start=1)

    assert plan.holdings == (
        Holding(0.0, 0.0, 100.0),
        Holding(-30.0, 0.0, 40.0),
        Holding(60.0, 90.0, 100.0),
    )
    assert plan.replica_seconds == 100 + 70 + 40
    assert plan.starts == 2
    assert plan.changes() == ((-30.0, 1), (0.0, 2), (40.0, 1), (60.0, 2), (100.0, 0))
    assert [plan.replicas(at) for at in (0.0, 39.9, 40.0, 60.0, 99.9)] == [2, 2, 1, 2, 2]


def test_what_serves_at_the_start_is_kept_only_if_that_is_cheaper():
    """Three serve; the second is needed after 20 s (held), the third after 60 s (started anew 30 s before)."""
    plan = oracle([1, 1, 2, 2, 2, 2, 3], 10.0, 30.0, ready_at_start=3)

    assert plan.holdings == (Holding(0.0, 0.0, 70.0), Holding(0.0, 0.0, 70.0), Holding(30.0, 60.0, 70.0))
    assert plan.starts == 1


def test_a_minimum_is_kept_all_the_time():
    """No need at all, two are asked for."""
    assert oracle([0, 0, 0], 10.0, 30.0, ready_at_start=2, minimum=2).replica_seconds == 60.0
    assert oracle([0, 0, 0], 10.0, 30.0, ready_at_start=2).replica_seconds == 0.0


def cheapest(need, slot, startup, ready):
    """The least of all plans: every number of ready replicas in every slot, start-ups paid on top."""
    most = max(ready, *need)
    choices = [range(each, most + 1) for each in need]
    return min(
        sum(counts) * slot + startup * sum(max(0, now - before) for before, now in pairwise((ready, *counts)))
        for counts in product(*choices)
    )


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(0, 4), st.integers(0, 3), st.integers(1, 2))
def test_no_plan_is_cheaper(need, startup_slots, ready, slot):
    """Against brute force, in slots of 1 and 2 s with start-ups of 0 to 4 slots."""
    plan = oracle(need, float(slot), float(startup_slots * slot), ready_at_start=ready)

    assert plan.replica_seconds == cheapest(need, slot, startup_slots * slot, ready)


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=40), st.floats(0.0, 50.0), st.integers(0, 6), st.floats(0.5, 20.0)
)
def test_an_oracle_always_has_what_is_needed(need, startup, ready, slot):
    """Ready in every slot, never before it was created plus its start-up; nothing is used after it is deleted."""
    plan = oracle(need, slot, startup, ready_at_start=ready)
    for number, each in enumerate(need):
        middle = (number + 0.5) * slot
        assert sum(holding.ready <= middle < holding.deleted for holding in plan.holdings) >= each

    for holding in plan.holdings:
        started = holding.ready - holding.created
        assert started == pytest.approx(startup) or (started == 0.0 and holding.created == 0.0)
    assert sum(holding.created == holding.ready == 0.0 for holding in plan.holdings) <= max(ready, *need)
