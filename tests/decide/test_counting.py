"""From counters of scrapes to what happened: old misses, times without an objective, demand without a router."""

import math

import pytest
from msgspec.structs import replace
from tests.decide.builders import START, SUMS, counters, engine_mark, marks, one, pod, pool, telemetry, view
from tests.decide.test_replicas import condition, missed, replicas, steady

from goodput.decide.history import attainment, totals
from goodput.decide.telemetry import delta
from goodput.domain.conditions import ConditionReason, ConditionStatus, ConditionType
from goodput.domain.decision import Rule
from goodput.domain.intent import RoutingMode
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import ModelView, PodState, PodView
from goodput.domain.plan import ModelPlan


def served(now: float, requests: float, *, late: float = 0.0, running: float = 10.0) -> ModelView:
    """One pod with a long life that finished `requests` since START, `late` of them after a late first token."""
    so_far = 30_000.0 + requests
    seen = counters(
        "pod-0",
        now,
        first_tokens=so_far + running,
        ttft_within=so_far + running - late,
        finished=so_far,
        tpot_within=so_far,
        running=running,
    )
    return view(pool(pod("pod-0")), telemetry(seen, requests=1000.0 + requests, at=now, request_seconds_p95=20.0))


def remembered(now: float = START) -> LoopMemory:
    """After a look at `served(now, 0)` and ten minutes of 3 requests/s that were all good."""
    memory = replace(steady(3.0, 1, now=now), born_at=START - 36_000.0)
    return one(served(now, 0.0), memory, now).memory


def test_misses_of_an_hour_ago_are_not_charged_to_a_load_that_falls():
    """Thirty late first tokens, an hour at ten in flight, then fewer are: what finishes then is good."""
    memory = remembered()
    plan = one(served(START + 15.0, 45.0, late=30.0, running=40.0), memory, START + 15.0)
    for index in range(2, 240):
        now = START + 15.0 * index
        plan = one(served(now, 45.0 * index, late=30.0, running=40.0), plan.memory, now)
    now += 15.0
    plan = one(served(now, 45.0 * 240, late=30.0, running=0.0), plan.memory, now)
    assert plan.figures.good_upper_delta == 45.0
    assert plan.decision.rule is not Rule.CERTAIN_MISSES


@pytest.mark.parametrize("away", [3000.0, 600.0])
def test_misses_of_a_gap_in_looking_do_not_act(away):
    """Half of the requests were late while no operator looked; now all are good: nothing is added, then or later."""
    now = START + away
    late = 1.5 * away
    plan = one(served(now, 3.0 * away, late=late), remembered(), now)
    assert plan.decision.rule is not Rule.CERTAIN_MISSES
    for _ in range(8):
        now += 15.0
        plan = one(served(now, 3.0 * (now - START), late=late), plan.memory, now)
        assert replicas(plan) == 1
        assert plan.decision.rule is not Rule.CERTAIN_MISSES


def test_late_first_tokens_of_before_the_window_are_no_misses_of_it():
    """Thirty late ones stay in doubt for five minutes of a steady load; then it falls, and all that ends is good."""
    plan = one(served(START + 15.0, 45.0, late=30.0, running=40.0), remembered(), START + 15.0)
    for index in range(2, 22):
        now = START + 15.0 * index
        running = 40.0 if index < 20 else 0.0
        plan = one(served(now, 45.0 * index, late=30.0, running=running), plan.memory, now)
        assert plan.decision.rule is not Rule.CERTAIN_MISSES
    assert sum(each.good_upper for each in plan.memory.samples[-2:]) <= 60.0, "in all they are charged"
    recent = attainment(totals([plan.memory.samples], [now - 90.0])[0], 20.0, True)
    assert recent.upper == 1.0
    whole = attainment(totals([plan.memory.samples], [START])[0], 20.0, True)
    assert whole.upper == pytest.approx(1.0 - 30.0 / (45.0 * 21))


def test_misses_of_the_last_minute_do_act():
    """The same share of late ones, looked at every 15 s."""
    plan: ModelPlan | None = None
    memory = remembered()
    for index in range(1, 7):
        now = START + 15.0 * index
        plan = one(served(now, 45.0 * index, late=22.5 * index), memory, now)
        memory = plan.memory
    assert plan is not None
    assert plan.decision.rule is Rule.CERTAIN_MISSES


def test_what_ended_without_an_objective_may_all_have_been_good():
    """A typing mistake in spec.slo for a minute: its requests are no misses, neither meanwhile nor afterwards."""
    memory = remembered()
    for index in range(1, 5):
        now = START + 15.0 * index
        plan = one(replace(served(now, 45.0 * index), intent=view(pool(), None, objective=None).intent), memory, now)
        memory = plan.memory
        assert (plan.figures.good_lower_delta, plan.figures.good_upper_delta) == (0.0, 45.0)
    now += 15.0
    plan = one(served(now, 45.0 * 5), memory, now)
    assert plan.figures.good_upper_delta == 45.0
    assert plan.decision.rule is not Rule.CERTAIN_MISSES
    assert condition(plan, ConditionType.SLO_MET) == (ConditionStatus.UNKNOWN, ConditionReason.UNDECIDED)


def test_samples_of_a_time_without_an_objective_are_not_judged_by_the_next_one():
    """The marks belong to no objective: whatever their samples say is not about this one."""
    bad = missed(steady(3.0, 1).samples, 1.0)
    plan = one(served(START, 0.0), steady(3.0, 1, samples=bad, objective=()))
    assert replicas(plan) == 1
    assert condition(plan, ConditionType.SLO_MET) == (ConditionStatus.UNKNOWN, ConditionReason.UNDECIDED)


@pytest.mark.parametrize("before", [math.nan, math.inf, -math.inf])
def test_a_count_before_that_is_no_number_tells_nothing(before):
    """Whatever is there now is no growth."""
    assert delta(40.0, before) == 0.0


def engines(scrapes: dict[str, tuple[float, float]], *pods: PodView, now: float, memory: LoopMemory) -> ModelPlan:
    """A look at engines without a router: per pod its newest scrape and first tokens so far."""
    seen = [counters(name, at, first_tokens=count, ttft_within=count) for name, (at, count) in scrapes.items()]
    there = pods or tuple(pod(name) for name in scrapes)
    model = view(pool(*there), telemetry(*seen, requests=None), routing=RoutingMode.NONE)
    return one(model, memory, now)


def alone(*names: str, at: float = START, age: float = 3600.0) -> LoopMemory:
    """Memory of engines that have served without a router; nothing is known of their load."""
    seen = marks(*(engine_mark(name, at) for name in sorted(names)))
    return LoopMemory(born_at=START - age, desired=len(names), objective=(0.5, 0.05, None), marks=seen)


def test_engines_scraped_at_different_instants_add_up_to_their_demand():
    """Two pods of 1 request/s each, scraped 7.5 s apart: 2 requests/s at every look, with a new scrape or without."""
    memory = alone("pod-0", "pod-1")
    for tick in range(1, 31):
        now = START + 10.0 * tick
        scrapes = {}
        for name, phase in (("pod-0", 0.0), ("pod-1", 7.5)):
            at = START + phase + 15.0 * math.floor((now - START - phase) / 15.0)
            scrapes[name] = (max(START, at), max(START, at) - START)
        plan = engines(scrapes, now=now, memory=memory)
        again = engines(scrapes, now=now + 1.0, memory=plan.memory)
        memory = again.memory
        if tick > 9:
            assert plan.figures.demand_rps == pytest.approx(2.0, rel=0.02)
            assert again.figures.demand_rps == pytest.approx(2.0, rel=0.02)
            assert again.decision.rule is not Rule.HOLD_STARTING


def test_an_engine_that_no_longer_serves_does_not_go_on_at_its_last_rate():
    """One of two turned unready and is mute: its load is on the other one now, and is counted there."""
    memory = alone("pod-0", "pod-1")
    for index in range(1, 11):
        now = START + 15.0 * index
        plan = engines(dict.fromkeys(("pod-0", "pod-1"), (now, 15.0 * index)), now=now, memory=memory)
        memory = plan.memory
    gone = pod("pod-1", PodState.UNREADY)
    for index in range(11, 19):
        now = START + 15.0 * index
        counted = {"pod-0": (now, 150.0 + 30.0 * (index - 10))}
        plan = engines(counted, pod("pod-0"), gone, now=now, memory=plan.memory)
    assert plan.figures.demand_rps == pytest.approx(2.0, rel=0.02)


@pytest.mark.parametrize("ready", [5.0, None], ids=["served for 5 s", "not ready yet"])
def test_a_start_up_is_no_time_in_which_nothing_came(ready):
    """The first scrape of a pod that started for 300 s: its interval is the time since it serves."""
    now = START + 15.0
    came = 5.0 if ready else 0.0
    new = pod(
        "pod-1",
        PodState.READY if ready else PodState.STARTING,
        created_at=now - 300.0,
        ready_at=now - ready if ready else None,
    )
    scrapes = {"pod-0": (now, 15.0), "pod-1": (now, came)}
    plan = engines(scrapes, pod("pod-0"), new, now=now, memory=alone("pod-0"))
    (sample,) = plan.memory.samples
    assert sample.seconds <= 15.0
    assert sample.offered == 15.0 + came


def test_a_restart_is_no_time_in_which_nothing_came():
    """An engine that restarted and loaded its weights again for 300 s counts from when it serves."""
    now = START + 300.0
    again = pod("pod-0", ready_at=now - 10.0, restarts=1)
    memory = replace(alone("pod-0"), marks=engine_mark("pod-0", START, first_tokens=500.0, ttft_within=500.0))
    plan = engines({"pod-0": (now, 20.0)}, again, now=now, memory=memory)
    (sample,) = plan.memory.samples
    assert (sample.seconds, sample.offered) == (10.0, 20.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
@pytest.mark.parametrize(
    "where",
    [
        "engine",
        *SUMS,
        "requests",
        "errors",
        "router time",
        "requests without engines",
        "errors without engines",
    ],
)
def test_one_value_that_is_no_count_holds_everything_and_is_told(where, bad):
    """Whichever it is; nothing of it gets into memory."""
    memory = remembered()
    model = served(START + 15.0, 45.0)
    metrics = model.telemetry
    assert metrics is not None
    assert metrics.pool is not None
    assert metrics.router is not None
    engines_seen, router_seen = metrics.pool, metrics.router
    if where == "engine":
        engines_seen = replace(engines_seen, fault=f"of pod pod-0, the counter is {bad}")
    elif where.startswith("requests"):
        router_seen = replace(router_seen, requests=(("router-0", START + 15.0, bad),))
    elif where.startswith("errors"):
        router_seen = replace(router_seen, errors=(("router-0", START + 15.0, bad),))
    elif where == "router time":
        router_seen = replace(router_seen, requests=(("router-0", bad, 1045.0),))
    else:
        engines_seen = replace(engines_seen, **{where: bad})
    told = replace(metrics, pool=None if where.endswith("without engines") else engines_seen, router=router_seen)
    plan = one(replace(model, telemetry=told), memory, START + 15.0)
    assert plan.decision.rule is Rule.HOLD_METRICS
    assert condition(plan, ConditionType.METRICS_FRESH) == (ConditionStatus.FALSE, ConditionReason.METRICS_INVALID)
    assert (plan.memory.marks, plan.memory.router_marks) == (memory.marks, memory.router_marks)
    assert plan.memory.samples == memory.samples
