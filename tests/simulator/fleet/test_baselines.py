"""Policies that look at nothing."""

from tests.simulator.fleet.fleets import poisson, settings, steady

from goodput.simulator.fleet.baselines import Oracle, Static, static_peak
from goodput.simulator.fleet.clients import OpenLoop
from goodput.simulator.fleet.requests import Ask
from goodput.simulator.fleet.simulation import simulate


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
    """A minute of 3 requests/s at 600 s, another 60 s after it, one more 300 s later: with 100 s to start a replica."""
    busy = [(600.0, 660.0), (720.0, 780.0), (1080.0, 1140.0)]
    asks = [Ask(float(second), 100, 10) for second in range(1800)]
    asks += [Ask(begin + 0.5 * n, 100, 10) for begin, end in busy for n in range(int(2 * (end - begin)))]
    oracle = Oracle(asks, 1.2, seconds=1800.0, lead_seconds=100.0)
    view = steady(1)
    simulate(settings(10.0), OpenLoop([]), view)
    seen = view.views[-1]
    wants = {at: oracle.decide(seen, float(at)) for at in (-100, 0, 450, 590, 690, 745, 900, 1050, 1100, 1300)}
    assert wants == {-100: 1, 0: 1, 450: 1, 590: 3, 690: 3, 745: 3, 900: 1, 1050: 3, 1100: 3, 1300: 1}


def test_the_oracle_serves_a_jump_that_nobody_could_foresee():
    """From 1 to 5 requests/s at 300 s: ready in time, and gone again after it."""
    asks = [
        *poisson(1.0, 300.0),
        *(Ask(300.0 + each.seconds, 600, 60) for each in poisson(5.0, 300.0, seed=2)),
        *(Ask(600.0 + each.seconds, 600, 60) for each in poisson(1.0, 300.0, seed=3)),
    ]
    fleet = settings(900.0, startup_seconds=100.0)
    found = simulate(fleet, OpenLoop(asks), Oracle(asks, 2.5, seconds=900.0, lead_seconds=115.0))
    assert found.attainment >= 0.99
    assert found.timeline[1].desired == 1.0
    assert found.timeline[7].ready >= 2.0
    assert found.timeline[13].desired == 1.0
