"""A world for faults: a real control plane with virtual nodes, no operator, and everything that breaks one."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

import pytest
import pytest_asyncio

from faults.operators import Operators
from faults.person import Person
from faults.prometheus import FakePrometheus
from faults.recorder import Recorder, connect_to
from goodput_world.agent.config import NodeConfig
from goodput_world.cluster import REPOSITORY
from goodput_world.nodes import cpu_node, gpu_node
from goodput_world.waiting import wait_for
from goodput_world.world import World, WorldConfig

OPERATORS = "operators"
"""Namespace of the Leases of these tests' operators."""
SHORT = {"cooldown_seconds": 4.0, "drain_prior_seconds": 1.0, "startup_prior_seconds": 2.0, "warmup_seconds": 1.0}
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
async def bench() -> AsyncIterator[Bench]:
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
            async with FakePrometheus(recorder) as prometheus:
                yield Bench(world, recorder, prometheus, operators, Person(connection))
        finally:
            operators.end()
            recording.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await recording
            await connection.close()
