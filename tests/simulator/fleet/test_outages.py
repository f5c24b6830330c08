"""Nodes that die, come back, are cordoned and drained."""

from typing import Any

import pytest
from tests.simulator.fleet.fleets import Script, poisson, settings, steady
from tests.simulator.fleet.watched import Run, ours

from goodput.domain.observed import PodState
from goodput.simulator.fleet.clients import OpenLoop
from goodput.simulator.fleet.faults import Crash, NodeCordon, NodeFailure
from goodput.simulator.fleet.nodes import Nodes
from goodput.simulator.fleet.outcome import Outcome
from goodput.simulator.fleet.requests import End
from goodput.simulator.fleet.simulation import simulate


def _states(script: Script, seconds: float) -> dict[str, PodState]:
    return {pod.name[-1]: pod.state for pod in script.at(seconds).pods}


def _run(
    script: Script, seconds: float, *faults: Any, nodes: tuple[int, ...] = (1, 1, 1), rps: float = 2.0, **changes: Any
) -> Outcome:
    """Two replicas on nodes 0 and 1 at the start, unless changed."""
    fleet = settings(seconds, **{"replicas": 2, "gpus_per_node": nodes, "faults": faults, **changes})
    return simulate(fleet, OpenLoop(poisson(rps, seconds)), script)


def test_pods_do_not_go_to_nodes_that_are_lost():
    nodes = Nodes((2, 2, 2))
    nodes.cordoned.add(0)
    nodes.not_ready.add(2)
    assert [nodes.place(1) for _ in range(3)] == [1, 1, None]
    assert (nodes.installed, nodes.used, len(nodes), nodes.count) == (2, 2, 1, 3)
    assert [nodes.lost(node) for node in (0, 1, 2, None)] == [True, False, True, False]


def test_a_dead_node_is_seen_late_and_its_pods_are_replaced_after_the_eviction_time():
    """Dead at 100 s: Ready to the API server until 150 s, Unready until 450 s, then Terminating and another made."""
    script = steady(2)
    found = _run(script, 600.0, NodeFailure(100.0, 0))
    assert _states(script, 140.0) == {"1": PodState.READY, "2": PodState.READY}
    assert set(script.at(130.0).latest) == {"serve-0002"}  # scrapes fail at once
    assert _states(script, 160.0) == {"1": PodState.UNREADY, "2": PodState.READY}
    seen = script.at(160.0)
    assert [pod.node_lost for pod in seen.pods] == [True, False]
    assert [pod.ready_at is None for pod in seen.pods] == [True, False]
    assert (seen.gpus_installed, seen.gpus_used, seen.nodes) == (2, 1, 2)
    assert _states(script, 440.0) == {"1": PodState.UNREADY, "2": PodState.READY}
    assert _states(script, 460.0) == {"1": PodState.TERMINATING, "2": PodState.READY, "3": PodState.STARTING}
    assert _states(script, 590.0) == {"1": PodState.TERMINATING, "2": PodState.READY, "3": PodState.READY}
    # What was in the dead engine is cut; routers leave it out after two checks, what it got is tried again.
    failed = [each for each in found.records if each.end is not End.FINISHED]
    assert failed
    assert all(90.0 < each.ask.seconds < 106.0 for each in failed)
    assert {each.pod for each in found.records if each.ask.seconds > 520.0} == {"serve-0002", "serve-0003"}
    # 100 s of the first, 600 s of the second, and the third from its placing on.
    assert found.gpu_seconds == pytest.approx(100.0 + 600.0 + 150.0, abs=1.0)
    assert found.replica_seconds == pytest.approx(1200.0)


def test_a_node_that_is_back_in_time_starts_its_containers_again():
    """Dead from 100 to 250 s: the same pod serves again after another start-up, and nobody took its place."""
    script = steady(2)
    found = _run(script, 400.0, NodeFailure(100.0, 0, back_at_seconds=250.0))
    assert _states(script, 240.0) == {"1": PodState.UNREADY, "2": PodState.READY}
    assert _states(script, 260.0) == {"1": PodState.STARTING, "2": PodState.READY}
    assert _states(script, 390.0) == {"1": PodState.READY, "2": PodState.READY}
    assert [pod.restarts for pod in script.at(390.0).pods] == [1, 0]
    assert script.at(390.0).gpus_installed == 3
    assert found.gpu_seconds == pytest.approx(800.0 - 150.0, abs=1.0)


def test_a_node_that_is_back_within_its_grace_was_never_lost_to_the_api_server():
    """30 s away: its pod is Ready, then starts again; a later failure has a grace of its own."""
    script = steady(2)
    _run(script, 400.0, NodeFailure(100.0, 0, back_at_seconds=130.0), NodeFailure(300.0, 0))
    assert _states(script, 120.0)["1"] is PodState.READY
    assert _states(script, 150.0)["1"] is PodState.STARTING
    assert _states(script, 190.0)["1"] is PodState.READY
    assert _states(script, 340.0)["1"] is PodState.READY
    assert _states(script, 360.0)["1"] is PodState.UNREADY


def test_a_node_that_is_back_late_finds_its_pods_replaced():
    """Back at 500 s, 50 s after they were deleted: they are gone then, and its GPU is free."""
    script = steady(2)
    _run(script, 600.0, NodeFailure(100.0, 0, back_at_seconds=500.0))
    assert _states(script, 490.0)["1"] is PodState.TERMINATING
    assert set(_states(script, 510.0)) == {"2", "3"}
    assert (script.at(510.0).gpus_installed, script.at(510.0).gpus_used) == (3, 2)


def test_without_room_a_lost_replica_waits_for_its_node():
    """Two nodes of one GPU: the replacement is Pending until the node is back."""
    script = steady(2)
    _run(script, 700.0, NodeFailure(100.0, 1, back_at_seconds=600.0), nodes=(1, 1), rps=1.0)
    assert _states(script, 590.0) == {"1": PodState.READY, "2": PodState.TERMINATING, "3": PodState.PENDING}
    assert _states(script, 690.0) == {"1": PodState.READY, "3": PodState.READY}


def test_a_pod_that_is_lost_goes_first_when_there_are_to_be_fewer():
    """From two replicas to one while a node is NotReady: the one that serves stays."""
    script = Script([(-1e9, 2), (200.0, 1)])
    found = _run(script, 400.0, NodeFailure(100.0, 1), rps=1.0)
    assert _states(script, 220.0) == {"1": PodState.READY, "2": PodState.TERMINATING}
    assert all(each.end is End.FINISHED for each in found.records if each.ask.seconds > 110.0)


def test_an_engine_that_starts_on_a_dead_node_never_serves():
    """It crashed just before its node died: its container does not come back."""
    script = steady(2)
    _run(script, 200.0, Crash(90.0, 1), NodeFailure(95.0, 0))
    assert _states(script, 190.0) == {"1": PodState.UNREADY, "2": PodState.READY}


def test_a_cordoned_node_serves_on_and_takes_no_new_pods():
    """The only node: a third replica finds no room until it is uncordoned, and its GPUs do not count."""
    script = Script([(-1e9, 2), (60.0, 3)])
    found = _run(script, 300.0, NodeCordon(50.0, 150.0, 0), nodes=(3,))
    assert _states(script, 140.0) == {"1": PodState.READY, "2": PodState.READY, "3": PodState.PENDING}
    seen = script.at(140.0)
    assert (seen.gpus_installed, seen.gpus_used, seen.nodes) == (0, 0, 0)
    assert [pod.node_lost for pod in seen.pods] == [True, True, False]
    assert _states(script, 290.0)["3"] is PodState.READY
    assert found.lost == 0


def test_a_drain_moves_one_replica_after_the_other_and_cuts_nothing():
    """Both replicas of a node: the second one goes when the other's successor is ready, some 45 s later."""
    script = steady(2)
    found = _run(script, 400.0, NodeCordon(60.0, 1e9, 0, drain=True), nodes=(4, 3))
    assert {pod.node for pod in script.at(50.0).pods} == {0}
    assert [_states(script, 70.0)[name] for name in "12"].count(PodState.TERMINATING) == 1
    assert [_states(script, 100.0).get(name) for name in "12"].count(PodState.READY) == 1
    assert {pod.node for pod in script.at(390.0).pods} == {1}
    assert [pod.state for pod in script.at(390.0).pods] == [PodState.READY] * 2
    ready = [sum(pod.state is PodState.READY for pod in view.pods) for view in script.views]
    assert min(ready) == 1
    assert {each.end for each in found.records} == {End.FINISHED}


def test_a_fault_of_a_node_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="no node 7"):
        _run(steady(2), 10.0, NodeFailure(5.0, 7))


# ---------------------------------------------------------------- the operator's law
def _ours(fault: NodeFailure | NodeCordon, nodes: tuple[int, ...]) -> Run:
    """A load for two replicas, and a fault at 150 s."""
    asks = poisson(5.0, 450.0, lengths=(1000, 200))
    return ours(OpenLoop(asks), 450.0, replicas=2, gpus_per_node=nodes, faults=(fault,))


def test_the_law_replaces_what_a_dead_node_held_once_it_is_known_and_says_so():
    """NotReady at 200 s: a stand-in is asked for within a tick, not after the five minutes until the eviction."""
    run = _ours(NodeFailure(150.0, 0), (2, 2, 2, 2))
    assert set(run.replicas(0.0, 200.0)) == {2}
    first = next(tick for tick in run.ticks if "lost nodes" in tick.plan.decision.detail)
    assert 200.0 <= first.seconds <= 210.0
    assert "node-0" in first.plan.decision.detail
    assert max(run.replicas(0.0, 450.0)) == 3
    late = [each for each in run.outcome.records if each.ask.seconds > 300.0]
    assert sum(each.end is End.FINISHED for each in late) >= 0.99 * len(late)


def test_the_law_has_stand_ins_ready_while_a_node_is_drained():
    """Both are on it: one more is asked for within a tick, no request is lost, and afterwards there are two again."""
    run = _ours(NodeCordon(150.0, 1e9, 0, drain=True), (8, 3))
    assert max(run.replicas(150.0, 161.0)) == 3
    assert run.ticks[-1].replicas == 2
    assert {each.end for each in run.outcome.records} == {End.FINISHED}
