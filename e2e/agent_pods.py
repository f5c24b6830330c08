"""Pods, Services and questions to the agent, for the tests of the simulated nodes. Fixture to import: `node`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from goodput_world.world import World

CONTAINER_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
POD_SECURITY = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}

SERVER = """
import http.server, os, signal, sys, time
name = os.environ["HOSTNAME"]
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.path == "/stream":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for i in range(30):
                self.wfile.write(b"2\\r\\n%02d\\r\\n" % i)
                self.wfile.flush()
                time.sleep(0.1)
            self.wfile.write(b"0\\r\\n\\r\\n")
            return
        code = 200 if not os.path.exists("/state" + self.path + ".fail") else 500
        body = name.encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer((os.environ["POD_IP_BIND"], 8000), Handler)
server.daemon_threads = False
signal.signal(signal.SIGTERM, lambda *_: print("TERM", time.time(), flush=True) or os._exit(0)
    if os.environ.get("QUICK") else print("TERM", time.time(), flush=True))
server.serve_forever()
"""
"""Answers with its pod's name; a file /state/PATH.fail makes PATH fail. Without QUICK it ignores SIGTERM."""


def container(**changes: Any) -> dict[str, Any]:
    """A container that sleeps, unless told otherwise."""
    return {
        "name": "main",
        "image": "busybox:1.37",
        "command": ["sleep", "600"],
        "securityContext": CONTAINER_SECURITY,
        **changes,
    }


def server(**changes: Any) -> dict[str, Any]:
    """A container that runs SERVER with a readiness probe every second."""
    return container(
        **{
            "command": ["python3", "-c", SERVER],
            "ports": [{"name": "http", "containerPort": 8000}],
            "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 1},
            "volumeMounts": [{"name": "state", "mountPath": "/state"}],
            "env": [{"name": "QUICK", "value": "1"}],
            **changes,
        }
    )


def pod(name: str, *containers: dict[str, Any], labels: Mapping[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod that ends within a second when deleted, unless told otherwise."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "securityContext": POD_SECURITY,
            "containers": list(containers),
            "volumes": [{"name": "state", "emptyDir": {}}],
            **spec,
        },
    }


def service(name: str, app: str) -> dict[str, Any]:
    """A Service, port 80, of the pods with label app."""
    ports = [{"name": "http", "port": 80, "targetPort": "http"}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": app}, "ports": ports},
    }


class Node:
    """What the tests ask of the agent and of the pods."""

    def __init__(self, world: World, namespace: str) -> None:
        """In one namespace."""
        self.world = world
        self.namespace = namespace

    @property
    def control(self) -> str:
        """URL of the agent's control interface."""
        return str(json.loads((self.world.directory / "agent" / "agent.json").read_text())["control"])

    async def post(self, path: str, body: Any = None) -> Any:
        """Ask the control interface."""
        async with aiohttp.ClientSession() as session, session.post(self.control + path, json=body) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def state(self) -> Any:
        """What runs where."""
        async with aiohttp.ClientSession() as session, session.get(self.control + "/state") as answer:
            return await answer.json()

    async def execute(self, name: str, *command: str) -> tuple[int, str]:
        """Run a command inside a pod."""
        answer = await self.post(f"/pods/{self.namespace}/{name}/exec", {"command": command})
        return answer["exit_code"], answer["output"]

    async def apply(self, *objects: dict[str, Any]) -> None:
        """Apply objects."""
        await self.world.apply(list(objects), namespace=self.namespace)

    async def pod(self, name: str) -> dict[str, Any]:
        """A pod."""
        return await self.world.get("pod", name, namespace=self.namespace)

    async def delete(self, name: str, *options: str) -> None:
        """Delete a pod without waiting."""
        await self.world.kubectl("delete", "pod", name, "-n", self.namespace, "--wait=false", *options)

    async def until(self, name: str, what: str, test: Any, timeout_seconds: float = 40) -> dict[str, Any]:
        """The pod once `test` of it is true."""

        async def holds() -> dict[str, Any] | None:
            found = await self.pod(name)
            return found if test(found) else None

        return await self.world.wait_for(holds, what=f"pod {name} {what}", timeout_seconds=timeout_seconds)

    async def ready(self, *names: str) -> None:
        """Wait until these pods are Ready."""
        for name in names:
            await self.until(name, "Ready", lambda p: condition(p, "Ready") == "True")

    async def gone(self, name: str, timeout_seconds: float = 30) -> None:
        """Wait until a pod is gone."""

        async def absent() -> bool:
            found = await self.world.kubectl("get", "pod", name, "-n", self.namespace, "--ignore-not-found")
            return not found.strip()

        await self.world.wait_for(absent, what=f"pod {name} gone", timeout_seconds=timeout_seconds)


def condition(found: Mapping[str, Any], kind: str) -> str | None:
    """The status of a pod's condition."""
    listed = found.get("status", {}).get("conditions", ())
    return next((each["status"] for each in listed if each["type"] == kind), None)


def state_of(found: Mapping[str, Any], key: str = "state") -> dict[str, Any]:
    """The state (or lastState) of a pod's first container."""
    statuses = found.get("status", {}).get("containerStatuses") or [{}]
    value: dict[str, Any] = statuses[0].get(key) or {}
    return value


def reason(found: Mapping[str, Any], kind: str, key: str = "state") -> str | None:
    """The reason of a waiting or terminated first container."""
    value: str | None = state_of(found, key).get(kind, {}).get("reason")
    return value


def lives(pid: int) -> bool:
    """Whether a process runs: one that has ended may still wait to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in {"Z", "X"}
    except FileNotFoundError:
        return False


@pytest.fixture
def node(world: World, namespace: str) -> Node:
    """The agent, in the test's namespace."""
    return Node(world, namespace)
