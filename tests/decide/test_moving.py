"""While pods are replaced, refused or lost: what runs is kept, and what stands in for it goes again."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.decide.builders import GPUS, START, one, pod, pool, snapshot, view
from tests.decide.test_replicas import loaded, missed, replicas, steady
from tests.placements import placement

from goodput.decide import Policy, decide
from goodput.domain.change import Serving
from goodput.domain.conditions import ConditionType
from goodput.domain.decision import Action, Rule
from goodput.domain.identity import CANARY_POOL, Key
from goodput.domain.intent import ScalingMode
from goodput.domain.observed import NO_CANARY, GpuSupply, PodState, PoolView, Snapshot
from goodput.domain.plan import ModelPlan
from goodput.perfmodel import architecture


def test_an_edit_of_the_parallelism_keeps_what_runs():
    """Five replicas carry 12 requests/s; of TP2 three would do, but none of them runs yet."""
    plan = one(loaded(12.0, 5, tensor_parallel=2), steady(12.0, 5))
    assert plan.pool is not None
    assert plan.pool.placement.tensor_parallel == 2
    assert replicas(plan) == 5
    assert plan.decision.rule is Rule.HOLD_ROLLOUT


@pytest.mark.parametrize("free", [0, 1])
def test_an_edit_of_the_gpu_type_keeps_what_runs_though_too_few_of_the_new_type_are_free(free):
    """What runs is not replaced by nothing."""
    supply = (
        GpuSupply(type="l40s", nodes=20, installed=100, used=5),
        GpuSupply(type="h100-sxm", nodes=1, installed=8, used=8 - free),
    )
    model = loaded(12.0, 5, gpu_types=("h100-sxm",))
    there = Snapshot(models=(model,), gpu_types=GPUS, supply=supply)
    plan = decide(there, {model.intent.key: steady(12.0, 5)}, Policy(), START).models[0]
    assert plan.pool is not None
    assert plan.pool.placement.gpu_type == "h100-sxm"
    assert replicas(plan) == 5


OTHERS = ("a100-80g-sxm", "h100-sxm")
LLAMA, QWEN = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen2.5-7B-Instruct"


def changed(canary: PoolView = NO_CANARY, *, taken: int = 0, **edits: Any) -> ModelPlan:
    """A Model that serves Llama on L40S and asks for Qwen on one of two other types, the first of which has one GPU."""
    runs = Serving(model=LLAMA, served_name=LLAMA, quality=(("spec.model", LLAMA),), architecture=architecture(LLAMA))
    wants = {"model": QWEN, "quality": (("spec.model", QWEN),), "architecture": architecture(QWEN), "gpu_types": OTHERS}
    model = loaded(6.0, 2, **{**wants, "check_seconds": 60, **edits})
    model = replace(model, pool=replace(model.pool, serving=runs, placement=placement()), canary=canary)
    supply = (
        GpuSupply(type="l40s", nodes=20, installed=100, used=2),
        GpuSupply(type=OTHERS[0], nodes=1, installed=1, used=taken),
        GpuSupply(type=OTHERS[1], nodes=1, installed=8, used=0),
    )
    there = Snapshot(models=(model,), gpu_types=GPUS, supply=supply)
    return decide(there, {model.intent.key: steady(6.0, 2)}, Policy(), START).models[0]


def canary_of(identity: str, state: PodState = PodState.STARTING, gpu_type: str = OTHERS[0]) -> PoolView:
    one_pod = pod("c", state, pool=CANARY_POOL)
    return PoolView(
        name=CANARY_POOL,
        exists=True,
        spec_replicas=1,
        revision="r1",
        gpu_type=gpu_type,
        change=identity,
        pods=(one_pod,),
    )


def where(plan: ModelPlan) -> str:
    assert plan.change is not None
    assert plan.change.canary is not None
    return plan.change.canary.gpu_type


@pytest.mark.parametrize("state", [PodState.STARTING, PodState.READY, PodState.FAILED, PodState.UNREADY])
def test_the_canary_of_a_change_that_moves_stays_where_it_is(state):
    """It holds the only GPU of its type: that one is its own, and no reason to start anew on another type."""
    first = changed()
    assert where(first) == OTHERS[0], "the cheaper one, of which one GPU is free"
    assert first.change is not None
    assert where(changed(taken=1)) == OTHERS[1], "somebody else's GPU is none of ours"
    assert where(changed(canary_of(first.change.id, state), taken=1)) == OTHERS[0]


def test_the_canary_of_a_change_stays_though_something_cheaper_is_free_by_now():
    """What is judged is what runs."""
    first = changed(taken=1)
    assert first.change is not None
    assert where(first) == OTHERS[1]
    assert where(changed(canary_of(first.change.id, gpu_type=OTHERS[1]))) == OTHERS[1]


def test_the_canary_of_an_edit_before_makes_way_for_the_next_one():
    """Its GPU is the Model's own, but what is asked for by now was never placed: it goes where it is cheapest."""
    assert where(changed(canary_of("earlier"), taken=1)) == OTHERS[0]
    elsewhere = changed(canary_of("earlier", gpu_type=OTHERS[1]))
    assert where(elsewhere) == OTHERS[0]


def test_a_canary_that_found_no_node_may_go_elsewhere():
    """It holds nothing yet: the GPU that it was meant for was taken by somebody else."""
    first = changed()
    assert first.change is not None
    assert where(changed(canary_of(first.change.id, PodState.PENDING), taken=1)) == OTHERS[1]


def test_misses_add_nothing_while_pods_cannot_be_created():
    """A ResourceQuota refuses the second pod: two are asked for, one exists, none starts. A third would not help."""
    bad = missed(steady(3.0, 1).samples, 0.5)
    memory = steady(3.0, 2, samples=bad, last_scale_up_at=START - 500.0)
    plan = one(loaded(3.0, 1, spec_replicas=2), memory)
    assert replicas(plan) == 2
    assert plan.decision.rule is not Rule.CERTAIN_MISSES
    assert plan.memory.trim == 1.0, "nor is less believed of one replica"
    # A pod on its way out is none that serves.
    leaving = pod("old", PodState.TERMINATING)
    assert replicas(one(loaded(3.0, 1, extra=(leaving,), spec_replicas=2), memory)) == 2
    assert replicas(one(loaded(3.0, 1, spec_replicas=1), memory)) == 2


ADVISED, NEIGHBOUR = Key("default", "a-advised"), Key("default", "b-neighbour")


def test_what_is_only_advised_takes_no_gpus_from_a_neighbour():
    """Four GPUs are free; Advise would take them all, and runs one replica: the neighbour gets its three."""
    models = (loaded(12.0, 1, key=ADVISED, mode=ScalingMode.ADVISE), loaded(8.0, 1, key=NEIGHBOUR))
    memory = {ADVISED: steady(12.0, 1), NEIGHBOUR: steady(8.0, 1)}
    advised, neighbour = decide(snapshot(*models, free=4), memory, Policy(), START).models
    assert (advised.decision.to_replicas > 1, replicas(advised)) == (True, 1)
    assert replicas(neighbour) == 3


def test_what_is_only_advised_gives_no_gpus_to_a_neighbour():
    """Eight GPUs are granted; Advise would need two and runs six: the neighbour has the other two."""
    models = (loaded(4.0, 6, key=ADVISED, mode=ScalingMode.ADVISE), loaded(12.0, 1, key=NEIGHBOUR))
    memory = {ADVISED: steady(4.0, 6), NEIGHBOUR: steady(12.0, 1)}
    advised, neighbour = decide(snapshot(*models), memory, Policy(max_gpus_per_namespace=8), START).models
    assert (advised.decision.to_replicas, replicas(advised)) == (2, 6)
    assert replicas(neighbour) == 2


def test_a_stand_in_goes_again_where_a_cap_is_below_the_load():
    """Load for five, maxReplicas three, three healthy pods and one on a cordoned node: three, without that one."""
    model = loaded(12.0, 3, extra=(pod("lost", node_lost=True),), max_replicas=3)
    plan = one(model, replace(steady(12.0, 4), surge=1))
    assert replicas(plan) == 3
    assert plan.pool is not None
    assert [name for name, _ in plan.pool.victims] == ["lost"]
    assert plan.memory.surge == 0
    # Until the third healthy one is ready, it stands in.
    young = loaded(12.0, 2, extra=(pod("lost", node_lost=True),), max_replicas=3)
    assert replicas(one(young, steady(12.0, 3))) == 4


def test_views_of_no_pool_are_placed_as_ever():
    """A new Model moves nothing."""
    plan = one(view(replace(loaded(1.0, 1).pool, exists=False, pods=(), spec_replicas=0), None))
    assert (replicas(plan), plan.decision.rule) == (1, Rule.INITIAL)


@pytest.mark.parametrize(
    ("cap", "told"),
    [({"max_replicas": 1}, "maxReplicas is 1"), ({"max_cost_per_hour": 2.0}, "maxCostPerHour 2.00 $ pays 1 replicas")],
    ids=["count", "cost"],
)
def test_a_cap_that_is_lowered_during_a_roll_out_waits_for_its_end(cap, told):
    """No replica goes meanwhile: a Deployment takes them from both revisions, and heeds no victims."""
    model = loaded(1.0, 3, **cap)
    rolling = replace(model, pool=replace(model.pool, rolling_out=True))
    plan = one(rolling, steady(1.0, 3))
    assert (replicas(plan), plan.decision.rule) == (3, Rule.HOLD_ROLLOUT)
    assert told in plan.decision.message
    assert "2 fewer than wanted; no replica goes before the roll-out has ended" in plan.decision.message
    assert replicas(one(model, plan.memory)) == 1


def test_a_stand_in_waits_for_the_end_of_a_roll_out_too():
    """Three healthy ones are there again: the fourth goes once pods are of one revision."""
    model = loaded(6.0, 3, extra=(pod("lost", node_lost=True),))
    rolling = replace(model, pool=replace(model.pool, rolling_out=True))
    plan = one(rolling, replace(steady(6.0, 4), surge=1))
    assert (replicas(plan), plan.memory.surge) == (4, 1)
    assert replicas(one(model, replace(plan.memory, samples=steady(6.0, 3).samples))) == 3


@pytest.mark.parametrize(
    ("state", "want"), [(PodState.READY, 4), (PodState.UNREADY, 8)], ids=["cordoned nodes", "dead nodes"]
)
def test_a_cap_of_cost_counts_what_serves(state, want):
    """maxCostPerHour pays four: pods on cordoned nodes serve and cost, those of dead ones do not serve."""
    lost = tuple(pod(f"lost-{number}", state, node_lost=True) for number in range(4))
    plan = one(view(pool(*lost), None, max_cost_per_hour=7.5), steady(0.0, 4))
    assert replicas(plan) == want
    placed = next(each.message for each in plan.conditions if each.type is ConditionType.PLACED)
    for text in (placed, plan.decision.message):
        assert "spec.scaling.maxCostPerHour 7.50 $ pays 4 replicas" in text
        assert ("4 more would stand in" if want == 4 else "stand-ins are beside that") in text


def test_stand_ins_beyond_max_replicas_are_told():
    """As the new pod of a roll-out is, for as long as it takes."""
    lost = tuple(pod(f"lost-{number}", node_lost=True) for number in range(4))
    plan = one(view(pool(*lost), None, max_replicas=4), steady(0.0, 4))
    assert (replicas(plan), plan.decision.action, plan.decision.rule) == (8, Action.REPLACE, Rule.STAND_IN)
    assert "maxReplicas is 4: stand-ins are beside that until what they replace is gone" in plan.decision.message


def test_stand_ins_are_advised_for_what_they_are():
    """The rule is not that of metrics which nobody has."""
    model = view(pool(pod("a", node_lost=True), pod("b")), None, mode=ScalingMode.ADVISE)
    decision = one(model, steady(0.0, 2)).decision
    assert (decision.action, decision.rule, decision.to_replicas) == (Action.ADVISE_UP, Rule.STAND_IN, 3)
