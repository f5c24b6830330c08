"""The operator's own law in the simulator: the same Snapshot, the same `decide`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from goodput.decide import Policy as Laws
from goodput.decide import decide
from goodput.domain import podtable as pt
from goodput.domain.identity import Key
from goodput.domain.intent import GpuType, ModelIntent
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
from goodput.domain.plan import ModelPlan, Placement
from goodput.domain.podtable import PodTable
from goodput.simulator.fleet.counters import Scrape, within
from goodput.simulator.fleet.policy import Desired
from goodput.simulator.fleet.settings import FleetSettings
from goodput.simulator.fleet.view import FleetView
from goodput.simulator.sequences import EngineConfig

# Unix time of second 0 of a run: the laws take 0 for "never".
EPOCH = 1_000_000_000.0
# The operator asks for the p95 of request times this seldom, over this window.
_P95_EVERY_SECONDS, _P95_WINDOW_SECONDS = 120.0, 600.0
_REVISION = "r1"


class GoodputPolicy:
    """`goodput.decide.decide` with its memory; `last` is what it decided last."""

    name = "goodput"

    def __init__(
        self,
        intent: ModelIntent,
        gpu_types: Sequence[GpuType],
        gpu_type: str,
        laws: Laws | None = None,
        memory: LoopMemory | None = None,
    ) -> None:
        """The pool runs on `gpu_type`, one of `gpu_types`; `memory` is what an operator before this one wrote down."""
        self._intent = intent
        self._gpu_types = tuple(gpu_types)
        self._gpu_type = gpu_type
        self._laws = laws or Laws()
        self._memory: dict[Key, LoopMemory] = {} if memory is None else {intent.key: memory}
        self._p95: tuple[float, float | None] = (-math.inf, None)
        self._stages = 1  # of the pipeline of one replica
        self.last: ModelPlan | None = None

    @property
    def interval_seconds(self) -> float:
        """As often as the operator."""
        return self._laws.tick_seconds

    @property
    def memory(self) -> LoopMemory | None:
        """What it remembers."""
        return self._memory.get(self._intent.key)

    def render(self, fleet: FleetSettings) -> FleetSettings:
        """The first decision, before anything runs: `fleet` with engines as the operator makes them.

        It is taken early enough that the first replicas are the law's own, from which it learns their start-up.
        """
        now = -(fleet.settle_seconds + fleet.scheduling_seconds + fleet.startup_seconds * (1.0 + fleet.startup_spread))
        view = ModelView(
            intent=self._intent, pool=PoolView(name="serve", exists=False), router=_routers((), now), telemetry=None
        )
        nodes = fleet.gpus_per_node
        supply = GpuSupply(type=self._gpu_type, nodes=len(nodes), installed=sum(nodes), used=0)
        plan = self._decide(view, supply, now)
        if plan.pool is None:
            raise ValueError(f"the Model cannot be placed on {self._gpu_type}: {plan.decision.detail}")
        self._stages = plan.pool.placement.pipeline_parallel
        return replace(fleet, engine=rendered(fleet.engine, plan.pool.placement))

    def decide(self, view: FleetView, now: float) -> Desired:
        """What the operator would do at `now`."""
        supply = GpuSupply(type=self._gpu_type, nodes=view.nodes, installed=view.gpus_installed, used=view.gpus_used)
        plan = self._decide(self._model(view, now), supply, now)
        if plan.pool is None:
            return Desired(view.desired)
        order = sorted(plan.pool.victims, key=lambda victim: victim[1])
        return Desired(plan.pool.replicas, tuple(name for name, _ in order))

    def _decide(self, view: ModelView, supply: GpuSupply, now: float) -> ModelPlan:
        snapshot = Snapshot(models=(view,), gpu_types=self._gpu_types, supply=(supply,))
        plan = decide(snapshot, self._memory, self._laws, EPOCH + now).models[0]
        self._memory[self._intent.key] = plan.memory
        self.last = plan
        return plan

    def _model(self, view: FleetView, now: float) -> ModelView:
        pods = tuple(
            PodView(
                name=pod.name,
                uid=pod.name,
                pool="serve",
                revision=_REVISION,
                state=pod.state,
                node=None if pod.node is None else f"node-{pod.node}",
                created_at=EPOCH + pod.created_at,
                ready_at=None if pod.ready_at is None else EPOCH + pod.ready_at,
                restarts=pod.restarts,
                trouble=_trouble(pod.state),
                node_lost=pod.node_lost,
            )
            for pod in view.pods
        )
        pool = PoolView(
            name="serve",
            exists=True,
            spec_replicas=view.desired,
            revision=_REVISION,
            gpu_type=self._gpu_type,
            tensor_parallel=view.gpus_per_replica // self._stages,
            pipeline_parallel=self._stages,
            pods=pods,
        )
        if now - self._p95[0] >= _P95_EVERY_SECONDS:
            p95 = view.quantile("e2e", 0.95, _P95_WINDOW_SECONDS)
            self._p95 = (now if p95 is not None else -math.inf, p95)
        return ModelView(
            intent=self._intent,
            pool=pool,
            router=_routers(tuple(view.routers), view.began_at),
            telemetry=_telemetry(view, self._p95[1]),
        )


def _trouble(state: PodState) -> str:
    return {PodState.FAILED: "CrashLoopBackOff", PodState.PENDING: "Unschedulable"}.get(state, "")


def _routers(names: Sequence[str], created_at: float) -> PoolView:
    pods = tuple(
        PodView(
            name=name,
            uid=name,
            pool="router",
            revision=_REVISION,
            state=PodState.READY,
            node="node-0",
            created_at=EPOCH + created_at,
            ready_at=EPOCH + created_at,
        )
        for name in sorted(names)
    )
    return PoolView(name="router", exists=True, spec_replicas=len(pods), revision=_REVISION, pods=pods)


def _row(scrape: Scrape, view: FleetView) -> list[float]:
    objective, edges = view.objective, view.edges

    def inside(counts: Sequence[int], of: Sequence[float], bound: float | None) -> float:
        return math.nan if bound is None else float(within(counts, of, bound))

    row = [0.0] * pt.COUNTERS
    row[pt.SCRAPED_AT] = EPOCH + scrape.at
    row[pt.FIRST_TOKENS] = scrape.first_tokens
    row[pt.TTFT_WITHIN] = inside(scrape.ttft, edges.ttft, objective.ttft_seconds)
    row[pt.FINISHED] = scrape.finished
    row[pt.TPOT_WITHIN] = inside(scrape.tpot, edges.tpot, objective.tpot_seconds)
    row[pt.E2E_WITHIN] = inside(scrape.e2e, edges.e2e, objective.e2e_seconds)
    row[pt.REJECTED] = scrape.rejected
    row[pt.WAITING] = scrape.waiting
    row[pt.RUNNING] = scrape.running
    return row


def _telemetry(view: FleetView, p95: float | None) -> ModelTelemetry:
    """What the operator reads from Prometheus."""
    names = sorted(view.latest)
    scrapes = [view.latest[name] for name in names]
    table = PodTable(tuple(names), np.array([_row(each, view) for each in scrapes])) if names else None
    pool = None
    if table is not None:
        pool = PoolTelemetry(
            counters=table,
            prompt_tokens=float(sum(each.prompt_tokens for each in scrapes)),
            cached_prompt_tokens=float(sum(each.cached_tokens for each in scrapes)),
            generation_tokens=float(sum(each.generation_tokens for each in scrapes)),
            itl_sum_seconds=sum(each.itl_sum for each in scrapes),
            itl_count=float(sum(each.itl_count for each in scrapes)),
            prefill_sum_seconds=sum(each.prefill_sum for each in scrapes),
            prefill_count=float(sum(each.prefill_count for each in scrapes)),
            request_seconds_p95=p95,
        )
    last = [(name, view.routers[name][-1]) for name in sorted(view.routers) if name not in view.missed]
    router = RouterTelemetry(
        requests=tuple((name, EPOCH + each.at, float(each.requests)) for name, each in last),
        errors=tuple((name, EPOCH + each.at, float(each.errors)) for name, each in last),
    )
    return ModelTelemetry(pool=pool, router=router if last else None)


def rendered(engine: EngineConfig, placement: Placement) -> EngineConfig:
    """The settings with which the operator renders engines that have the KV pool of `engine`."""
    return replace(
        engine,
        max_num_seqs=placement.max_num_seqs,
        max_num_batched_tokens=placement.max_num_batched_tokens,
        max_model_len=min(placement.max_model_len, (engine.kv_blocks - 1) * engine.block_size),
        max_num_queued_reqs=placement.max_num_queued_requests,
        max_num_queued_tokens=placement.max_num_queued_tokens,
    )
