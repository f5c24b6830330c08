"""`python -m goodput_world.agent.seeder`: many nodes and pods that only exist in the API server, for scale benchmarks.

Creates nodes and keeps their Leases, and marks every pod that is bound to one of them Running and Ready; pods that are
not bound yet are bound by the seeder if asked to (`--bind`), which spares the scheduler. Prints one JSON line when all
is done; with `--stay` it goes on renewing Leases until a signal.
"""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import orjson

from goodput_world.agent.config import NodeConfig
from goodput_world.agent.kubeapi import STRATEGIC_PATCH, Api, ApiError, load_kubeconfig
from goodput_world.agent.nodeobject import lease_body, node_body, node_conditions
from goodput_world.agent.status import timestamp
from goodput_world.agent.virtual import ready_status

T = TypeVar("T")

CONCURRENCY = 32
_PAGE = 500
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


async def in_batches(items: Iterable[T], work: Callable[[T], Awaitable[None]], concurrency: int = CONCURRENCY) -> int:
    """Do the work for each item, so many at a time; how many there were."""
    waiting = iter(items)
    done = 0

    async def worker() -> None:
        nonlocal done
        for item in waiting:
            await work(item)
            done += 1

    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return done


@dataclass(frozen=True, slots=True)
class Seeder:
    """Seeds one cluster. `nodes` are created; pod and node addresses come from `pod_cidr`."""

    api: Api
    nodes: Sequence[NodeConfig]
    pod_cidr: str
    lease_seconds: float = 40.0

    def _address(self, number: int) -> str:
        network = ipaddress.ip_network(self.pod_cidr)
        return str(network.network_address + 1 + number % (network.num_addresses - 2))

    async def create_nodes(self) -> int:
        """Create the nodes, Ready, each with a Lease; nodes that exist are brought up to date."""
        numbers = {node.name: number for number, node in enumerate(self.nodes)}

        async def create(node: NodeConfig) -> None:
            body = node_body(node, self._address(-1 - numbers[node.name]))
            status = body.pop("status")
            status["conditions"] = node_conditions(timestamp())
            try:
                await self.api.post("/api/v1/nodes", body)
            except ApiError as error:
                if error.status != 409:
                    raise
            await self.renew(node)
            await self.api.patch(f"/api/v1/nodes/{node.name}/status", {"status": status}, STRATEGIC_PATCH)

        return await in_batches(self.nodes, create)

    async def renew(self, node: NodeConfig) -> None:
        """Renew the Lease of a node, creating it first if need be."""
        body = lease_body(node.name, self.lease_seconds)
        try:
            await self.api.patch(f"{_LEASES}/{node.name}", {"spec": body["spec"]})
        except ApiError as error:
            if error.status != 404:
                raise
            await self.api.post(_LEASES, body)

    async def keep_leases(self) -> None:
        """Renew all Leases, spread over a quarter of their duration, until cancelled."""
        period = self.lease_seconds / 4
        while True:
            begun = time.monotonic()
            await in_batches(self.nodes, self.renew)
            await asyncio.sleep(max(0.0, period - (time.monotonic() - begun)))

    async def create_pods(self, pods: Iterable[Mapping[str, Any]]) -> int:
        """Create pods (with metadata.namespace); those that exist are left alone."""

        async def create(pod: Mapping[str, Any]) -> None:
            try:
                await self.api.post(f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods", pod)
            except ApiError as error:
                if error.status != 409:
                    raise

        return await in_batches(pods, create)

    async def mark_ready(self, selector: str = "", *, bind: bool = False) -> int:
        """Make every pod on our nodes Running and Ready that is not; with `bind`, first bind the unbound ones in turn.

        Returns how many pods were changed.
        """
        ours = {node.name: self._address(-1 - number) for number, node in enumerate(self.nodes)}
        names = list(ours)
        pending: list[tuple[int, Mapping[str, Any]]] = []
        seen = 0
        async for pod in self.pods(selector):
            seen += 1
            bound = pod["spec"].get("nodeName")
            if (pod.get("status") or {}).get("phase") == "Running" or (bound and bound not in ours):
                continue
            if bound or bind:
                pending.append((seen, pod))

        async def ready(item: tuple[int, Mapping[str, Any]]) -> None:
            number, pod = item
            metadata = pod["metadata"]
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
            node = pod["spec"].get("nodeName")
            if not node:
                node = names[number % len(names)]
                binding = {
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": {"name": metadata["name"]},
                    "target": {"apiVersion": "v1", "kind": "Node", "name": node},
                }
                await self.api.post(f"{path}/binding", binding)
            status = ready_status(pod, host_ip=ours[node], pod_ip=self._address(number))
            try:
                await self.api.patch(f"{path}/status", {"status": status}, STRATEGIC_PATCH)
            except ApiError as error:
                if error.status != 404:
                    raise

        return await in_batches(pending, ready)

    async def pods(self, selector: str = "") -> AsyncIterator[Mapping[str, Any]]:
        """All pods, page by page."""
        token = ""
        while True:
            params = {"limit": str(_PAGE)}
            if selector:
                params["labelSelector"] = selector
            if token:
                params["continue"] = token
            page = await self.api.get("/api/v1/pods", params=params)
            for pod in page["items"]:
                yield pod
            token = page["metadata"].get("continue") or ""
            if not token:
                return


def bare_pods(namespace: str, count: int, nodes: Sequence[NodeConfig], gpu_every: int = 0) -> list[dict[str, Any]]:
    """Pods of somebody else, bound to the nodes in turn; every `gpu_every`-th asks for a GPU (0: none does)."""
    made = []
    for number in range(count):
        node = nodes[number % len(nodes)]
        limits = {node.gpu_resource: "1"} if gpu_every and number % gpu_every == 0 and node.gpus else {}
        security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        container = {
            "name": "main",
            "image": "busybox",
            "resources": {"limits": limits},
            "securityContext": security,
        }
        made.append(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"seeded-{number}", "namespace": namespace, "labels": {"app": "seeded"}},
                "spec": {
                    "nodeName": node.name,
                    "automountServiceAccountToken": False,
                    "terminationGracePeriodSeconds": 0,
                    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [container],
                },
            }
        )
    return made


def numbered_nodes(count: int, gpus: int, gpu_type: str, labels: Mapping[str, str]) -> list[NodeConfig]:
    """Nodes named seed-0, seed-1, ... alike."""
    return [
        NodeConfig(f"seed-{number}", labels=labels, gpus=gpus, gpu_type=gpu_type, virtual=True)
        for number in range(count)
    ]


async def run(options: argparse.Namespace) -> None:
    """Create nodes and pods, mark pods Ready, report, and stay if asked to."""
    labels = dict(pair.split("=", 1) for pair in options.label)
    nodes = numbered_nodes(options.nodes, options.gpus, options.gpu_type, labels)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with Api(load_kubeconfig(options.kubeconfig), "goodput-world-seeder") as api:
        seeder = Seeder(api, nodes, options.pod_cidr, options.lease_seconds)
        begun = time.monotonic()
        report: dict[str, Any] = {"nodes": await seeder.create_nodes()}
        keeper = asyncio.create_task(seeder.keep_leases())
        try:
            if options.pods:
                made = bare_pods(options.namespace, options.pods, nodes, options.gpu_every)
                report["pods"] = await seeder.create_pods(made)
            report["marked"] = await seeder.mark_ready(options.selector, bind=options.bind)
            report["seconds"] = round(time.monotonic() - begun, 2)
            sys.stdout.write(orjson.dumps(report).decode() + "\n")
            sys.stdout.flush()
            while options.stay and not stop.is_set():
                await seeder.mark_ready(options.selector, bind=options.bind)
                done, _ = await asyncio.wait({keeper}, timeout=options.stay)
                if done:
                    keeper.result()
        finally:
            keeper.cancel()


def main() -> None:
    """Parse the command line and seed."""
    parser = argparse.ArgumentParser(prog="python -m goodput_world.agent.seeder", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--gpus", type=int, default=8, help="of each node")
    parser.add_argument("--gpu-type", default="")
    parser.add_argument("--label", action="append", default=[], metavar="NAME=VALUE", help="of each node")
    parser.add_argument("--pods", type=int, default=0, help="foreign pods to create, bound to the nodes in turn")
    parser.add_argument("--gpu-every", type=int, default=0, help="every so many-th of them asks for a GPU")
    parser.add_argument("--namespace", default="default", help="of the foreign pods")
    parser.add_argument("--selector", default="", help="label selector of the pods to mark Ready")
    parser.add_argument("--bind", action="store_true", help="bind unbound pods to the nodes in turn")
    parser.add_argument("--pod-cidr", default="127.200.0.0/15", help="pod and node addresses")
    parser.add_argument("--lease-seconds", type=float, default=40.0)
    parser.add_argument(
        "--stay", type=float, default=0.0, metavar="SECONDS", help="stay, and look for new pods so often"
    )
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
