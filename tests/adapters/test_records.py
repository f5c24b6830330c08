"""Slim records of pods, nodes and Deployments: what decisions read from them."""

from __future__ import annotations

from typing import Any

import pytest

from goodput.adapters.records import (
    ForeignPod,
    OwnPod,
    deployment_record,
    job_record,
    node_record,
    owned_object,
    pod_record,
    scaler_record,
)
from goodput.domain.identity import Key
from goodput.domain.observed import PodState

OURS = {"goodput.dev/model": "m", "goodput.dev/pool": "serve", "goodput.dev/revision": "r1"}
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"}
NOT_READY = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}


def pod(labels: dict[str, str] | None = None, gpus: int = 1, node: str = "n1", **status: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": "p",
        "namespace": "a",
        "uid": "u",
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": labels or {},
    }
    if status.pop("deleting", False):
        metadata["deletionTimestamp"] = "2026-01-01T00:02:00Z"
    requests = {"cpu": "1", "nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "1"}
    return {
        "metadata": metadata,
        "spec": {"nodeName": node, "containers": [{"resources": {"requests": requests}}]},
        "status": status,
    }


def waiting(reason: str) -> list[dict[str, Any]]:
    return [{"name": "vllm", "restartCount": 2, "state": {"waiting": {"reason": reason, "message": "why"}}}]


@pytest.mark.parametrize(
    ("manifest", "state", "trouble"),
    [
        pytest.param(pod(OURS, node="", conditions=[UNSCHEDULABLE]), PodState.PENDING, "Unschedulable", id="no room"),
        pytest.param(pod(OURS, conditions=[NOT_READY]), PodState.STARTING, "", id="loading"),
        pytest.param(pod(OURS, conditions=[READY]), PodState.READY, "", id="ready"),
        pytest.param(pod(OURS, deleting=True, conditions=[READY]), PodState.TERMINATING, "", id="draining"),
        pytest.param(
            pod(OURS, conditions=[NOT_READY], containerStatuses=waiting("CrashLoopBackOff")),
            PodState.FAILED,
            "CrashLoopBackOff",
            id="crash loop",
        ),
        pytest.param(
            pod(OURS, conditions=[NOT_READY], containerStatuses=waiting("ContainerCreating")),
            PodState.STARTING,
            "",
            id="being created is no failure",
        ),
        pytest.param(pod(OURS, phase="Failed", reason="Evicted", conditions=[READY]), None, "Evicted", id="evicted"),
        pytest.param(pod(OURS, phase="Succeeded"), None, "Succeeded", id="shut down in good order"),
        pytest.param(
            pod(OURS, phase="Failed", reason="NodeShutdown", deleting=True), None, "NodeShutdown", id="being collected"
        ),
        pytest.param(
            pod(
                OURS,
                startTime="2026-01-01T00:00:00Z",
                conditions=[
                    {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:05:00Z"},
                    {"type": "ContainersReady", "status": "False"},
                ],
                containerStatuses=[{"name": "vllm", "started": True, "restartCount": 0, "state": {"running": {}}}],
            ),
            PodState.UNREADY,
            "",
            id="was ready, is not now",
        ),
        pytest.param(
            pod(
                OURS,
                conditions=[NOT_READY],
                containerStatuses=[
                    {
                        "name": "vllm",
                        "restartCount": 1,
                        "state": {"running": {}},
                        "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}},
                    }
                ],
            ),
            PodState.STARTING,
            "OOMKilled",
            id="restarted after running out of memory",
        ),
    ],
)
def test_states_of_our_pods(manifest: dict[str, Any], state: PodState | None, trouble: str) -> None:
    """Each stage between created and gone is told apart, with the kubelet's or scheduler's reason."""
    record = pod_record(manifest)
    assert isinstance(record, OwnPod)
    assert (record.state, record.trouble) == (state, trouble)
    assert record.gpus == (() if state is None else (("nvidia.com/gpu", 1),))


def test_ready_since() -> None:
    """A ready pod says since when; another has no such time."""
    ready, starting = pod_record(pod(OURS, conditions=[READY])), pod_record(pod(OURS, conditions=[NOT_READY]))
    assert isinstance(ready, OwnPod)
    assert isinstance(starting, OwnPod)
    assert ready.ready_at is not None
    assert ready.ready_at - ready.created_at == 60.0
    assert starting.ready_at is None


def test_foreign_pods_are_kept_for_their_gpus_only() -> None:
    """A foreign pod with GPUs is a few words; one without, or one that has ended, is nothing."""
    assert pod_record(pod(gpus=2)) == ForeignPod(7, "n1", (("nvidia.com/gpu", 2),))
    assert pod_record(pod(gpus=0)) is None
    assert pod_record(pod(gpus=2, phase="Succeeded")) is None
    assert pod_record(pod(gpus=2, phase="Failed", reason="UnexpectedAdmissionError")) is None
    assert pod_record(pod(gpus=2, phase="Running", deleting=True)) is not None


def test_nodes() -> None:
    """A node counts its accelerators, whether it is ready or cordoned, and which other taints keep pods away."""
    record = node_record(
        {
            "metadata": {"name": "n", "resourceVersion": "1", "labels": {"a": "b"}},
            "spec": {
                "unschedulable": True,
                "taints": [
                    {"key": "team", "value": "other", "effect": "NoExecute"},
                    {"key": "a", "effect": "NoSchedule"},
                    {"key": "soft", "effect": "PreferNoSchedule"},
                    {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
                ],
            },
            "status": {
                "allocatable": {"cpu": "8", "nvidia.com/gpu": "8", "hugepages-2Mi": "0", "example.com/nic": "x"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
    )
    assert record is not None
    assert dict(record.gpus) == {"nvidia.com/gpu": 8, "example.com/nic": 0}
    assert record.ready
    assert record.cordoned
    assert [str(taint) for taint in record.taints] == ["a:NoSchedule", "team=other:NoExecute"]


def deployment(**metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "m-serve",
            "namespace": "a",
            "uid": "d",
            "resourceVersion": "5",
            "generation": 3,
            "labels": {"goodput.dev/model": "m", "goodput.dev/pool": "serve"},
            "ownerReferences": [{"kind": "Model", "uid": "u", "controller": True}],
            **metadata,
        },
        "spec": {"replicas": 4, "template": {"metadata": {"labels": OURS}}},
        "status": {"observedGeneration": 3, "replicas": 4, "updatedReplicas": 4, "readyReplicas": 3},
    }


def test_deployments() -> None:
    """Replicas, revision, owner and roll-out are read; content ignores what changes without intent."""
    record = deployment_record(deployment())
    assert (record.replicas, record.ready_replicas, record.revision, record.owner_uid) == (4, 3, "r1", "u")
    assert not record.rolling_out
    later = deployment(resourceVersion="6", managedFields=[{"manager": "kcm"}])
    later["status"]["updatedReplicas"] = 2
    assert deployment_record(later).rolling_out
    assert deployment_record(later).content == record.content
    assert record.manifest()["spec"]["replicas"] == 4


@pytest.mark.parametrize(
    ("container", "want"),
    [
        ({"name": "vllm", "args": ["m", "--served-model-name", "chat", "--host", "0.0.0.0"]}, "chat"),
        ({"name": "vllm", "args": ["--served-model-name", "a", "--served-model-name", "b"]}, "b"),
        ({"name": "vllm", "args": ["--served-model-name"]}, ""),
        ({"name": "vllm"}, ""),
        ({"name": "router", "args": ["--served-model-name", "chat"]}, ""),
    ],
)
def test_the_name_that_engines_serve_under(container: dict[str, Any], want: str) -> None:
    """As the engine reads its arguments; no other container has it."""
    manifest = deployment()
    manifest["spec"]["template"]["spec"] = {"containers": [{"name": "sidecar"}, container]}
    assert deployment_record(manifest).served_name == want
    assert deployment_record(deployment()).served_name == ""


def manager(name: str, operation: str, time: str) -> dict[str, Any]:
    return {"manager": name, "operation": operation, "time": time, "fieldsV1": {"f:spec": {"f:replicas": {}}}}


def test_who_else_owns_replicas() -> None:
    """Our own ownership is none; of others the latest is named, with how it writes."""
    ours = manager("goodput-operator", "Apply", "2026-01-01T00:00:00Z")
    assert deployment_record(deployment(managedFields=[ours])).foreign_scaler is None
    kubectl = manager("kubectl", "Update", "2026-01-01T00:01:00Z")
    flux = manager("flux", "Apply", "2026-01-01T00:02:00Z")
    foreign = deployment_record(deployment(managedFields=[flux, kubectl, ours])).foreign_scaler
    assert foreign is not None
    assert (foreign.manager, foreign.applies) == ("flux", True)


def test_autoscalers_name_their_deployment() -> None:
    """A ScaledObject without a kind means a Deployment; a scaler of something else is nothing."""
    metadata = {"name": "s", "namespace": "a", "resourceVersion": "1"}
    found = scaler_record({"metadata": metadata, "spec": {"scaleTargetRef": {"name": "m-serve"}}}, "ScaledObject")
    assert found is not None
    assert (found.kind, found.target) == ("ScaledObject", Key("a", "m-serve"))
    other = {"metadata": metadata, "spec": {"scaleTargetRef": {"kind": "StatefulSet", "name": "m-serve"}}}
    assert scaler_record(other, "HorizontalPodAutoscaler") is None


def test_other_objects_keep_their_content() -> None:
    """Status and versions are left out, the rest comes back as it was."""
    manifest = {
        "metadata": {"name": "x", "namespace": "a", "uid": "1", "resourceVersion": "2", "labels": {}},
        "spec": {"a": [1, 2]},
        "status": {"b": 1},
    }
    record = owned_object(manifest, "Service")
    assert record.manifest() == {
        "metadata": {"name": "x", "namespace": "a", "uid": "1", "labels": {}},
        "spec": {"a": [1, 2]},
    }


@pytest.mark.parametrize(
    ("conditions", "ended", "succeeded", "message"),
    [
        ([], False, False, ""),
        ([{"type": "Suspended", "status": "True"}], False, False, ""),
        ([{"type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded"}], False, False, ""),
        ([{"type": "Complete", "status": "False"}], False, False, ""),
        ([{"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"}], True, True, ""),
        (
            [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long"}],
            True,
            False,
            "DeadlineExceeded: too long",
        ),
        ([{"type": "Failed", "status": "True"}], True, False, "it failed"),
    ],
)
def test_how_a_job_ended(conditions: list[dict[str, str]], ended: bool, succeeded: bool, message: str) -> None:
    """By its own last word: pods of it still end before that."""
    metadata = {"name": "m-check-1", "namespace": "a", "uid": "1", "resourceVersion": "2", "labels": {}}
    annotated = {**metadata, "annotations": {"goodput.dev/change": "c1"}}
    record = job_record({"metadata": annotated, "spec": {}, "status": {"conditions": conditions, "failed": 1}})
    assert (record.ended, record.succeeded, record.message) == (ended, succeeded, message)
    assert record.change == "c1"
    assert job_record({"metadata": metadata, "spec": {}}).change == ""
