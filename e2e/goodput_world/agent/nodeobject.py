"""The Node and Lease objects of a simulated node. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from goodput_world.agent.config import NodeConfig
from goodput_world.agent.status import timestamp

KUBELET_VERSION = "v1.36.3"


def node_body(config: NodeConfig, ip: str) -> dict[str, Any]:
    """The Node object with labels, capacity and addresses; conditions come by `node_conditions`."""
    capacity = {
        "cpu": config.cpu,
        "memory": config.memory,
        "ephemeral-storage": config.ephemeral_storage,
        "pods": str(config.pods),
    }
    if config.gpus:
        capacity[config.gpu_resource] = str(config.gpus)
    labels = {
        "kubernetes.io/hostname": config.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        **config.labels,
    }
    spec: dict[str, Any] = {}
    if config.taints:
        spec["taints"] = [dict(taint) for taint in config.taints]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": config.name, "labels": labels},
        "spec": spec,
        "status": {
            "capacity": capacity,
            "allocatable": dict(capacity),
            "addresses": [
                {"type": "InternalIP", "address": ip},
                {"type": "Hostname", "address": config.name},
            ],
            "nodeInfo": {
                "kubeletVersion": KUBELET_VERSION,
                "kubeProxyVersion": "",
                "containerRuntimeVersion": "sim://1",
                "operatingSystem": "linux",
                "architecture": "amd64",
                "osImage": "simulated",
                "kernelVersion": "simulated",
                "machineID": config.name,
                "systemUUID": config.name,
                "bootID": config.name,
            },
        },
    }


def node_conditions(since: str) -> list[dict[str, Any]]:
    """The conditions of a healthy node, in transition since a timestamp."""
    now = timestamp()
    healthy = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID"),
        ("Ready", "True", "KubeletReady"),
    ]
    return [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": "simulated node",
            "lastHeartbeatTime": now,
            "lastTransitionTime": since,
        }
        for kind, status, reason in healthy
    ]


def lease_body(name: str, duration_seconds: float) -> dict[str, Any]:
    """The Lease of a node, renewed now."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": int(duration_seconds), "renewTime": now},
    }
