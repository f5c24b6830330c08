"""Terms of roll-outs: whose turn it is, pod before pod or one by one, and what blocks one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from goodput.adapters.kinds import DEPLOYMENTS
from goodput.decide import Policy
from goodput.domain.conditions import ConditionReason
from goodput.domain.decision import Action, Decision, Rule
from goodput.domain.identity import Key
from goodput.domain.intent import ModelIntent
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import ModelView, PodState, PodView, PoolView, Snapshot
from goodput.domain.plan import Figures, ModelPlan, Placement, Plan, PoolPlan
from goodput_controllers.rollout import Rollouts

NOW = 10_000.0
PLACEMENT = Placement(
    gpu_type="l40s",
    resource_name="nvidia.com/gpu",
    node_selector=(),
    tensor_parallel=2,
    max_num_seqs=1,
    max_num_batched_tokens=1,
    max_model_len=1,
    max_num_queued_requests=None,
    max_num_queued_tokens=None,
    capacity_rps=3.0,
    price_per_hour=None,
)


def pod(name: str, state: PodState, revision: str = "old", **more: Any) -> PodView:
    return PodView(
        name=name,
        uid=name,
        pool="serve",
        revision=revision,
        state=state,
        node="n",
        created_at=more.pop("created_at", NOW - 1000),
        ready_at=NOW - 900 if state is PodState.READY else None,
        **more,
    )


def fleet(
    *pods: PodView, name: str = "m", rolling: bool = True, load: float | None = 3.0
) -> tuple[ModelView, ModelPlan]:
    key = Key("a", name)
    intent = ModelIntent(
        key=key, uid="u", generation=1, model="x/y", served_name="y", slo=key, objective=None, architecture=None
    )
    pool = PoolView(name="serve", exists=True, spec_replicas=2, revision="new", rolling_out=rolling, pods=pods)
    view = ModelView(intent=intent, pool=pool, router=PoolView(name="router", exists=False), telemetry=None)
    decision = Decision(
        model=key,
        pool="serve",
        at=NOW,
        action=Action.HOLD,
        rule=Rule.HOLD_ROLLOUT,
        from_replicas=2,
        to_replicas=2,
        wanted_replicas=2,
    )
    figures = Figures(forecast_rps=load, capacity_rps_per_replica=3.5, startup_seconds=100.0)
    plan = ModelPlan(
        key=key,
        pool=PoolPlan(name="serve", replicas=2, placement=PLACEMENT),
        decision=decision,
        conditions=(),
        figures=figures,
        memory=LoopMemory(),
    )
    return view, plan


def looked(
    *fleets: tuple[ModelView, ModelPlan], candidates: tuple[str, ...] = (), rollouts: Rollouts | None = None
) -> Rollouts:
    made = rollouts or Rollouts()
    snapshot = Snapshot(models=tuple(view for view, _ in fleets), gpu_types=(), supply=())
    made.look(snapshot, Plan(models=tuple(plan for _, plan in fleets)), [Key("a", c) for c in candidates], NOW)
    return made


OLD = (pod("a", PodState.READY), pod("b", PodState.READY))
NO_GPU = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
UNPLACED = pod("c", PodState.PENDING, "new", trouble="Unschedulable", trouble_message=NO_GPU)
M = Key("a", "m")


def test_a_new_pod_starts_before_an_old_one_goes() -> None:
    """As long as nothing speaks against it, pods are replaced by surge."""
    rollouts = looked(fleet(*OLD, pod("c", PodState.STARTING, "new", created_at=NOW - 10)))
    assert rollouts.surge(M)
    assert rollouts.problem(M) is None


def test_without_a_free_gpu_and_with_capacity_to_spare_one_goes_first() -> None:
    """If the rest carries the load, pods are replaced one by one; afterwards surge is back."""
    rollouts = looked(fleet(*OLD, UNPLACED))
    assert not rollouts.surge(M)
    assert rollouts.problem(M) is None
    looked(fleet(*OLD, rolling=False), rollouts=rollouts)
    assert rollouts.surge(M)


@pytest.mark.parametrize("load", [4.0, None])
def test_without_a_free_gpu_and_without_spare_it_is_blocked(load: float | None) -> None:
    """If the rest would not carry the load, or nobody knows, the number of missing GPUs is told."""
    rollouts = looked(fleet(*OLD, UNPLACED, load=load))
    assert rollouts.surge(M)
    problem = rollouts.problem(M)
    assert problem is not None
    assert "2 more free GPUs l40s" in problem.message
    assert not problem.fatal


@pytest.mark.parametrize("load", [1.0, 9.9, None])
@pytest.mark.parametrize(
    "words",
    [
        "0/8 nodes are available: 8 node(s) didn't match Pod's node affinity/selector.",
        '0/8 nodes are available: persistentvolumeclaim "weights" not found.',
        "0/8 nodes are available: 8 Insufficient memory.",
        "0/8 nodes are available: 8 node(s) had untolerated taint {nvidia.com/gpu: present}.",
        "0/8 nodes are available: 8 Insufficient nvidia.com/gpu.shared.",
        "",
    ],
)
def test_a_new_pod_that_lacks_no_gpu_costs_no_old_one(words: str, load: float | None) -> None:
    """Whatever the load: an old pod that went first would not help. What the scheduler says is told."""
    unplaced = replace(UNPLACED, trouble_message=words)
    rollouts = looked(fleet(*OLD, unplaced, load=load))
    assert rollouts.surge(M)
    problem = rollouts.problem(M)
    assert problem is not None
    assert (problem.reason, problem.fatal) == (ConditionReason.ROLLOUT_BLOCKED, False)
    assert (words or "Unschedulable") in problem.message
    assert "free GPUs" not in problem.message


def test_old_pods_stop_going_first_when_the_new_one_waits_for_something_else() -> None:
    """It lacked a GPU, and after another edit it waits for a claim that does not exist."""
    rollouts = looked(fleet(*OLD, UNPLACED))
    assert not rollouts.surge(M)
    looked(fleet(*OLD, replace(UNPLACED, trouble_message="0/3 nodes are available: no claim")), rollouts=rollouts)
    assert rollouts.surge(M)


def test_a_mig_slice_that_is_missing_is_a_gpu_that_is_missing() -> None:
    """What counts is the resource of the type, whosever it is."""
    view, plan = fleet(
        *OLD, replace(UNPLACED, trouble_message="3 Insufficient nvidia.com/mig-3g.40gb, 1 Insufficient cpu.")
    )
    assert plan.pool is not None
    placement = replace(plan.pool.placement, resource_name="nvidia.com/mig-3g.40gb")
    rollouts = looked((view, replace(plan, pool=replace(plan.pool, placement=placement))))
    assert not rollouts.surge(M)
    assert rollouts.problem(M) is None


def test_a_new_pod_that_never_gets_ready_is_told() -> None:
    """Longer than two learned start-ups is too long; an old pod's trouble is not the new revision's."""
    slow = pod("c", PodState.STARTING, "new", created_at=NOW - 201)
    problem = looked(fleet(*OLD, slow)).problem(M)
    assert problem is not None
    assert "pod c of the new revision" in problem.message
    assert looked(fleet(*OLD, replace(slow, revision="old"))).problem(M) is None


NEVER_READY = (pod("a", PodState.PENDING), pod("b", PodState.FAILED), pod("c", PodState.STARTING))


def test_pods_of_which_none_was_ever_ready_take_updates_at_once() -> None:
    """Nothing serves, so there is nothing to protect."""
    assert looked(fleet(*NEVER_READY, rolling=False)).unserved(M) == ("serve",)
    assert looked(fleet(rolling=False)).unserved(M) == ("serve",), "a quota refuses every pod"


@pytest.mark.parametrize("state", [PodState.READY, PodState.UNREADY, PodState.TERMINATING])
def test_one_pod_that_serves_or_served_protects_the_others(state: PodState) -> None:
    """Of one that is on its way out nobody knows: it counts as one that served."""
    assert looked(fleet(*NEVER_READY, pod("d", state), rolling=False)).unserved(M) == ()


@pytest.mark.parametrize("memory", [LoopMemory(startup_seconds=(90.0,)), LoopMemory(proven_rps=1.0)])
def test_engines_that_once_served_are_protected_when_their_pods_are_new(memory: LoopMemory) -> None:
    """After a drain of all nodes the pods that come have not been ready yet, and nobody asked for another template."""
    view, plan = fleet(*NEVER_READY, rolling=False)
    assert looked((view, replace(plan, memory=memory))).unserved(M) == ()


def test_routers_that_were_never_ready_take_updates_at_once() -> None:
    """Whatever engines do."""
    view, plan = fleet(*OLD, rolling=False)
    router = PoolView(name="router", exists=True, pods=(replace(NEVER_READY[1], pool="router"),))
    assert looked((replace(view, router=router), plan)).unserved(M) == ("router",)


def test_of_pods_that_never_served_an_old_one_goes_first() -> None:
    """It may hold the very GPU that the new one waits for: without that the mended template would never start."""
    rollouts = looked(fleet(pod("a", PodState.FAILED), UNPLACED))
    assert not rollouts.surge(M)
    assert rollouts.problem(M) is None


def test_updates_come_one_model_at_a_time() -> None:
    """The next Model takes its update only when no other is rolling out."""
    still = [fleet(*OLD, name=name, rolling=False) for name in ("one", "two")]
    rollouts = looked(*still, candidates=("one", "two"))
    assert rollouts.take_update(Key("a", "one"))
    assert not rollouts.take_update(Key("a", "two"))
    moving = fleet(*OLD, name="one", rolling=True)
    looked(moving, still[1], candidates=("two",), rollouts=rollouts)
    assert not rollouts.take_update(Key("a", "two"))
    looked(*still, candidates=("two",), rollouts=rollouts)
    assert rollouts.take_update(Key("a", "two"))


def limited(**limits: float) -> Rollouts:
    return Rollouts(Policy(**limits))  # type: ignore[arg-type]


def priced(fleet_of_one: tuple[ModelView, ModelPlan], price: float) -> tuple[ModelView, ModelPlan]:
    view, plan = fleet_of_one
    assert plan.pool is not None
    placement = replace(plan.pool.placement, price_per_hour=price)
    return view, replace(plan, pool=replace(plan.pool, placement=placement))


@pytest.mark.parametrize(("granted", "surge"), [(4, False), (5, False), (6, True)])
@pytest.mark.parametrize("rolling", [False, True], ids=["about to roll out", "rolling out"])
def test_no_surge_beyond_the_gpus_of_a_namespace(granted: int, surge: bool, rolling: bool) -> None:
    """Two replicas of two GPUs each: a third one for a while needs two more. The terms are there before a roll-out."""
    pods = (*OLD, pod("c", PodState.STARTING, "new", created_at=NOW - 10)) if rolling else OLD
    model = fleet(*pods, rolling=rolling)
    assert looked(model, rollouts=limited(max_gpus_per_namespace=granted)).surge(M) is surge


@pytest.mark.parametrize(("price", "surge"), [(2.0, True), (2.1, False), (0.0, True)])
def test_no_surge_beyond_what_a_namespace_may_spend(price: float, surge: bool) -> None:
    """Three replicas cost no more than granted, or the first one has to go first."""
    rollouts = limited(max_cost_per_hour_per_namespace=6.0)
    assert looked(priced(fleet(*OLD, rolling=False), price), rollouts=rollouts).surge(M) is surge


def test_no_surge_of_what_has_no_price_where_cost_is_limited() -> None:
    """Nobody knows whether the namespace may have one more."""
    assert not looked(fleet(*OLD, rolling=False), rollouts=limited(max_cost_per_hour_per_namespace=6.0)).surge(M)


def test_of_two_roll_outs_the_first_takes_what_is_left() -> None:
    """Room for one new pod: another Model goes one by one until the first is through, whatever their names are."""
    one, two = (fleet(*OLD, pod("c", PodState.STARTING, "new", created_at=NOW - 10), name=name) for name in "mn")
    rollouts = looked(one, two, rollouts=limited(max_gpus_per_namespace=10))
    assert (rollouts.surge(M), rollouts.surge(Key("a", "n"))) == (True, False)
    looked(fleet(*OLD, name="m", rolling=False), two, rollouts=rollouts)
    assert rollouts.surge(Key("a", "n"))
    looked(one, two, rollouts=rollouts)
    assert (rollouts.surge(M), rollouts.surge(Key("a", "n"))) == (False, True)


def test_a_write_that_was_not_seen_yet_takes_nothing_from_others() -> None:
    """Each write of a Deployment looks like a roll-out for an instant: others are not rewritten for it."""
    written = fleet(*(replace(each, revision="new") for each in OLD), name="m")
    rollouts = looked(written, fleet(*OLD, name="n", rolling=False), rollouts=limited(max_gpus_per_namespace=10))
    assert (rollouts.surge(M), rollouts.surge(Key("a", "n"))) == (True, True)


def test_the_namespace_of_another_takes_nothing() -> None:
    """Grants are of one namespace each."""
    view, plan = fleet(*OLD, rolling=False)
    other = Key("b", "m")
    elsewhere = replace(view, intent=replace(view.intent, key=other)), replace(plan, key=other)
    rollouts = looked((view, plan), elsewhere, rollouts=limited(max_gpus_per_namespace=6))
    assert (rollouts.surge(M), rollouts.surge(other)) == (True, True)


@pytest.mark.parametrize(("granted", "want"), [(2, 0), (3, 1)])
async def test_the_administrators_limit_reaches_the_deployment(
    new_bench: Callable[..., Any], granted: int, want: int
) -> None:
    """Two replicas of one GPU each: only a third granted GPU lets a new pod start first."""
    bench = new_bench(max_gpus_per_namespace=granted)
    bench.furnish()
    await bench.start()
    bench.law.wanted["llama"] = 2
    bench.apply(bench.model())
    await bench.tick(3)
    strategy = bench.api.objects[DEPLOYMENTS.plural][Key("a", "llama-serve")]["spec"]["strategy"]
    assert strategy["rollingUpdate"]["maxSurge"] == want
    await bench.stop()
