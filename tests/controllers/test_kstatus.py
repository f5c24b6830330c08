"""What `kubectl wait`, Argo CD and Flux make of our conditions: kstatus, as sigs.k8s.io/cli-utils computes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from goodput.adapters.kinds import DEPLOYMENTS, PODS, SLOS
from goodput.adapters.kube_errors import Refused
from goodput.decide import decide
from goodput.domain.identity import Key

QUOTA = 'pods "llama-serve-x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=0, limited: pods=0'


def kstatus(item: dict[str, Any]) -> str:
    """Current, InProgress, Failed or Terminating of an object whose kind kstatus does not know.

    The first abnormal condition in the list decides, then Ready; no condition at all is Current.
    """
    metadata, status = item["metadata"], item.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    observed = status.get("observedGeneration")
    if observed is not None and observed != metadata["generation"]:
        return "InProgress"
    conditions = status.get("conditions") or ()
    for condition in conditions:
        if condition["status"] == "True" and condition["type"] in ("Reconciling", "Stalled"):
            return {"Reconciling": "InProgress", "Stalled": "Failed"}[condition["type"]]
    ready = next((condition["status"] for condition in conditions if condition["type"] == "Ready"), "True")
    return "Current" if ready == "True" else "InProgress"


def of(bench: Any, name: str = "llama") -> str:
    return kstatus(bench.api.objects["models"][Key("a", name)])


@pytest.fixture
async def real(new_bench: Callable[..., Any]) -> Any:
    """A bench with the real laws."""
    made = new_bench()
    made.operator.loop.decide = decide
    made.furnish()
    await made.start()
    yield made
    await made.stop()


async def test_on_its_way_then_current(real: Any) -> None:
    """From creation to serving, and again while a change is rolled out."""
    real.apply(real.model())
    await real.tick()
    assert of(real) == "InProgress"
    real.play_kubelet(ready=False)
    await real.tick()
    assert of(real) == "InProgress"
    real.play_kubelet()
    for key in real.api.objects["pods"]:
        held = real.api.objects["pods"][key]
        held["status"]["conditions"][0]["status"] = "True"
        real.api.put(PODS, held)
    await real.tick(2)
    assert of(real) == "Current", real.status()["conditions"]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"slo": "nobody"}, "SLONotFound"),
        ({"paused": True}, "Paused"),
        ({"architecture": {"configMapRef": {"name": "none"}}}, "ConfigMapNotFound"),
    ],
)
async def test_what_waits_for_its_author_failed(real: Any, spec: dict[str, Any], reason: str) -> None:
    """A Model that nothing but a change of somebody's will move on is Failed at once, not InProgress for ever."""
    real.apply(real.model(**spec))
    await real.tick(2)
    assert of(real) == "Failed", real.status()["conditions"]
    assert real.condition("Stalled") == ("True", reason)


async def test_pods_that_a_quota_refuses_are_told(real: Any) -> None:
    """A Deployment without pods is no start that takes long: the words of the API server are in Stalled."""
    real.apply(real.model())
    await real.tick()
    deployment = real.api.objects[DEPLOYMENTS.plural][Key("a", "llama-serve")]
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": QUOTA}
    real.api.put(DEPLOYMENTS, {**deployment, "status": {"observedGeneration": 1, "conditions": [failure]}})
    await real.tick()
    assert real.condition("Stalled") == ("True", "PodsRefused")
    assert real.condition("Reconciling") == ("False", "HeldUp")
    told = next(c for c in real.status()["conditions"] if c["type"] == "Stalled")
    assert "exceeded quota: small" in told["message"]
    assert of(real) == "Failed"
    deployment = real.api.objects[DEPLOYMENTS.plural][Key("a", "llama-serve")]
    real.api.put(DEPLOYMENTS, {**deployment, "status": {"observedGeneration": 1}})
    await real.tick()
    assert of(real) == "InProgress", "the quota was raised"


async def test_a_write_that_is_refused_failed_while_it_scales(real: Any) -> None:
    """What only writing finds out counts as much as what reading does."""

    def refuse(verb: str, resource: Any, _: str) -> None:
        if verb == "apply" and resource is DEPLOYMENTS:
            raise Refused("no", 422)

    real.api.fault = refuse
    real.apply(real.model())
    await real.tick(2)
    assert of(real) == "Failed", real.status()["conditions"]


async def test_crash_loops_and_a_deleted_slo(real: Any) -> None:
    """A first pod that crashes is Failed; an SLO that goes is too, although the Model serves on."""
    real.apply(real.model())
    await real.tick()
    real.play_kubelet(ready=False)
    crashed = {"restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    for item in list(real.api.objects["pods"].values()):
        real.api.put(PODS, {**item, "status": {**item["status"], "containerStatuses": [crashed]}})
    await real.tick(2)
    assert (of(real), real.condition("Stalled")[1]) == ("Failed", "CrashLoop")
    real.api.remove(SLOS, Key("a", "chat"))
    await real.tick(2)
    assert of(real) == "Failed"


async def test_slos_are_current_and_an_old_generation_is_in_progress(real: Any) -> None:
    """An SLO is Current once it was seen; a spec that nobody has read yet is InProgress by its generation."""
    await real.tick()
    slo = real.api.objects[SLOS.plural][Key("a", "chat")]
    assert kstatus(slo) == "Current"
    assert kstatus({**slo, "metadata": {**slo["metadata"], "generation": 99}}) == "InProgress"


async def test_advice_that_nobody_takes_is_nothing_on_its_way(real: Any) -> None:
    """A Model that only advises and runs what was asked for is Current, whatever it advises."""
    real.apply(real.model(scaling={"mode": "Advise"}))
    await real.tick()
    real.play_kubelet()
    real.apply(real.model(scaling={"mode": "Advise", "minReplicas": 3}))
    await real.tick(2)
    assert (real.status()["lastDecision"]["action"], real.replicas()) == ("AdviseUp", 1)
    assert real.condition("Reconciling") == ("False", "Settled")
    assert of(real) == "Current", real.status()["conditions"]
