"""An operator over a fake cluster, driven pass by pass, with a law that tests can set."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
from tests.placements import placement

from goodput.adapters import reflector as reflector_module
from goodput.adapters.fakes import FakeKube, FakeTelemetry
from goodput.adapters.kinds import DEPLOYMENTS, MODELS, NODES, PODS, SLOS
from goodput.decide import Policy
from goodput.domain.conditions import Condition, ConditionReason, ConditionStatus, ConditionType
from goodput.domain.decision import Action, Decision, Rule
from goodput.domain.identity import Key
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import ModelView, PodState, Snapshot
from goodput.domain.plan import ChangePlan, Figures, ModelPlan, Plan, PoolPlan
from goodput.domain.usage import Usage
from goodput.runtime.metrics import Metrics
from goodput.runtime.settings import Settings
from goodput_controllers.process import Operator

CHAT = {"kind": "SLO", "metadata": {"name": "chat", "namespace": "a"}, "spec": {"ttft": "500ms", "tpot": "50ms"}}


def model(name: str = "llama", namespace: str = "a", **spec: Any) -> dict[str, Any]:
    return {
        "kind": "Model",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"model": "meta-llama/Llama-3.1-8B-Instruct", "slo": "chat", "servedName": name, **spec},
    }


class Law:
    """A law of one line: as many replicas as `wanted` says; `broken` names Models that it stumbles over.

    With `advises` it leaves what runs and says what it would do.
    """

    def __init__(self) -> None:
        self.wanted: dict[str, int] = {}
        self.broken: set[str] = set()
        self.advises = False
        self.changes: dict[str, ChangePlan] = {}
        self.attainment: float | None = None
        self.usage = Usage()
        self.bottleneck = ""
        self.snapshots: list[Snapshot] = []

    def __call__(self, snapshot: Snapshot, memory: Mapping[Key, LoopMemory], policy: Policy, now: float) -> Plan:
        self.snapshots.append(snapshot)
        return Plan(
            models=tuple(
                self._plan(view, memory.get(view.intent.key), now, snapshot.telemetry_error) for view in snapshot.models
            )
        )

    def _plan(self, view: ModelView, remembered: LoopMemory | None, now: float, blind: str) -> ModelPlan:
        intent, pool = view.intent, view.pool
        if intent.key.name in self.broken:
            raise ZeroDivisionError("the law stumbles")
        memory = remembered or LoopMemory(born_at=now)
        want = self.wanted.get(intent.key.name, intent.min_replicas)
        have = pool.spec_replicas
        action = Action.PLACE if not pool.exists else Action.HOLD
        if pool.exists and want != have:
            action = Action.SCALE_UP if want > have else Action.SCALE_DOWN
            if self.advises:
                action = Action.ADVISE_UP if want > have else Action.ADVISE_DOWN
        runs = have if pool.exists and self.advises else want
        fatal = any(problem.fatal for problem in intent.problems)
        living = [pod for pod in pool.pods if pod.state is not PodState.TERMINATING]
        ready = pool.ready
        conditions = [
            Condition(
                ConditionType.READY,
                ConditionStatus.TRUE if ready else ConditionStatus.FALSE,
                ConditionReason.SERVING if ready else ConditionReason.STARTING,
                f"{ready} at {now}",
            )
        ]
        conditions += [
            Condition(problem.type, ConditionStatus.TRUE, problem.reason, problem.message)
            for problem in intent.problems
            if problem.type is ConditionType.STALLED
        ]
        conditions.append(
            Condition(
                ConditionType.METRICS_FRESH,
                ConditionStatus.FALSE if blind else ConditionStatus.TRUE,
                ConditionReason.PROMETHEUS_UNREACHABLE if blind else ConditionReason.FRESH,
                blind,
            )
        )
        plan = PoolPlan(
            name="serve",
            replicas=runs,
            placement=placement(capacity_rps=3.0 + now % 1.0, price_per_hour=1.5),
            victims=tuple((pod.name, -1 - index) for index, pod in enumerate(living[: max(0, have - runs)])),
        )
        decision = Decision(
            model=intent.key,
            pool="serve",
            at=now,
            action=action,
            rule=Rule.ENOUGH if action is Action.HOLD else Rule.DEMAND,
            from_replicas=have,
            to_replicas=want,
            wanted_replicas=want,
            detail=f"{action} {have} -> {want}",
        )
        figures = Figures(
            replicas_desired=runs,
            replicas_ready=ready,
            attainment_lower=self.attainment,
            attainment_upper=self.attainment,
            attainment_requests=1000,
            cost_per_hour=1.5 * runs,
            usage=self.usage,
            bottleneck=self.bottleneck,
        )
        return ModelPlan(
            key=intent.key,
            pool=None if fatal else plan,
            decision=decision,
            conditions=tuple(conditions),
            figures=figures,
            memory=LoopMemory(born_at=memory.born_at, desired=want),
            change=self.changes.get(intent.key.name),
        )


class Bench:
    """A fake cluster with an operator in front of it."""

    def __init__(self, api: FakeKube | None = None, **settings: Any) -> None:
        self.api = api or FakeKube()
        self.law = Law()
        self.telemetry = FakeTelemetry()
        self.now = 1_000_000.0
        self.leads = True
        options = {"prometheus_url": "", "leader_election": False, "router_replicas": 1, **settings}
        self.operator = Operator(Settings(**options), self.api, self.telemetry, Metrics("test"), decide=self.law)
        self.operator.loop.clock = lambda: self.now
        self._task: asyncio.Task[None] | None = None

    model = staticmethod(model)

    def furnish(self) -> None:
        """One node and one SLO."""
        self.api.put(NODES, node())
        self.apply(CHAT)

    async def start(self) -> None:
        self._task = asyncio.create_task(self.operator.cluster.run())
        await self.settle()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def settle(self) -> None:
        """Let watches catch up."""
        async with asyncio.timeout(5):
            while self.operator.cluster.unsynced():
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.01)

    async def tick(self, times: int = 1, *, seconds: float = 10.0) -> None:
        """Pass after pass."""
        for _ in range(times):
            await self.operator._relist_once()
            await self.settle()
            await self.operator.loop.run_once()
            await self.operator.reconciler.drain()
            self.now += seconds

    def apply(self, *manifests: dict[str, Any]) -> None:
        for manifest in manifests:
            self.api.put(MODELS if manifest["kind"] == "Model" else SLOS, manifest)

    def play_kubelet(self, *, ready: bool = True) -> None:
        """Make the pods that Deployments ask for, and let those go that they do not (the cheapest first)."""
        for key, deployment in list(self.api.objects[DEPLOYMENTS.plural].items()):
            labels = deployment["spec"]["template"]["metadata"]["labels"]
            mine = sorted(
                (pod for pod in self.api.objects[PODS.plural].values() if pod["metadata"]["owner"] == key.name),
                key=lambda pod: int(pod["metadata"].get("annotations", {}).get(DELETION_COST, 0)),
            )
            for victim in mine[: max(0, len(mine) - deployment["spec"]["replicas"])]:
                self.api.remove(PODS, Key(key.namespace, victim["metadata"]["name"]))
            for index in range(len(mine), deployment["spec"]["replicas"]):
                self.api.put(PODS, pod(f"{key.name}-{index}", key, labels, ready=ready))
            count = deployment["spec"]["replicas"]
            status = {"replicas": count, "updatedReplicas": count, "readyReplicas": count if ready else 0}
            status["observedGeneration"] = deployment["metadata"]["generation"]
            if deployment.get("status") != status:
                self.api.put(DEPLOYMENTS, {**deployment, "status": status})

    def status(self, name: str = "llama", namespace: str = "a") -> dict[str, Any]:
        return self.api.objects[MODELS.plural][Key(namespace, name)].get("status") or {}

    def condition(self, kind: str, name: str = "llama") -> tuple[str, str]:
        found = next(c for c in self.status(name)["conditions"] if c["type"] == kind)
        return found["status"], found["reason"]

    def replicas(self, name: str = "llama") -> int:
        found: int = self.api.objects[DEPLOYMENTS.plural][Key("a", f"{name}-serve")]["spec"]["replicas"]
        return found


DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


def pod(name: str, owner: Key, labels: dict[str, str], *, ready: bool) -> dict[str, Any]:
    state = "True" if ready else "False"
    return {
        "metadata": {"name": name, "namespace": owner.namespace, "labels": labels, "owner": owner.name},
        "spec": {"nodeName": "n1", "containers": [{"resources": {"requests": {"nvidia.com/gpu": "1"}}}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": state, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    }


def node(name: str = "n1", gpus: int = 8) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": "NVIDIA-L40S"}},
        "spec": {},
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus)},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    """A running operator over an empty cluster with one node, one SLO."""
    monkeypatch.setattr(reflector_module, "FIRST_BACKOFF_SECONDS", 0.002)
    made = Bench()
    made.furnish()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def new_bench(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Bench]:
    """Further operators, over the same or another fake cluster."""
    monkeypatch.setattr(reflector_module, "FIRST_BACKOFF_SECONDS", 0.002)
    return Bench


@pytest.fixture
def make_model() -> Callable[..., dict[str, Any]]:
    """Manifests of Models."""
    return model


@pytest.fixture
def make_node() -> Callable[..., dict[str, Any]]:
    """Manifests of nodes."""
    return node
