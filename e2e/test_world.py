"""The embedded world does what a cluster does: it serves, places pods by GPU, enforces, and measures."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest

from goodput_world.errors import CommandFailed
from goodput_world.kubectl import Kubectl
from goodput_world.world import World


def _gpu_deployment(name: str, replicas: int, *, gpus: int = 1) -> dict[str, Any]:
    """Pods that ask for GPUs of the first L40S node and sleep."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "nodeSelector": {"kubernetes.io/hostname": "l40s-0"},
                    "terminationGracePeriodSeconds": 1,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": 1000,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [
                        {
                            "name": "main",
                            "image": "busybox:1.37",
                            "command": ["sleep", "600"],
                            "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
                            "securityContext": {
                                "allowPrivilegeEscalation": False,
                                "capabilities": {"drop": ["ALL"]},
                            },
                        }
                    ],
                },
            },
        },
    }


_METRICS_SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(b"answer 42\\n")
http.server.HTTPServer((sys.argv[1], 8000), Handler).serve_forever()
"""


async def test_every_part_of_the_control_plane_serves(world: World) -> None:
    """etcd, API server, scheduler and controller-manager run, and the server says a version that clients accept."""
    world.raise_if_dead()
    server = json.loads(await world.kubectl("version", "-o", "json"))["serverVersion"]
    assert (server["major"], int(server["minor"]) >= 31) == ("1", True)


async def test_the_ninth_pod_on_eight_gpus_stays_pending(world: World, namespace: str) -> None:
    """The real scheduler places eight one-GPU pods on a node of eight GPUs; the ninth is Pending for want of one."""
    await world.apply(_gpu_deployment("nine", 9), namespace=namespace)

    async def eight_run() -> list[dict[str, Any]] | None:
        pods = await world.list_objects("pods", namespace=namespace)
        running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
        return pods if len(pods) == 9 and len(running) == 8 else None

    pods = await world.wait_for(eight_run, what="eight of nine pods Running", timeout_seconds=90)
    (pending,) = [pod for pod in pods if pod["status"]["phase"] == "Pending"]
    (scheduled,) = [each for each in pending["status"]["conditions"] if each["type"] == "PodScheduled"]
    assert scheduled["reason"] == "Unschedulable"
    assert "Insufficient nvidia.com/gpu" in scheduled["message"]


async def test_a_pod_that_breaks_restricted_pod_security_is_refused(world: World, namespace: str) -> None:
    """Pod Security admission is real: a privileged container is refused in a restricted namespace."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "privileged"},
        "spec": {"containers": [{"name": "main", "image": "busybox", "securityContext": {"privileged": True}}]},
    }
    with pytest.raises(CommandFailed, match="violates PodSecurity"):
        await world.apply(pod, namespace=namespace)


async def test_rights_come_from_rbac_alone(world: World, namespace: str) -> None:
    """The developer may read nothing until a RoleBinding says so, and then only there."""
    developer = Kubectl(world.kubectl.program, world.control_plane.kubeconfig("developer"))
    with pytest.raises(CommandFailed, match="forbidden"):
        await developer("get", "pods", "-n", namespace)
    await world.kubectl("create", "rolebinding", "dev", "-n", namespace, "--clusterrole=view", "--user=developer")

    async def allowed() -> bool:
        await developer("get", "pods", "-n", namespace)
        return True

    await world.wait_for(allowed, what="the binding to take effect", timeout_seconds=10)
    with pytest.raises(CommandFailed, match="forbidden"):
        await developer("get", "pods", "-n", "kube-system")


async def test_the_audit_log_counts_writes_and_not_reads(world: World, namespace: str) -> None:
    """One create by the administrator is one write of that user; reads and dry runs are none."""
    start = datetime.now(UTC)
    await world.kubectl("create", "configmap", "counted", "-n", namespace)
    await world.kubectl("get", "configmap", "counted", "-n", namespace)
    await world.kubectl("create", "configmap", "dry", "-n", namespace, "--dry-run=server")
    counts = world.audit.counts(start, datetime.now(UTC), users={"admin"})
    assert counts == {("admin", "create", "configmaps"): 1}


async def test_prometheus_scrapes_what_carries_a_model_label(world: World, namespace: str) -> None:
    """An engine-shaped pod is scraped on its `http` port alone, with our labels, its namespace and its name."""
    pod = _gpu_deployment("engine", 1)["spec"]["template"]
    # Not the node that another test fills: its pods may still be on their way out.
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "l40s-1"}
    pod["metadata"] = {"name": "engine", "labels": {"goodput.dev/model": "m", "goodput.dev/pool": "serve"}}
    (container,) = pod["spec"]["containers"]
    container |= {
        "name": "vllm",
        "command": ["python3", "-c", _METRICS_SERVER, "0.0.0.0"],
        "ports": [{"name": "http", "containerPort": 8000}, {"name": "other", "containerPort": 8001}],
    }
    await world.apply({"apiVersion": "v1", "kind": "Pod", **pod}, namespace=namespace)

    async def scraped() -> list[dict[str, Any]]:
        query = f'answer{{namespace="{namespace}"}}'
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{world.prometheus_url}/api/v1/query", params={"query": query}) as answer,
        ):
            found: list[dict[str, Any]] = (await answer.json())["data"]["result"]
            return found

    (series,) = await world.wait_for(scraped, what="a scrape of the pod", timeout_seconds=150)
    assert series["value"][1] == "42"
    labels = series["metric"]
    assert (labels["pod"], labels["goodput_dev_model"], labels["goodput_dev_pool"]) == ("engine", "m", "serve")
    assert labels["instance"].endswith(":8000")


async def test_the_api_server_comes_back_on_its_port_after_a_kill(world: World, namespace: str) -> None:
    """A killed API server refuses connections; restarted, it serves what was stored, to the same kubeconfig."""
    await world.kubectl("create", "configmap", "kept", "-n", namespace)
    world.control_plane.kill_apiserver()
    with pytest.raises(CommandFailed):
        await world.kubectl("get", "configmap", "kept", "-n", namespace, "--request-timeout=3s")
    await world.control_plane.restart_apiserver()
    assert (await world.get("configmap", "kept", namespace=namespace))["metadata"]["name"] == "kept"


async def test_two_worlds_run_side_by_side_and_leave_nothing_behind(world: World) -> None:
    """A second control plane has its own addresses and contents; when it stops, none of its processes is left."""
    from goodput_world import watchdog
    from goodput_world.world import WorldConfig

    other = World(WorldConfig(agent=False, prometheus=False, operator=None))
    async with other:
        await other.create_namespace("only-here")
        with pytest.raises(CommandFailed, match="NotFound"):
            await world.get("namespace", "only-here")
        assert other.control_plane.slot.service_cidr != world.control_plane.slot.service_cidr
        mark = other._mark
        assert len(watchdog.marked(mark)) == 4
    await asyncio.sleep(0)
    assert watchdog.marked(mark) == []
    assert not other.directory.exists(), f"{os.listdir(other.directory)} left"
