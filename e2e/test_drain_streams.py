"""No stream is cut: not when the operator takes a replica away, not when routers roll, not when a node is drained.

Three Models are disturbed side by side, each with 56 open streams on two engines and a stream longer than a minute.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import aiohttp
import pytest_asyncio

from fleets import SLOW, Fleet, Stream, hosts, slo, stream
from goodput_world.cluster import Cluster
from goodput_world.world import World

SHORT_TOKENS, LONG_TOKENS = 300, 760
STREAMS = 56
PATIENT = {"ttft": "10s", "tpot": "300ms", "attainment": "90%"}
"""An SLO that the slow engines meet: nothing here is about latency."""


@dataclass(slots=True)
class Disturbed:
    """What one disturbance did: pods before and after by name, requests in flight by engine, and every stream."""

    before: dict[str, frozenset[str]]
    after: dict[str, frozenset[str]]
    in_flight: dict[str, int]
    streams: list[Stream] = field(repr=False)

    def gone(self, pool: str) -> list[str]:
        """Pods of before that are no longer there."""
        return sorted(self.before[pool] - self.after[pool])


Disturbance = Callable[[Fleet], Awaitable[None]]


async def _scale_down(fleet: Fleet) -> None:
    """The author lowers the bounds from two replicas to one; the operator picks the victim and takes it away."""
    await fleet.patch({"scaling": {"minReplicas": 1, "maxReplicas": 1}})


async def _roll_routers(fleet: Fleet) -> None:
    """`kubectl rollout restart` of the routers."""
    await fleet.cluster.kubectl("rollout", "restart", f"deployment/{fleet.name}-router", "-n", fleet.namespace)


async def _drain_nodes(fleet: Fleet) -> None:
    """`kubectl drain` of an engine's node and of a router's node, for the pods of this Model alone."""

    async def drain(pool: str, node: str) -> None:
        await fleet.cluster.kubectl(
            *("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=150s"),
            *("--pod-selector", f"goodput.dev/model={fleet.name},goodput.dev/pool={pool}"),
        )

    # The other Models' engines are on l40s-0: a cordon there would move them.
    routers = {pod["spec"]["nodeName"] for pod in await fleet.pods("router")} - {"l40s-0"}
    await asyncio.gather(drain("serve", "l40s-1"), drain("router", min(routers)))


async def _names(fleet: Fleet) -> dict[str, frozenset[str]]:
    pods = await fleet.pods()
    return {
        pool: frozenset(
            pod["metadata"]["name"] for pod in pods if pod["metadata"]["labels"]["goodput.dev/pool"] == pool
        )
        for pool in ("serve", "router")
    }


async def _run(fleet: Fleet, disturb: Disturbance) -> Disturbed:
    url = await fleet.url()
    chance = random.Random(fleet.name)
    streams = [Stream(SHORT_TOKENS if index % 4 else LONG_TOKENS) for index in range(STREAMS)]
    timeout = aiohttp.ClientTimeout(total=240)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session, asyncio.TaskGroup() as group:
        for each in streams:
            prompt = [chance.randrange(1000, 100_000) for _ in range(64)]
            group.create_task(stream(session, url, f"slow-{fleet.name}", prompt, each))
        async with asyncio.timeout(60):
            for each in streams:
                await each.started.wait()
        before = await _names(fleet)
        in_flight = await fleet.running()
        await disturb(fleet)
    await fleet.wait_serving(1 if disturb is _scale_down else 2, timeout_seconds=120)
    await fleet.wait_none_terminating()
    return Disturbed(before, await _names(fleet), in_flight, streams)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def disturbed(cluster: Cluster, world: World) -> AsyncIterator[dict[str, Disturbed]]:
    """The three disturbances, done at once."""
    namespace = "e2e-drain"
    cases: dict[str, tuple[Disturbance, dict[str, object]]] = {
        "scaled": (_scale_down, hosts("l40s-0")),
        "rolled": (_roll_routers, hosts("l40s-0")),
        "drained": (_drain_nodes, {}),
    }
    await cluster.create_namespace(namespace)
    await cluster.apply(slo(PATIENT), namespace=namespace)
    fleets = {name: Fleet(cluster, namespace, name) for name in cases}
    for name, (_, template) in cases.items():
        scaling = {"minReplicas": 2, "maxReplicas": 2}
        spec = {"model": SLOW, "servedName": f"slow-{name}", "gpuTypes": ["l40s"], "template": template}
        await fleets[name].apply(**spec, scaling=scaling)
    await asyncio.gather(*(fleet.wait_serving(2) for fleet in fleets.values()))
    try:
        done = await asyncio.gather(*(_run(fleets[name], disturb) for name, (disturb, _) in cases.items()))
    finally:
        await cluster.kubectl("uncordon", "--selector=kubernetes.io/os=linux")
    yield dict(zip(cases, done, strict=True))
    await cluster.kubectl("delete", "namespace", namespace, "--wait=false")


def _assert_whole(result: Disturbed) -> None:
    problems = [problem for each in result.streams if (problem := each.problem())]
    assert not problems, f"{len(problems)} of {len(result.streams)} streams are not whole: {problems[:5]}"
    longest = max(each.seconds for each in result.streams)
    print(f"{len(result.streams)} whole streams, the longest of {longest:.0f} s; in flight before: {result.in_flight}")
    assert longest > 60, f"the longest stream took {longest:.0f} s: too short to prove anything"


def _assert_busy_victim(result: Disturbed) -> None:
    gone = result.gone("serve")
    assert len(gone) == 1, f"one of {set(result.before['serve'])} goes, these went: {gone}"
    assert result.in_flight[gone[0]] >= 20, f"too few streams in flight on {gone[0]}: {result.in_flight}"


async def test_no_stream_is_cut_by_a_scale_down(disturbed: dict[str, Disturbed]) -> None:
    """The operator takes one of two replicas away with at least 20 streams in flight; each is whole at its client."""
    _assert_busy_victim(disturbed["scaled"])
    _assert_whole(disturbed["scaled"])


async def test_no_stream_is_cut_by_a_router_roll(disturbed: dict[str, Disturbed]) -> None:
    """Both routers are replaced under open streams; each is whole at its client, and no engine was touched."""
    result = disturbed["rolled"]
    assert set(result.gone("router")) == result.before["router"], f"{result.before} became {result.after}"
    assert result.after["serve"] == result.before["serve"]
    _assert_whole(result)


async def test_no_stream_is_cut_by_a_node_drain(disturbed: dict[str, Disturbed]) -> None:
    """`kubectl drain` evicts an engine with at least 20 streams in flight, and a router: each stream is whole."""
    _assert_busy_victim(disturbed["drained"])
    assert len(disturbed["drained"].gone("router")) == 1, "a router was evicted too"
    _assert_whole(disturbed["drained"])
