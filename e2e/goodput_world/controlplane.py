"""A Kubernetes control plane of real parts on loopback: etcd, API server, scheduler and controller-manager."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import time
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import yaml

from goodput_world import kubeconfig, watchdog
from goodput_world.audit import AUDIT_POLICY, AuditLog
from goodput_world.binaries import Binaries
from goodput_world.controlplane_flags import (
    apiserver_flags,
    controller_manager_flags,
    etcd_flags,
    scheduler_configuration,
    scheduler_flags,
)
from goodput_world.controlplane_layout import Layout
from goodput_world.errors import WaitTimeout
from goodput_world.keys import write_key_pair
from goodput_world.kubectl import Kubectl
from goodput_world.processes import Process
from goodput_world.slots import Slot

_START_SECONDS = 120.0
"""Far above the 4-7 s that it takes on idle cores: a machine that compiles meanwhile is slow, not broken."""
_POLL_SECONDS = 0.1


class ControlPlane:
    """Start and stop a control plane, or only its API server, on ports of a slot, with everything in one folder."""

    def __init__(self, binaries: Binaries, directory: Path, slot: Slot, *, mark: str | None = None) -> None:
        """`directory` is created; `mark` is put into the environment of every process (see processes.py)."""
        self.layout = Layout(directory.resolve())
        self.slot = slot
        self._binaries = binaries
        self._users = kubeconfig.make_users()
        ports = {
            name: slot.free_port() for name in ("etcd", "etcd-peer", "apiserver", "scheduler", "controller-manager")
        }
        self.server = f"https://127.0.0.1:{ports['apiserver']}"
        self.etcd = f"http://127.0.0.1:{ports['etcd']}"
        self.audit = AuditLog(self.layout.audit_log)
        environment = {
            **{name: value for name, value in os.environ.items() if name != "KUBECONFIG"},
            **({watchdog.MARK_VARIABLE: mark} if mark else {}),
        }
        self._etcd = self._process("etcd", [binaries.etcd, *etcd_flags(self.layout, ports)], environment)
        self._apiserver = self._process(
            "kube-apiserver", [binaries.kube_apiserver, *apiserver_flags(self.layout, ports, slot)], environment
        )
        self._scheduler = self._process(
            "kube-scheduler", [binaries.kube_scheduler, *scheduler_flags(self.layout, ports)], environment
        )
        self._controller_manager = self._process(
            "kube-controller-manager",
            [binaries.kube_controller_manager, *controller_manager_flags(self.layout, ports)],
            environment,
        )

    def _process(self, name: str, argv: list[str | Path], environment: Mapping[str, str]) -> Process:
        return Process(name, argv, log_path=self.layout.logs / f"{name}.log", env=environment)

    @property
    def processes(self) -> tuple[Process, ...]:
        """In the order in which they start; they stop in the reverse one."""
        return (self._etcd, self._apiserver, self._controller_manager, self._scheduler)

    async def start(self, *, controllers: bool = True) -> None:
        """Start all four; returns when the API server is ready and has its default namespace and ServiceAccount.

        Without `controllers` only etcd and the API server start: a benchmark seeds what controllers would make.

        Raises ProcessExited with the end of the log when one of them dies, WaitTimeout after two minutes.
        """
        self._write_files()
        try:
            self._etcd.start()
            self._apiserver.start()
            await self.wait_ready()
            if not controllers:
                return
            self._controller_manager.start()
            self._scheduler.start()
            await self._wait_for_service_account()
        except BaseException:
            await self.stop()
            raise

    def _write_files(self) -> None:
        layout = self.layout
        for folder in (layout.directory, layout.logs, layout.certificates):
            folder.mkdir(parents=True, exist_ok=True)
        layout.directory.chmod(0o700)  # it holds tokens and keys
        write_key_pair(layout.service_account_key, layout.service_account_public_key)
        layout.tokens.write_text(kubeconfig.token_file(self._users))
        layout.tokens.chmod(0o600)
        layout.audit_policy.write_text(yaml.safe_dump(AUDIT_POLICY))
        for user in self._users:
            self.kubeconfig(user)
        layout.scheduler_config.write_text(yaml.safe_dump(scheduler_configuration(layout)))

    async def stop(self) -> None:
        """Stop all, the API server before etcd: one whose etcd went first lingers for minutes and holds its port."""
        for process in reversed(self.processes):
            await process.stop(grace_seconds=5.0)

    def kill_apiserver(self) -> None:
        """SIGKILL the API server, as when its machine dies. `restart_apiserver` brings it back on the same port."""
        self._apiserver.kill()

    async def restart_apiserver(self, *, wait: bool = True) -> None:
        """Start the API server again; with `wait`, return when it is ready."""
        await self._apiserver.stop(grace_seconds=5.0)
        self._apiserver.start()
        if wait:
            await self.wait_ready()

    def kubeconfig(self, user: str = kubeconfig.ADMIN) -> Path:
        """The path of a kubeconfig file for one of the users of kubeconfig.py. Raises KeyError for another name."""
        path = self.layout.kubeconfig(user)
        path.write_text(kubeconfig.kubeconfig_text(self.server, self.layout.certificate_authority, self._users[user]))
        path.chmod(0o600)
        return path

    @property
    def kubectl(self) -> Kubectl:
        """kubectl as the administrator: `await plane.kubectl("get", "nodes")`."""
        return Kubectl(self._binaries.kubectl, self.layout.kubeconfig(kubeconfig.ADMIN))

    def raise_if_dead(self) -> None:
        """Raise ProcessExited, with the end of its log, when a part does not run."""
        for process in self.processes:
            process.raise_if_exited()

    async def wait_ready(self, timeout_seconds: float = _START_SECONDS) -> None:
        """Return when the API server says that it is ready."""
        deadline = time.monotonic() + timeout_seconds
        seen = "no answer yet"
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
            while time.monotonic() < deadline:
                self._etcd.raise_if_exited()
                self._apiserver.raise_if_exited()
                with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError, ssl.SSLError):
                    seen = await self._ask_readyz(session)
                    if seen == "ok":
                        return
                await asyncio.sleep(_POLL_SECONDS)
        raise WaitTimeout(
            f"the API server is not ready after {timeout_seconds:.0f} s ({seen}); its log:\n{self._apiserver.tail()}"
        )

    async def _ask_readyz(self, session: aiohttp.ClientSession) -> str:
        context = ssl.create_default_context(cafile=str(self.layout.certificate_authority))
        token = self._users[kubeconfig.ADMIN].token
        async with session.get(
            f"{self.server}/readyz?verbose", ssl=context, headers={"Authorization": f"Bearer {token}"}
        ) as answer:
            text = await answer.text()
            return "ok" if answer.status == 200 else f"HTTP {answer.status}: {text}"

    async def _wait_for_service_account(self) -> None:
        """Pods are refused until their namespace has its ServiceAccount, which the controller-manager makes."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            self.raise_if_dead()
            if await self.kubectl("get", "serviceaccount", "default", "--ignore-not-found", "-o", "name"):
                return
            await asyncio.sleep(_POLL_SECONDS)
        raise WaitTimeout(
            "the controller-manager made no default ServiceAccount; its log:\n" + self._controller_manager.tail()
        )
