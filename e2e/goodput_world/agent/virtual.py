"""A pod without processes, for scale: Running and Ready after its start-up time, gone when it is deleted.

One that is not to be restarted ends instead: with success, unless the command of a container is `false`.
A Secret or ConfigMap that its environment needs and that is not there is reported as a kubelet would, once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import aiohttp

from goodput_world.agent import command
from goodput_world.agent.kubeapi import STRATEGIC_PATCH, ApiError
from goodput_world.agent.objects import env_references
from goodput_world.agent.status import Conditions, ContainerView, build_status, timestamp, waiting

if TYPE_CHECKING:
    from goodput_world.agent.node import Node


def ready_status(
    pod: Mapping[str, Any], *, host_ip: str, pod_ip: str, errors: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The status of a pod that runs and is Ready since now; containers with `errors` cannot be configured."""
    now = timestamp()
    wrong = errors or {}
    containers = [
        ContainerView(spec["name"], spec["image"], state=waiting("CreateContainerConfigError", wrong[spec["name"]]))
        if spec["name"] in wrong
        else ContainerView(
            spec["name"],
            spec["image"],
            state={"running": {"startedAt": now}},
            ready=True,
            started=True,
            container_id="sim://virtual",
        )
        for spec in pod["spec"]["containers"]
    ]
    return _status(pod, containers, host_ip=host_ip, pod_ip=pod_ip, now=now)


def ended_status(pod: Mapping[str, Any], *, host_ip: str, pod_ip: str) -> dict[str, Any]:
    """The status of a pod whose containers have just ended."""
    now = timestamp()
    views = []
    for spec in pod["spec"]["containers"]:
        code = 1 if spec.get("command") == ["false"] else 0
        reason = "Error" if code else "Completed"
        ended = {"exitCode": code, "reason": reason, "startedAt": now, "finishedAt": now}
        views.append(
            ContainerView(spec["name"], spec["image"], state={"terminated": ended}, container_id="sim://virtual")
        )
    return _status(pod, views, host_ip=host_ip, pod_ip=pod_ip, now=now)


def _status(
    pod: Mapping[str, Any], containers: list[ContainerView], *, host_ip: str, pod_ip: str, now: str
) -> dict[str, Any]:
    return build_status(
        pod,
        containers,
        [],
        Conditions(),
        host_ip=host_ip,
        pod_ip=pod_ip,
        start_time=now,
        sandbox_ready=True,
        force_not_ready=False,
        final_phase=None,
    )


class VirtualPod:
    """The runtime of a pod on a virtual node."""

    def __init__(self, node: Node, pod: Mapping[str, Any], pod_ip: str) -> None:
        """Nothing happens before `start`."""
        self.node = node
        self.pod = pod
        self.uid = str(pod["metadata"]["uid"])
        self.pod_ip = pod_ip
        self.gpu_indices: list[int] = []
        self._task: asyncio.Task[None] | None = None
        self._path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"

    def start(self) -> None:
        """Become Ready after the start-up time."""
        self._task = asyncio.get_running_loop().create_task(self._become_ready())

    async def _become_ready(self) -> None:
        agent = self.node.agent
        told = agent.startup_seconds
        await agent.pace.sleep(agent.config.virtual_startup_seconds if told is None else told)
        with contextlib.suppress(ApiError, aiohttp.ClientError, TimeoutError):
            errors = await self._configuration_errors()
            if self.pod["spec"].get("restartPolicy") == "Never" and not errors:
                status = ended_status(self.pod, host_ip=self.node.ip, pod_ip=self.pod_ip)
            else:
                status = ready_status(self.pod, host_ip=self.node.ip, pod_ip=self.pod_ip, errors=errors)
            await agent.api.patch(f"{self._path}/status", {"status": status}, STRATEGIC_PATCH)

    async def _configuration_errors(self) -> dict[str, str]:
        """By container: what its environment refers to and does not find."""
        errors: dict[str, str] = {}
        for spec in self.pod["spec"]["containers"]:
            references = env_references(spec)
            if not references:
                continue
            found = await self.node.agent.objects.texts(self.pod["metadata"]["namespace"], references)
            try:
                command.environment(
                    self.pod,
                    spec,
                    lookup=lambda kind, name, found=found: found[kind, name],  # type: ignore[misc]
                    host_ip=self.node.ip,
                    pod_ip=self.pod_ip,
                    allocatable=self.node.allocatable,
                    base={},
                )
            except command.ContainerConfigError as error:
                errors[spec["name"]] = str(error)
        return errors

    async def _delete(self) -> None:
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
        with contextlib.suppress(ApiError, aiohttp.ClientError, TimeoutError):
            await self.node.agent.api.delete(self._path, body)

    def update(self, pod: Mapping[str, Any]) -> None:
        """Take a newer version; a deletion is granted at once."""
        self.pod = pod
        if pod["metadata"].get("deletionTimestamp"):
            if self._task is not None:
                self._task.cancel()
            self._task = asyncio.get_running_loop().create_task(self._delete())

    def changed(self) -> None:
        """Nothing to write: the status never changes by itself."""

    async def discard(self) -> None:
        """Forget the pod."""
        if self._task is not None:
            self._task.cancel()
