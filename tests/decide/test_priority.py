"""Priority: who gets GPUs that are short, who yields them, and what the decisions of both say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.decide.builders import REPLICA_RPS, START, pod, pool, snapshot, view
from tests.decide.test_grants import priced
from tests.decide.test_properties import QUICK, fleet, history
from tests.decide.test_replicas import condition, loaded, replicas, steady

from goodput.decide import Policy, decide
from goodput.domain.conditions import ConditionReason, ConditionType
from goodput.domain.decision import Action, Clamp, Rule
from goodput.domain.identity import Key
from goodput.domain.intent import ScalingMode
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import GpuSupply, ModelView, PodState, Snapshot
from goodput.domain.plan import ModelPlan

HIGH, MIDDLE, LOW = Key("default", "a-high"), Key("default", "b-middle"), Key("default", "c-low")
# What one replica takes with some room, and what only so many hold.
ONE = 0.8 * REPLICA_RPS


def model(key: Key, priority: int, pods: int, load: float, **changes: object) -> tuple[ModelView, LoopMemory]:
    """A Model on `pods` replicas under a load of so many replicas."""
    rps = load * ONE
    return loaded(rps, pods, key=key, priority=priority, **changes), steady(rps, pods)


def planned(*models: tuple[ModelView, LoopMemory], free: int = 0, policy: Policy | None = None) -> dict[Key, ModelPlan]:
    memory = {one.intent.key: known for one, known in models}
    there = snapshot(*(one for one, _ in models), free=free, used=sum(len(one.pool.pods) for one, _ in models))
    return {plan.key: plan for plan in decide(there, memory, policy or Policy(), START).models}


def message(plan: ModelPlan, kind: ConditionType = ConditionType.SLO_MET) -> str:
    return next(each.message for each in plan.conditions if each.type is kind)


def test_free_gpus_go_to_the_higher_priority_whatever_its_name():
    """Two are free, two Models lack two each."""
    first, last = model(HIGH, 0, 1, 3.0), model(LOW, 7, 1, 3.0)
    found = planned(first, last, free=2)
    assert (replicas(found[HIGH]), replicas(found[LOW])) == (1, 3)
    assert found[HIGH].decision.clamp is Clamp.GPUS
    assert "0 GPUs l40s are free" in found[HIGH].decision.message
    assert "Models of higher priority hold 3 GPUs" in found[HIGH].decision.message
    assert condition(found[HIGH], ConditionType.SLO_MET)[1] is ConditionReason.CAPPED
    # Of one priority, the name decides.
    found = planned(first, model(LOW, 0, 1, 3.0), free=2)
    assert (replicas(found[HIGH]), replicas(found[LOW])) == (3, 1)
    assert "higher priority" not in found[LOW].decision.message


def test_the_lowest_yields_first_by_a_drain_and_both_say_so():
    """High lacks three: the lowest gives two, down to its minReplicas, the middle one the third."""
    found = planned(model(HIGH, 10, 1, 4.0), model(MIDDLE, 5, 3, 3.0), model(LOW, 0, 3, 3.0))
    assert [replicas(found[key]) for key in (HIGH, MIDDLE, LOW)] == [1, 2, 1]
    high, middle, low = (found[key].decision for key in (HIGH, MIDDLE, LOW))
    assert (high.action, high.clamp, high.wanted_replicas) == (Action.HOLD, Clamp.GPUS, 4)
    assert "Model c-low of priority 0 yields 2 replicas" in high.message
    assert "Model b-middle of priority 5 yields 1 replica" in high.message
    assert "yields 2 replicas" in message(found[HIGH])
    for decision in (middle, low):
        assert (decision.action, decision.rule, decision.clamp) == (Action.SCALE_DOWN, Rule.PRIORITY, Clamp.PRIORITY)
        assert "Model a-high of priority 10 lacks 3 GPUs l40s" in decision.message
    assert condition(found[LOW], ConditionType.SLO_MET)[1] is ConditionReason.CAPPED
    plan = found[LOW].pool
    assert plan is not None
    assert len(plan.victims) == 2
    # What another Model needs says nothing of the load of this one.
    assert found[LOW].memory.last_scale_down_at == 0.0


def test_pods_that_leave_are_waited_for():
    """No second replica yields for the GPU that a drain is about to give back, and nobody else takes it."""
    low, known = model(LOW, 0, 2, 3.0, extra=(pod("gone", PodState.TERMINATING),), spec_replicas=2)
    found = planned(model(HIGH, 10, 1, 2.0), (low, known))
    assert (replicas(found[HIGH]), replicas(found[LOW])) == (1, 2)
    assert found[LOW].decision.rule is not Rule.PRIORITY
    assert "1 GPUs l40s are being given back" in found[HIGH].decision.message
    # Nor where the Deployment was told already, and its pod does not terminate yet.
    low, known = model(LOW, 0, 3, 3.0, spec_replicas=2)
    assert replicas(planned(model(HIGH, 10, 1, 2.0), (low, known))[LOW]) == 2
    assert replicas(planned(model(HIGH, 10, 1, 2.0), model(LOW, 0, 3, 3.0))[LOW]) == 2


def test_what_waits_for_a_node_makes_way():
    """A Pending pod of a lower priority would be bound to the next GPU that is free."""
    waiting = pod("waiting", PodState.PENDING)
    for priority, want in ((0, 1), (10, 2)):
        low = model(LOW, priority, 1, 2.0, extra=(waiting,))
        assert replicas(planned(model(HIGH, 10, 1, 2.0), low)[LOW]) == want


def _twins(key: Key, priority: int, pods: int) -> tuple[ModelView, LoopMemory]:
    """A Model of replicas of two GPUs, under a load of more than it has."""
    found = loaded(40.0, pods, key=key, priority=priority, tensor_parallel=2)
    return replace(found, pool=replace(found.pool, tensor_parallel=2)), steady(40.0, pods)


def test_smaller_replicas_do_not_yield_for_one_that_needs_its_gpus_on_one_node():
    """GPUs of several nodes make no replica of two: what is free is for who can use it."""
    single, double = model(MIDDLE, 0, 1, 3.0), model(LOW, 0, 2, 2.0)
    found = planned(_twins(HIGH, 1, 1), single, double, free=1)
    assert [replicas(found[key]) for key in (HIGH, MIDDLE, LOW)] == [1, 2, 2]
    assert "yield" not in found[HIGH].decision.message
    # One as large does.
    found = planned(_twins(HIGH, 1, 1), _twins(LOW, 0, 2))
    assert replicas(found[LOW]) == 1
    assert "yields 1 replica" in found[HIGH].decision.message


def test_who_serves_on_a_cordoned_node_does_not_yield():
    """Those pods go first, and free no GPU that anybody can use."""
    low, known = model(LOW, 0, 4, 4.0)
    pods = tuple(replace(each, node_lost=at < 2) for at, each in enumerate(low.pool.pods))
    found = planned(model(HIGH, 10, 1, 3.0), (replace(low, pool=replace(low.pool, pods=pods)), known))
    assert replicas(found[LOW]) >= 4
    assert "yield" not in found[HIGH].decision.message


@pytest.mark.parametrize(
    "changes",
    [{"mode": ScalingMode.ADVISE}, {"paused": True}, {"min_replicas": 3}],
    ids=["only advised", "paused", "at its minimum"],
)
def test_who_does_not_yield(changes: dict[str, object]):
    """What is not Goodput's to scale, and what its author was promised."""
    found = planned(model(HIGH, 10, 1, 4.0), model(LOW, 0, 3, 3.0, **changes))
    assert replicas(found[LOW]) == 3
    assert "yields" not in found[HIGH].decision.message


def test_nobody_yields_while_it_rolls_out_or_for_an_equal():
    """No scale-down during a roll-out; an equal priority takes nothing."""
    low, known = model(LOW, 0, 3, 3.0)
    rolling = replace(low, pool=replace(low.pool, rolling_out=True))
    assert replicas(planned(model(HIGH, 10, 1, 4.0), (rolling, known))[LOW]) == 3
    assert replicas(planned(model(HIGH, 0, 1, 4.0), (low, known))[LOW]) == 3


def test_who_advises_only_or_fails_takes_nothing_from_others():
    """Nothing would come of it: what is advised is not done, and more pods of a crash loop crash."""
    low = model(LOW, 0, 3, 3.0)
    assert replicas(planned(model(HIGH, 10, 1, 4.0, mode=ScalingMode.ADVISE), low)[LOW]) == 3
    crashing = tuple(pod(f"bad-{number}", PodState.FAILED, trouble="CrashLoopBackOff") for number in range(2))
    failing = model(HIGH, 10, 1, 5.0, extra=crashing)
    assert replicas(planned(failing, low)[LOW]) == 3


def test_a_forecast_takes_what_is_free_and_from_nobody():
    """Load is near what three hold and is expected to grow: the fourth replica is for what may come."""
    rps = 2.95 * REPLICA_RPS
    high = loaded(rps, 3, key=HIGH, priority=10), steady(rps, 3)
    assert planned(high, free=9)[HIGH].decision.wanted_replicas == 4
    found = planned(high, model(LOW, 0, 2, 2.0))
    assert replicas(found[LOW]) == 2
    assert found[HIGH].decision.clamp is Clamp.GPUS


def test_the_minimum_of_a_higher_priority_is_a_need():
    """A new Model whose pods would stay Pending: lower ones yield before it has seen any load."""
    new = view(pool(exists=False), None, key=HIGH, priority=10, min_replicas=2), LoopMemory()
    found = planned(new, model(LOW, 0, 3, 3.0))
    assert (replicas(found[HIGH]), replicas(found[LOW])) == (2, 1)


def test_replicas_that_nobody_can_give_are_not_asked_for():
    """A grant that no lower Model of the namespace can free: what other namespaces have would be taken in vain."""
    other = Key("elsewhere", "c-low")
    found = planned(model(HIGH, 10, 2, 5.0), model(other, 0, 3, 3.0), policy=Policy(max_gpus_per_namespace=3))
    assert (replicas(found[HIGH]), replicas(found[other])) == (2, 2)
    told = found[other].decision.message
    assert "a Model of another namespace, of priority 10, lacks" in told
    assert "a-high" not in told
    assert "a Model of another namespace of priority 0 yields 1 replica" in found[HIGH].decision.message


@pytest.mark.parametrize("by_cost", [False, True], ids=["GPUs", "cost"])
def test_what_a_namespace_may_have_goes_to_the_higher_priority(by_cost: bool):
    """Four replicas are granted; the low one holds three, GPUs enough are free."""
    limits = {"max_cost_per_hour_per_namespace": 4.0} if by_cost else {"max_gpus_per_namespace": 4}
    models = model(HIGH, 10, 1, 3.0), model(LOW, 0, 3, 3.0)
    there = snapshot(*(one for one, _ in models), free=50, types=priced(1.0))
    memory = {one.intent.key: known for one, known in models}
    high, low = decide(there, memory, Policy(**limits), START).models
    assert (replicas(high), replicas(low)) == (1, 1)
    assert low.decision.rule is Rule.PRIORITY
    what = "2.00 $/h of what its namespace may spend" if by_cost else "2 GPUs of what its namespace may hold"
    assert f"Model a-high of priority 10 lacks {what}" in low.decision.message


priorities = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 4), st.floats(0, 14), st.integers(1, 2)), min_size=1, max_size=5
)


def _fleet(
    given: list[tuple[int, int, float, int]], supply: int, only_from: int = -1
) -> tuple[Snapshot, dict[Key, LoopMemory]]:
    models, memory, used = [], {}, 0
    for index, (priority, pods, rps, least) in enumerate(given):
        used += pods
        if priority < only_from:
            continue
        key = Key("default", f"m{index}")
        models.append(fleet([PodState.READY] * pods, key=key, priority=priority, min_replicas=min(least, pods)))
        memory[key] = history(rps, pods)
    there = snapshot(*models)
    there = replace(there, supply=(GpuSupply(type="l40s", nodes=9, installed=max(supply, used), used=used),))
    return there, memory


@QUICK
@given(given=priorities, supply=st.integers(0, 16))
def test_granted_never_exceeds_supply_and_the_lower_change_nothing(given, supply):
    """What runs and what is granted stays within the GPUs; who has a higher priority gets no less than if the lower
    ones asked for nothing more; nobody falls below its minimum for another."""
    there, memory = _fleet(given, supply)
    plans = {plan.key: plan for plan in decide(there, memory, Policy(), START).models}
    held = sum(max(replicas(plans[one.intent.key]), len(one.pool.pods)) for one in there.models)
    assert held <= there.supply[0].capacity
    for one in there.models:
        plan = plans[one.intent.key]
        assert replicas(plan) >= one.intent.min_replicas
        if plan.decision.rule is Rule.PRIORITY:
            assert any(
                other.intent.priority > one.intent.priority
                and plans[other.intent.key].decision.wanted_replicas > replicas(plans[other.intent.key])
                for other in there.models
            )
    for threshold in {priority for priority, *_ in given}:
        fewer, known = _fleet(given, supply, threshold)
        for plan in decide(fewer, known, Policy(), START).models:
            # More, where the lower ones yield in its place.
            assert replicas(plans[plan.key]) >= replicas(plan)


@QUICK
@given(given=priorities, supply=st.integers(0, 14))
def test_in_the_end_the_higher_has_what_the_minima_of_the_lower_leave(given, supply):
    """Tick after tick, with drains that end: no more is left to a lower one than its minimum while a higher one surely
    lacks a GPU, and the fleet comes to rest."""
    state = {index: pods for index, (_, pods, _, _) in enumerate(given)}
    supply = max(supply, sum(state.values()))
    wanted: dict[int, int] = {}
    for _ in range(8):
        models, memory = [], {}
        for index, (priority, pods, rps, at_least) in enumerate(given):
            key, least = Key("default", f"m{index}"), min(at_least, pods)
            models.append(fleet([PodState.READY] * state[index], key=key, priority=priority, min_replicas=least))
            memory[key] = history(rps, state[index])
        used = sum(state.values())
        there = replace(snapshot(*models), supply=(GpuSupply(type="l40s", nodes=9, installed=supply, used=used),))
        plans = decide(there, memory, Policy(), START).models
        before = dict(state)
        state = {index: replicas(plan) for index, plan in enumerate(plans)}
        wanted = {index: plan.decision.wanted_replicas for index, plan in enumerate(plans)}
        assert sum(max(before[index], state[index]) for index in state) <= supply
    assert state == before
    for index, (priority, *_) in enumerate(given):
        if wanted[index] <= state[index] + 1:
            continue
        # One replica of them may be for what is only forecast.
        for other, (lower, pods, _, least) in enumerate(given):
            if lower < priority:
                assert state[other] == min(least, pods)
