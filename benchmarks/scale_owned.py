"""What the operator would have written for each Model, and the pods that run because of it.

The objects are rendered by the product's own offline renderer. Those of one Model go through the API by server-side
apply, and give the managed fields of all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from goodput.adapters.kinds import OWNED, resource_of
from goodput.cli.render import rendered
from goodput.domain.identity import FIELD_MANAGER
from goodput.runtime.settings import Settings
from goodput_world.agent.config import NodeConfig
from goodput_world.agent.kubeapi import Api
from goodput_world.agent.status import timestamp

Object = dict[str, Any]
_ETCD_FOLDERS = {"services": "services/specs"}
_BY_KIND = {resource.kind: resource for resource in OWNED}


def etcd_key(item: Mapping[str, Any]) -> str:
    """Where the API server keeps an object that a Model owns."""
    plural = _BY_KIND[item["kind"]].plural
    metadata = item["metadata"]
    return f"/registry/{_ETCD_FOLDERS.get(plural, plural)}/{metadata['namespace']}/{metadata['name']}"


def objects_of(models: list[Object], others: list[Object], gpu_type: str) -> list[Object]:
    """All objects of these Models (as the API server has them); `others` are the SLOs and GPUTypes that they name."""
    placed = [{**model, "kind": "Model", "spec": {**model["spec"], "gpuTypes": [gpu_type]}} for model in models]
    found: list[Object] = rendered([*others, *placed], "default", Settings(prometheus_url="http://prometheus"), None)
    uids = {(model["metadata"]["namespace"], model["metadata"]["name"]): model["metadata"]["uid"] for model in models}
    for item in found:
        metadata = item["metadata"]
        # Offline there is no Model with a uid.
        for owner in metadata["ownerReferences"]:
            owner["uid"] = uids[metadata["namespace"], owner["name"]]
        if item["kind"] == "Deployment":
            item["status"] = available(item["spec"]["replicas"])
    return found


def available(replicas: int) -> Object:
    """The status of a Deployment whose pods are all there."""
    now = timestamp()
    conditions = [
        {"type": name, "status": "True", "reason": reason, "lastUpdateTime": now, "lastTransitionTime": now}
        for name, reason in (("Available", "MinimumReplicasAvailable"), ("Progressing", "NewReplicaSetAvailable"))
    ]
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), replicas)
    return {"observedGeneration": 1, **counts, "conditions": conditions}


async def managed_fields(api: Api, items: list[Object], name: str) -> dict[tuple[str, str], str]:
    """Apply the objects of the Model `name`: (kind, name less the Model's) -> its managed fields as JSON."""
    found = {}
    for item in items:
        resource = resource_of(item)
        path = resource.path(item["metadata"]["namespace"], item["metadata"]["name"])
        body = {key: value for key, value in item.items() if key != "status"}
        applied = await api.request(
            "PATCH",
            path,
            body,
            content_type="application/apply-patch+yaml",
            params={"fieldManager": FIELD_MANAGER, "force": "true"},
        )
        suffix = item["metadata"]["name"].removeprefix(name)
        found[item["kind"], suffix] = orjson.dumps(applied["metadata"]["managedFields"]).decode()
    return found


def pods_of(deployment: Mapping[str, Any], seats: Iterator[NodeConfig]) -> Iterator[Object]:
    """The pods of a Deployment as its ReplicaSet would make them, bound to the next nodes."""
    metadata = deployment["metadata"]
    template = deployment["spec"]["template"]
    for number in range(deployment["spec"]["replicas"]):
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **template["metadata"],
                "namespace": metadata["namespace"],
                "name": f"{metadata['name']}-5d8f9c7b6-{number:05d}",
            },
            "spec": {**template["spec"], "nodeName": next(seats).name},
        }
