"""A roll-out for which a namespace has no room: what serves serves on, and the number of missing GPUs is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.controllers.test_rollout import NOW, OLD, M, fleet, limited, looked, pod, priced

from goodput.adapters.kinds import DEPLOYMENTS, PODS
from goodput.domain.conditions import ConditionReason
from goodput.domain.identity import Key
from goodput.domain.observed import ModelView, PodState, Snapshot
from goodput.domain.plan import ModelPlan, Plan
from goodput_controllers.rollout import Rollouts

N = Key("a", "n")


def lone(name: str = "m", *, load: float | None = 1.0, ready: bool = True) -> tuple[ModelView, ModelPlan]:
    """One replica of two GPUs at rest."""
    only = pod("a", PodState.READY if ready else PodState.UNREADY)
    view, plan = fleet(only, name=name, rolling=False, load=load)
    assert plan.pool is not None
    view = replace(view, pool=replace(view.pool, spec_replicas=1))
    return view, replace(plan, pool=replace(plan.pool, replicas=1))


def asked(rollouts: Rollouts, *keys: Key) -> Rollouts:
    """Rendering finds that these were edited, and that their templates were withheld."""
    for key in keys:
        assert not rollouts.room(key)
        rollouts.withheld(key, waits=True)
    return rollouts


def blocked(rollouts: Rollouts, key: Key = M) -> str:
    problem = rollouts.problem(key)
    if problem is None:
        return ""
    assert (problem.reason, problem.fatal) == (ConditionReason.ROLLOUT_BLOCKED, False)
    return problem.message


@pytest.mark.parametrize(("granted", "missing"), [(2, 2), (3, 1)])
def test_the_only_replica_is_not_replaced_without_room_for_another(granted: int, missing: int) -> None:
    """It would be down for a start-up. Nothing is told as long as nobody asks for anything."""
    rollouts = limited(max_gpus_per_namespace=granted)
    looked(lone(), rollouts=rollouts)
    assert (rollouts.room(M), blocked(rollouts)) == (False, "")
    looked(lone(), rollouts=asked(rollouts, M))
    assert not rollouts.room(M)
    assert f"the roll-out needs {missing} more GPUs than the {granted} that namespace a may hold" in blocked(rollouts)
    rollouts.withheld(M, waits=False)
    looked(lone(), rollouts=rollouts)
    assert blocked(rollouts) == "", "the edit was undone"


def test_money_that_is_missing_is_told_too() -> None:
    rollouts = limited(max_cost_per_hour_per_namespace=3.0)
    looked(priced(lone(), 2.0), rollouts=rollouts)
    looked(priced(lone(), 2.0), rollouts=asked(rollouts, M))
    assert "the roll-out needs 1.00 $/h more than the 3.00 $/h that namespace a may spend" in blocked(rollouts)
    free = limited(max_cost_per_hour_per_namespace=3.0)
    looked(lone(), rollouts=free)
    looked(lone(), rollouts=asked(free, M))
    assert "needs a known price of l40s" in blocked(free)


def test_with_room_it_begins_as_soon_as_it_said_so() -> None:
    rollouts = limited(max_gpus_per_namespace=4)
    looked(lone(), rollouts=rollouts)
    looked(lone(), rollouts=asked(rollouts, M))
    assert (rollouts.room(M), rollouts.surge(M), blocked(rollouts)) == (True, True, "")


def test_where_nothing_is_limited_everybody_begins_at_once() -> None:
    rollouts = looked(lone())
    assert (rollouts.room(M), rollouts.surge(M)) == (True, True)


@pytest.mark.parametrize("load", [3.0, 4.0, None])
def test_of_two_replicas_one_goes_first_if_the_other_carries_the_load(load: float | None) -> None:
    """If not, or if nobody knows, it is blocked."""
    rollouts = looked(fleet(*OLD, rolling=False, load=load), rollouts=limited(max_gpus_per_namespace=4))
    assert not rollouts.surge(M)
    assert rollouts.room(M) is (load == 3.0)


@pytest.mark.parametrize("what", ["not ready", "never served"])
def test_where_nothing_serves_there_is_nothing_to_protect(what: str) -> None:
    """What was edited may be what makes it serve."""
    model = lone(ready=False) if what == "not ready" else fleet(pod("a", PodState.FAILED), rolling=False)
    rollouts = looked(model, rollouts=limited(max_gpus_per_namespace=2))
    assert (rollouts.room(M), rollouts.surge(M)) == (True, False)


def test_of_several_that_begin_at_once_only_as_many_may_as_there_is_room_for() -> None:
    """Six GPUs are granted and four are held: the first begins, the second is told what it waits for, and follows."""
    rollouts = limited(max_gpus_per_namespace=6)
    looked(lone("m"), lone("n"), rollouts=rollouts)
    looked(lone("m"), lone("n"), rollouts=asked(rollouts, M, N))
    assert (rollouts.room(M), rollouts.room(N)) == (True, False)
    assert "needs 2 more GPUs than the 6" in blocked(rollouts, N)
    rollouts.withheld(M, waits=False)
    view, plan = lone("m")
    under_way = replace(view, pool=replace(view.pool, rolling_out=True)), plan
    looked(under_way, lone("n"), rollouts=rollouts)
    assert (rollouts.room(M), rollouts.surge(M), rollouts.room(N)) == (True, True, False)
    looked(lone("m"), lone("n"), rollouts=rollouts)
    assert (rollouts.room(M), rollouts.room(N), blocked(rollouts, N)) == (False, True, "")


def test_one_that_cannot_begin_does_not_keep_the_turn_of_updates() -> None:
    """It has no room; the one of another namespace updates, and so does it when there is."""
    view, plan = lone("z")
    elsewhere = replace(view, intent=replace(view.intent, key=Key("b", "z"))), replace(plan, key=Key("b", "z"))
    twins = [lone("m"), lone("n")]
    for granted, turn in ((4, Key("b", "z")), (6, M)):
        rollouts = limited(max_gpus_per_namespace=granted)
        models = [*twins, elsewhere]
        snapshot = Snapshot(models=tuple(each for each, _ in models), gpu_types=(), supply=())
        rollouts.look(snapshot, Plan(models=tuple(each for _, each in models)), [M, N, Key("b", "z")], NOW)
        assert [key for key in (M, N, Key("b", "z")) if rollouts.take_update(key)] == [turn]


def template(bench: Any) -> dict[str, Any]:
    found: dict[str, Any] = bench.api.objects[DEPLOYMENTS.plural][Key("a", "llama-serve")]["spec"]["template"]
    return found


async def test_an_edit_without_room_waits_and_rolls_out_when_there_is_some(new_bench: Callable[..., Any]) -> None:
    """One replica of one GPU, which is all that its namespace may hold; then two are granted."""
    bench = new_bench(max_gpus_per_namespace=1)
    bench.furnish()
    await bench.start()
    bench.apply(bench.model())
    await bench.tick()
    bench.play_kubelet()
    await bench.tick(3)
    before = template(bench)
    deployment = bench.api.objects[DEPLOYMENTS.plural][Key("a", "llama-serve")]
    pods = set(bench.api.objects[PODS.plural])
    edited = bench.model(template={"labels": {"team": "search"}})
    bench.apply(edited)
    await bench.tick(3)
    assert bench.condition("Stalled") == ("True", "RolloutBlocked")
    told = next(each for each in bench.status()["conditions"] if each["type"] == "Stalled")
    assert "the roll-out needs 1 more GPUs than the 1 that namespace a may hold" in told["message"]
    after = bench.api.objects[DEPLOYMENTS.plural][Key("a", "llama-serve")]
    assert (after["spec"], after["metadata"]["annotations"]) == (
        deployment["spec"],
        deployment["metadata"]["annotations"],
    )
    assert set(bench.api.objects[PODS.plural]) == pods
    bench.law.wanted["llama"] = 2
    await bench.tick(2)
    assert bench.replicas() == 2, "its number follows the load all the same"
    bench.law.wanted["llama"] = 1
    await bench.tick(2)
    await bench.stop()

    granted = new_bench(bench.api, max_gpus_per_namespace=2)
    granted.now = bench.now
    await granted.start()
    await granted.tick(3)
    assert template(granted)["metadata"]["labels"]["team"] == "search"
    assert template(granted) != before
    strategy = granted.api.objects[DEPLOYMENTS.plural][Key("a", "llama-serve")]["spec"]["strategy"]
    assert strategy["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    granted.play_kubelet()
    await granted.tick(2)
    assert granted.condition("Stalled")[0] == "False"
    await granted.stop()


async def test_an_edit_that_is_undone_waits_for_nothing(new_bench: Callable[..., Any]) -> None:
    bench = new_bench(max_gpus_per_namespace=1)
    bench.furnish()
    await bench.start()
    bench.apply(bench.model())
    await bench.tick()
    bench.play_kubelet()
    await bench.tick(3)
    bench.apply(bench.model(template={"labels": {"team": "search"}}))
    await bench.tick(3)
    bench.apply(bench.model())
    await bench.tick(3)
    assert bench.condition("Stalled")[0] == "False"
    bench.api.writes.clear()
    await bench.tick(3)
    assert bench.api.writes == []
    await bench.stop()
