"""Objects of the scale benchmark: Models, nodes, and pods that are Running and Ready without a kubelet.

There is no controller-manager and no scheduler: on the few cores of a test machine they would take many minutes for
20,000 pods, and compete with what is measured. The seeder makes the pods of each Deployment that the operator wrote, on
nodes with free GPUs, and reports the Deployments as their controller would.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from goodput_world.agent.config import NodeConfig
from goodput_world.agent.kubeapi import STRATEGIC_PATCH, Api, ApiError
from goodput_world.agent.seeder import Seeder, bare_pods, in_batches
from goodput_world.agent.status import timestamp
from goodput_world.nodes import gpu_node

GROUP = "goodput.dev/v1alpha1"
MANAGED = "app.kubernetes.io/managed-by=goodput"
FOREIGN_NAMESPACE = "somebody-else"
MODELS_PER_NAMESPACE = 50
GPUS_PER_NODE = 8
GPU_TYPE = "l40s"
Object = dict[str, Any]
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Size:
    """How large the fleet is. `engines` are of each Model; routers come on top."""

    models: int
    engines: int
    foreign_pods: int
    nodes: int

    @classmethod
    def of(cls, models: int, engines: int) -> Size:
        """As many foreign pods as engines, and just the nodes that those fill: 1,250 for 1,000 Models of 10."""
        pods = models * engines
        return cls(models, engines, pods, -(-pods // GPUS_PER_NODE))

    @property
    def namespaces(self) -> list[str]:
        """Where the Models are."""
        return [f"team-{number}" for number in range(-(-self.models // MODELS_PER_NAMESPACE))]


def nodes_of(size: Size) -> list[NodeConfig]:
    """Nodes with GPUs, all full once every engine runs."""
    return [gpu_node(f"gpu-{number}", GPU_TYPE, GPUS_PER_NODE) for number in range(size.nodes)]


def models_of(size: Size) -> Iterator[Object]:
    """The smallest Model of the documentation, each under a name of its own, with a floor of engines."""
    for number in range(size.models):
        name = f"model-{number}"
        yield {
            "apiVersion": GROUP,
            "kind": "Model",
            "metadata": {"name": name, "namespace": size.namespaces[number // MODELS_PER_NAMESPACE]},
            "spec": {
                "model": "meta-llama/Llama-3.1-8B-Instruct",
                "servedName": name,
                "slo": {"name": "chat"},
                "scaling": {"minReplicas": size.engines},
            },
        }


async def create(api: Api, path: str, body: Mapping[str, Any]) -> None:
    """Create an object; one that exists is left alone."""
    try:
        await api.post(path, body)
    except ApiError as error:
        if error.status != 409:
            raise


@dataclass(frozen=True, slots=True)
class Fleet:
    """Seeds one cluster of a size."""

    api: Api
    size: Size
    pod_cidr: str
    progress: Progress

    async def before_operator(self) -> None:
        """Nodes, Models, and the pods of somebody else."""
        api, size = self.api, self.size
        nodes = nodes_of(size)
        seeder = Seeder(api, nodes, self.pod_cidr)
        for namespace in (*size.namespaces, FOREIGN_NAMESPACE):
            await create(api, "/api/v1/namespaces", {"metadata": {"name": namespace}})
            # The controller-manager would make it; pods that name no other need it.
            account = {"metadata": {"name": "default"}}
            await create(api, f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
        self.progress(f"{await seeder.create_nodes()} nodes")
        # All GPUs are taken by the engines; node autoscalers may bring a tenth more, for the load step.
        limit = size.nodes * GPUS_PER_NODE * 11 // 10
        gpu_type = {"apiVersion": GROUP, "kind": "GPUType", "metadata": {"name": GPU_TYPE}, "spec": {"limit": limit}}
        await create(api, f"/apis/{GROUP}/gputypes", gpu_type)
        for namespace in size.namespaces:
            slo = {"apiVersion": GROUP, "kind": "SLO", "metadata": {"name": "chat"}}
            slo["spec"] = {"ttft": "500ms", "tpot": "50ms", "attainment": "95%"}
            await create(api, f"/apis/{GROUP}/namespaces/{namespace}/slos", slo)
        made = await in_batches(
            models_of(size),
            lambda model: create(api, f"/apis/{GROUP}/namespaces/{model['metadata']['namespace']}/models", model),
        )
        self.progress(f"{made} Models")
        foreign = bare_pods(FOREIGN_NAMESPACE, size.foreign_pods, nodes)
        self.progress(f"{await seeder.create_pods(foreign)} foreign pods")
        self.progress(f"{await seeder.mark_ready('app=seeded')} foreign pods Ready")

    async def deployments(self) -> list[Object]:
        """Deployments that the operator wrote."""
        found = await self.api.get("/apis/apps/v1/deployments", params={"labelSelector": MANAGED})
        items: list[Object] = found["items"]
        return items

    async def after_operator(self) -> list[tuple[str, str, list[str], list[str]]]:
        """Pods of all Deployments, Ready; for Prometheus: namespace, Model, engine and router pods of each."""
        deployments = await self.deployments()
        nodes = nodes_of(self.size)
        seats = itertools.cycle(nodes)
        pods = [pod for deployment in deployments for pod in pods_of(deployment, seats)]
        seeder = Seeder(self.api, nodes, self.pod_cidr)
        self.progress(f"{await seeder.create_pods(pods)} pods of our own")
        self.progress(f"{await seeder.mark_ready(MANAGED)} pods of our own Ready")
        self.progress(f"{await in_batches(deployments, self.report)} Deployments available")
        fleet: dict[tuple[str, str], dict[str, list[str]]] = {}
        for pod in pods:
            metadata = pod["metadata"]
            labels = metadata["labels"]
            pools = fleet.setdefault((metadata["namespace"], labels["goodput.dev/model"]), {})
            pools.setdefault(labels["goodput.dev/pool"], []).append(metadata["name"])
        return [(*key, pools.get("serve", []), pools.get("router", [])) for key, pools in sorted(fleet.items())]

    async def report(self, deployment: Mapping[str, Any]) -> None:
        """The status of a Deployment whose pods are all there."""
        metadata, count = deployment["metadata"], deployment["spec"]["replicas"]
        now = timestamp()
        conditions = [
            {"type": name, "status": "True", "reason": reason, "lastUpdateTime": now, "lastTransitionTime": now}
            for name, reason in (("Available", "MinimumReplicasAvailable"), ("Progressing", "NewReplicaSetAvailable"))
        ]
        status = {
            "observedGeneration": metadata["generation"],
            **dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), count),
            "conditions": conditions,
        }
        path = f"/apis/apps/v1/namespaces/{metadata['namespace']}/deployments/{metadata['name']}/status"
        await self.api.patch(path, {"status": status}, STRATEGIC_PATCH)


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
