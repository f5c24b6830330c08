"""From no router to routers: until one is ready users reach engines, which count what they offer."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.decide.builders import START, counters, one, pod, pool, router, telemetry, view

from goodput.domain.conditions import Condition, ConditionReason, ConditionStatus, ConditionType
from goodput.domain.intent import RoutingMode
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import ModelView, PodState, PoolView, RouterTelemetry
from goodput.domain.plan import ModelPlan

SCRAPE = 15.0
RATE = 8.0
NAMES = ("pod-0", "pod-1", "pod-2")


def starting(at: float) -> PoolView:
    """One router pod that is not ready yet."""
    there = router(created_at=at)
    return replace(there, pods=tuple(replace(each, state=PodState.STARTING, ready_at=None) for each in there.pods))


def served(now: float, *, routers: PoolView | None, requests: float | None, **changes: Any) -> ModelView:
    """Three replicas, each with a third of the load since an hour, and what router pods counted so far."""
    so_far = RATE / len(NAMES) * (now - START + 3600.0)
    pods = [
        counters(name, now, running=4.0, first_tokens=so_far, ttft_within=so_far, finished=so_far, tpot_within=so_far)
        for name in NAMES
    ]
    metrics = telemetry(*pods, requests=requests, at=now)
    if requests is None:
        metrics = replace(metrics, router=RouterTelemetry())
    there = PoolView(name="router", exists=False) if routers is None else routers
    return replace(view(pool(*[pod(name) for name in NAMES]), metrics, router=there), **changes)


def mode(model: ModelView, routing: RoutingMode) -> ModelView:
    return replace(model, intent=replace(model.intent, routing=routing))


def condition(plan: ModelPlan, kind: ConditionType) -> Condition:
    return next(each for each in plan.conditions if each.type is kind)


def unrouted() -> tuple[LoopMemory, float]:
    """Ten minutes without a router, and when they end."""
    memory = LoopMemory(born_at=START - 36_000.0, desired=3)
    now = START
    for _ in range(40):
        memory = one(mode(served(now, routers=None, requests=None), RoutingMode.NONE), memory, now).memory
        now += SCRAPE
    return memory, now


@pytest.mark.parametrize("scraped", [False, True], ids=["not scraped", "scraped before it is ready"])
def test_engines_count_demand_until_a_router_is_ready_and_routers_from_then_on(scraped: bool) -> None:
    """A steady load stays one: demand, replicas and what metrics say of it."""
    memory, now = unrouted()
    began = now
    for tick in range(60):
        waits = tick < 20
        sent = 0.0 if waits else RATE * (now - began - 20 * SCRAPE)
        model = served(
            now,
            routers=starting(began) if waits else router(created_at=began),
            requests=sent if scraped or not waits else None,
            routers_bypassed=waits,
        )
        assert model.routed is not waits
        plan = one(model, memory, now)
        memory = plan.memory
        assert plan.pool is not None
        assert plan.pool.replicas == 3
        # What reached engines in the interval in which the Service went over, no router counted: it is missing in the
        # average for as long as that reaches back.
        off = 0.01 if tick < 20 else 0.21 if tick < 25 else 0.12
        assert plan.figures.demand_rps == pytest.approx(RATE, rel=off)
        assert condition(plan, ConditionType.METRICS_FRESH).status is ConditionStatus.TRUE
        assert ("demand is a lower bound" in plan.decision.message) is waits
        now += SCRAPE


def test_where_users_are_sent_to_routers_that_are_gone_demand_is_unknown() -> None:
    """Engines see what is left of it: no reason to scale."""
    memory, now = unrouted()
    told = condition(one(served(now, routers=starting(now), requests=None), memory, now), ConditionType.METRICS_FRESH)
    assert (told.status, told.reason) == (ConditionStatus.FALSE, ConditionReason.METRICS_MISSING)
    assert told.message == "no router pod is ready: what users would send is not known"
