"""Terms of roll-outs: whose turn it is, pod before pod or one by one, and what blocks one."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

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
UNPLACED = pod("c", PodState.PENDING, "new", trouble="Unschedulable")
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


def test_a_new_pod_that_never_gets_ready_is_told() -> None:
    """Longer than two learned start-ups is too long; an old pod's trouble is not the new revision's."""
    slow = pod("c", PodState.STARTING, "new", created_at=NOW - 201)
    problem = looked(fleet(*OLD, slow)).problem(M)
    assert problem is not None
    assert "pod c of the new revision" in problem.message
    assert looked(fleet(*OLD, replace(slow, revision="old"))).problem(M) is None


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
