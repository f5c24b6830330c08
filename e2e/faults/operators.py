"""Operators as processes of their own, as quick to start as a fork: real ones, kopf and Lease included."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from msgspec import structs

from faults.layer import FaultyApi, Script

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["goodput_controllers.process", "kopf", "kubernetes.config"])
_LOOKING = threading.Lock()
"""An exit code can be read once, and `multiprocessing` looks at every process when it starts one: of two threads that
look at the same moment, one finds nothing left to read and notes 255."""
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything that the process of one operator needs."""

    kubeconfig: Path
    settings: Mapping[str, Any]
    policy: Mapping[str, Any]
    script: Script
    log: Path


def _run(launch: Launch) -> None:
    """In the operator's own process."""
    os.environ["KUBECONFIG"] = str(launch.kubeconfig)
    log = launch.log.open("a", buffering=1)
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    from kubernetes.config import kube_config

    from goodput.runtime import logs
    from goodput.runtime.settings import Settings
    from goodput_controllers import process

    # It was read when the module was loaded, which was in the fork server.
    kube_config.KUBE_CONFIG_DEFAULT_LOCATION = str(launch.kubeconfig)
    given = Settings(**launch.settings)
    logs.configure(json_logs=False, level="INFO")
    of_settings = process.policy_of
    # Windows of minutes would make tests of minutes: the laws are the same with short ones.
    process.policy_of = lambda settings: structs.replace(of_settings(settings), **launch.policy)
    asyncio.run(process.run_operator(given, lambda api: FaultyApi(api, launch.script)))
    sys.exit(0)


@dataclass(slots=True)
class OperatorProcess:
    """One operator; `start` it, `stop` or `kill` it."""

    launch: Launch
    _process: ForkServerProcess | None = None

    @property
    def pid(self) -> int:
        """Of the running process."""
        pid = None if self._process is None else self._process.pid
        assert pid is not None, "it was not started"
        return pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self.exit_code is None

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        with _LOOKING:
            return None if self._process is None else self._process.exitcode

    async def start(self) -> OperatorProcess:
        """Start it."""
        self.launch.script.directory.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(self._start)
        return self

    def _start(self) -> None:
        process = _CONTEXT.Process(target=_run, args=(self.launch,), daemon=True)
        with _LOOKING:
            process.start()
        self._process = process

    async def stop(self) -> int | None:
        """SIGTERM, as a kubelet does; returns the exit code."""
        if self._process is None:
            return None
        if self.alive:
            self._process.terminate()
        if not await self.ended(30.0):
            self.kill()
            raise AssertionError(f"the operator did not end within 30 s of SIGTERM:\n{self.log_tail()}")
        return self.exit_code

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None and self.alive:
            os.kill(self.pid, signal.SIGCONT)
            self._process.kill()
            with _LOOKING:
                self._process.join()

    def freeze(self) -> None:
        """SIGSTOP: a machine that hangs, and does not know it."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def writes(self) -> list[dict[str, Any]]:
        """What it wrote, Leases aside."""
        path = self.launch.script.writes
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    async def ended(self, timeout_seconds: float) -> bool:
        """Whether it ended by itself within the time."""
        assert self._process is not None, "it was not started"
        give_up_at = time.monotonic() + timeout_seconds
        while self.alive and time.monotonic() < give_up_at:  # noqa: ASYNC110 - its end is told by nothing else
            await asyncio.sleep(_POLL_SECONDS)
        return not self.alive

    def log_text(self) -> str:
        """Its log so far."""
        return self.launch.log.read_text(errors="replace") if self.launch.log.exists() else ""

    def log_tail(self, lines: int = 25) -> str:
        """The end of its log."""
        return "\n".join(self.log_text().splitlines()[-lines:])


@dataclass(slots=True)
class Operators:
    """Starts operators and remembers them, so that none is left."""

    kubeconfig: Path
    directory: Path
    lease_namespace: str
    policy: Mapping[str, Any] = field(default_factory=dict)
    started: list[OperatorProcess] = field(default_factory=list)

    async def start(
        self,
        name: str,
        *namespaces: str,
        prometheus_url: str,
        crash_after: int | None = None,
        lease: str = "",
        kubeconfig: Path | None = None,
        identity: str = "",
        relist_seconds: float = 900.0,
        policy: Mapping[str, Any] | None = None,
    ) -> OperatorProcess:
        """An operator that serves these namespaces (none: all); `lease` names its Lease, else `name` does."""
        folder = self.directory / f"{len(self.started):03d}-{name}"
        folder.mkdir(parents=True)
        settings = {
            "prometheus_url": prometheus_url,
            "tick_seconds": 1.0,
            "scrape_seconds": 1.0,
            "namespaces": namespaces,
            "listen_host": "127.0.0.1",
            "listen_port": 0,
            "lease_namespace": self.lease_namespace,
            "lease_name": lease or name,
            "identity": identity or name,
            "relist_seconds": relist_seconds,
            "router_replicas": 1,
        }
        launch = Launch(
            kubeconfig or self.kubeconfig,
            settings,
            {**self.policy, **(policy or {})},
            Script(folder, crash_after),
            folder / "operator.log",
        )
        operator = OperatorProcess(launch)
        self.started.append(operator)
        return await operator.start()

    def end(self) -> None:
        """Kill whatever still runs."""
        for operator in self.started:
            operator.kill()


def since(operator: OperatorProcess, at: float) -> list[dict[str, Any]]:
    """What an operator wrote after an instant (Unix seconds)."""
    return [write for write in operator.writes() if write["at"] > at]


def unix_now() -> float:
    """Seconds since the epoch, as in the log of writes."""
    return time.time()


def relaunched(operator: OperatorProcess, **script: Any) -> OperatorProcess:
    """The same operator again, in the same folder, with another script."""
    return OperatorProcess(
        dataclasses.replace(operator.launch, script=dataclasses.replace(operator.launch.script, **script))
    )
