"""The smallest Model, applied as a user would, becomes a fleet that answers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from fleets import Fleet
from goodput_world.cluster import REPOSITORY, Cluster

EXAMPLES = REPOSITORY / "examples"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def fleet(cluster: Cluster) -> AsyncIterator[Fleet]:
    """`examples/` of the smallest fleet, applied with kubectl in a restricted namespace."""
    namespace = "e2e-serving-first"
    await cluster.create_namespace(namespace)
    for file in ("slo-chat.yaml", "model-llama-8b.yaml"):
        await cluster.kubectl("apply", "-n", namespace, "-f", str(EXAMPLES / file))
    yield Fleet(cluster, namespace, "llama-8b")
    await cluster.kubectl("delete", "namespace", namespace, "--wait=false")


async def test_kubectl_wait_returns_and_a_completion_is_served(fleet: Fleet) -> None:
    """`kubectl wait --for=condition=Ready` returns; pods run on GPU nodes; Service and router serve a completion.

    The PodMonitor CRD is not installed: that breaks nothing.
    """
    said = await fleet.cluster.kubectl(
        *("wait", "--for=condition=Ready", "--timeout=120s", "model/llama-8b", "-n", fleet.namespace)
    )
    assert "condition met" in said
    assert await fleet.complete() == " token" * 8, "the engine answers with eight tokens"
    engines, routers = await fleet.pods("serve"), await fleet.pods("router")
    assert [pod["status"]["phase"] for pod in engines] == ["Running"]
    assert engines[0]["spec"]["nodeName"].startswith("l40s-"), "an engine runs where GPUs are"
    assert {pod["status"]["phase"] for pod in routers} == {"Running"}
    groups = {each["spec"]["group"] for each in await fleet.cluster.list_objects("crds")}
    assert groups == {"goodput.dev"}, groups


async def test_kubectl_get_models_shows_what_counts(fleet: Fleet) -> None:
    """`kubectl get models` and the category show the Model, its SLO and that it is ready."""
    await fleet.wait_serving()
    lines = (await fleet.cluster.kubectl("get", "models", "-n", fleet.namespace)).splitlines()
    header, row = lines[0].split(), lines[1].split()
    assert {"SLO", "READY", "AGE"} <= set(header), header
    assert (row[0], "chat" in row, "True" in row) == ("llama-8b", True, True), row
    everything = await fleet.cluster.kubectl("get", "goodput", "-n", fleet.namespace, "-o", "name")
    assert {"slo.goodput.dev/chat", "model.goodput.dev/llama-8b"} <= set(everything.split())
