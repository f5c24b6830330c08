"""A world whose operator allows few images, and one healthy Model in it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from tests.data.bad_manifests.table import rows

from fleets import Fleet, model, slo
from goodput_world.agent.config import NodeConfig
from goodput_world.cluster import REPOSITORY, SYSTEM_NAMESPACE
from goodput_world.nodes import cpu_node, gpu_node
from goodput_world.world import World, WorldConfig

HEALTHY_NAMESPACE = "healthy"
# What an operator's log shows of an error that nobody foresaw.
_UNFORESEEN = re.compile(r"Traceback|unexpected error|\"level\": ?\"(?:ERROR|CRITICAL)\"")


def _virtual(node: NodeConfig) -> NodeConfig:
    return replace(node, virtual=True, pods=1000, cpu="1000", memory="8Ti")


def _chart_values() -> dict[str, Any]:
    """What the rows of the table need of the operator, and an operator that runs on the one real node."""
    values: dict[str, Any] = {"tickSeconds": 1, "nodeSelector": {"kubernetes.io/hostname": "operator"}}
    for row in rows("condition"):
        values |= row.operator
    return values


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def strict() -> AsyncIterator[World]:
    """The world, with CRDs and chart."""
    if os.environ.get("E2E_CLUSTER") == "existing":
        pytest.skip("needs the embedded world: its operator allows few images, its nodes have room for any Model")
    config = WorldConfig(
        nodes=(
            replace(cpu_node("operator"), pods=1),
            _virtual(cpu_node("routers")),
            _virtual(gpu_node("l40s-0", "l40s", gpus=64)),
            _virtual(gpu_node("a100-0", "a100-80g-sxm", gpus=8)),
        ),
        prometheus=False,
        directory=REPOSITORY / "build" / "e2e" / f"strict-{os.getpid()}",
        chart_values=_chart_values(),
    )
    async with World(config) as world:
        yield world


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def healthy(strict: World) -> Fleet:
    """A Model that serves before anything wrong comes."""
    await strict.create_namespace(HEALTHY_NAMESPACE)
    fleet = Fleet(strict, HEALTHY_NAMESPACE, "healthy")
    await strict.apply([slo(), model("healthy", gpuTypes=["a100-80g-sxm"])], namespace=HEALTHY_NAMESPACE)
    await fleet.wait_serving()
    return fleet


async def assert_unshaken(world: World) -> None:
    """The operator met nothing unforeseen, is live, and is still the process that it was."""
    lines = (await world.operator_logs()).splitlines()
    assert lines, "the operator logs"
    unforeseen = [line for line in lines if _UNFORESEEN.search(line)]
    assert not unforeseen, f"{len(unforeseen)} of {len(lines)} lines:\n" + "\n".join(unforeseen[:5])
    pods = await world.list_objects("pods", namespace=SYSTEM_NAMESPACE)
    assert len(pods) == 1, [pod["metadata"]["name"] for pod in pods]
    state = pods[0]["status"]["containerStatuses"][0]
    assert (state["ready"], state["restartCount"]) == (True, 0), json.dumps(state)
