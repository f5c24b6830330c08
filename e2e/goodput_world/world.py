"""The embedded world: a control plane, simulated nodes, Prometheus, and Goodput's own CRDs and chart on top."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import aiohttp
import yaml

from goodput_world import kubeconfig, watchdog
from goodput_world.agent.config import NodeConfig
from goodput_world.audit import AuditLog
from goodput_world.binaries import Binaries, ensure
from goodput_world.cluster import SYSTEM_NAMESPACE, Cluster
from goodput_world.controlplane import ControlPlane
from goodput_world.errors import CommandFailed, WaitTimeout, WorldError
from goodput_world.gobuild import print_progress
from goodput_world.nodes import DEFAULT_NODES
from goodput_world.processes import Process, Watchdog, tail_of
from goodput_world.slots import Slot, claim_slot
from goodput_world.waiting import wait_for

_MANIFESTS = Path(__file__).resolve().parent / "manifests"
_PLANT = Path(__file__).resolve().parent / "plants" / "llama-8b-l40s.json"
_PROMETHEUS_IN_CLUSTER = "http://prometheus.monitoring.svc:9090"
_NOT_HEALED_BY_TIME = frozenset({"CrashLoopBackOff", "ImagePullBackOff", "CreateContainerConfigError"})
_PART_SECONDS = 120.0
"""How long a part may take to become ready: generous, for a machine that compiles meanwhile."""


def default_plant() -> dict[str, Any]:
    """Llama-3.1-8B on an L40S, the plant of the demo: what engines are unless a world says otherwise."""
    plant: dict[str, Any] = json.loads(_PLANT.read_text(encoding="utf-8"))
    return plant


@dataclass(frozen=True, slots=True)
class WorldConfig:
    """What a world consists of. Times are seconds."""

    nodes: tuple[NodeConfig, ...] = DEFAULT_NODES
    plant: Mapping[str, Any] = field(default_factory=default_plant)
    """The engines' true performance; see the engine's plant."""
    images: Mapping[str, Any] = field(default_factory=dict)
    """Image repository -> local program, over the agent's own table."""
    startup_seconds: float | None = None
    """How long an engine takes to start; None leaves it to the plant."""
    speed: float = 1.0
    """Seconds of simulated time per second of wall clock."""
    agent: bool = True
    agent_options: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the agent's configuration."""
    prometheus: bool = True
    scrape_interval_seconds: float = 15.0
    operator: Literal["chart"] | None = "chart"
    chart_values: Mapping[str, Any] = field(default_factory=dict)
    """Values over `prometheus.url`, which the world sets when it has a Prometheus."""
    directory: Path | None = None
    """Where logs and data go; None: a temporary folder, removed after a clean stop."""


class World(Cluster):
    """`async with World(WorldConfig(...)) as world`. However it ends, none of its processes is left."""

    def __init__(
        self,
        config: WorldConfig | None = None,
        *,
        binaries: Binaries | None = None,
        progress: Callable[[str], None] = print_progress,
    ) -> None:
        """Claims a slot and a folder; `binaries` defaults to `ensure()`, which may build them first.

        Raises WorldError for parts that cannot do without each other, and what `ensure` and `claim_slot` raise.
        """
        self.config = config or WorldConfig()
        if not self.config.agent and (self.config.prometheus or self.config.operator):
            raise WorldError("prometheus and operator run as pods: they need agent=True")
        self._progress = progress
        self._binaries = binaries or ensure(progress, only=_groups(self.config))
        self._mark = secrets.token_hex(8)
        self._watchdog = Watchdog(self._mark)
        self._slot: Slot = claim_slot()
        self._temporary = self.config.directory is None
        self.directory = (self.config.directory or Path(tempfile.mkdtemp(prefix="goodput-world-"))).resolve()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.control_plane = ControlPlane(self._binaries, self.directory / "control-plane", self._slot, mark=self._mark)
        self.agent: Process | None = self._agent_process() if self.config.agent else None
        scratch = self.directory / "scratch"
        scratch.mkdir(exist_ok=True)
        super().__init__(
            kubectl=self._binaries.kubectl,
            helm=self._binaries.helm,
            kubeconfig=self.control_plane.layout.kubeconfig(kubeconfig.ADMIN),
            scratch=scratch,
        )
        self.agent_url = ""
        """The agent's control interface: faults to inject, see agent/control.py; empty without an agent."""
        self.prometheus_url = ""
        """Where this machine reaches Prometheus; empty without one."""

    @property
    def audit(self) -> AuditLog:
        """The API server's audit log."""
        return self.control_plane.audit

    async def __aenter__(self) -> World:
        """Start; what was started is stopped again when a part fails."""
        try:
            await self._start()
        except BaseException:
            self._temporary = False  # keep the logs that tell why
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        if error is not None:
            self._temporary = False
        await self.stop()

    async def _start(self) -> None:
        self._watchdog.start()
        self._progress(f"starting the control plane in {self.directory}")
        await self.control_plane.start()
        if self.agent is not None:
            self._progress(f"starting {len(self.config.nodes)} simulated nodes")
            await self._start_agent(self.agent)
        if self.config.prometheus:
            self._progress("starting Prometheus")
            await self._start_prometheus()
        if self.config.operator == "chart":
            self._progress("installing the CRDs and the chart")
            await self.install_crds()
            await self.install_operator()

    async def stop(self) -> None:
        """Stop everything, nodes first; kill whatever is left."""
        try:
            await self.close()
            if self.agent is not None:
                await self.agent.stop(grace_seconds=15.0)
            await self.control_plane.stop()
        finally:
            self._watchdog.stop()
            self._slot.close()
            if self._temporary:
                shutil.rmtree(self.directory, ignore_errors=True)

    # --- simulated nodes ---------------------------------------------------------------------------------------------

    def _agent_process(self) -> Process:
        folder = self.directory / "agent"
        return Process(
            "node agent",
            [
                *(sys.executable, "-m", "goodput_world.agent"),
                *("--kubeconfig", self.control_plane.layout.kubeconfig(kubeconfig.AGENT)),
                *("--config", folder / "nodes.json", "--directory", folder),
            ],
            log_path=self.directory / "logs" / "agent.log",
            env={
                **{name: value for name, value in os.environ.items() if name != "KUBECONFIG"},
                "PYTHONPATH": os.pathsep.join(filter(None, [str(_MANIFESTS.parents[1]), os.environ.get("PYTHONPATH")])),
                watchdog.MARK_VARIABLE: self._mark,
            },
        )

    def _agent_config(self) -> dict[str, Any]:
        return {
            "pod_cidr": self._slot.pod_cidr,
            "service_cidr": self._slot.service_cidr,
            "nodes": [dataclasses.asdict(node) for node in self.config.nodes],
            "plant": dict(self.config.plant),
            "images": {
                "prom/prometheus": {"entrypoint": str(self._binaries.prometheus)},
                **self.config.images,
            },
            "speed": self.config.speed,
            **({} if self.config.startup_seconds is None else {"startup_seconds": self.config.startup_seconds}),
            **self.config.agent_options,
        }

    async def _start_agent(self, agent: Process) -> None:
        folder = self.directory / "agent"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "nodes.json").write_text(json.dumps(self._agent_config(), indent=2))
        agent.start()
        wanted = len(self.config.nodes)

        async def all_ready() -> bool:
            agent.raise_if_exited()
            if not (folder / "agent.json").exists():
                return False
            nodes = await self.list_objects("nodes")
            return sum(_is_true(node, "Ready") and not node["spec"].get("taints") for node in nodes) >= wanted

        try:
            await wait_for(all_ready, what=f"{wanted} simulated nodes Ready", timeout_seconds=_PART_SECONDS)
        except WaitTimeout as error:
            raise WaitTimeout(f"{error}; the end of {agent.log_path}:\n{agent.tail()}\n{self._agent_log()}") from error
        self.agent_url = json.loads((folder / "agent.json").read_text())["control"]

    def _agent_log(self) -> str:
        return tail_of(self.directory / "agent" / "agent.log")

    async def inject(self, fault: str, **parameters: str) -> None:
        """POST a fault to the agent: `inject("nodes/l40s-0/fail")`, `inject("images/pull-fail", image="busybox")`.

        Raises WorldError with the agent's words when it refuses.
        """
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session,
            session.post(f"{self.agent_url}/{fault}", params=parameters) as answer,
        ):
            if answer.status >= 300:
                raise WorldError(f"the agent refused {fault}: HTTP {answer.status}: {await answer.text()}")

    def pod_logs(self, namespace: str, pod_prefix: str = "", container: str = "*") -> str:
        """What the containers of pods logged, oldest file first, pods that are gone included. Empty when none match."""
        files = (self.directory / "agent" / "pods").glob(f"{namespace}_{pod_prefix}*/{container}.log")
        return "".join(
            path.read_text(errors="replace") for path in sorted(files, key=lambda path: path.stat().st_mtime)
        )

    async def operator_logs(self) -> str:
        """What the operator's pods have logged so far, those that are gone included."""
        return self.pod_logs(SYSTEM_NAMESPACE)

    # --- pods of the world -------------------------------------------------------------------------------------------

    async def _start_prometheus(self) -> None:
        documents = list(yaml.safe_load_all((_MANIFESTS / "prometheus.yaml").read_text()))
        await self.apply([_with_scrape_interval(each, self.config.scrape_interval_seconds) for each in documents])
        await self._wait_available("prometheus", "monitoring")
        self.prometheus_url = await self.service_url("monitoring", "prometheus")
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:

            async def answers() -> bool:
                async with session.get(f"{self.prometheus_url}/-/ready") as answer:
                    return answer.status == 200

            await wait_for(answers, what=f"Prometheus at {self.prometheus_url}", timeout_seconds=_PART_SECONDS)

    async def install_operator(self, values: Mapping[str, Any] | None = None) -> None:
        """Install or upgrade the chart: `values` over the world's own. Raises WorldError with what its pods said."""
        merged: dict[str, Any] = {"prometheus": {"url": _PROMETHEUS_IN_CLUSTER}} if self.config.prometheus else {}
        merged = _merge(merged, self.config.chart_values)
        installing = asyncio.create_task(
            self.install_chart(_merge(merged, values or {}), timeout_seconds=_PART_SECONDS)
        )
        try:
            while not installing.done():  # a pod that cannot run fails the installation at once, not after helm's wait
                await asyncio.wait({installing}, timeout=2.0)
                if broken := await self._broken_pods(SYSTEM_NAMESPACE):
                    raise WorldError(f"the operator does not run: {broken}")
            await installing
        except (CommandFailed, WorldError) as error:
            raise WorldError(f"{error}\n{await self.describe_pods(SYSTEM_NAMESPACE)}") from error
        finally:
            installing.cancel()
            await asyncio.gather(installing, return_exceptions=True)

    async def _broken_pods(self, namespace: str) -> str:
        """Containers that wait for a reason which time does not heal, as text; empty when there are none."""
        return "; ".join(
            f"{pod['metadata']['name']}: {status['name']}: {waiting['reason']} after {status['restartCount']} restarts"
            for pod in await self.list_objects("pods", namespace=namespace)
            for status in pod.get("status", {}).get("containerStatuses", [])
            if (waiting := status.get("state", {}).get("waiting", {})).get("reason") in _NOT_HEALED_BY_TIME
        )

    async def _wait_available(self, deployment: str, namespace: str) -> None:
        async def available() -> bool:
            self.raise_if_dead()
            return _is_true(await self.get("deployment", deployment, namespace=namespace), "Available")

        try:
            await wait_for(available, what=f"Deployment {namespace}/{deployment}", timeout_seconds=_PART_SECONDS)
        except WaitTimeout as error:
            raise WaitTimeout(f"{error}\n{await self.describe_pods(namespace)}") from error

    async def describe_pods(self, namespace: str) -> str:
        """For an error message: the pods of a namespace, its events, and the end of the agent's log."""
        parts = [
            await self.kubectl("get", "pods", "-n", namespace, "-o", "wide"),
            await self.kubectl("get", "events", "-n", namespace, "--sort-by=.lastTimestamp"),
            self._agent_log(),
            *(tail_of(path) for path in (self.directory / "agent" / "pods").glob(f"{namespace}_*/*.log")),
        ]
        return "\n".join(parts)

    def raise_if_dead(self) -> None:
        """Raise ProcessExited, with the end of its log, when the agent or a part of the control plane has ended."""
        self.control_plane.raise_if_dead()
        if self.agent is not None:
            self.agent.raise_if_exited()


def _groups(config: WorldConfig) -> list[str]:
    """The groups of binaries that a world needs."""
    return [
        "control-plane",
        *(["prometheus"] if config.prometheus else []),
        *(["helm"] if config.operator == "chart" else []),
    ]


def _is_true(found: Mapping[str, Any], condition: str) -> bool:
    conditions = found.get("status", {}).get("conditions", [])
    return any(each["type"] == condition and each["status"] == "True" for each in conditions)


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Helm's way of merging values: maps merge, anything else replaces."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = _merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def _with_scrape_interval(document: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The Prometheus configuration with another scrape interval; the timeout stays below it."""
    if document["kind"] != "ConfigMap":
        return document
    configuration = yaml.safe_load(document["data"]["prometheus.yml"])
    configuration["global"]["scrape_interval"] = f"{round(seconds * 1000)}ms"
    configuration["global"]["scrape_timeout"] = f"{round(min(10.0, seconds) * 1000)}ms"
    return {**document, "data": {"prometheus.yml": yaml.safe_dump(configuration, sort_keys=False)}}
