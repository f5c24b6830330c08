"""What the administrator grants a namespace: GPUs and money, of which an unknown price is none."""

import pytest
from msgspec.structs import replace
from tests.decide.builders import GPUS, KEY, START, pod, pool, snapshot, telemetry, view
from tests.decide.test_replicas import condition, loaded, replicas, steady

from goodput.decide import Policy, decide
from goodput.domain.conditions import ConditionReason, ConditionType
from goodput.domain.decision import Action, Clamp
from goodput.domain.identity import Key
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import ModelView, Undecided
from goodput.domain.plan import ModelPlan


def priced(price: float | None) -> tuple:
    """The built-in types, with this price of an L40S."""
    return tuple(replace(gpu, price_per_hour=price) if gpu.name == "l40s" else gpu for gpu in GPUS)


def decided(
    model: ModelView, memory: LoopMemory | None = None, *, price: float | None = None, **limits: float
) -> ModelPlan:
    policy = Policy(max_cost_per_hour_per_namespace=1000.0) if not limits else Policy(**limits)
    remembered = {} if memory is None else {model.intent.key: memory}
    return decide(snapshot(model, types=priced(price)), remembered, policy, START).models[0]


def test_an_unknown_price_adds_no_replica_under_a_limit_of_cost():
    """Absent is not zero: nobody knows what the namespace would spend, so what runs stays and no more comes."""
    plan = decided(loaded(12.0, 2), steady(12.0, 2))
    assert (replicas(plan), plan.decision.clamp) == (2, Clamp.MAX_COST)
    assert plan.decision.wanted_replicas > 2
    assert condition(plan, ConditionType.SLO_MET)[1] is ConditionReason.CAPPED
    told = next(each.message for each in plan.conditions if each.type is ConditionType.SLO_MET)
    assert "no price of l40s is known: set spec.pricePerHour of a GPUType of that name" in told
    assert "no price of l40s is known" in plan.decision.message


def test_a_new_model_without_a_price_waits_for_one():
    """minReplicas is the author's; the limit is the administrator's."""
    plan = decided(view(pool(exists=False), None, min_replicas=2))
    assert (replicas(plan), plan.decision.clamp) == (0, Clamp.MAX_COST)


def test_a_move_to_a_type_without_a_price_is_no_way_round_the_limit():
    """What runs on another type says nothing of what this one costs."""
    moved = view(pool(pod("a"), pod("b"), gpu_type="h100-sxm"), telemetry(), gpu_types=("l40s",))
    assert replicas(decided(moved, steady(1.0, 2))) == 0


@pytest.mark.parametrize(
    ("price", "limits"),
    [(None, {"max_gpus_per_namespace": 100}), (0.0, {}), (1.0, {})],
    ids=["no limit of cost", "free of charge", "a price within the limit"],
)
def test_what_is_within_its_limits_grows(price: float | None, limits: dict[str, int]):
    """Only an unknown price under a limit of cost holds it back."""
    plan = decided(loaded(12.0, 2), steady(12.0, 2), price=price, **limits)
    assert replicas(plan) == plan.decision.wanted_replicas > 2
    assert plan.decision.clamp is Clamp.NONE


@pytest.mark.parametrize(("granted", "want"), [(3, 3), (4, 4), (5, 5), (9, 5)])
def test_what_stands_in_for_lost_pods_is_within_the_grant(granted: int, want: int):
    """Two of three sit on lost nodes, which hold their GPUs still: the namespace gets no more than it may have."""
    lost = tuple(pod(f"lost-{number}", node_lost=True) for number in range(2))
    plan = decided(loaded(6.0, 1, extra=lost), steady(6.0, 3), price=1.0, max_gpus_per_namespace=granted)
    assert replicas(plan) == want
    assert plan.decision.action is (Action.REPLACE if want > 3 else Action.HOLD)
    assert plan.memory.surge == want - 3
    if want < 5:
        assert (
            f"{5 - want} more would stand in for pods on lost nodes, but namespace default may" in plan.decision.message
        )


def test_what_stands_in_for_lost_pods_has_a_price():
    """Of a type without one, none is added either."""
    model = loaded(6.0, 2, extra=(pod("lost", node_lost=True),))
    assert replicas(decided(model, steady(6.0, 3))) == 3


@pytest.mark.parametrize(("limits", "want"), [({"max_gpus_per_namespace": 5}, 2), ({}, 3)], ids=["GPUs", "cost"])
def test_what_goes_on_undecided_holds_its_share(limits: dict[str, float], want: int):
    """Three replicas of a Model that cannot be read, in this namespace; those of others hold nothing of its grant."""
    policy = Policy(**(limits or {"max_cost_per_hour_per_namespace": 6.5}))
    runs = pool(spec_replicas=3)
    others = tuple(Undecided(key=Key(namespace, "old"), pools=(runs,)) for namespace in ("default", "elsewhere"))
    there = replace(snapshot(loaded(12.0, 2), types=priced(1.0)), undecided=others)
    plan = decide(there, {KEY: steady(12.0, 2)}, policy, START).models[0]
    assert (replicas(plan), plan.decision.wanted_replicas > 3) == (want, True)
