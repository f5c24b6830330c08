"""What the administrator grants a namespace: GPUs and money, of which an unknown price is none."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.decide.builders import GPUS, KEY, START, pod, pool, snapshot, telemetry, view
from tests.decide.test_properties import QUICK
from tests.decide.test_replicas import condition, loaded, replicas, steady
from tests.placements import placement

from goodput.decide import Policy, decide
from goodput.domain.change import Serving
from goodput.domain.conditions import ConditionReason, ConditionStatus, ConditionType
from goodput.domain.decision import Action, Clamp, Rule
from goodput.domain.identity import Key
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import ModelView, PodState, Undecided
from goodput.domain.plan import ModelPlan
from goodput.perfmodel import architecture


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
    assert (replicas(plan), plan.decision.clamp) == (2, Clamp.GRANTED_COST)
    assert plan.decision.wanted_replicas > 2
    assert condition(plan, ConditionType.SLO_MET)[1] is ConditionReason.CAPPED
    told = next(each.message for each in plan.conditions if each.type is ConditionType.SLO_MET)
    assert "no price of l40s is known: set spec.pricePerHour of a GPUType of that name" in told
    assert "no price of l40s is known" in plan.decision.message


def test_a_new_model_without_a_price_waits_for_one():
    """minReplicas is the author's; the limit is the administrator's."""
    plan = decided(view(pool(exists=False), None, min_replicas=2))
    assert (replicas(plan), plan.decision.clamp) == (0, Clamp.GRANTED_COST)


def moves(state: PodState = PodState.READY, **changes: Any) -> ModelView:
    """Four replicas on H100 whose author asks for L40S."""
    llama = "meta-llama/Llama-3.1-8B-Instruct"
    runs = Serving(model=llama, served_name=llama, quality=(), architecture=architecture(llama))
    pods = pool(
        *(pod(f"pod-{number}", state) for number in range(4)),
        gpu_type="h100-sxm",
        serving=runs,
        placement=placement(gpu_type="h100-sxm"),
    )
    return view(pods, telemetry(), gpu_types=("l40s",), min_replicas=2, **changes)


@pytest.mark.parametrize(
    ("price", "limits", "told"),
    [
        (None, {}, "no price of l40s is known"),
        (9.0, {"max_cost_per_hour_per_namespace": 35.0}, "may spend 35.00 $/h"),
        (1.0, {"max_gpus_per_namespace": 7}, "may hold 7 GPUs"),
    ],
    ids=["no price", "cost", "GPUs"],
)
def test_a_move_waits_until_its_limit_reaches_for_what_serves(price, limits, told):
    """It is no way round the limit, and takes no replica: what serves serves on where it is, and that is told."""
    twice = {"tensor_parallel": 2} if "max_gpus_per_namespace" in limits else {}
    plan = decided(moves(**twice), steady(1.0, 4), price=price, **limits)
    assert plan.pool is not None
    assert (plan.pool.replicas, plan.pool.placement.gpu_type) == (4, "h100-sxm")
    assert condition(plan, ConditionType.STALLED) == (ConditionStatus.TRUE, ConditionReason.ROLLOUT_BLOCKED)
    assert told in said(plan, ConditionType.STALLED)


@pytest.mark.parametrize(("changes", "want"), [({}, 4), ({"max_replicas": 2}, 2)], ids=["all", "as many as its author"])
def test_a_move_that_its_limit_reaches_for_goes_ahead(changes, want):
    """Four at 9 $/h are 36 $/h, two are 18."""
    limit = 37.0 if want == 4 else 19.0
    plan = decided(moves(**changes), steady(1.0, 4), price=9.0, max_cost_per_hour_per_namespace=limit)
    assert plan.pool is not None
    assert (plan.pool.replicas, plan.pool.placement.gpu_type) == (want, "l40s")


def test_what_does_not_serve_moves_to_as_many_as_its_limit_reaches_for():
    """The last node of a type went: nothing is lost by it, and two replicas are more than none."""
    plan = decided(moves(PodState.PENDING), steady(1.0, 4), price=9.0, max_cost_per_hour_per_namespace=19.0)
    assert plan.pool is not None
    assert (plan.pool.replicas, plan.pool.placement.gpu_type) == (2, "l40s")


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


def team(
    pods: int,
    least: int,
    rps: float | None = None,
    *,
    name: str = "a",
    **changes: Any,
) -> tuple[ModelView, LoopMemory]:
    """A Model of namespace `team` under `rps`; None: nothing is measured."""
    known = {"key": Key("team", name), "uid": f"uid-{name}", "min_replicas": least, **changes}
    if rps is None:
        return view(pool(*(pod(f"{name}-{number}") for number in range(pods))), None, **known), steady(0.0, pods)
    return loaded(rps, pods, **known), steady(rps, pods)


def together(*models: tuple[ModelView, LoopMemory], price: float = 1.0, **limits: float) -> list[ModelPlan]:
    there = snapshot(*(model for model, _ in models), types=priced(price))
    memories = {model.intent.key: memory for model, memory in models}
    return list(decide(there, memories, Policy(**limits), START).models)


def said(plan: ModelPlan, kind: ConditionType) -> str:
    return next(each.message for each in plan.conditions if each.type is kind)


@pytest.mark.parametrize(
    ("price", "limits", "field"),
    [
        (1.0, {"max_gpus_per_namespace": 5}, "limits.gpusPerNamespace"),
        (2.0, {"max_cost_per_hour_per_namespace": 10.0}, "limits.costPerHourPerNamespace"),
    ],
    ids=["GPUs", "a price that doubled"],
)
@pytest.mark.parametrize("rps", [None, 40.0], ids=["nothing measured", "load for more"])
def test_a_lowered_limit_stops_growth_and_takes_nothing_that_serves(price, limits, field, rps):
    """Ten run where five may: neither Model loses a replica, neither gets one, and both say which value holds them."""
    first, last = together(team(4, 2, rps), team(6, 2, rps, name="b"), price=price, **limits)
    assert (replicas(first), replicas(last)) == (4, 6)
    assert condition(first, ConditionType.STALLED)[1] is ConditionReason.NOT_STALLED
    if rps is None:
        for plan in (first, last):
            assert f"({field} of the chart)" in said(plan, ConditionType.PLACED)
            assert "no replica is added" in plan.decision.message
    else:
        assert first.decision.clamp is (Clamp.GRANTED_GPUS if "gpus" in field else Clamp.GRANTED_COST)
        assert condition(first, ConditionType.SLO_MET)[1] is ConditionReason.CAPPED
        assert f"({field} of the chart)" in said(first, ConditionType.SLO_MET)


def test_what_is_over_a_lowered_limit_still_shrinks_with_its_load():
    """A load for one of four, and minReplicas 2."""
    assert replicas(together(team(4, 2, 1.0), max_gpus_per_namespace=1)[0]) == 2


@pytest.mark.parametrize(
    ("pods", "least", "granted", "rps"), [(0, 2, 1, None), (3, 5, 3, None), (3, 5, 3, 1.0)], ids=str
)
def test_a_minimum_beyond_the_grant_is_told_as_long_as_it_lasts(pods, least, granted, rps):
    """The grant beats the author, who reads so in a condition, whatever the load; nothing is said to come."""
    have = max(pods, granted)
    plan = together(team(pods, least, rps), max_gpus_per_namespace=granted)[0]
    assert replicas(plan) == have
    if pods != have:
        return
    assert (plan.decision.rule, plan.decision.clamp) == (Rule.BOUNDS, Clamp.GRANTED_GPUS)
    assert plan.decision.wanted_replicas == least
    assert f"Capped by GPUsPerNamespace: {least} wanted" in plan.decision.message
    assert condition(plan, ConditionType.STALLED) == (ConditionStatus.TRUE, ConditionReason.CAPPED)
    assert f"{have} of the {least} replicas of spec.scaling.minReplicas" in said(plan, ConditionType.STALLED)
    assert plan.decision.rejected == () or plan.decision.rejected[-1].reason == "a limit stops it"


@pytest.mark.parametrize("exists", [False, True], ids=["new", "at none"])
def test_a_model_that_may_have_no_replica_says_so(exists):
    """One of two GPUs under a grant of one: at the first look and at every later one."""
    nothing = pool(exists=exists, tensor_parallel=2)
    model = view(nothing, None, key=Key("team", "a"), tensor_parallel=2)
    plan = together((model, LoopMemory(born_at=START - 900.0)), max_gpus_per_namespace=1)[0]
    assert replicas(plan) == 0
    assert condition(plan, ConditionType.STALLED) == (ConditionStatus.TRUE, ConditionReason.CAPPED)
    assert condition(plan, ConditionType.RECONCILING)[0] is ConditionStatus.FALSE
    assert plan.decision.rule is Rule.BOUNDS
    assert "limits.gpusPerNamespace" in plan.decision.message


@QUICK
@given(
    pods=st.tuples(st.integers(0, 6), st.integers(0, 6)),
    least=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    rps=st.tuples(st.floats(0, 40), st.floats(0, 40)),
    priorities=st.tuples(st.integers(0, 1), st.integers(0, 1)),
    gpus=st.none() | st.integers(1, 16),
    cost=st.none() | st.floats(0.5, 30.0),
    price=st.floats(0.5, 4.0),
    affordable=st.none() | st.floats(0.5, 30.0),
)
def test_limits_take_nothing_that_is_needed_and_grants_are_not_outgrown(
    *, pods, least, rps, priorities, gpus, cost, price, affordable
):
    """Whatever the limits: minReplicas of what runs stay, and so does what the load needs where no cap of its author
    and nobody of a higher priority forbids it; what is added is within the grants."""
    models = [
        team(count, fewest, load, name=name, priority=priority, max_cost_per_hour=affordable)
        for count, fewest, load, priority, name in zip(pods, least, rps, priorities, "ab", strict=True)
    ]
    limits = {"max_gpus_per_namespace": gpus, "max_cost_per_hour_per_namespace": cost}
    plans = together(*models, price=price, **limits)
    for plan, runs, fewest in zip(plans, pods, least, strict=True):
        assert replicas(plan) >= min(fewest, runs)
        if affordable is None and plan.decision.rule is not Rule.PRIORITY:
            assert replicas(plan) >= min(plan.decision.wanted_replicas, runs)
    held = sum(replicas(plan) for plan in plans)
    if gpus is not None:
        assert held <= max(gpus, sum(pods))
    if cost is not None:
        assert held * price <= max(cost, sum(pods) * price) + 1e-6
