"""Pods without processes, on virtual nodes and by the seeder."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from goodput_world.agent.config import NodeConfig
from goodput_world.agent.node import Node
from goodput_world.agent.pace import Pace
from goodput_world.agent.seeder import bare_pods, in_batches, numbered_nodes
from goodput_world.agent.virtual import VirtualPod, ready_status

POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}


class FakeApi:
    """Remembers what was written."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.written: list[tuple[str, str, Any]] = []

    async def patch(self, path: str, body: Any, _: str) -> None:
        """A patch."""
        self.written.append(("PATCH", path, body))

    async def delete(self, path: str, body: Any) -> None:
        """A delete."""
        self.written.append(("DELETE", path, body))


def on_node(api: FakeApi, startup_seconds: float) -> Node:
    """As much of a node as a virtual pod needs."""
    config = SimpleNamespace(virtual_startup_seconds=startup_seconds)
    agent = SimpleNamespace(api=api, pace=Pace(), config=config, startup_seconds=None)
    return cast("Node", SimpleNamespace(agent=agent, ip="127.0.9.9"))


def test_a_seeded_pod_is_ready_in_every_respect() -> None:
    """Phase, conditions, container status, address: what an operator looks at."""
    status = ready_status(POD, host_ip="127.0.9.9", pod_ip="127.0.1.1")

    assert status["phase"] == "Running"
    assert {each["type"]: each["status"] for each in status["conditions"]}["Ready"] == "True"
    (container,) = status["containerStatuses"]
    assert (container["ready"], container["started"], "running" in container["state"]) == (True, True, True)
    assert status["podIP"] == "127.0.1.1"


async def test_a_virtual_pod_becomes_ready_after_its_start_up_and_leaves_at_once() -> None:
    """Its only writes: one status, one deletion of that very pod."""
    api = FakeApi()
    pod = VirtualPod(on_node(api, 0.05), POD, "127.0.1.1")
    pod.start()
    await asyncio.sleep(0.01)
    assert api.written == []
    await asyncio.sleep(0.2)
    pod.update({**POD, "metadata": {**POD["metadata"], "deletionTimestamp": "now"}})
    await asyncio.sleep(0.05)

    assert [write[:2] for write in api.written] == [
        ("PATCH", "/api/v1/namespaces/ns/pods/p/status"),
        ("DELETE", "/api/v1/namespaces/ns/pods/p"),
    ]
    assert api.written[1][2] == {"gracePeriodSeconds": 0, "preconditions": {"uid": "u"}}


async def test_a_virtual_pod_deleted_while_it_starts_never_becomes_ready() -> None:
    """The start is given up."""
    api = FakeApi()
    pod = VirtualPod(on_node(api, 0.05), POD, "127.0.1.1")
    pod.start()
    pod.update({**POD, "metadata": {**POD["metadata"], "deletionTimestamp": "now"}})
    await asyncio.sleep(0.2)

    assert [write[0] for write in api.written] == ["DELETE"]


def test_foreign_pods_are_spread_and_some_hold_gpus() -> None:
    """Every fourth asks for one, on nodes that have any."""
    nodes = [*numbered_nodes(2, 8, "l40s", {}), NodeConfig("cpu")]

    pods = bare_pods("ns", 12, nodes, gpu_every=4)

    assert [pod["spec"]["nodeName"] for pod in pods[:4]] == ["seed-0", "seed-1", "cpu", "seed-0"]
    holding = [n for n, pod in enumerate(pods) if pod["spec"]["containers"][0]["resources"]["limits"]]
    assert holding == [0, 4]


async def test_batches_never_exceed_their_size() -> None:
    """Every item is worked on once."""
    running, most, seen = 0, 0, []

    async def work(item: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        seen.append(item)
        running -= 1

    assert await in_batches(range(100), work, 8) == 100
    assert (sorted(seen), most) == (list(range(100)), 8)
