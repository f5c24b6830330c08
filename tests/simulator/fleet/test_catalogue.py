"""What went wrong for users of other scalers, played to ours: pods that wait, silence, skewed clocks, restarts."""

from dataclasses import replace

import pytest
from tests.simulator.fleet.fleets import poisson
from tests.simulator.fleet.watched import Watched, ours

from goodput.domain.conditions import ConditionReason, ConditionStatus, ConditionType
from goodput.simulator.fleet.clients import OpenLoop
from goodput.simulator.fleet.faults import Unready
from goodput.simulator.fleet.requests import Ask
from goodput.simulator.fleet.view import FleetView

LENGTHS = (1000, 200)


def _load(seconds: float, rps: float = 5.0) -> list[Ask]:
    return poisson(rps, seconds, lengths=LENGTHS)


def _step(seconds: float, at: float, rps: float) -> list[Ask]:
    """A load of one replica, and that of more from a time on."""
    more = poisson(rps, seconds - at, seed=2, lengths=LENGTHS)
    return [*_load(seconds, 2.0), *(replace(ask, seconds=at + ask.seconds) for ask in more)]


def test_replicas_that_start_for_minutes_are_counted_and_do_not_cascade():
    """2 to 10 requests/s with 300 s to start: what was asked for in the first minute is the last word, not 2-4-8-16."""
    run = ours(OpenLoop(_step(400.0, 100.0, 8.0)), 400.0, startup_seconds=300.0)
    enough = run.at(160.0).replicas
    assert 3 <= enough <= 6
    assert max(run.replicas(160.0, 400.0)) <= enough + 1


def test_replicas_beyond_the_gpus_are_not_asked_for_again_and_again():
    """One GPU for a load of three replicas: one, and the number that is missing is told."""
    run = ours(OpenLoop(_step(250.0, 100.0, 8.0)), 250.0, gpus_per_node=(1,))
    assert max(run.replicas(0.0, 250.0)) == 1
    told = run.at(240.0).condition(ConditionType.SLO_MET)
    assert (told.status, told.reason) == (ConditionStatus.FALSE, ConditionReason.CAPPED)
    assert "GPU" in told.message


def test_one_unready_pod_changes_nothing_and_freezes_nothing():
    """One of three for two minutes: no change. A load of one more meanwhile is followed all the same."""
    quiet = ours(OpenLoop(_load(270.0, 9.3)), 270.0, replicas=3, faults=(Unready(100.0, 220.0, 1),))
    assert set(quiet.replicas(90.0, 270.0)) == {3}
    assert quiet.outcome.attainment >= 0.98
    asks = [*_load(190.0, 9.0), *(ask for ask in _step(190.0, 130.0, 6.0) if ask.seconds >= 130.0)]
    busy = ours(OpenLoop(asks), 190.0, replicas=3, faults=(Unready(100.0, 180.0, 1),))
    assert max(busy.replicas(130.0, 180.0)) >= 4


# ---------------------------------------------------------------- telemetry
def _between(view: FleetView, begin: float, end: float) -> bool:
    return begin <= view.now < end


def test_a_prometheus_that_answers_nothing_holds_the_fleet_and_says_so():
    """Empty answers from 200 to 400 s, while the load falls to nothing: held until they are back, then let go."""

    def empty(view: FleetView) -> FleetView:
        if _between(view, 200.0, 400.0):
            return replace(view, scrapes={}, routers={})
        return view

    run = ours(OpenLoop(_load(200.0, 9.0)), 700.0, Watched(doctor=empty), replicas=3)
    before = run.at(190.0).replicas
    assert before >= 2
    assert set(run.replicas(200.0, 400.0)) == {before}
    assert run.at(300.0).condition(ConditionType.METRICS_FRESH).status is ConditionStatus.FALSE
    assert run.at(450.0).condition(ConditionType.METRICS_FRESH).status is ConditionStatus.TRUE
    assert run.ticks[-1].replicas == 1


def test_scrapes_that_stand_still_hold_the_fleet_and_say_so():
    """From 200 s on every query returns what it did then: stale, however calm it looks."""
    kept: list[FleetView] = []

    def stale(view: FleetView) -> FleetView:
        if not _between(view, 200.0, 500.0):
            return view
        kept.append(view)
        return replace(view, scrapes=kept[0].scrapes, routers=kept[0].routers)

    run = ours(OpenLoop([*_load(200.0, 9.0), *_load(500.0, 0.5)]), 500.0, Watched(doctor=stale), replicas=3)
    assert set(run.replicas(200.0, 500.0)) == {run.at(190.0).replicas}
    assert run.at(400.0).condition(ConditionType.METRICS_FRESH).status is ConditionStatus.FALSE


@pytest.mark.parametrize("seconds", [-20.0, 20.0])
def test_clocks_that_differ_from_prometheus_change_nothing(seconds):
    """Its clock 20 s behind or ahead of the operator's: the same two replicas, and nobody is called stale."""

    def skewed(view: FleetView) -> FleetView:
        def moved(scrapes):
            return {name: [each._replace(at=each.at + seconds) for each in kept] for name, kept in scrapes.items()}

        return replace(view, scrapes=moved(view.scrapes), routers=moved(view.routers))

    run = ours(OpenLoop(_load(400.0)), 400.0, Watched(doctor=skewed), replicas=2)
    assert set(run.replicas(60.0, 400.0)) == {2}
    assert {tick.condition(ConditionType.METRICS_FRESH).status for tick in run.ticks if tick.seconds > 60.0} == {
        ConditionStatus.TRUE
    }


def test_a_prometheus_that_forgot_its_past_is_no_fall_of_the_load():
    """It restarts at 200 s and is back at 260 s with nothing from before: the fleet stays as it is."""

    def forgetful(view: FleetView) -> FleetView:
        if view.now < 200.0:
            return view
        back = 260.0 if view.now >= 260.0 else view.now + 1.0

        def known(scrapes):
            return {name: new for name, kept in scrapes.items() if (new := [each for each in kept if each.at >= back])}

        return replace(view, scrapes=known(view.scrapes), routers=known(view.routers))

    run = ours(OpenLoop(_load(500.0)), 500.0, Watched(doctor=forgetful), replicas=2)
    assert set(run.replicas(60.0, 500.0)) == {2}
    assert run.at(490.0).condition(ConditionType.METRICS_FRESH).status is ConditionStatus.TRUE


# ---------------------------------------------------------------- the operator
def test_an_operator_that_restarts_decides_as_one_that_did_not():
    """Between two ticks, three times, with what it wrote down: decision by decision the same."""
    asks = _step(220.0, 60.0, 8.0)
    one = ours(OpenLoop(asks), 220.0)
    other = ours(OpenLoop(asks), 220.0, Watched(restarts=(55.0, 85.0, 175.0)))
    assert [tick.replicas for tick in other.ticks] == [tick.replicas for tick in one.ticks]
    assert max(one.replicas(0.0, 220.0)) >= 3


def test_lost_memory_takes_no_replica_away_for_a_window():
    """It is gone when the load has just fallen to a third: nothing is taken away for two minutes, nothing jumps."""
    asks = [*_load(250.0, 9.0), *(ask for ask in _load(700.0, 3.0) if ask.seconds >= 250.0)]
    run = ours(OpenLoop(asks), 700.0, Watched(restarts=(300.0,), forgetful=True), replicas=3)
    before = run.at(290.0).replicas
    assert before >= 2
    assert set(run.replicas(300.0, 420.0)) == {before}
    assert run.ticks[-1].replicas <= 2
