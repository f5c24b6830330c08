"""Objects of the scale benchmark: Models, nodes, and pods that are Running and Ready without a kubelet.

There is no controller-manager and no scheduler: on the few cores of a test machine they would take many minutes for
20,000 pods, and compete with what is measured. The seeder makes the pods of each Deployment that the operator wrote, on
the nodes in turn, and reports the Deployments as their controller would. One pod of each kind goes through the API; the
others are put into etcd (scale_etcd.py) with the same metadata, defaults and managed fields.
"""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scale_etcd import put_all, stored

from goodput_world.agent.config import NodeConfig
from goodput_world.agent.kubeapi import STRATEGIC_PATCH, Api, ApiError
from goodput_world.agent.nodeobject import node_body, node_conditions
from goodput_world.agent.seeder import bare_pods, in_batches
from goodput_world.agent.status import timestamp
from goodput_world.agent.virtual import ready_status
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
    etcd: str
    size: Size
    pod_cidr: str
    progress: Progress

    async def before_operator(self) -> None:
        """Nodes, Models, and the pods of somebody else."""
        api, size = self.api, self.size
        for namespace in (*size.namespaces, FOREIGN_NAMESPACE):
            await create(api, "/api/v1/namespaces", {"metadata": {"name": namespace}})
            # The controller-manager would make it; pods that name no other need it.
            account = {"metadata": {"name": "default"}}
            await create(api, f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
        self.progress(f"{await self.put(self._nodes())} nodes")
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
        foreign = bare_pods(FOREIGN_NAMESPACE, size.foreign_pods, nodes_of(size))
        self.progress(f"{await self.put(await self._ready(foreign))} foreign pods, Running and Ready")

    async def put(self, items: Iterable[Mapping[str, Any]]) -> int:
        """Store objects as if they had been created now."""
        created = timestamp()
        return await put_all(self.etcd, (stored(item, created=created) for item in items))

    def _nodes(self) -> Iterator[Object]:
        for number, node in enumerate(nodes_of(self.size)):
            body = node_body(node, self._address(number))
            body["status"]["conditions"] = node_conditions(timestamp())
            yield body

    def _address(self, number: int) -> str:
        network = ipaddress.ip_network(self.pod_cidr)
        return str(network.network_address + 1 + number % (network.num_addresses - 2))

    async def _ready(self, pods: list[Object]) -> Iterator[Object]:
        """These pods, Running and Ready. The first is created through the API, as the example for the others."""
        first, *others = pods
        path = f"/api/v1/namespaces/{first['metadata']['namespace']}/pods"
        await self.api.post(path, first)
        path = f"{path}/{first['metadata']['name']}"
        status = ready_status(first, host_ip=self._address(0), pod_ip=self._address(1))
        await self.api.patch(f"{path}/status", {"status": status}, STRATEGIC_PATCH)
        example = await self.api.get(path)
        return itertools.chain([example], (self._like(example, pod, number) for number, pod in enumerate(others, 2)))

    def _like(self, example: Object, pod: Object, number: int) -> Object:
        """A pod with the defaults of an example, its managed fields, and a status of its own."""
        return {
            **pod,
            "metadata": {**pod["metadata"], "managedFields": example["metadata"]["managedFields"]},
            "spec": {**example["spec"], **pod["spec"]},
            "status": ready_status(pod, host_ip=self._address(0), pod_ip=self._address(number)),
        }

    async def deployments(self) -> list[Object]:
        """Deployments that the operator wrote."""
        found = await self.api.get("/apis/apps/v1/deployments", params={"labelSelector": MANAGED})
        items: list[Object] = found["items"]
        return items

    async def after_operator(self) -> list[tuple[str, str, list[str], list[str]]]:
        """Pods of all Deployments, Ready; for Prometheus: namespace, Model, engine and router pods of each."""
        deployments = await self.deployments()
        seats = itertools.cycle(nodes_of(self.size))
        pods = [pod for deployment in deployments for pod in pods_of(deployment, seats)]
        for pool in ("serve", "router"):
            of_pool = [pod for pod in pods if pod["metadata"]["labels"]["goodput.dev/pool"] == pool]
            self.progress(f"{await self.put(await self._ready(of_pool))} {pool} pods of ours, Running and Ready")
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
