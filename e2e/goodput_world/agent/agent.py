"""All simulated nodes in one process: what they share, and how API events reach them."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

import goodput_world
from goodput_world import watchdog
from goodput_world.agent import leftovers
from goodput_world.agent.addresses import AddressPool
from goodput_world.agent.admission import PolicyGate
from goodput_world.agent.config import AgentConfig
from goodput_world.agent.events import EventRecorder
from goodput_world.agent.images import build_registry
from goodput_world.agent.kubeapi import Api, Reflector
from goodput_world.agent.node import Node
from goodput_world.agent.objects import ObjectSource
from goodput_world.agent.pace import Pace
from goodput_world.agent.pod import PodRuntime
from goodput_world.agent.services import ServiceProxy

log = logging.getLogger(__name__)

_MEMORY_CHECK_SECONDS = 3.0
_HOSTS_SETTLE_SECONDS = 0.05
_DYING_SECONDS = 5.0


class Agent:
    """The nodes of a world. `directory` keeps logs, volumes and what the nodes offer to containers."""

    def __init__(self, api: Api, config: AgentConfig, directory: Path) -> None:
        """Nothing is registered or started before `run`."""
        self.mark = f"{directory}"
        self.api = api
        self.config = config
        self.directory = directory
        self.pace = Pace(config.speed)
        self.startup_seconds = config.startup_seconds
        self.bin_directory = Path(sys.executable).parent
        self.images = build_registry(config.images, self.bin_directory)
        self.host_paths = _host_paths(self.images.specs())
        self.inherited_env = {
            name: os.environ[name] for name in (watchdog.MARK_VARIABLE, "PYTHONPATH") if os.environ.get(name)
        } | {leftovers.VARIABLE: self.mark}
        self.offered = directory / "offered"
        self.objects = ObjectSource(api)
        self.events = EventRecorder(api)
        self.addresses = AddressPool(config.pod_cidr)
        self.nodes = {node.name: Node(self, node, self.addresses.node()) for node in config.nodes}
        self._pods = Reflector(api, "/api/v1/pods", self._on_pod)
        self._services = Reflector(api, "/api/v1/services", self._on_service)
        self._policies = Reflector(api, "/apis/networking.k8s.io/v1/networkpolicies", lambda *_: None)
        self._namespaces = Reflector(api, "/api/v1/namespaces", lambda *_: None)
        self._by_namespace: dict[str, dict[str, Mapping[str, Any]]] = {}
        self._hosts_due = asyncio.Event()
        self.gate = PolicyGate(
            policies=self._policies.items.values,
            pod=self._pods.items.get,
            pod_by_ip=self._pod_by_ip,
            namespace_labels=self._namespace_labels,
            processes=self._processes,
            node_ips=frozenset(node.ip for node in self.nodes.values()),
        )
        self.services = ServiceProxy(
            pods_of=lambda namespace: self._by_namespace.get(namespace, {}).values(),
            admit=self.gate.dial,
            api_address=api.endpoint.address,
            connected=self.gate.connected,
            disconnected=self.gate.disconnected,
        )

    # --- running -----------------------------------------------------------------------------------------------------

    async def run(self, started: asyncio.Event) -> None:
        """Run until cancelled; then end every pod. `started` is set when all nodes are Ready and all watches synced."""
        await leftovers.sweep(self.mark)
        self._offer()
        admission = await self.gate.serve(self.offered)
        try:
            async with asyncio.TaskGroup() as group:
                for reflector in (self._services, self._policies, self._namespaces):
                    group.create_task(reflector.run())
                await self._services.synced.wait()
                await self.services.listen()
                group.create_task(_for_ever("services", self._follow_services))
                await _in_batches((node.start() for node in self.nodes.values()), 32)
                group.create_task(self._pods.run())
                group.create_task(_for_ever("memory limits", self._watch_memory))
                group.create_task(_for_ever("volumes", self._refresh_volumes))
                for reflector in (self._pods, self._policies, self._namespaces):
                    await reflector.synced.wait()
                started.set()
                log.info("%d nodes are ready", len(self.nodes))
        finally:
            admission.close()
            self.services.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DYING_SECONDS):
                    await asyncio.gather(*(node.stop() for node in self.nodes.values()), return_exceptions=True)

    def plant_for(self, model: str, gpu_type: str) -> tuple[str, Mapping[str, Any]]:
        """(file name, plant) of an engine of this model on this GPU."""
        names = list(self.config.plants)
        for name in (f"{model}@{gpu_type}", model):
            if name in self.config.plants:
                return f"plant-{names.index(name)}.json", self.config.plants[name]
        return "plant.json", self.config.plant

    def _offer(self) -> None:
        """Write what containers find under SIM_DIRECTORY: the plant, and a program for each name of our images."""
        programs = self.offered / "bin"
        programs.mkdir(parents=True, exist_ok=True)
        for file_name, plant in (
            ("plant.json", self.config.plant),
            *((f"plant-{number}.json", plant) for number, plant in enumerate(self.config.plants.values())),
        ):
            (self.offered / file_name).write_bytes(orjson.dumps(plant, option=orjson.OPT_INDENT_2))
        for _, image in self.images.specs():
            for name, argv in image.programs.items():
                if "/" in name:
                    continue
                words = " ".join(f"'{word}'" for word in argv)
                file = programs / name
                file.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
                file.chmod(0o755)

    # --- events ------------------------------------------------------------------------------------------------------

    def _on_pod(self, kind: str, pod: Mapping[str, Any]) -> None:
        metadata = pod["metadata"]
        pods = self._by_namespace.setdefault(metadata["namespace"], {})
        if kind == "DELETED":
            pods.pop(metadata["name"], None)
        else:
            pods[metadata["name"]] = pod
        self.services.pods_changed()
        if self.services.has_headless:
            self._hosts_due.set()
        node = self.nodes.get(pod["spec"].get("nodeName", ""))
        if node is not None:
            node.on_pod(kind, pod)

    def _on_service(self, _kind: str, _service: Mapping[str, Any]) -> None:
        self.services.set_services(self._services.items)
        self._hosts_due.set()

    async def _follow_services(self) -> None:
        await self._hosts_due.wait()
        await asyncio.sleep(_HOSTS_SETTLE_SECONDS)
        self._hosts_due.clear()
        await self.services.listen()
        for runtime in self.runtimes():
            if not runtime.stopping:
                runtime.write_hosts()

    async def _watch_memory(self) -> None:
        """Kill containers whose resident memory is above their limit, as the kernel would."""
        await asyncio.sleep(_MEMORY_CHECK_SECONDS)
        for runtime in self.runtimes():
            for container in (*runtime.containers, *runtime.inits):
                process, limit = container.process, container.limit_bytes
                if process is not None and limit is not None and process.resident_bytes() > limit:
                    log.info("%s uses more than %d bytes", container.log_path, limit)
                    process.kill_for_memory()

    async def _refresh_volumes(self) -> None:
        await self.pace.sleep(self.config.volume_refresh_seconds)
        for runtime in self.runtimes():
            await runtime.refresh_volumes()

    # --- looking up --------------------------------------------------------------------------------------------------

    def runtimes(self) -> list[PodRuntime]:
        """The pods that have processes of ours."""
        return [pod for node in self.nodes.values() for pod in node.pods.values() if isinstance(pod, PodRuntime)]

    def runtime(self, key: str) -> PodRuntime | None:
        """The running pod NAMESPACE/NAME."""
        return next((runtime for runtime in self.runtimes() if runtime.key == key), None)

    def pods_of(self, node_name: str) -> dict[str, Mapping[str, Any]]:
        """The pods bound to a node, by uid, as the API server has them."""
        return {
            pod["metadata"]["uid"]: pod for pod in self._pods.items.values() if pod["spec"].get("nodeName") == node_name
        }

    def _pod_by_ip(self, ip: str) -> Mapping[str, Any] | None:
        uid = self.addresses.owner_of(ip)
        if uid is None:
            return None
        for node in self.nodes.values():
            if uid in node.pods:
                return node.pods[uid].pod
        return None

    def _namespace_labels(self, name: str) -> Mapping[str, str]:
        namespace = self._namespaces.items.get(name) or {"metadata": {}}
        return namespace["metadata"].get("labels") or {}

    def _processes(self) -> dict[str, Callable[[], list[int]]]:
        return {runtime.key: runtime.pids for runtime in self.runtimes()}


def _host_paths(images: Iterable[tuple[str, Any]]) -> list[str]:
    """Directories that containers must see even if they lie under /tmp, /run or /var: Python, our code, programs."""
    paths = {sys.prefix, sys.base_prefix, *(os.path.dirname(path) for path in goodput_world.__path__)}
    for package in ("goodput", "goodput_controllers"):
        found = importlib.util.find_spec(package)
        paths.update(os.path.dirname(path) for path in (found and found.submodule_search_locations) or ())
    for _, image in images:
        paths.update(os.path.dirname(argv[0]) for argv in image.programs.values() if os.path.isabs(argv[0]))
    return sorted(path for path in paths if path and path != "/")


async def _for_ever(what: str, turn: Callable[[], Awaitable[None]]) -> None:
    """Take turns until cancelled; one that fails is logged, and does not take the nodes down."""
    while True:
        try:
            await turn()
        except Exception:
            log.exception("%s", what)
            await asyncio.sleep(1)


async def _in_batches(work: Iterable[Any], size: int) -> None:
    """Await all, so many at a time."""
    limit = asyncio.Semaphore(size)

    async def one(item: Any) -> None:
        async with limit:
            await item

    await asyncio.gather(*(one(item) for item in work))
