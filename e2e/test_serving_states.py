"""What stops a change leaves the fleet serving and says so.

A bad image, a pause, Advise, a second scaler, a served name that is taken, and a pod
that would go round the router.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from fleets import Fleet, writes_of_operator
from goodput_world.world import World

ONE = {"minReplicas": 1, "maxReplicas": 1}
TWO = {"minReplicas": 2, "maxReplicas": 2}


async def test_a_bad_image_leaves_the_old_pods_serving(served: Fleet) -> None:
    """A new image that cannot be pulled: `Stalled` says RolloutBlocked and why, the old pod serves, undoing heals."""
    fleet = served
    before = await fleet.uids("serve")
    await fleet.patch({"engine": {"image": "registry.example.com/vllm:nowhere"}})
    blocked = await fleet.wait_condition("Stalled", "True", "RolloutBlocked", text="old pods serve on")
    assert "ImagePull" in blocked["message"], blocked
    assert (await fleet.condition("Ready"))["status"] == "True"
    assert before < await fleet.uids("serve"), "the old pod stays beside the new one that cannot start"
    await fleet.complete(served="shared")
    await fleet.patch({"engine": {"image": None}})
    await fleet.wait_condition("Stalled", "False", "NotStalled")
    await fleet.wait_serving()
    assert await fleet.uids("serve") == before, "undoing the change keeps the pod that served all along"


async def test_a_paused_model_is_left_alone(served: Fleet, world: World) -> None:
    """With `paused` nothing but status is written, whatever changes; afterwards everything is made good."""
    fleet = served
    await fleet.seen({"paused": True})
    await fleet.wait_condition("Stalled", "True", "Paused")
    since = datetime.now(UTC)
    await world.kubectl("delete", "poddisruptionbudget", "shared-serve", "-n", fleet.namespace)
    await fleet.seen({"scaling": TWO, "engine": {"args": ["--seed", "7"]}})
    await fleet.seen({"scaling": {"minReplicas": 2, "maxReplicas": 3}})
    assert (await fleet.deployment())["spec"]["replicas"] == 1
    assert writes_of_operator(world, fleet, since) <= {"goodput.dev/models/status"}
    assert not await world.kubectl("get", "pdb", "shared-serve", "-n", fleet.namespace, "--ignore-not-found")
    assert (await fleet.condition("Ready"))["status"] == "True", "paused or not, it serves"
    await fleet.patch({"paused": None, "scaling": TWO, "engine": {"args": None}})
    await fleet.wait_serving(2)
    assert (await fleet.condition("Stalled"))["status"] == "False"
    await world.kubectl("get", "pdb", "shared-serve", "-n", fleet.namespace)


async def test_advise_says_and_writes_nothing(served: Fleet, world: World) -> None:
    """In Advise a decision is published in status and event, and neither replicas nor anything else is written."""
    fleet = served
    before, uids = await fleet.deployment(), await fleet.uids()
    since = datetime.now(UTC)
    await fleet.patch({"scaling": {"mode": "Advise", "minReplicas": 3, "maxReplicas": 4}})

    async def advised() -> dict[str, Any] | None:
        decision: dict[str, Any] = (await fleet.object())["status"].get("lastDecision", {})
        return decision if decision.get("action") == "AdviseUp" else None

    decision = await world.wait_for(advised, what="a decision AdviseUp in status", timeout_seconds=30)
    assert (decision["from"], decision["to"]) == (1, 3), decision
    assert writes_of_operator(world, fleet, since) <= {"goodput.dev/models/status"}
    after = await fleet.deployment()
    assert (after["spec"], await fleet.uids()) == (before["spec"], uids)


async def test_a_second_scaler_is_named_and_not_fought(served: Fleet, world: World) -> None:
    """An HPA on our Deployment: `ScalerConflict` names it and replicas are left alone, until it is gone."""
    fleet = served
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shared-serve"}
    resource = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    hpa = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "by-cpu"},
        "spec": {
            "scaleTargetRef": target,
            "minReplicas": 1,
            "maxReplicas": 4,
            "metrics": [{"type": "Resource", "resource": resource}],
        },
    }
    await world.apply(hpa, namespace=fleet.namespace)
    conflict = await fleet.wait_condition("Stalled", "True", "ScalerConflict")
    assert "by-cpu" in conflict["message"], conflict
    since = datetime.now(UTC)
    await fleet.seen({"scaling": TWO})
    assert (await fleet.deployment())["spec"]["replicas"] == 1, "the number that runs is kept"
    assert "apps/deployments" not in writes_of_operator(world, fleet, since)
    assert (await fleet.condition("Ready"))["status"] == "True"
    await world.kubectl("delete", "hpa", "by-cpu", "-n", fleet.namespace)
    await fleet.wait_serving(2)
    await fleet.wait_condition("Stalled", "False", "NotStalled")


async def test_the_second_model_of_a_served_name_waits(served: Fleet, world: World) -> None:
    """Of two Models with one served name the first serves on; the second is told whose name it is and gets no pod."""
    first, second = served, Fleet(world, served.namespace, "second")
    uids = await first.uids()
    await second.apply(servedName="shared", gpuTypes=["l40s"], scaling=ONE)
    told = await second.wait_condition("Stalled", "True", "ServedNameConflict", text="spec.servedName: Model shared ")
    assert "choose another name" in told["message"]
    assert await second.pods() == [], "a Model whose name is taken gets no pod"
    assert await first.uids() == uids
    await first.complete(served="shared")
    await second.patch({"servedName": "second"})
    await second.wait_serving()
    await second.complete(served="second")
    await world.kubectl("delete", "model.goodput.dev", "second", "-n", second.namespace)


_VISIT = """
import json, sys, urllib.request
seen = {}
for name, url in json.loads(sys.argv[1]).items():
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            seen[name] = answer.status
    except OSError as error:
        seen[name] = repr(error)
with open("/dev/termination-log", "w") as log:
    json.dump(seen, log)
"""


async def test_nobody_gets_round_the_router(served: Fleet, world: World) -> None:
    """A pod of the same namespace reaches the model through its Service, but not its engine."""
    fleet = served
    (engine,) = await fleet.pods("serve")
    urls = {
        "service": "http://shared/v1/models",
        "engine": f"http://{engine['status']['podIP']}:8000/v1/models",
        "metrics": f"http://{engine['status']['podIP']}:8000/metrics",
    }
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {
        "name": "main",
        "image": "busybox:1.37",
        "command": ["python3", "-c", _VISIT, json.dumps(urls)],
        "securityContext": security,
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "visitor", "labels": {"goodput.dev/pool": "router", "goodput.dev/model": "other"}},
        "spec": {
            "restartPolicy": "Never",
            "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
        },
    }
    await world.apply(pod, namespace=fleet.namespace)

    async def said() -> dict[str, Any] | None:
        status = (await world.get("pod", "visitor", namespace=fleet.namespace))["status"]
        states = [each["state"].get("terminated") for each in status.get("containerStatuses", [])]
        return json.loads(states[0]["message"]) if states and states[0] else None

    seen = await world.wait_for(said, what="the visitor's report", timeout_seconds=60)
    assert seen["service"] == 200, f"the way through the router is open: {seen}"
    assert seen["engine"] != 200, f"the engine answered a pod that is no router of its Model: {seen}"
    assert seen["metrics"] != 200, f"the engine's metrics answered a pod that is no scraper: {seen}"
    await fleet.wait_condition("MetricsFresh", "True")  # Prometheus, which `metricsFrom` of the chart names, is let in
