"""One pod on a simulated node: volumes, init containers, containers, status, termination."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from goodput_world.agent import command
from goodput_world.agent.container import Container, Launch
from goodput_world.agent.images import ImageRegistry, ImageSpec
from goodput_world.agent.kubeapi import STRATEGIC_PATCH, ApiError
from goodput_world.agent.launching import prepare
from goodput_world.agent.pace import Pace
from goodput_world.agent.probes import RestartBackoff
from goodput_world.agent.status import Conditions, ContainerView, build_status, timestamp, waiting
from goodput_world.agent.volumes import MountError, PodVolumes

if TYPE_CHECKING:
    from goodput_world.agent.node import Node

log = logging.getLogger(__name__)

_BATCH_SECONDS = 0.02
"""Changes this close together share one status write."""
_MOUNT_RETRY_SECONDS = 2.0
_LOST_EXIT_CODE = 255
"""Of a container that ended while nobody watched, as in the kubelet."""


class PodRuntime:
    """A pod from the moment it is bound to our node until it is gone from the API server."""

    def __init__(self, node: Node, pod: Mapping[str, Any], pod_ip: str) -> None:
        """Nothing runs before `start`."""
        metadata = pod["metadata"]
        self.node = node
        self.pod = pod
        self.pod_ip = pod_ip
        self.host_ip = node.ip
        self.key = f"{metadata['namespace']}/{metadata['name']}"
        self.uid = str(metadata["uid"])
        self.directory: Path = node.agent.directory / "pods" / f"{metadata['namespace']}_{metadata['name']}_{self.uid}"
        self.images: ImageRegistry = node.agent.images
        self.pace: Pace = node.agent.pace
        self.stopping = False
        self.inits: list[Container] = []
        self.containers: list[Container] = []
        self.gpu_indices: list[int] = []
        self._conditions = Conditions()
        self._conditions.adopt((pod.get("status") or {}).get("conditions") or ())
        self._start_time = (pod.get("status") or {}).get("startTime") or timestamp()
        self._sandbox_ready = False
        self._rejected: tuple[str, str] | None = None
        self._dirty = asyncio.Event()
        self._sent: dict[str, Any] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._volumes: PodVolumes | None = None
        self._restart_policy = str(pod["spec"].get("restartPolicy", "Always"))
        self._termination: asyncio.Task[None] | None = None

    # --- what containers need (container.Host) ----------------------------------------------------------------------

    @property
    def grace_seconds(self) -> float:
        """The grace of the deletion under way, else the pod's own (default 30 s)."""
        written = self.pod["metadata"].get("deletionGracePeriodSeconds")
        if written is None:
            written = self.pod["spec"].get("terminationGracePeriodSeconds", 30)
        return float(written)

    @property
    def pull_backoff_seconds(self) -> float:
        """The first wait after a failed pull."""
        return self.node.agent.config.pull_backoff_seconds

    def changed(self) -> None:
        """Let the status be written soon, if it differs."""
        self._dirty.set()

    def event(self, reason: str, message: str, container: str) -> None:
        """Post a Warning about a container."""
        self.node.agent.events.warn(self.pod, reason, message, container)

    async def launch(self, spec: Mapping[str, Any], image: ImageSpec) -> Launch:
        """Environment, command and mounts of a container. Raises command.ContainerConfigError."""
        return await prepare(self, spec, image)

    @property
    def volumes(self) -> PodVolumes | None:
        """The volumes of the pod, None before it has started."""
        return self._volumes

    # --- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to run the pod."""
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.node.agent.config
        init = self.pod["spec"].get("initContainers") or ()
        for spec in init:
            policy = "Always" if spec.get("restartPolicy") == "Always" else self._init_policy
            self.inits.append(self._container(spec, policy))
            self.inits[-1].view.init = True
            self.inits[-1].view.sidecar = policy == "Always" and spec.get("restartPolicy") == "Always"
        for spec in self.pod["spec"]["containers"]:
            self.containers.append(self._container(spec, self._restart_policy))
            if init:
                self.containers[-1].view.state = waiting("PodInitializing")
        self._remember_restarts()
        self.write_hosts()
        self._volumes = PodVolumes(
            self.pod,
            self.directory / "volumes",
            api=self.node.agent.api,
            objects=self.node.agent.objects,
            claims=self.node.agent.directory / "claims",
            host_ip=self.host_ip,
            pod_ip=self.pod_ip,
            allocatable=self.node.allocatable,
        )
        log.info("pod %s starts on %s with %s (%s)", self.key, self.node.config.name, self.pod_ip, config.speed)
        self._tasks = [asyncio.create_task(self._status_loop()), asyncio.create_task(self._run())]
        self.changed()

    def _remember_restarts(self) -> None:
        """A pod that ran before its node went down starts anew: its containers count one restart more."""
        before = {
            each["name"]: each
            for name in ("containerStatuses", "initContainerStatuses")
            for each in (self.pod.get("status") or {}).get(name) or ()
        }
        for container in (*self.inits, *self.containers):
            known = before.get(container.view.name)
            if known is None or not known.get("containerID"):
                continue
            container.view.restart_count = int(known.get("restartCount") or 0) + 1
            ended = {"exitCode": _LOST_EXIT_CODE, "reason": "Unknown", "containerID": known["containerID"]}
            state = known.get("state") or {}
            container.view.last_state = state if "terminated" in state else {"terminated": ended}

    def reject(self, reason: str, message: str) -> None:
        """Refuse the pod at admission: it becomes Failed and nothing is run."""
        self._rejected = (reason, message)
        self.containers = [self._container(spec, "Never") for spec in self.pod["spec"]["containers"]]
        self._tasks = [asyncio.create_task(self._status_loop())]
        self.changed()

    @property
    def _init_policy(self) -> str:
        return "Never" if self._restart_policy == "Never" else "OnFailure"

    def _container(self, spec: Mapping[str, Any], policy: str) -> Container:
        config = self.node.agent.config
        backoff = RestartBackoff(config.crash_backoff_seconds, config.crash_backoff_max_seconds)
        return Container(self, spec, restart_policy=policy, backoff=backoff)

    async def _run(self) -> None:
        try:
            await self._mount()
            self._sandbox_ready = True
            self.changed()
            sidecars: list[asyncio.Task[None]] = []
            try:
                async with asyncio.TaskGroup() as group:
                    for init in self.inits:
                        task = group.create_task(init.run())
                        if init.view.sidecar:
                            sidecars.append(task)
                            await init.started.wait()
                        else:
                            await task
                            if init.view.exit_code != 0:
                                for sidecar in sidecars:
                                    sidecar.cancel()
                                return
                            init.view.ready = True
                    await asyncio.gather(*(group.create_task(self._run_one(c)) for c in self.containers))
                    for init in self.inits:
                        if init.view.sidecar and init.process is not None:
                            self.stopping = True
                            await init.stop(init.process, self.grace_seconds)
                    for task in sidecars:
                        task.cancel()
            except* asyncio.CancelledError:
                raise
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("pod %s", self.key)
        finally:
            self.changed()

    async def _run_one(self, container: Container) -> None:
        container.view.state = waiting("ContainerCreating")
        await container.run()

    async def _mount(self) -> None:
        assert self._volumes is not None
        while True:
            try:
                return await self._volumes.set_up()
            except (MountError, command.ContainerConfigError, ApiError, aiohttp.ClientError, OSError) as error:
                self.event("FailedMount", f"MountVolume.SetUp failed: {error}", "")
                await self.pace.sleep(_MOUNT_RETRY_SECONDS)

    def pids(self) -> list[int]:
        """All processes of the pod that live now."""
        running = (container.process for container in (*self.containers, *self.inits))
        return [pid for process in running if process is not None for pid in process.pids()]

    async def refresh_volumes(self) -> None:
        """Bring mounted ConfigMaps, Secrets and tokens up to date."""
        if self._volumes is not None and not self.stopping:
            await self._volumes.refresh()

    def write_hosts(self) -> None:
        """Rewrite /etc/hosts in place: containers have the file itself mounted."""
        name = self.pod["metadata"]["name"]
        lines = [
            "# written by the simulated node",
            "127.0.0.1\tlocalhost",
            f"{self.pod_ip}\t{self.pod['spec'].get('hostname') or name}",
            *self.node.agent.services.host_lines(self.pod["metadata"]["namespace"]),
        ]
        aliases = self.pod["spec"].get("hostAliases") or ()
        lines.extend(f"{alias['ip']}\t{' '.join(alias.get('hostnames') or ())}" for alias in aliases)
        data = ("\n".join(lines) + "\n").encode()
        path = self.directory / "hosts"
        if path.exists() and path.read_bytes() == data:
            return
        with path.open("r+b" if path.exists() else "wb") as file:
            file.write(data)
            file.truncate()

    def update(self, pod: Mapping[str, Any]) -> None:
        """Take a newer version of the pod; a deletion timestamp starts the termination."""
        self.pod = pod
        if self._volumes is not None:
            self._volumes.update(pod)
        if pod["metadata"].get("deletionTimestamp") and self._termination is None:
            self.stopping = True
            self.changed()
            self._termination = asyncio.create_task(self._terminate())

    async def _terminate(self) -> None:
        """Stop the containers within the grace, tell the API server the end, then let the pod go."""
        grace = self.grace_seconds
        log.info("pod %s is being deleted, grace %g s", self.key, grace)
        running = [(c, c.process) for c in (*self.containers, *self.inits) if c.process is not None]
        await asyncio.gather(*(container.stop(process, grace) for container, process in running))
        for container, _ in running:
            await container.settled()
        for task in self._tasks[1:]:
            task.cancel()
        await asyncio.gather(*self._tasks[1:], return_exceptions=True)
        for container in (*self.containers, *self.inits):  # one that was just being started
            if container.process is not None:
                await container.stop(container.process, 0)
        if not self.node.alive:
            return
        for container in self.containers:
            if container.exit_code_missing:
                container.never_ran()
        with contextlib.suppress(ApiError, aiohttp.ClientError, TimeoutError):
            await self._write_status(final=True)
        body = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": self.uid},
        }
        namespace, name = self.key.split("/")
        while True:
            try:
                await self.node.agent.api.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", body)
                return
            except ApiError as error:
                if error.status in {404, 409}:
                    return
                log.warning("deleting pod %s: %s", self.key, error)
            except (aiohttp.ClientError, TimeoutError) as error:
                log.warning("deleting pod %s: %s", self.key, error)
            await asyncio.sleep(1)

    async def discard(self) -> None:
        """End everything at once, without a word to the API server: the pod is gone, or its node is."""
        self.stopping = True
        tasks = [*self._tasks, *([self._termination] if self._termination else [])]
        current = asyncio.current_task()
        for container in (*self.containers, *self.inits):
            if container.process is not None:
                container.process.kill()
        for task in tasks:
            if task is not current:
                task.cancel()
        await asyncio.gather(*(task for task in tasks if task is not current), return_exceptions=True)
        for container in (*self.containers, *self.inits):
            if container.process is not None:
                container.process.kill()
                await container.process.exited.wait()
        if self._volumes is not None:
            self._volumes.tear_down()
        shutil.rmtree(self.directory / "volumes", ignore_errors=True)
        for leftover in self.directory.glob("*.sandbox.json"):
            leftover.unlink()  # they hold the values of Secrets

    # --- status ------------------------------------------------------------------------------------------------------

    async def _status_loop(self) -> None:
        while True:
            await self._dirty.wait()
            await asyncio.sleep(_BATCH_SECONDS)
            self._dirty.clear()
            if not self.node.alive or not self.node.reachable:
                continue
            try:
                await self._write_status()
            except ApiError as error:
                if error.status in {404, 409}:
                    return  # gone, or another pod of that name
                log.warning("status of %s: %s", self.key, error)
                self._dirty.set()
                await asyncio.sleep(1)
            except (aiohttp.ClientError, TimeoutError) as error:
                log.warning("status of %s: %s", self.key, error)
                self._dirty.set()
                await asyncio.sleep(1)

    async def _write_status(self, *, final: bool = False) -> None:
        phase = None
        reason, message = self._rejected or ("", "")
        if self._rejected:
            phase = "Failed"
        elif final:
            codes = [container.view.exit_code for container in self.containers]
            phase = "Succeeded" if codes and all(code == 0 for code in codes) else "Failed"
        status = build_status(
            self.pod,
            _views(self.containers),
            _views(self.inits),
            self._conditions,
            host_ip=self.host_ip,
            pod_ip=self.pod_ip,
            start_time=self._start_time,
            sandbox_ready=self._sandbox_ready,
            force_not_ready=self.stopping and self.node.agent.config.not_ready_on_deletion,
            final_phase=phase,
            reason=reason,
            message=message,
        )
        if status == self._sent:
            return
        namespace, name = self.key.split("/")
        body = {"metadata": {"uid": self.uid}, "status": status}
        await self.node.agent.api.patch(f"/api/v1/namespaces/{namespace}/pods/{name}/status", body, STRATEGIC_PATCH)
        self._sent = status


def _views(containers: Sequence[Container]) -> list[ContainerView]:
    return [container.view for container in containers]
