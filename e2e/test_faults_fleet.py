"""GPUs that are not there, nodes that go, objects that are deleted while in use, and what is left on users' objects."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from faults.fixtures import Bench
from faults.fleet import ENGINE, HIGH, LOW, create_fleet, model, slo
from faults.person import MANAGER
from faults.prometheus import MODEL
from goodput.adapters.kinds import GPU_TYPES, MODELS, NAMESPACES, NODES, SLOS
from goodput.domain.identity import FIELD_MANAGER

pytestmark = pytest.mark.timeout(240)

STARTUP_SECONDS = 12.0


async def test_missing_gpus_are_reported_by_number_and_not_retried_into_a_storm(bench: Bench) -> None:
    """3 GPUs: a load for many stops at 3 and says what is missing; a minimum of 5 leaves 2 Pending, and no write."""
    namespace = "gpus"
    user, kubeconfig = await bench.user("operator-gpus")
    bench.prometheus.load(namespace, LOW)
    await create_fleet(bench.person, namespace, gpuTypes=["h100-sxm"])
    operator = await bench.operators.start(
        namespace, namespace, prometheus_url=bench.prometheus.url(), kubeconfig=kubeconfig
    )
    await bench.settled(namespace, replicas=1)
    bench.prometheus.load(namespace, 500.0)
    await bench.settled(namespace, replicas=3)
    await bench.until(lambda: _clamp(bench, namespace), f"{namespace}: the decision names the free GPUs as its limit")
    bench.prometheus.load(namespace, LOW)
    await bench.person.edit(namespace, MODEL, scaling={"minReplicas": 5})
    await bench.says(namespace, "Placed", "False", "InsufficientGPUs", words="2 pods are Pending: 2 GPUs h100-sxm")
    await bench.says(namespace, "Ready", "True", "Serving")
    # The end of a cap is told once, when the old load has left the laws' windows.
    await bench.until(lambda: _uncapped(bench, namespace), f"{namespace}: the decision follows the low load")

    async def quiet() -> bool:
        return time.time() - float(operator.writes()[-1]["at"]) > 3.0

    await bench.until(quiet, f"{namespace}: the operator has said what there is to say")
    begun = datetime.now(UTC)

    async def long_enough() -> bool:
        return (datetime.now(UTC) - begun).total_seconds() > 8.0

    await bench.until(long_enough, "8 s with pods that are Pending")
    counts = bench.world.audit.counts(begun, datetime.now(UTC), users=[user])
    assert not counts, f"Pending pods cause writes: {dict(counts)}"
    asked = bench.recorder.asked(namespace, ENGINE)
    assert asked == sorted(asked), f"replicas went {asked}"
    assert asked[-1] == 5, f"the minimum is 5, asked for were {asked}"
    assert len(bench.recorder.ever(namespace)) == 5, "Pending pods were made anew"
    await bench.person.edit(namespace, MODEL, scaling={"minReplicas": 1})
    await bench.says(namespace, "Placed", "True", "Placed")
    await operator.stop()


async def _clamp(bench: Bench, namespace: str) -> bool:
    return "GPU" in str(bench.model(namespace)["status"]["lastDecision"]["message"])


async def _uncapped(bench: Bench, namespace: str) -> bool:
    told = bench.model(namespace)["status"]["lastDecision"]
    return bool(told["wanted"] <= told["to"])


async def test_pods_that_start_slowly_are_not_asked_for_again(bench: Bench) -> None:
    """While replicas need 12 s to start, each of twelve decisions asks for the same three: no 2-4-8-16."""
    namespace = "slow"
    bench.prometheus.load(namespace, LOW)
    await create_fleet(bench.person, namespace)
    operator = await bench.operators.start(namespace, namespace, prometheus_url=bench.prometheus.url())
    await bench.settled(namespace, replicas=1)
    await bench.world.inject("startup", seconds=f"{STARTUP_SECONDS:g}")
    try:
        bench.prometheus.load(namespace, HIGH)
        begun = time.monotonic()
        await bench.settled(namespace, replicas=3)
        took = time.monotonic() - begun
    finally:
        await bench.world.inject("startup", seconds="1")
    assert took > STARTUP_SECONDS, f"the pods were to start in {STARTUP_SECONDS} s, all was done after {took:.1f} s"
    asked = bench.recorder.asked(namespace, ENGINE)
    assert asked == sorted(asked), f"replicas went {asked}"
    assert asked[-1] == 3, f"replicas went {asked}"
    assert len(bench.recorder.ever(namespace)) == 3, "more pods were made than the load needs"
    await operator.stop()


async def test_a_node_that_dies_or_is_cordoned_is_replaced_at_once_and_named(bench: Bench) -> None:
    """One replica more is asked for within two ticks of the node's going, named; the number returns by itself."""
    namespace = "nodes"
    bench.prometheus.load(namespace, LOW)
    await create_fleet(bench.person, namespace, gpuTypes=["a100-80g-sxm"], scaling={"minReplicas": 2})
    operator = await bench.operators.start(namespace, namespace, prometheus_url=bench.prometheus.url())
    await bench.settled(namespace, replicas=2)
    spread = {pod["spec"]["nodeName"] for pod in _engines(bench, namespace)}
    assert len(spread) == 2, f"two replicas run on {spread}: one dead node would take both"

    cordoned = sorted(spread)[0]
    await _replaced(bench, namespace, cordoned, lambda: _cordon(bench, cordoned, True))
    await _cordon(bench, cordoned, False)
    await bench.settled(namespace, replicas=2)

    dying = next(pod["spec"]["nodeName"] for pod in _engines(bench, namespace))
    await bench.world.inject(f"nodes/{dying}/fail")
    try:
        # What the node controller says after a grace of a minute, said now.
        await _replaced(bench, namespace, dying, lambda: _not_ready(bench, dying))
    finally:
        await bench.world.inject(f"nodes/{dying}/recover")
    await operator.stop()


def _engines(bench: Bench, namespace: str) -> list[dict[str, Any]]:
    return [
        pod
        for pod in bench.recorder.pod_objects(namespace)
        if pod["metadata"]["labels"].get("goodput.dev/pool") == "serve" and "deletionTimestamp" not in pod["metadata"]
    ]


async def _cordon(bench: Bench, node: str, cordoned: bool) -> None:
    await bench.person.patch(NODES, "", node, {"spec": {"unschedulable": cordoned}})


async def _not_ready(bench: Bench, node: str) -> None:
    found = bench.recorder.get(NODES.plural, "", node)
    assert found is not None
    conditions = [
        {**each, "status": "Unknown", "reason": "NodeStatusUnknown"} if each["type"] == "Ready" else each
        for each in found["status"]["conditions"]
    ]
    await bench.person.patch(NODES, "", node, {"status": {"conditions": conditions}}, subresource="status")


async def _replaced(bench: Bench, namespace: str, node: str, go: Any) -> None:
    before = time.time()
    await go()

    async def asked() -> bool:
        return 3 in bench.recorder.asked(namespace, ENGINE, before)

    await bench.until(asked, f"{namespace}: a replica in place of the one on {node}")
    at = next(at for at, count in bench.recorder.replicas[namespace, ENGINE] if at > before and count == 3)
    assert at - before < 4.0, f"the replacement was asked for after {at - before:.1f} s, ticks are 1 s"

    async def named() -> bool:
        events = await bench.person.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
        return any(node in event.get("note", "") for event in (events or {})["items"] if "Model" in str(event))

    await bench.until(named, f"{namespace}: an event of the Model names {node}")


async def test_an_slo_or_gpu_type_that_is_deleted_while_in_use(bench: Bench) -> None:
    """The fleet serves and scales on by the last one seen, says so, and forgets it when the object is back."""
    bench.prometheus.load("no-slo", LOW)
    bench.prometheus.load("no-type", LOW)
    await create_fleet(bench.person, "no-slo")
    mine = {
        "apiVersion": "goodput.dev/v1alpha1",
        "kind": "GPUType",
        "metadata": {"name": "our-l40s"},
        "spec": {
            "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L40S"},
            "memory": "44Gi",
            "memoryBandwidth": "864G",
            "flops": {"bf16": "362T", "fp8": "733T"},
            "pricePerHour": "1.00",
        },
    }
    await bench.person.create(mine)
    await create_fleet(bench.person, "no-type", gpuTypes=["our-l40s"])
    operator = await bench.operators.start("deleted", "no-slo", "no-type", prometheus_url=bench.prometheus.url())
    await bench.settled("no-slo", "no-type", replicas=1)
    pods = {pod.uid for name in ("no-slo", "no-type") for pod in bench.recorder.present(name)}

    await bench.person.delete(SLOS, "no-slo", "chat")
    await bench.person.delete(GPU_TYPES, "", "our-l40s")
    await bench.says("no-slo", "Stalled", "True", "SLODeleted", words="chat")
    await bench.says("no-type", "Placed", "True", "GPUTypeNotFound", words="our-l40s")
    for namespace in ("no-slo", "no-type"):
        bench.prometheus.load(namespace, HIGH)
    for namespace in ("no-slo", "no-type"):

        async def grown(namespace: str = namespace) -> bool:
            return len(bench.recorder.ready(namespace)) >= 2

        await bench.until(grown, f"{namespace}: scales on by what it saw last")
        await bench.says(namespace, "Ready", "True", "Serving")
    # A restarted operator never saw either: the Models still serve, and none of their pods goes.
    await operator.stop()
    operator = await bench.operators.start("deleted-2", "no-slo", "no-type", prometheus_url=bench.prometheus.url())
    await bench.says("no-slo", "Stalled", "True", "SLODeleted", words="chat")
    assert pods <= {pod.uid for name in ("no-slo", "no-type") for pod in bench.recorder.ready(name)}
    await bench.person.create(slo(), "no-slo")
    await bench.person.create(mine)
    await bench.says("no-slo", "Stalled", "False", "NotStalled")
    await bench.says("no-type", "Placed", "True", "Placed")
    assert pods <= {pod.uid for name in ("no-slo", "no-type") for pod in bench.recorder.ready(name)}
    log = operator.log_text()
    assert "podmonitors" not in log.replace("podmonitors=0", ""), "a CRD that is not installed is a problem"
    assert "Traceback" not in log, operator.log_tail(60)
    await operator.stop()
    await bench.person.delete(GPU_TYPES, "", "our-l40s")


async def test_nothing_is_left_on_users_objects_and_no_deletion_hangs(bench: Bench) -> None:
    """No finalizer, no annotation, no write to a spec; a Model, its operator and its namespace go without waiting."""
    first, second = "mine", "mine-too"
    for namespace in (first, second):
        bench.prometheus.load(namespace, LOW)
        await create_fleet(bench.person, namespace)
    operator = await bench.operators.start("mine", first, second, prometheus_url=bench.prometheus.url())
    await bench.settled(first, second, replicas=1)
    bench.prometheus.load(first, HIGH)
    await bench.settled(first, replicas=3)
    for resource, name in ((MODELS, MODEL), (SLOS, "chat")):
        found = await bench.person.get(resource.path(first, name))
        assert found is not None
        _untouched(found, model()["spec"] if resource is MODELS else slo()["spec"])
    for path in (NAMESPACES.path(None, first), NODES.path(None, "l40s-0")):
        found = await bench.person.get(path)
        assert found is not None
        managers = {field["manager"] for field in found["metadata"].get("managedFields", ())}
        assert FIELD_MANAGER not in managers, f"Goodput wrote {path}"

    # The Model, in the foreground: it waits for its children, and nothing may bring them back.
    begun = time.monotonic()
    await bench.person.delete(MODELS, first, MODEL, propagation="Foreground")

    async def gone() -> bool:
        left = [item["kind"] for item in bench.recorder.objects(first)]
        return left == ["SLO"] and not bench.recorder.present(first)

    await bench.until(gone, "the Model and all that it owned are gone")
    model_seconds = time.monotonic() - begun
    # At once again under the same name: a new fleet, owned by the new Model.
    await bench.person.create(model(), first)
    await bench.settled(first, replicas=1)

    # The operator, and then everything else without one.
    operator.kill()
    begun = time.monotonic()
    await bench.person.delete(MODELS, second, MODEL)
    await bench.person.delete(NAMESPACES, "", first)

    async def all_gone() -> bool:
        left = [item["kind"] for item in bench.recorder.objects(second)]
        return left == ["SLO"] and await bench.person.get(NAMESPACES.path(None, first)) is None

    await bench.until(all_gone, "without an operator, a Model and a namespace are gone")
    print(f"deleted: a Model in {model_seconds:.1f} s, a namespace in {time.monotonic() - begun:.1f} s")


def _untouched(found: dict[str, Any], spec: dict[str, Any]) -> None:
    metadata, name = found["metadata"], f"{found['kind']} {found['metadata']['name']}"
    assert "finalizers" not in metadata, f"{name} has finalizers {metadata['finalizers']}"
    assert "annotations" not in metadata, f"{name} has annotations {metadata['annotations']}"
    assert "labels" not in metadata, f"{name} has labels {metadata['labels']}"
    assert "ownerReferences" not in metadata, f"{name} is owned"
    assert metadata["generation"] == 1, f"the spec of {name} was written"
    assert spec.items() <= found["spec"].items(), f"the spec of {name} is {found['spec']}"
    for field in metadata["managedFields"]:
        if field["manager"] != MANAGER:
            assert (field["manager"], field.get("subresource")) == (FIELD_MANAGER, "status"), f"{name}: {field}"
            assert set(field["fieldsV1"]) == {"f:status"}, f"{name}: {field}"
