"""Objects of the scale benchmark: Models, nodes, and pods that are Running and Ready without a kubelet.

There is no controller-manager and no scheduler: on the few cores of a test machine they would take many minutes for
20,000 pods, and compete with what is measured. Models, SLOs and one object of each other kind go through the API; the
rest is put into etcd (scale_etcd.py) with the same metadata, defaults and managed fields.
"""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import scale_owned
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
# Namespace, Model, engine pods, router pods.
Scraped = tuple[str, str, list[str], list[str]]


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
    progress: Callable[[str], None]

    async def seed(self) -> list[Scraped]:
        """Everything; what there is to scrape."""
        for namespace in (*self.size.namespaces, FOREIGN_NAMESPACE):
            await create(self.api, "/api/v1/namespaces", {"metadata": {"name": namespace}})
            # The controller-manager would make it; pods that name no other need it.
            account = {"metadata": {"name": "default"}}
            await create(self.api, f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
        nodes = await self._put((f"/registry/minions/{node['metadata']['name']}", node) for node in self._nodes())
        self.progress(f"{nodes} nodes")
        others = await self._slos_and_types()
        models = await self._models()
        foreign = bare_pods(FOREIGN_NAMESPACE, self.size.foreign_pods, nodes_of(self.size))
        self.progress(f"{await self._put_pods(foreign)} foreign pods, Running and Ready")
        deployments = await self._owned(models, others)
        return await self._own_pods(deployments)

    async def deployments(self) -> list[Object]:
        """Deployments of the operator."""
        found = await self.api.get("/apis/apps/v1/deployments", params={"labelSelector": MANAGED})
        items: list[Object] = found["items"]
        return items

    async def _put(self, items: Iterable[tuple[str, Mapping[str, Any]]]) -> int:
        created = timestamp()
        return await put_all(self.etcd, ((key, stored(item, created=created)) for key, item in items))

    def _nodes(self) -> Iterator[Object]:
        for number, node in enumerate(nodes_of(self.size)):
            body = node_body(node, self._address(number))
            body["status"]["conditions"] = node_conditions(timestamp())
            yield body

    def _address(self, number: int) -> str:
        network = ipaddress.ip_network(self.pod_cidr)
        return str(network.network_address + 1 + number % (network.num_addresses - 2))

    async def _slos_and_types(self) -> list[Object]:
        # All GPUs are taken by the engines; node autoscalers may bring a tenth more, for the load step.
        limit = self.size.nodes * GPUS_PER_NODE * 11 // 10
        made: list[Object] = [
            {"apiVersion": GROUP, "kind": "GPUType", "metadata": {"name": GPU_TYPE}, "spec": {"limit": limit}}
        ]
        await create(self.api, f"/apis/{GROUP}/gputypes", made[0])
        for namespace in self.size.namespaces:
            slo: Object = {"apiVersion": GROUP, "kind": "SLO", "metadata": {"name": "chat", "namespace": namespace}}
            slo["spec"] = {"ttft": "500ms", "tpot": "50ms", "attainment": "95%"}
            await create(self.api, f"/apis/{GROUP}/namespaces/{namespace}/slos", slo)
            made.append(slo)
        return made

    async def _models(self) -> list[Object]:
        made = await in_batches(
            models_of(self.size),
            lambda model: create(self.api, f"/apis/{GROUP}/namespaces/{model['metadata']['namespace']}/models", model),
        )
        self.progress(f"{made} Models")
        models: list[Object] = (await self.api.get(f"/apis/{GROUP}/models"))["items"]
        return models

    async def _owned(self, models: list[Object], others: list[Object]) -> list[Object]:
        """What the operator would have written; the Deployments of it."""
        objects = scale_owned.objects_of(models, others, GPU_TYPE)
        example = models[0]["metadata"]
        first = [item for item in objects if item["metadata"]["ownerReferences"][0]["uid"] == example["uid"]]
        fields = await scale_owned.managed_fields(self.api, first, example["name"])

        def with_fields() -> Iterator[tuple[str, Object]]:
            for item in objects:
                metadata = item["metadata"]
                owner = metadata["ownerReferences"][0]
                known = fields[item["kind"], metadata["name"].removeprefix(owner["name"])]
                mine = known.replace(example["uid"], owner["uid"])
                yield (
                    scale_owned.etcd_key(item),
                    {**item, "metadata": {**metadata, "managedFields": orjson.loads(mine)}},
                )

        self.progress(f"{await self._put(with_fields())} objects of Models")
        return [item for item in objects if item["kind"] == "Deployment"]

    async def _own_pods(self, deployments: list[Object]) -> list[Scraped]:
        seats = itertools.cycle(nodes_of(self.size))
        fleet: dict[tuple[str, str], dict[str, list[str]]] = {}
        for pool in ("serve", "router"):
            pods = [
                pod
                for deployment in deployments
                if deployment["spec"]["template"]["metadata"]["labels"]["goodput.dev/pool"] == pool
                for pod in scale_owned.pods_of(deployment, seats)
            ]
            self.progress(f"{await self._put_pods(pods)} {pool} pods of ours, Running and Ready")
            for pod in pods:
                metadata = pod["metadata"]
                key = (metadata["namespace"], metadata["labels"]["goodput.dev/model"])
                fleet.setdefault(key, {}).setdefault(pool, []).append(metadata["name"])
        return [(*key, pools.get("serve", []), pools.get("router", [])) for key, pools in sorted(fleet.items())]

    async def _put_pods(self, pods: list[Object]) -> int:
        """Store these pods, Running and Ready. The first is created through the API, as the example for the others."""
        first = pods[0]
        path = f"/api/v1/namespaces/{first['metadata']['namespace']}/pods"
        await self.api.post(path, first)
        path = f"{path}/{first['metadata']['name']}"
        status = ready_status(first, host_ip=self._address(0), pod_ip=self._address(1))
        await self.api.patch(f"{path}/status", {"status": status}, STRATEGIC_PATCH)
        example = await self.api.get(path)
        alike = (self._like(example, pod, number) for number, pod in enumerate(pods[1:], 2))
        return 1 + await self._put(
            (f"/registry/pods/{pod['metadata']['namespace']}/{pod['metadata']['name']}", pod) for pod in alike
        )

    def _like(self, example: Object, pod: Object, number: int) -> Object:
        """A pod with the defaults of an example, its managed fields, and a status of its own."""
        return {
            **pod,
            "metadata": {**pod["metadata"], "managedFields": example["metadata"]["managedFields"]},
            "spec": {**example["spec"], **pod["spec"]},
            "status": ready_status(pod, host_ip=self._address(0), pod_ip=self._address(number)),
        }
