"""Pods: limited GPUs, start-up, failures, and what they cost."""

import pytest
from tests.simulator.fleet.fleets import PLANT, Script, poisson, settings, steady

from goodput.domain.observed import PodState
from goodput.simulator.capacity import engine_config
from goodput.simulator.fleet.clients import OpenLoop
from goodput.simulator.fleet.faults import Crash, CrashLoop, Slowdown, Throttle, Unready
from goodput.simulator.fleet.nodes import Nodes
from goodput.simulator.fleet.requests import End
from goodput.simulator.fleet.simulation import simulate


def _states(script: Script, seconds: float) -> list[PodState]:
    return [pod.state for pod in script.at(seconds).pods]


def test_a_pod_goes_to_the_node_with_most_free_gpus():
    """Equal nodes fill in turn; one that has too few for a replica is left out."""
    nodes = Nodes((4, 2, 4))
    assert [nodes.place(2) for _ in range(6)] == [0, 2, 0, 1, 2, None]
    nodes.release(2, 2)
    assert (nodes.place(2), nodes.used, nodes.installed) == (2, 10, 10)


def test_replicas_beyond_the_gpus_wait_and_take_the_place_of_those_that_go():
    """Four replicas on three GPUs: one is Pending, costs nothing, and starts when another is gone."""
    script = Script([(-1e9, 1), (0.0, 4), (100.0, 3), (160.0, 4)])
    fleet = settings(300.0, gpus_per_node=(2, 1))
    found = simulate(fleet, OpenLoop(poisson(0.5, 300.0)), script)
    assert _states(script, 90.0).count(PodState.READY) == 3
    assert _states(script, 90.0).count(PodState.PENDING) == 1
    assert script.at(90.0).gpus_used == 3
    # The one that waits goes first, at once.
    assert _states(script, 110.0) == [PodState.READY] * 3
    assert _states(script, 290.0).count(PodState.PENDING) == 1
    assert found.gpu_seconds == pytest.approx(3 * 300.0)
    assert found.lost == 0


def test_a_pending_pod_is_placed_when_gpus_are_given_back():
    """Two GPUs: a replica crashes for ever and is replaced by name while another waits."""
    script = Script([(-1e9, 2), (10.0, 3), (60.0, 1), (80.0, 2)])
    found = simulate(settings(200.0, replicas=2, gpus_per_node=(2,)), OpenLoop(poisson(0.5, 200.0)), script)
    # Two go at 60 s: the pending one at once, one after its preStop; at 80 s the next is placed.
    assert script.at(90.0).gpus_used == 2
    assert _states(script, 190.0) == [PodState.READY] * 2
    assert found.lost == 0


def test_start_up_times_are_drawn_around_their_mean():
    """Twelve new replicas: each is ready 45 s +- 10 % and a second after its creation, no two alike."""
    script = Script([(-1e9, 1), (0.0, 13)])
    simulate(settings(120.0, gpus_per_node=(16,)), OpenLoop(poisson(0.5, 120.0)), script)
    made = [pod for pod in script.at(110.0).pods if pod.created_at >= 0.0]
    took = [pod.ready_at - pod.created_at for pod in made if pod.ready_at is not None]
    assert len(took) == len(set(took)) == 12
    assert all(1.0 + 0.9 * 45.0 <= seconds <= 1.0 + 1.1 * 45.0 for seconds in took)
    assert sum(took) / 12 == pytest.approx(46.0, rel=0.05)


def test_a_crash_cuts_what_runs_and_the_pod_comes_back():
    """Streams of the dead engine fail; others are served; after another start-up it serves again."""
    script = steady(2)
    fleet = settings(200.0, replicas=2, faults=(Crash(50.0, 1),))
    found = simulate(fleet, OpenLoop(poisson(3.0, 200.0, lengths=(600, 120))), script)
    assert _states(script, 60.0) == [PodState.STARTING, PodState.READY]
    assert script.at(60.0).pods[0].ready_at is None
    assert _states(script, 120.0) == [PodState.READY, PodState.READY]
    assert [pod.restarts for pod in script.at(120.0).pods] == [1, 0]
    failed = [each for each in found.records if each.end is End.FAILED]
    assert failed
    # Cut at the crash, or sent to the dead engine until the checks of the routers failed.
    assert all(40.0 < each.ask.seconds < 56.0 for each in failed)
    # Routers count what they answered with an error, not streams that were cut.
    errors = sum(each[-1].errors for each in script.at(190.0).routers.values())
    assert errors == sum(1 for each in failed if not each.pod) < len(failed)
    assert {each.pod for each in found.records if each.ask.seconds > 130.0} == {"serve-0001", "serve-0002"}


def test_a_crash_loop_never_serves_until_it_is_over():
    """New engines die when they should turn ready: Failed between restarts, Ready after the cause is gone."""
    script = Script([(-1e9, 1), (0.0, 2)])
    fleet = settings(700.0, faults=(CrashLoop(0.0, 300.0),))
    simulate(fleet, OpenLoop(poisson(0.5, 700.0)), script)
    seen = [view.pods[1] for view in script.views if 10.0 <= view.now <= 300.0]
    assert {pod.state for pod in seen} == {PodState.STARTING, PodState.FAILED}
    # Dead after about 46, 91, 146 (10 s later), 211 (20 s later) and 296 s (40 s later).
    assert seen[-1].restarts == pytest.approx(4, abs=1)
    assert _states(script, 690.0) == [PodState.READY, PodState.READY]


def test_a_pod_whose_probes_fail_is_left_out_and_comes_back():
    """Unready for two minutes: what it has it finishes, nothing new goes there, nothing is lost."""
    script = steady(2)
    fleet = settings(300.0, replicas=2, faults=(Unready(60.0, 180.0, 1),))
    found = simulate(fleet, OpenLoop(poisson(2.0, 300.0)), script)
    assert _states(script, 100.0) == [PodState.UNREADY, PodState.READY]
    assert _states(script, 190.0) == [PodState.READY, PodState.READY]
    assert {each.end for each in found.records} == {End.FINISHED}
    meanwhile = {each.pod for each in found.records if 65.0 < each.ask.seconds < 180.0}
    assert meanwhile == {"serve-0002"}
    assert {each.pod for each in found.records if each.ask.seconds > 185.0} == {"serve-0001", "serve-0002"}


def test_a_throttled_replica_is_slower_by_its_share():
    """At half speed one replica takes twice as long for each token, and as long as before afterwards."""
    asks = poisson(0.2, 900.0, lengths=(500, 50))
    fleet = settings(900.0, faults=(Throttle(300.0, 600.0, 1, 0.5),))
    found = simulate(fleet, OpenLoop(asks), steady(1))

    def tpot(begin: float, end: float) -> float:
        times = [each.tpot_seconds for each in found.records if begin <= each.ask.seconds < end - 10.0]
        return sorted(time for time in times if time is not None)[len(times) // 2]

    assert tpot(300.0, 600.0) == pytest.approx(2.0 * tpot(0.0, 300.0), rel=0.05)
    assert tpot(600.0, 900.0) == pytest.approx(tpot(0.0, 300.0), rel=0.05)


def test_a_slower_plant_is_slower_on_every_replica_that_comes_later_too():
    """At 0.8 of the speed from 300 s on, a token takes 1.25 times as long, also on the replica made at 400 s."""
    asks = poisson(0.2, 900.0, lengths=(500, 50))
    fleet = settings(900.0, faults=(Slowdown(300.0, 0.8),))
    found = simulate(fleet, OpenLoop(asks), Script([(-1e9, 1), (400.0, 2)]))

    def tpot(begin: float, end: float, pod: str) -> float:
        each = [one for one in found.records if begin <= one.ask.seconds < end - 10.0 and one.pod == pod]
        times = sorted(one.tpot_seconds for one in each if one.tpot_seconds is not None)
        return times[len(times) // 2]

    before = tpot(0.0, 300.0, "serve-0001")
    assert tpot(300.0, 900.0, "serve-0001") == pytest.approx(before / 0.8, rel=0.05)
    assert tpot(500.0, 900.0, "serve-0002") == pytest.approx(before / 0.8, rel=0.05)


def test_two_gpus_for_each_replica_cost_twice():
    """GPU-seconds count GPUs, replica-seconds replicas."""
    plant = PLANT.with_gpus(2)
    fleet = settings(100.0, plant=plant, engine=engine_config(plant), replicas=2)
    found = simulate(fleet, OpenLoop(poisson(1.0, 100.0)), steady(2))
    assert found.gpu_seconds == pytest.approx(400.0)
    assert found.replica_seconds == pytest.approx(200.0)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"seconds": 0.0}, "seconds"),
        ({"min_replicas": 3, "max_replicas": 2}, "max_replicas"),
        ({"startup_spread": 1.0}, "startup_spread"),
        ({"gpus_per_node": (0, 0)}, "gpus_per_node"),
        ({"pre_stop_seconds": 400.0}, "grace_seconds"),
    ],
)
def test_a_fleet_that_cannot_be_is_named(changes, word):
    """Settings are refused where they are made."""
    with pytest.raises(ValueError, match=word):
        settings(**{"seconds": 10.0, **changes})
