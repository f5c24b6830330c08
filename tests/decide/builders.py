"""Short ways to the values that decisions look at. Every argument that a test does not name has a plain default."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from msgspec.structs import replace
from tests.podtables import COUNTER_NAMES
from tests.podtables import counters as table

from goodput.decide import Policy, decide
from goodput.domain.identity import Key
from goodput.domain.intent import GpuType, ModelIntent, Objective
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import (
    GpuSupply,
    ModelTelemetry,
    ModelView,
    PodState,
    PodView,
    PoolTelemetry,
    PoolView,
    RouterTelemetry,
    Snapshot,
)
from goodput.domain.plan import ModelPlan
from goodput.domain.podtable import PodTable
from goodput.perfmodel import Lengths, Shape, architecture, built_in_gpu_types, capacity

KEY = Key("default", "llama-8b")
CHAT = Objective(ttft_seconds=0.5, tpot_seconds=0.05, e2e_seconds=None)
START = 1_000_000.0
# Counters of a whole pool.
SUMS = (
    "prompt_tokens",
    "cached_prompt_tokens",
    "generation_tokens",
    "itl_sum_seconds",
    "itl_count",
    "prefill_sum_seconds",
    "prefill_count",
    "drafts",
    "accepted_tokens",
)
# What one replica of `intent` on the l40s of these tests is believed to hold, in requests/s of public conversations.
# Loads of tests are multiples of it; what is believed of the real type changes with every calibration.
REPLICA_RPS = 3.6


def _types() -> tuple[GpuType, ...]:
    """The built-in types, the l40s faster or slower in bandwidth and arithmetic alike so that it holds REPLICA_RPS."""
    real = built_in_gpu_types()
    l40s = next(each for each in real if each.name == "l40s")
    model = architecture("meta-llama/Llama-3.1-8B-Instruct")
    assert model is not None

    def scaled(factor: float) -> GpuType:
        return replace(
            l40s,
            memory_bandwidth_bytes_per_second=factor * l40s.memory_bandwidth_bytes_per_second,
            flops=tuple((precision, factor * flops) for precision, flops in l40s.flops),
        )

    low, high = 0.5, 2.0
    for _ in range(12):
        middle = (low + high) / 2.0
        holds = capacity(model, scaled(middle), Shape(), Lengths(1155.0, 211.0), CHAT).rps
        low, high = (middle, high) if holds < REPLICA_RPS else (low, middle)
    return tuple(scaled(high) if each is l40s else each for each in real)


GPUS = _types()


def gpu(name: str) -> GpuType:
    return next(each for each in GPUS if each.name == name)


def intent(**changes: Any) -> ModelIntent:
    base = ModelIntent(
        key=KEY,
        uid="uid-1",
        generation=1,
        model="meta-llama/Llama-3.1-8B-Instruct",
        served_name="meta-llama/Llama-3.1-8B-Instruct",
        slo=Key("default", "chat"),
        objective=CHAT,
        architecture=architecture("meta-llama/Llama-3.1-8B-Instruct"),
        gpu_types=("l40s",),
    )
    return replace(base, **changes)


def pod(name: str, state: PodState = PodState.READY, **changes: Any) -> PodView:
    """An engine pod; ready ones were created 1,000 s and became ready 955 s before START."""
    created = changes.pop("created_at", START - 1000.0)
    ready = changes.pop("ready_at", created + 45.0 if state is PodState.READY else None)
    base = PodView(
        name=name,
        uid=f"uid-{name}",
        pool="serve",
        revision="r1",
        state=state,
        node=None if state is PodState.PENDING else "node-1",
        created_at=created,
        ready_at=ready,
    )
    return replace(base, **changes)


def pool(*pods: PodView, **changes: Any) -> PoolView:
    base = PoolView(
        name="serve",
        exists=True,
        spec_replicas=len(pods),
        revision="r1",
        gpu_type="l40s",
        pods=tuple(sorted(pods, key=lambda each: each.name)),
    )
    return replace(base, **changes)


def router(*names: str, created_at: float = START - 1000.0) -> PoolView:
    pods = tuple(
        PodView(
            name=name,
            uid=f"uid-{name}",
            pool="router",
            revision="r1",
            state=PodState.READY,
            node="node-1",
            created_at=created_at,
            ready_at=created_at + 5.0,
        )
        for name in names or ("router-0",)
    )
    return PoolView(name="router", exists=True, spec_replicas=len(pods), revision="r1", pods=pods)


def counters(name: str, at: float, **changes: Any) -> dict[str, Any]:
    zeros = dict.fromkeys(
        ("first_tokens", "ttft_within", "finished", "tpot_within", "running", "waiting", "rejected"), 0.0
    )
    return {"pod": name, "scraped_at": at, **zeros, **changes}


_MARKED = ("carry_lower", "carry_upper", "carry_old", "carry_since", "aborted", "rate", "served", "busy", "slow_since")
_MARK = (*COUNTER_NAMES[1:], *_MARKED)


def engine_mark(name: str, at: float, **values: float) -> PodTable:
    """What the last look at an engine pod left in memory; 0 where nothing is said, and no end-to-end objective."""
    named = {"e2e_within": math.nan, **values}
    assert named.keys() <= set(_MARK)
    return PodTable((name,), np.array([[at, *(named.get(key, 0.0) for key in _MARK)]]))


def marks(*each: PodTable) -> PodTable:
    """Marks of several pods, sorted by name as they are given."""
    return PodTable(tuple(pod for one in each for pod in one.pods), np.concatenate([one.values for one in each]))


def telemetry(
    *pods: dict[str, Any], requests: float | None = 0.0, at: float | None = None, **sums: Any
) -> ModelTelemetry:
    """Engine counters and one router pod; `requests` None: the router has no series."""
    when = at if at is not None else (pods[0]["scraped_at"] if pods else START)
    routed = RouterTelemetry(requests=() if requests is None else (("router-0", when, requests),))
    fault = "".join(
        f"{name} of {pod['pod']} is {value}"
        for pod in pods
        for name, value in pod.items()
        if isinstance(value, float) and not 0.0 <= value < math.inf
    )
    return ModelTelemetry(pool=PoolTelemetry(counters=table(pods), fault=fault, **sums), router=routed)


def view(pool_view: PoolView, metrics: ModelTelemetry | None, **changes: Any) -> ModelView:
    routers = changes.pop("router", router())
    return ModelView(intent=intent(**changes), pool=pool_view, router=routers, telemetry=metrics)


def snapshot(*models: ModelView, free: int = 100, used: int = 0, types: tuple[GpuType, ...] = GPUS) -> Snapshot:
    supply = (GpuSupply(type="l40s", nodes=20, installed=free + used, used=used),)
    return Snapshot(models=models, gpu_types=types, supply=supply)


def one(
    model: ModelView,
    memory: LoopMemory | None = None,
    now: float = START,
    policy: Policy | None = None,
    free: int = 100,
) -> ModelPlan:
    """The plan of a fleet of one Model."""
    remembered = {} if memory is None else {model.intent.key: memory}
    return decide(snapshot(model, free=free), remembered, policy or Policy(), now).models[0]
