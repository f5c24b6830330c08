"""One simulated node: its Node object and Lease, its pods, its faults."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import aiohttp

from goodput_world.agent.config import NodeConfig
from goodput_world.agent.kubeapi import STRATEGIC_PATCH, ApiError
from goodput_world.agent.launching import gpu_count
from goodput_world.agent.nodeobject import lease_body, node_body, node_conditions
from goodput_world.agent.pod import PodRuntime
from goodput_world.agent.status import timestamp
from goodput_world.agent.virtual import VirtualPod

if TYPE_CHECKING:
    from goodput_world.agent.agent import Agent

log = logging.getLogger(__name__)

_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_RENEW_SHARE = 0.25
_DOUBT_SECONDS = 180.0
"""How long after a failed heartbeat the node controller may still call the node lost, from an old view of Leases."""
"""A Lease is renewed four times in its duration, as a kubelet does."""


class Node:
    """A node. `alive`: its kubelet and its pods run; `reachable`: it talks to the API server."""

    def __init__(self, agent: Agent, config: NodeConfig, ip: str) -> None:
        """Nothing is registered before `start`."""
        self.agent = agent
        self.config = config
        self.ip = ip
        self.alive = True
        self.reachable = True
        self.pods: dict[str, PodRuntime | VirtualPod] = {}
        self._started_at = timestamp()
        body = node_body(config, ip)
        self.allocatable: Mapping[str, str] = body["status"]["allocatable"]
        self._tasks: list[asyncio.Task[None]] = []
        self._ending: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Register the node, mark it Ready, and keep its Lease."""
        await self._register()
        self._tasks = [asyncio.create_task(self._keep_lease())]

    async def stop(self) -> None:
        """End all pods at once; the objects stay as they are."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(pod.discard() for pod in self.pods.values()), *self._ending, return_exceptions=True)
        self.pods.clear()

    async def _register(self) -> None:
        api, body = self.agent.api, node_body(self.config, self.ip)
        path = f"/api/v1/nodes/{self.config.name}"
        status = body.pop("status")
        try:
            await api.post("/api/v1/nodes", body)
        except ApiError as error:
            if error.status != 409:
                raise
            await api.patch(path, {"metadata": {"labels": body["metadata"]["labels"]}}, STRATEGIC_PATCH)
        status["conditions"] = node_conditions(self._started_at)
        await api.patch(f"{path}/status", {"status": status}, STRATEGIC_PATCH)

    async def _keep_lease(self) -> None:
        api, config = self.agent.api, self.agent.config
        path = f"{_LEASES}/{self.config.name}"
        doubted_until = 0.0
        while True:
            if self.alive and self.reachable:
                body = lease_body(self.config.name, config.lease_seconds)
                try:
                    try:
                        await api.patch(path, {"spec": body["spec"]})
                    except ApiError as error:
                        if error.status != 404:
                            raise
                        await api.post(_LEASES, body)
                    if time.monotonic() < doubted_until:
                        await self._report_ready()
                except (ApiError, aiohttp.ClientError, TimeoutError) as error:
                    log.warning("lease of %s: %s", self.config.name, error)
                    doubted_until = time.monotonic() + _DOUBT_SECONDS
            await asyncio.sleep(config.lease_seconds * _RENEW_SHARE)

    async def _report_ready(self) -> None:
        """Say that the node is Ready if its object says otherwise, as a kubelet does whenever it looks."""
        path = f"/api/v1/nodes/{self.config.name}"
        found = await self.agent.api.get(path)
        ready = any(each["type"] == "Ready" and each["status"] == "True" for each in found["status"]["conditions"])
        if not ready:
            log.info("node %s was called lost: it is Ready", self.config.name)
            status = {"conditions": node_conditions(timestamp())}
            await self.agent.api.patch(f"{path}/status", {"status": status}, STRATEGIC_PATCH)

    # --- pods --------------------------------------------------------------------------------------------------------

    def on_pod(self, kind: str, pod: Mapping[str, Any]) -> None:
        """A pod bound to this node was added, changed or removed."""
        if not self.alive or not self.reachable:
            return  # `recover` catches up
        uid = pod["metadata"]["uid"]
        known = self.pods.get(uid)
        if kind == "DELETED":
            if known is not None:
                del self.pods[uid]
                self._end(known)
            return
        if known is not None:
            known.update(pod)
            return
        status = pod.get("status") or {}
        if status.get("phase") in {"Succeeded", "Failed"} and not pod["metadata"].get("deletionTimestamp"):
            return
        self._begin(pod)

    def _begin(self, pod: Mapping[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        ip = self.agent.addresses.take(uid, (pod.get("status") or {}).get("podIP"))
        runtime: PodRuntime | VirtualPod
        if self.config.virtual:
            runtime = self.pods[uid] = VirtualPod(self, pod, ip)
            runtime.start()
        else:
            runtime = PodRuntime(self, pod, ip)
            wanted = sum(gpu_count(container, self.config.gpu_resource) for container in pod["spec"]["containers"])
            taken = {index for other in self.pods.values() for index in other.gpu_indices}
            free = [index for index in range(self.config.gpus) if index not in taken]
            self.pods[uid] = runtime
            if pod["metadata"].get("deletionTimestamp"):
                pass  # it has no processes of ours: only its end is reported
            elif wanted > len(free):
                resource = self.config.gpu_resource
                message = f"Node didn't have enough resource: {resource}, requested: {wanted}, free: {len(free)}"
                runtime.reject(f"OutOf{resource}", message)
            else:
                runtime.gpu_indices = free[:wanted]
                runtime.start()
        if pod["metadata"].get("deletionTimestamp"):
            runtime.update(pod)

    def _end(self, runtime: PodRuntime | VirtualPod) -> None:
        async def end() -> None:
            await runtime.discard()
            self.agent.addresses.release(runtime.uid)

        task = asyncio.get_running_loop().create_task(end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    # --- faults ------------------------------------------------------------------------------------------------------

    async def fail(self) -> None:
        """The machine loses power: every process dies, heartbeats stop, nothing is reported."""
        self.alive = False
        log.info("node %s fails", self.config.name)
        runtimes = list(self.pods.values())
        self.pods.clear()
        await asyncio.gather(*(runtime.discard() for runtime in runtimes), return_exceptions=True)
        for runtime in runtimes:
            self.agent.addresses.release(runtime.uid)  # `recover` asks for the same again

    def cut_off(self) -> None:
        """The node loses the API server; its pods run on."""
        log.info("node %s is cut off from the API server", self.config.name)
        self.reachable = False

    async def recover(self) -> None:
        """The node comes back: heartbeats resume and its pods are brought in line with the API server."""
        log.info("node %s recovers", self.config.name)
        self.alive = self.reachable = True
        with contextlib.suppress(ApiError, aiohttp.ClientError, TimeoutError):
            await self._register()
            await self.agent.api.patch(
                f"{_LEASES}/{self.config.name}", {"spec": lease_body(self.config.name, 40)["spec"]}
            )
        bound = self.agent.pods_of(self.config.name)
        for uid in [uid for uid in self.pods if uid not in bound]:
            self._end(self.pods.pop(uid))
        for uid, pod in bound.items():
            self.on_pod("ADDED", pod)
            if uid in self.pods:
                self.pods[uid].changed()
