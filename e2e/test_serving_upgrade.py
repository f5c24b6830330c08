"""Nothing that the platform team does restarts a pod: an SLO edited, the operator restarted, upgraded, uninstalled."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest_asyncio

from fleets import Fleet, slo, writes_of_operator
from goodput_world.cluster import SYSTEM_NAMESPACE
from goodput_world.world import World

OTHER_IMAGE = "vllm/vllm-openai:v0.33.1"


@pytest_asyncio.fixture(loop_scope="session")
async def fleet(served: Fleet, cluster: World) -> AsyncIterator[Fleet]:
    """The shared Model; the chart is put back as it was when a test fails before it does so."""
    yield served
    if not await _operator_pods(cluster):
        await cluster.install_operator()


async def _operator_pods(world: World) -> frozenset[str]:
    pods = await world.list_objects("pods", namespace=SYSTEM_NAMESPACE, selector="app.kubernetes.io/name=goodput")
    return frozenset(pod["metadata"]["uid"] for pod in pods)


async def _touch(fleet: Fleet, replicas_at_most: int = 2) -> None:
    """Change the Model a little, and wait for the operator's answer: proof that it runs, and has looked."""
    await fleet.seen({"scaling": {"minReplicas": 1, "maxReplicas": replicas_at_most}})


async def _assert_same_pods(fleet: Fleet, uids: frozenset[str], replica_sets: set[str]) -> None:
    assert await fleet.uids() == uids, "a pod was replaced"
    assert await _replica_sets(fleet) == replica_sets, "a roll-out was started"


async def _replica_sets(fleet: Fleet) -> set[str]:
    found = await fleet.cluster.list_objects("replicasets", namespace=fleet.namespace)
    return {each["metadata"]["name"] for each in found}


async def test_editing_an_slo_restarts_nothing(fleet: Fleet, world: World) -> None:
    """New thresholds are decided with at once; the pods, whose histogram edges know the old ones, stay."""
    uids, sets = await fleet.uids(), await _replica_sets(fleet)
    await world.apply(slo({"ttft": "730ms", "tpot": "43ms", "attainment": "90%"}), namespace=fleet.namespace)
    await _touch(fleet)
    await fleet.wait_condition("SLOMet", "Unknown")
    await _assert_same_pods(fleet, uids, sets)
    await fleet.complete(served="shared")


async def test_an_upgrade_of_the_operator_restarts_nothing_and_says_what_waits(fleet: Fleet, world: World) -> None:
    """`helm upgrade` with another default engine image: every pod stays, `UpdateAvailable` names both images.

    Back at the old default, there is no update.
    """
    uids, sets = await fleet.uids(), await _replica_sets(fleet)
    operators = await _operator_pods(world)
    await world.install_operator({"images": {"engine": OTHER_IMAGE}})
    told = await fleet.wait_condition("UpdateAvailable", "True", text=f"the default is {OTHER_IMAGE}")
    assert "vllm/vllm-openai:v0.33.0" in told["message"], told
    assert await _operator_pods(world) - operators, "the upgrade brings another pod of the operator"
    await _touch(fleet)
    await _assert_same_pods(fleet, uids, sets)
    await world.install_operator()
    await fleet.wait_condition("UpdateAvailable", "False")
    await _assert_same_pods(fleet, uids, sets)


async def test_pods_of_an_older_rendering_stay(fleet: Fleet, world: World) -> None:
    """What another revision of the rendering code made is kept, of engines and routers; the same pods are no update."""
    uids, sets = await fleet.uids(), await _replica_sets(fleet)
    for pool in ("serve", "router"):
        older = {"metadata": {"annotations": {"goodput.dev/render-revision": "0"}}}
        await world.kubectl(
            *("patch", "deployment", f"shared-{pool}", "-n", fleet.namespace, "--field-manager=goodput", "-p"),
            json.dumps(older),
        )
    await _touch(fleet)
    assert (await fleet.condition("UpdateAvailable"))["status"] == "False"
    await _assert_same_pods(fleet, uids, sets)
    await fleet.complete(served="shared")


async def test_a_killed_operator_comes_back_and_restarts_nothing(fleet: Fleet, world: World) -> None:
    """The operator's pod is killed outright; its successor takes the Lease over and writes no object."""
    since = datetime.now(UTC)
    uids, sets = await fleet.uids(), await _replica_sets(fleet)
    pods = await world.list_objects("pods", namespace=SYSTEM_NAMESPACE, selector="app.kubernetes.io/name=goodput")
    # One that ends already may be gone before it is killed: the tests before this one replaced the operator.
    for name in (pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]):
        await world.inject(f"pods/{SYSTEM_NAMESPACE}/{name}/kill")  # no SIGTERM, and the Lease is not given up
        await world.kubectl("delete", "pod", name, "-n", SYSTEM_NAMESPACE, "--grace-period=0", "--force")
    await _touch(fleet)
    await _assert_same_pods(fleet, uids, sets)
    memory = "configmaps"
    assert writes_of_operator(world, fleet, since) <= {"goodput.dev/models/status", memory}, "all was as it should be"


async def test_a_fleet_outlives_its_operator(fleet: Fleet, world: World) -> None:
    """After `helm uninstall` Models and CRDs stay; a killed router and a killed engine come back and serve."""
    await world.uninstall_chart()

    async def gone() -> bool:
        return not await _operator_pods(world)

    await world.wait_for(gone, what="no operator left", timeout_seconds=60)
    assert (await fleet.object())["spec"]["servedName"] == "shared"
    assert len(await world.list_objects("crds")) == 3
    before = await fleet.uids()
    for pool in ("serve", "router"):
        names = [pod["metadata"]["name"] for pod in await fleet.pods(pool)]
        if pool == "router":
            await world.inject(f"pods/{fleet.namespace}/{names.pop()}/kill")  # its container restarts in place
        await world.kubectl(
            "delete", "pod", *names, "-n", fleet.namespace, "--grace-period=0", "--force", "--wait=false"
        )

    async def replaced() -> bool:
        pods = await fleet.pods()
        fresh = [pod for pod in pods if pod["metadata"]["uid"] not in before]
        ready = [pod for pod in pods if _is_ready(pod)]
        return len(pods) == len(ready) == 3 and len(fresh) == 2

    await world.wait_for(replaced, what="an engine and a router in place of those deleted", timeout_seconds=90)
    await fleet.wait_answers(served="shared")
    await world.install_operator()
    await _touch(fleet)
    await fleet.wait_serving()


def _is_ready(pod: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
