"""Scrapes that fail: what was not seen is neither calm nor a burst, and comes in whole with the next scrape."""

import pytest
from msgspec.structs import replace
from tests.decide.builders import START, counters, one, pod, pool, router, view
from tests.decide.test_replicas import condition, replicas, steady
from tests.podtables import counters as table

from goodput.domain.conditions import ConditionReason, ConditionStatus, ConditionType
from goodput.domain.decision import Rule
from goodput.domain.memory import LoopMemory, PodMark
from goodput.domain.observed import ModelTelemetry, ModelView, PodState, PoolTelemetry, RouterTelemetry

ROUTERS = router("router-0", "router-1", created_at=START - 3000.0)


def look(now: float, requests: dict[str, float], *, pods: int = 2, at: float | None = None) -> ModelView:
    """Ready pods with fresh counters, and the counters of those routers that were scraped."""
    names = [f"pod-{index}" for index in range(pods)]
    when = now if at is None else at
    metrics = ModelTelemetry(
        pool=PoolTelemetry(counters=table(counters(name, now, running=1.0) for name in names)),
        router=RouterTelemetry(requests=tuple((name, when, count) for name, count in sorted(requests.items()))),
    )
    return view(pool(*(pod(name) for name in names)), metrics, router=ROUTERS)


def watched(rps: float, pods: int) -> LoopMemory:
    """Memory of two routers that were watched since they began; each sends half of `rps`."""
    marks = tuple(
        PodMark(pod=f"router-{index}", scraped_at=START, values=(9000.0, rps / 2.0, 0.0)) for index in range(2)
    )
    return replace(steady(rps, pods), born_at=START - 3600.0, router_marks=marks)


def test_a_router_that_misses_one_scrape_neither_halves_nor_multiplies_the_load():
    """Its last rate stands for it, and then its growth since its last count comes in: not its count since its birth."""
    gap = one(look(START + 15.0, {"router-0": 9045.0}), watched(6.0, 2), START + 15.0)
    assert gap.figures.demand_rps == pytest.approx(6.0, rel=0.02)
    assert condition(gap, ConditionType.METRICS_FRESH)[0] is ConditionStatus.TRUE
    back = one(look(START + 30.0, {"router-0": 9090.0, "router-1": 9090.0}), gap.memory, START + 30.0)
    assert back.figures.offered_delta == pytest.approx(45.0 + 90.0)
    assert back.figures.demand_rps == pytest.approx(6.0, rel=0.02)
    assert replicas(back) == 2


def test_a_mute_router_never_lowers_replicas_and_is_named():
    """Ten minutes without one of two routers: half of the load is seen, nothing shrinks; nor at its return."""
    memory = watched(6.0, 2)
    for index in range(1, 41):
        now = START + 15.0 * index
        plan = one(look(now, {"router-0": 9000.0 + 45.0 * index}), memory, now)
        memory = plan.memory
        assert replicas(plan) >= 2
    assert condition(plan, ConditionType.METRICS_FRESH) == (ConditionStatus.FALSE, ConditionReason.METRICS_MISSING)
    assert "router-1" in next(each.message for each in plan.conditions if each.type is ConditionType.METRICS_FRESH)
    # It comes back with nothing counted meanwhile: the window of room begins now, not ten minutes ago.
    now += 15.0
    back = one(look(now, {"router-0": 9000.0 + 45.0 * 41, "router-1": 9000.0}), memory, now)
    assert replicas(back) == replicas(plan)
    assert back.decision.rule is not Rule.SCALE_DOWN_ALLOWED


def test_load_that_nobody_could_send_is_no_reason_to_shrink():
    """All router pods turned unready: no requests come, and that says nothing about demand."""
    dead = replace(ROUTERS, pods=tuple(replace(each, state=PodState.UNREADY, ready_at=None) for each in ROUTERS.pods))
    memory = watched(9.0, 3)
    for index in range(1, 41):
        now = START + 15.0 * index
        model = replace(look(now, {"router-0": 9000.0, "router-1": 9000.0}, pods=3), router=dead)
        plan = one(model, memory, now)
        memory = plan.memory
        assert replicas(plan) == 3
    # Ready again: the silent minutes are not a window of room.
    now += 15.0
    assert replicas(one(look(now, {"router-0": 9000.0, "router-1": 9000.0}, pods=3), memory, now)) == 3


def test_an_engine_that_misses_one_scrape_is_no_missing_metric():
    """Its last scrape is 30 s old, under three intervals: nothing is said; after three, it is named."""
    memory = watched(6.0, 2)
    plan = one(look(START, {"router-0": 9000.0, "router-1": 9000.0}), memory, START)
    for late, status in ((30.0, ConditionStatus.TRUE), (60.0, ConditionStatus.FALSE)):
        now = START + late
        model = look(now, {"router-0": 9000.0 + 3.0 * late, "router-1": 9000.0 + 3.0 * late})
        assert model.telemetry is not None
        assert model.telemetry.pool is not None
        only = replace(model.telemetry.pool, counters=model.telemetry.pool.counters.take([0]))
        seen = one(replace(model, telemetry=replace(model.telemetry, pool=only)), plan.memory, now)
        assert condition(seen, ConditionType.METRICS_FRESH)[0] is status
