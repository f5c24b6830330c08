"""Policies that look at nothing."""

import pytest
from tests.simulator.fleet.fleets import poisson, settings, steady

from goodput.simulator.fleet.baselines import Oracle, Static, replicas_for, static_peak
from goodput.simulator.fleet.clients import OpenLoop
from goodput.simulator.fleet.requests import Ask
from goodput.simulator.fleet.simulation import simulate


@pytest.mark.parametrize(("rps", "want"), [(0.0, 0), (2.0, 1), (2.01, 2), (8.0, 4), (0.3 / 0.1 * 2.0, 3)])
def test_replicas_hold_a_rate(rps, want):
    assert replicas_for(rps, 2.0) == want


def test_static_peak_is_sized_for_the_busiest_minute():
    """30 requests in one minute and 150 in the next: 2.5 requests/s, of which a replica holds 1."""
    asks = [Ask(2.0 * number, 100, 10) for number in range(30)] + [Ask(60.0 + 0.4 * n, 100, 10) for n in range(150)]
    policy = static_peak(asks, 1.0)
    assert (policy.name, policy.replicas) == ("static-peak", 3)
    assert static_peak([], 1.0).replicas == 1


def test_static_stays_within_the_bounds_of_the_model():
    found = simulate(settings(60.0, replicas=2, max_replicas=3), OpenLoop([]), Static(9))
    assert [(each.before, each.after) for each in found.scale_events] == []
    assert found.timeline[0].desired == 3.0


def test_the_oracle_asks_just_in_time_and_keeps_what_it_needs_again():
    """Minutes that need 1, 3, 1, 1, 1, 3: with 90 s to start, three from 60 - 100 s on, and again from 200 s."""
    counts = (60, 180, 60, 60, 60, 180)
    asks = [Ask(60.0 * m + 60.0 * n / count, 100, 10) for m, count in enumerate(counts) for n in range(count)]
    oracle = Oracle(asks, 1.0, lead_seconds=90.0)
    view = steady(1)
    simulate(settings(10.0), OpenLoop([]), view)
    seen = view.views[-1]
    wants = {at: oracle.decide(seen, float(at)) for at in (-120, -50, -30, 0, 110, 130, 190, 200, 330)}
    assert wants == {-120: 1, -50: 1, -30: 3, 0: 3, 110: 3, 130: 1, 190: 1, 200: 3, 330: 3}


def test_the_oracle_serves_a_jump_that_nobody_could_foresee():
    """From 1 to 5 requests/s at 300 s: ready in time, and gone again after it."""
    asks = [
        *poisson(1.0, 300.0),
        *(Ask(300.0 + each.seconds, 600, 60) for each in poisson(5.0, 300.0, seed=2)),
        *(Ask(600.0 + each.seconds, 600, 60) for each in poisson(1.0, 300.0, seed=3)),
    ]
    fleet = settings(900.0, startup_seconds=100.0)
    found = simulate(fleet, OpenLoop(asks), Oracle(asks, 2.5, lead_seconds=115.0))
    assert found.attainment >= 0.99
    assert found.timeline[1].desired == 1.0
    assert found.timeline[7].ready >= 2.0
    assert found.timeline[13].desired == 1.0
