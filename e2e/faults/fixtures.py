"""A world for faults: a real control plane with virtual nodes, no operator, and everything that breaks one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from faults.fleet import believed_rps, condition, settled
from faults.operators import Operators
from faults.person import Person
from faults.prometheus import MODEL, FakePrometheus
from faults.recorder import Recorder, connect_to
from goodput.adapters.kinds import MODELS, NAMESPACES
from goodput_world.agent.config import NodeConfig
from goodput_world.cluster import REPOSITORY
from goodput_world.nodes import cpu_node, gpu_node
from goodput_world.waiting import wait_for
from goodput_world.world import World, WorldConfig

OPERATORS = "operators"
"""Namespace of the Leases of these tests' operators."""
SHORT = {
    "cooldown_seconds": 4.0,
    "down_requests_seconds": 4.0,
    "drain_prior_seconds": 1.0,
    "startup_prior_seconds": 2.0,
    "warmup_seconds": 1.0,
    # These tests ask for exact numbers of a load that jumps and stays. On a busy machine scrapes come unevenly, and a
    # jump looks like a ramp: none is believed.
    "trend_sigmas": 1e9,
}
"""The windows of a scale-down, in seconds: a law that takes minutes takes as long to test."""


def _virtual(node: NodeConfig) -> NodeConfig:
    return replace(node, virtual=True, pods=1000, cpu="1000", memory="8Ti")


NODES = (
    _virtual(cpu_node("routers")),
    _virtual(gpu_node("l40s-0", "l40s", gpus=64)),
    _virtual(gpu_node("l40s-1", "l40s", gpus=64, zone="zone-b")),
    # For tests that break nodes, or run out of GPUs.
    *(_virtual(gpu_node(f"a100-{index}", "a100-80g-sxm", gpus=4)) for index in range(3)),
    _virtual(gpu_node("h100-0", "h100-sxm", gpus=3)),
)


@dataclass(slots=True)
class Bench:
    """What a test of faults needs."""

    world: World
    recorder: Recorder
    prometheus: FakePrometheus
    operators: Operators
    person: Person

    async def settled(self, *namespaces: str, replicas: int, timeout_seconds: float = 40.0) -> None:
        """Wait until each Model runs so many replicas and says that it is done."""
        for namespace in namespaces:

            async def done(namespace: str = namespace) -> bool:
                return settled(self.recorder.objects(namespace), replicas)

            what = f"{namespace}: {replicas} replicas, settled"
            await self.until(done, what, timeout_seconds=timeout_seconds)

    def model(self, namespace: str) -> dict[str, Any]:
        """The Model as it is now."""
        found = self.recorder.get(MODELS.plural, namespace, MODEL)
        assert found is not None, f"{namespace}: there is no Model"
        return found

    async def says(
        self, namespace: str, kind: str, status: str, reason: str, *, words: str = "", timeout_seconds: float = 30.0
    ) -> None:
        """Wait until a condition of the Model has this status and reason, and these words in its message."""
        seen: tuple[str, str, str] = ("", "", "")

        async def said() -> bool:
            nonlocal seen
            seen = condition(self.model(namespace), kind)
            return seen[:2] == (status, reason) and words in seen[2]

        try:
            await self.until(said, f"{namespace}: {kind}={status} {reason}", timeout_seconds=timeout_seconds)
        except AssertionError as error:
            raise AssertionError(f"{namespace}: {kind} is {seen}; {error}") from error

    async def user(self, name: str) -> tuple[str, Path]:
        """A ServiceAccount with every right: its name in the audit log, and a kubeconfig for it."""
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        await self.person.create(account, OPERATORS)
        roles = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
        await self.person.post(
            roles,
            {
                "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": OPERATORS}],
            },
        )
        path = f"/api/v1/namespaces/{OPERATORS}/serviceaccounts/{name}/token"
        token = await self.person.post(path, {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1"})
        text = yaml.safe_load(self.world.kubeconfig.read_text())
        text["users"][0]["user"] = {"token": token["status"]["token"]}
        file = self.world.directory / f"{name}.kubeconfig"
        file.write_text(yaml.safe_dump(text))
        file.chmod(0o600)
        return f"system:serviceaccount:{OPERATORS}:{name}", file

    async def until(
        self, condition: Callable[[], Awaitable[object]], what: str, *, timeout_seconds: float = 40.0
    ) -> None:
        """Wait for it; the error shows the ends of the operators' logs."""
        try:
            await wait_for(condition, what=what, timeout_seconds=timeout_seconds)
        except Exception as error:
            tails = [f"--- {op.launch.script.directory.name}\n{op.log_tail()}" for op in self.operators.started[-4:]]
            raise AssertionError(f"{error}\n" + "\n".join(tails)) from error


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def fault_bench() -> AsyncIterator[Bench]:
    """One for all tests of faults."""
    if os.environ.get("E2E_CLUSTER") == "existing":
        pytest.skip("needs the embedded world: its API server is killed, and its nodes")
    directory = REPOSITORY / "build" / "e2e" / f"faults-{os.getpid()}"
    config = WorldConfig(
        nodes=NODES,
        operator=None,
        prometheus=False,
        directory=directory,
        agent_options={"virtual_startup_seconds": 1.0},
    )
    async with World(config) as world:
        await world.install_crds()
        await world.create_namespace(OPERATORS)
        connection = await connect_to(world.kubeconfig)
        recorder = Recorder(connection)
        recording = asyncio.create_task(recorder.run())
        operators = Operators(world.kubeconfig, directory / "operators", OPERATORS, SHORT)
        try:
            async with FakePrometheus(recorder, believed_rps()) as prometheus:
                yield Bench(world, recorder, prometheus, operators, Person(connection))
        finally:
            operators.end()
            recording.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await recording
            await connection.close()


@pytest_asyncio.fixture(loop_scope="session")
async def bench(fault_bench: Bench) -> AsyncIterator[Bench]:
    """The same for one test, which leaves no operator, no traffic and no namespace behind."""
    folder = fault_bench.operators.directory / secrets.token_hex(3)
    own = replace(
        fault_bench,
        person=Person(fault_bench.person.connection),
        operators=replace(fault_bench.operators, directory=folder, started=[]),
    )
    yield own
    own.operators.end()
    own.prometheus.faults.clear()
    for namespace in own.person.namespaces:
        own.prometheus.traffic.pop(namespace, None)
        path = NAMESPACES.path(None, namespace)
        if await own.person.get(path) is not None:
            await own.person.delete(NAMESPACES, "", namespace)
