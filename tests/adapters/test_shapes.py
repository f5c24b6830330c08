"""Lists and watches of pods and nodes are decoded in part: a record is the same as from the whole object."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from goodput.adapters.kinds import DEPLOYMENTS, NODES, PODS
from goodput.adapters.records import node_record, pod_record
from goodput.adapters.shapes import decoded_event, decoded_page

METADATA: dict[str, Any] = {
    "name": "p",
    "namespace": "a",
    "uid": "u",
    "resourceVersion": "7",
    "generation": 3,
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "deletionTimestamp": "2026-01-01T00:02:00Z",
    "labels": {"goodput.dev/model": "m", "goodput.dev/pool": "serve", "goodput.dev/revision": "r1"},
    "annotations": {"controller.kubernetes.io/pod-deletion-cost": "5"},
    "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
}
POD: dict[str, Any] = {
    "metadata": METADATA,
    "spec": {
        "nodeName": "n1",
        "containers": [{"name": "vllm", "resources": {"requests": {"nvidia.com/gpu": "2", "cpu": "1"}}}, {"name": "x"}],
        "volumes": [{"name": "v", "emptyDir": {}}],
    },
    "status": {
        "phase": "Running",
        "startTime": "2026-01-01T00:00:01Z",
        "conditions": [
            {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:01:00Z", "lastProbeTime": None},
            {"type": "ContainersReady", "status": "False", "lastTransitionTime": None},
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"},
        ],
        "containerStatuses": [
            {
                "name": "vllm",
                "restartCount": 4,
                "started": True,
                "ready": False,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "why"}},
                "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}},
            }
        ],
    },
}
ALIVE = {**POD, "metadata": {key: value for key, value in METADATA.items() if key != "deletionTimestamp"}}
FAILED = {**ALIVE, "status": {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}}
NODE: dict[str, Any] = {
    "metadata": {"name": "n1", "resourceVersion": "9", "labels": {"nvidia.com/gpu.product": "NVIDIA-L40S"}},
    "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "x"}]},
    "status": {
        "allocatable": {"nvidia.com/gpu": "8", "cpu": "128"},
        "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}],
    },
}


@pytest.mark.parametrize(
    "manifest", [POD, ALIVE, FAILED, {"metadata": METADATA}], ids=["going", "bad", "failed", "bare"]
)
def test_a_pod_reads_the_same(manifest: dict[str, Any]) -> None:
    """Whatever a record reads of a pod is decoded, in a list and in a watch; the rest is skipped."""
    page = decoded_page(
        PODS, orjson.dumps({"metadata": {"resourceVersion": "9", "continue": "c"}, "items": [manifest]})
    )
    assert (page["metadata"]["resourceVersion"], page["metadata"]["continue"]) == ("9", "c")
    assert pod_record(page["items"][0]) == pod_record(manifest)
    assert "managedFields" not in page["items"][0]["metadata"]
    event = decoded_event(PODS, orjson.dumps({"type": "MODIFIED", "object": manifest}))
    assert (event["type"], pod_record(event["object"])) == ("MODIFIED", pod_record(manifest))


def test_a_node_reads_the_same() -> None:
    """Labels, accelerators, readiness and cordon of a node are decoded."""
    page = decoded_page(NODES, orjson.dumps({"metadata": {"resourceVersion": "9"}, "items": [NODE]}))
    assert node_record(page["items"][0]) == node_record(NODE)


def test_errors_and_bookmarks_are_read_whole() -> None:
    """What is no object of the kind comes through as it stands."""
    error = {"type": "ERROR", "object": {"kind": "Status", "status": "Failure", "code": 410, "message": "too old"}}
    assert decoded_event(PODS, orjson.dumps(error)) == error
    bookmark = {
        "type": "BOOKMARK",
        "object": {"kind": "Pod", "metadata": {"resourceVersion": "12", "creationTimestamp": None}},
    }
    assert decoded_event(PODS, orjson.dumps(bookmark)) == bookmark


def test_what_has_another_form_is_read_whole() -> None:
    """An object of an unexpected form, and a kind without a form, are decoded like any JSON."""
    odd = {"metadata": {}, "items": [{"metadata": METADATA, "spec": {"nodeName": 5}}]}
    assert decoded_page(PODS, orjson.dumps(odd)) == odd
    assert decoded_page(DEPLOYMENTS, orjson.dumps(odd)) == odd
    with pytest.raises(orjson.JSONDecodeError):
        decoded_page(PODS, b"<html>")
