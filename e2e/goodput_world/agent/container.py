"""The life of one container: pull, configure, start, probe, restart with back-off, stop with grace."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from goodput_world.agent import process as processes
from goodput_world.agent.command import ContainerConfigError
from goodput_world.agent.images import ImageRegistry, ImageSpec
from goodput_world.agent.pace import Pace
from goodput_world.agent.probes import ProbeCounter, ProbeSpec, RestartBackoff, parse_probe, should_restart
from goodput_world.agent.probing import Target, act
from goodput_world.agent.quantity import whole
from goodput_world.agent.status import ContainerView, timestamp, waiting

log = logging.getLogger(__name__)

_CONFIG_RETRY_SECONDS = 5.0
_LEAST_GRACE_SECONDS = 2.0
"""What is left for SIGTERM when the preStop hook has used up the grace, as in the kubelet."""
_MESSAGE_BYTES = 2048
_OOM_CLAIM_SECONDS = 2.0
"""An engine whose claim exceeds its limit dies so long after its start."""
_EXEC_FAILED = 128


@dataclass(frozen=True, slots=True)
class Launch:
    """All that is needed to start a container once. Sizes in bytes; None: unlimited, or no claim."""

    sandbox: Mapping[str, Any]
    env: Mapping[str, str]
    claim_bytes: int | None


class Host(Protocol):
    """What a container needs of its pod."""

    directory: Path
    pod_ip: str
    host_ip: str
    images: ImageRegistry
    pace: Pace
    stopping: bool

    def changed(self) -> None:
        """The status of the container differs from before."""

    def event(self, reason: str, message: str, container: str) -> None:
        """A Warning for the people who watch the pod."""

    async def launch(self, spec: Mapping[str, Any], image: ImageSpec) -> Launch:
        """Resolve environment, command and mounts. Raises ContainerConfigError."""

    @property
    def pull_backoff_seconds(self) -> float:
        """The first wait after a failed pull; doubled each time up to 5 minutes."""

    @property
    def grace_seconds(self) -> float:
        """The pod's terminationGracePeriodSeconds."""


class Container:
    """One container of a pod; `run` lives until it has ended for good."""

    def __init__(self, host: Host, spec: Mapping[str, Any], *, restart_policy: str, backoff: RestartBackoff) -> None:
        """`restart_policy` is the pod's, or Always for a sidecar."""
        self.spec = spec
        self.view = ContainerView(spec["name"], spec["image"])
        self.process: processes.ContainerProcess | None = None
        self.limit_bytes = _memory_limit(spec)
        self._host = host
        self._policy = restart_policy
        self._backoff = backoff
        self.env: Mapping[str, str] = {}
        self._killed_by_probe = False
        self.started = asyncio.Event()
        """Set while the container runs and its startup probe has succeeded."""
        self.log_path = host.directory / f"{spec['name']}.log"
        self.message_path = host.directory / f"{spec['name']}.termination"

    @property
    def ports(self) -> dict[str, int]:
        """Named container ports."""
        return {port["name"]: port["containerPort"] for port in self.spec.get("ports") or () if port.get("name")}

    @property
    def exit_code_missing(self) -> bool:
        """Whether the status does not say yet how it ended."""
        return "terminated" not in self.view.state

    async def settled(self) -> None:
        """Wait, a second at most, until the end of a process that was stopped is in the status."""
        for _ in range(100):
            if not self.exit_code_missing:
                return
            await asyncio.sleep(0.01)

    def never_ran(self) -> None:
        """Close the status of a container that the pod's deletion found waiting, with the kubelet's exit code."""
        self.view.ready = self.view.started = False
        message = "The container could not be located when the pod was terminated"
        self.view.state = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": message}}

    async def run(self) -> None:
        """Run until it has ended and is not to be started again, or the pod stops."""
        while not self._host.stopping:
            image = await self._pull()
            started_at, begun = timestamp(), time.monotonic()
            process = await self._start(image)
            if process is not None:
                await self._supervise(process)
                self.process = None
            code = self._record_exit(process, started_at)
            restart = should_restart(self._policy, code) or (self._killed_by_probe and self._policy != "Never")
            if self._host.stopping or not restart:
                return
            delay = self._backoff.delay_after((time.monotonic() - begun) * self._host.pace.speed)
            self.view.last_state = self.view.state
            if delay:
                text = f"back-off {delay:g}s restarting failed container={self.view.name}"
                self._set(waiting("CrashLoopBackOff", text))
                self._host.event("BackOff", f"Back-off restarting failed container {self.view.name}", self.view.name)
                await self._host.pace.sleep(delay)
            self.view.restart_count += 1

    def _set(self, state: dict[str, Any]) -> None:
        if state != self.view.state:
            self.view.state = state
            self._host.changed()

    async def _pull(self) -> ImageSpec:
        name = self.view.image
        wait = self._host.pull_backoff_seconds
        while True:
            image = self._host.images.pull(name)
            if image is not None:
                if image.pull_seconds and self.view.restart_count == 0:
                    await self._host.pace.sleep(image.pull_seconds)
                return image
            text = f'failed to pull and unpack image "{name}": not found'
            self._set(waiting("ErrImagePull", text))
            self._host.event("Failed", f'Failed to pull image "{name}": not found', self.view.name)
            await self._host.pace.sleep(1)
            self._set(waiting("ImagePullBackOff", f'Back-off pulling image "{name}": {text}'))
            await self._host.pace.sleep(wait)
            wait = min(wait * 2, 300.0)

    async def _start(self, image: ImageSpec) -> processes.ContainerProcess | None:
        """Start the process; None when its command cannot be run, which counts as an exit."""
        while True:
            try:
                launch = await self._host.launch(self.spec, image)
                break
            except ContainerConfigError as error:
                self._set(waiting("CreateContainerConfigError", str(error)))
                self._host.event("Failed", f"Error: {error}", self.view.name)
                await self._host.pace.sleep(_CONFIG_RETRY_SECONDS)
        self.env = launch.env
        self._killed_by_probe = False
        spec_path = self._host.directory / f"{self.view.name}.sandbox.json"
        try:
            process = await processes.start(launch.sandbox, spec_path, self.log_path)
        except (processes.StartError, OSError) as error:
            self.message_path.write_text(str(error))
            self._host.event("Failed", f"Error: {error}", self.view.name)
            return None
        self.process = process
        self.view.container_id = f"sim://{process.pid}"
        self.view.ready = self.view.started = False
        self.started.clear()
        self._set({"running": {"startedAt": timestamp()}})
        self._host.changed()
        if launch.claim_bytes is not None and self.limit_bytes is not None and launch.claim_bytes > self.limit_bytes:
            log.info("%s claims %d bytes, limit %d", self.log_path, launch.claim_bytes, self.limit_bytes)
            # No probe can pass before: it dies while it loads, as the real one would.
            seconds = _OOM_CLAIM_SECONDS / self._host.pace.speed
            asyncio.get_running_loop().call_later(seconds, process.kill_for_memory)
        return process

    def _record_exit(self, process: processes.ContainerProcess | None, started_at: str) -> int:
        """Put the end into the status; returns the exit code."""
        code = _EXEC_FAILED if process is None else process.exit_code
        reason = "Completed" if code == 0 else "Error"
        if process is None:
            reason = "StartError"
        elif process.oom_killed:
            reason = "OOMKilled"
        ended: dict[str, Any] = {
            "exitCode": code,
            "reason": reason,
            "startedAt": started_at,
            "finishedAt": timestamp(),
            "containerID": self.view.container_id,
        }
        message = self._message(code)
        if message:
            ended["message"] = message
        self.view.ready = self.view.started = False
        self._set({"terminated": ended})
        return code

    def _message(self, code: int) -> str:
        text = b""
        with contextlib.suppress(OSError):
            text = self.message_path.read_bytes()
            self.message_path.write_bytes(b"")
        fallback = self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError"
        if not text and code != 0 and fallback:
            with contextlib.suppress(OSError), self.log_path.open("rb") as file:
                file.seek(max(0, self.log_path.stat().st_size - _MESSAGE_BYTES))
                text = file.read()
        return text[-_MESSAGE_BYTES:].decode(errors="replace")

    # --- probes ---------------------------------------------------------------------------------------------------

    async def _supervise(self, process: processes.ContainerProcess) -> None:
        """Run hooks and probes until the process has ended."""
        tasks = [asyncio.create_task(self._post_start(process))]
        startup, readiness, liveness = (
            parse_probe(self.spec.get(name)) for name in ("startupProbe", "readinessProbe", "livenessProbe")
        )
        if startup is None:
            self._on_started(has_readiness=readiness is not None)
        else:
            tasks.append(asyncio.create_task(self._startup(process, startup, has_readiness=readiness is not None)))
        if readiness is not None:
            tasks.append(asyncio.create_task(self._probe(process, readiness, "Readiness", False, self._on_readiness)))
        if liveness is not None:
            tasks.append(asyncio.create_task(self._probe(process, liveness, "Liveness", True, self._on_liveness)))
        try:
            await process.exited.wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _on_started(self, *, has_readiness: bool) -> None:
        self.started.set()
        self.view.started = True
        self.view.ready = self.view.ready or not has_readiness
        self._host.changed()

    def _target(self, process: processes.ContainerProcess) -> Target:
        return Target(process, self.env, self.ports, self._host.pod_ip, self._host.host_ip, self._host.directory)

    async def _post_start(self, process: processes.ContainerProcess) -> None:
        hook = (self.spec.get("lifecycle") or {}).get("postStart")
        if hook:
            success, message = await act(hook, self._target(process), 60)
            if not success:
                self._host.event("FailedPostStartHook", message, self.view.name)
                await self._kill_for_probe(process, None)

    async def _startup(self, process: processes.ContainerProcess, spec: ProbeSpec, *, has_readiness: bool) -> None:
        async def judge(success: bool, probe: ProbeSpec) -> None:
            if success:
                self._on_started(has_readiness=has_readiness)
            else:
                await self._kill_for_probe(process, probe)

        await self._probe(process, spec, "Startup", False, judge, once=True)

    async def _on_readiness(self, success: bool, _: ProbeSpec) -> None:
        if success != self.view.ready:
            self.view.ready = success
            self._host.changed()

    async def _on_liveness(self, success: bool, spec: ProbeSpec) -> None:
        if not success and self.process is not None:
            await self._kill_for_probe(self.process, spec)

    async def _probe(
        self,
        process: processes.ContainerProcess,
        spec: ProbeSpec,
        kind: str,
        initial: bool,
        judge: Callable[[bool, ProbeSpec], Awaitable[None]],
        *,
        once: bool = False,
    ) -> None:
        """Probe until the process ends; `judge` hears every result that its threshold confirms."""
        pace = self._host.pace
        counter = ProbeCounter(spec.success_threshold, spec.failure_threshold, initial)
        if not once:
            await self.started.wait()
        await pace.sleep(spec.initial_delay_seconds)
        loop = asyncio.get_running_loop()
        due = loop.time()
        while not process.exited.is_set():
            if self._host.stopping and kind != "Readiness":
                return  # a pod that is being deleted is probed for readiness only
            success, message = await act(spec.action, self._target(process), spec.timeout_seconds)
            if process.exited.is_set():
                return
            if not success:
                self._host.event("Unhealthy", f"{kind} probe failed: {message}", self.view.name)
            confirmed = counter.record(success)
            if confirmed is not None:
                await judge(confirmed, spec)
                if once or (kind == "Liveness" and not confirmed):
                    return
            due = max(due + spec.period_seconds / pace.speed, loop.time())
            await asyncio.sleep(due - loop.time())

    async def _kill_for_probe(self, process: processes.ContainerProcess, spec: ProbeSpec | None) -> None:
        self._killed_by_probe = True
        grace = spec.termination_grace_seconds if spec is not None else None
        self._host.event("Killing", f"Container {self.view.name} failed a probe, will be restarted", self.view.name)
        # In a task of its own: the probes are cancelled when the process ends.
        asyncio.get_running_loop().create_task(
            self.stop(process, grace if grace is not None else self._host.grace_seconds)
        )

    # --- stopping -------------------------------------------------------------------------------------------------

    async def stop(self, process: processes.ContainerProcess, grace_seconds: float) -> None:
        """preStop, SIGTERM, and SIGKILL when the grace (simulated seconds) is over; returns when it has ended."""
        pace = self._host.pace
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace_seconds / pace.speed
        hook = (self.spec.get("lifecycle") or {}).get("preStop")
        if hook and grace_seconds > 0 and not process.exited.is_set():
            await self._pre_stop(process, hook, grace_seconds)
            deadline = max(deadline, loop.time() + _LEAST_GRACE_SECONDS / pace.speed)
        if grace_seconds > 0:
            process.send(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await process.exited.wait()
        process.kill()
        await process.exited.wait()

    async def _pre_stop(
        self, process: processes.ContainerProcess, hook: Mapping[str, Any], grace_seconds: float
    ) -> None:
        pace = self._host.pace
        if "sleep" in hook:
            hook = {"sleep": {"seconds": float(hook["sleep"].get("seconds") or 0) / pace.speed}}
        action = asyncio.create_task(act(hook, self._target(process), grace_seconds / pace.speed))
        ended = asyncio.create_task(process.exited.wait())
        await asyncio.wait({action, ended}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if not action.done():
            action.cancel()
        elif not action.result()[0]:
            self._host.event("FailedPreStopHook", action.result()[1], self.view.name)


def _memory_limit(spec: Mapping[str, Any]) -> int | None:
    limit = ((spec.get("resources") or {}).get("limits") or {}).get("memory")
    return None if limit is None else whole(limit)
