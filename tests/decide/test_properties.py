"""What holds for any input: limits, holds, monotone demand, no cascade, no surprise from hostile numbers."""

import math

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.decide.builders import START, SUMS, counters, gpu, one, pod, pool, router, snapshot, telemetry, view

from goodput.decide import Policy, decide
from goodput.decide.memory_codec import dumps, loads
from goodput.domain.conditions import ConditionType
from goodput.domain.decision import Action
from goodput.domain.identity import Key
from goodput.domain.intent import ScalingMode
from goodput.domain.memory import LoopMemory, PodMark
from goodput.domain.observed import ModelView, PodState
from goodput.domain.samples import Sample, Samples

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

states = st.sampled_from([PodState.READY, PodState.STARTING, PodState.PENDING, PodState.UNREADY, PodState.FAILED])
hostile_number = st.floats(0, 1e6) | st.sampled_from([0.0, -1.0, math.nan, math.inf, -math.inf, 1e300])
hostile = st.none() | hostile_number


def history(rps: float, pods: int, age: float = 600.0) -> LoopMemory:
    return LoopMemory(
        born_at=START - age,
        desired=pods,
        objective=(0.5, 0.05, None),
        samples=Samples.of(
            Sample(at=START - 15.0 * k, seconds=15.0, offered=15.0 * rps) for k in reversed(range(int(age / 15)))
        ),
        loads=tuple((START - 10.0 * k, 1.1 * rps) for k in reversed(range(1, int(age / 10)))),
        router_marks=(PodMark(pod="router-0", scraped_at=START, values=(1000.0, rps, 0.0)),),
    )


def fleet(kinds: list[PodState], **changes: object) -> ModelView:
    pods = tuple(pod(f"pod-{index}", kind) for index, kind in enumerate(kinds))
    metrics = telemetry(
        *(counters(each.name, START) for each in pods if each.state is PodState.READY), requests=1000.0, at=START
    )
    return view(pool(*pods), metrics, **changes)


@QUICK
@given(
    kinds=st.lists(states, min_size=1, max_size=8),
    rps=st.floats(0, 60),
    least=st.integers(1, 5),
    most=st.integers(5, 12),
    free=st.integers(0, 50),
)
def test_replicas_stay_within_their_bounds(kinds, rps, least, most, free):
    """min <= n <= max, whatever the load, the pods and the GPUs."""
    plan = one(fleet(kinds, min_replicas=least, max_replicas=most), history(rps, len(kinds)), free=free)
    assert plan.pool is not None
    assert least <= plan.pool.replicas <= most
    assert plan.decision.to_replicas == plan.pool.replicas


@QUICK
@given(pods=st.integers(1, 8), low=st.floats(0, 40), more=st.floats(0, 40))
def test_more_load_never_asks_for_fewer_replicas(pods, low, more):
    """The wanted number is monotone in demand."""
    kinds = [PodState.READY] * pods
    fewer = one(fleet(kinds), history(low, pods)).decision.wanted_replicas
    assert one(fleet(kinds), history(low + more, pods)).decision.wanted_replicas >= fewer


@QUICK
@given(ready=st.integers(1, 4), rps=st.floats(0.1, 40))
def test_pods_on_their_way_are_never_ordered_twice(ready, rps):
    """Ticks with none of the new pods ready ask for the same total each time: no 2-4-8-16."""
    memory = history(rps, ready)
    plan = one(fleet([PodState.READY] * ready), memory)
    assert plan.pool is not None
    wanted = plan.pool.replicas
    for _ in range(4):
        kinds = [PodState.READY] * ready + [PodState.PENDING] * max(0, wanted - ready)
        plan = one(fleet(kinds), replace(plan.memory, samples=memory.samples))
        assert plan.pool is not None
        assert plan.pool.replicas == max(wanted, len(kinds)) or plan.decision.action is Action.SCALE_DOWN
        assert plan.pool.replicas <= max(wanted, ready)


@QUICK
@given(
    values=st.lists(hostile, min_size=8, max_size=8),
    sums=st.lists(hostile, min_size=len(SUMS), max_size=len(SUMS)),
    unsure=hostile_number,
    routed=st.lists(hostile_number, min_size=2, max_size=2),
    at=st.sampled_from([START, START - 10, START - 500, 0.0, math.nan]),
    age=st.sampled_from([10.0, 600.0]),
    engines=st.booleans(),
)
def test_hostile_metrics_never_raise_and_never_scale_down_unless_fresh(
    *, values, sums, unsure, routed, at, age, engines
):
    """NaN, infinities, negative counts, resets and old scrapes give a plan; one that falls needs fresh metrics.

    What is remembered of them is numbers again, and the next look that is sound works.
    """
    names = ("first_tokens", "ttft_within", "finished", "tpot_within", "e2e_within", "running", "waiting", "rejected")
    counted = counters("pod-0", at, unsure=unsure, **dict(zip(names, values, strict=True)))
    requests, errors = routed
    metrics = telemetry(counted, requests=requests, at=at, **dict(zip(SUMS, sums, strict=True)))
    metrics = replace(metrics, router=replace(metrics.router, errors=(("router-0", at, errors),)))
    if not engines:
        metrics = replace(metrics, pool=None)
    pods = pool(pod("pod-0"), pod("pod-1"), pod("pod-2"))
    plan = one(view(pods, metrics), history(1.0, 3, age))
    sound = telemetry(
        *(counters(each.name, START + 15.0) for each in pods.pods),
        requests=1000.0,
        at=START + 15.0,
        **dict.fromkeys(SUMS, 0.0),
    )
    for each in (plan, one(view(pods, sound), plan.memory, START + 15.0)):
        assert loads(dumps(each.memory)) == each.memory
        assert all(math.isfinite(item.value) for item in each.decision.inputs)
        assert each.figures.demand_rps is None or math.isfinite(each.figures.demand_rps)
    assert plan.pool is not None
    fresh = next(each for each in plan.conditions if each.type is ConditionType.METRICS_FRESH)
    if plan.pool.replicas < 3:
        assert fresh.status == "True"
    for delta in (plan.figures.offered_delta, plan.figures.good_lower_delta, plan.figures.good_upper_delta):
        assert math.isfinite(delta)
        assert delta >= 0.0
    assert plan.figures.good_lower_delta <= plan.figures.good_upper_delta + 1e-9


@QUICK
@given(kinds=st.lists(states, min_size=0, max_size=6), rps=st.floats(0, 40), scrape=st.booleans())
def test_advise_never_changes_what_runs(kinds, rps, scrape):
    """Whatever it would do, replicas are the observed ones."""
    model = fleet(kinds, mode=ScalingMode.ADVISE)
    if not scrape:
        model = replace(model, telemetry=None)
    plan = one(model, history(rps, len(kinds)))
    assert plan.pool is not None
    assert plan.pool.replicas == len(kinds)
    assert plan.decision.action in (Action.HOLD, Action.ADVISE_UP, Action.ADVISE_DOWN)


@QUICK
@given(loads=st.lists(st.floats(0, 30), min_size=2, max_size=5), free=st.integers(0, 12))
def test_models_share_free_gpus_in_the_order_of_their_keys(loads, free):
    """New replicas of one tick never exceed the GPUs that are free, and the plan is the same for any order of input."""
    models, memory = [], {}
    for index, rps in enumerate(loads):
        key = Key("default", f"m{index}")
        models.append(fleet([PodState.READY], key=key))
        memory[key] = history(rps, 1)
    plan = decide(snapshot(*models, free=free), memory, Policy(), START)
    again = decide(snapshot(*reversed(models), free=free), dict(reversed(memory.items())), Policy(), START)
    assert repr(plan) == repr(again)
    assert [each.key for each in plan.models] == sorted(memory)
    grown = sum(each.pool.replicas - 1 for each in plan.models if each.pool is not None)
    assert grown <= free


@QUICK
@given(
    cap=st.integers(0, 10),
    loads=st.lists(st.tuples(st.floats(0, 30), st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=4),
    by_cost=st.booleans(),
)
def test_a_namespace_never_grows_beyond_its_gpus(cap, loads, by_cost):
    """What the administrator grants (GPUs, or what they cost) bounds all Models of a namespace together, their
    minReplicas and what stands in for pods on lost nodes included."""
    models, memory = [], {}
    for index, (rps, pods, lost) in enumerate(loads):
        key = Key("default", f"m{index}")
        model = fleet([PodState.READY] * pods, key=key)
        lame = tuple(replace(each, node_lost=number < lost) for number, each in enumerate(model.pool.pods))
        models.append(replace(model, pool=replace(model.pool, pods=lame)))
        memory[key] = history(rps, pods)
    price = gpu("l40s").price_per_hour
    assert price is not None
    limits = {"max_cost_per_hour_per_namespace": cap * price} if by_cost else {"max_gpus_per_namespace": cap}
    plan = decide(snapshot(*models), memory, Policy(**limits), START)
    total = sum(each.pool.replicas for each in plan.models if each.pool is not None)
    assert total <= max(cap, sum(pods for _, pods, _ in loads))


def test_router_pods_that_vanish_or_appear_do_not_make_load():
    """A roll of the router: the new pod starts at 0, the old one's counter is not read as negative."""
    memory = history(3.0, 1)
    metrics = telemetry(counters("pod-0", START + 15.0), requests=20.0, at=START + 15.0)
    assert metrics.router is not None
    rolled = replace(metrics, router=replace(metrics.router, requests=(("router-1", START + 15.0, 20.0),)))
    model = replace(view(pool(pod("pod-0")), rolled), router=router("router-1", created_at=START + 1.0))
    plan = one(model, memory, START + 16.0)
    assert plan.figures.offered_delta == 20.0
    assert plan.figures.demand_rps is not None
    assert 1.5 < plan.figures.demand_rps < 4.5
