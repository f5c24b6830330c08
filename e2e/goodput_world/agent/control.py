"""The agent's own HTTP interface on loopback: faults to inject, and what runs where.

GET  /healthz, /state
POST /nodes/NAME/fail | /cut-off | /recover
POST /pods/NS/NAME/kill | /crash | /hang | /resume          ?container=NAME for one of several
POST /pods/NS/NAME/exec {"command": [...], "container": "", "timeout_seconds": 10}
POST /images/pull-fail | /images/pull-ok                    ?image=REPOSITORY[:TAG]
POST /startup?seconds=N                                     for engines that start from now on
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from typing import Any

import orjson
from aiohttp import web

from goodput_world.agent import process as processes
from goodput_world.agent.agent import Agent
from goodput_world.agent.container import Container
from goodput_world.agent.node import Node

_SIGNALS = {"kill": signal.SIGKILL, "crash": signal.SIGSEGV, "hang": signal.SIGSTOP, "resume": signal.SIGCONT}


class Control:
    """Handlers of the control interface."""

    def __init__(self, agent: Agent) -> None:
        """Acts on this agent."""
        self._agent = agent

    async def start(self, port: int = 0) -> tuple[web.AppRunner, str]:
        """Listen on loopback; returns the runner, to clean up, and the base URL."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/healthz", self._health),
                web.get("/state", self._state),
                web.post("/nodes/{node}/{fault:fail|cut-off|recover}", self._node_fault),
                web.post("/pods/{namespace}/{name}/exec", self._exec),
                web.post("/pods/{namespace}/{name}/{fault:kill|crash|hang|resume}", self._pod_fault),
                web.post("/images/{fault:pull-fail|pull-ok}", self._image_fault),
                web.post("/startup", self._startup),
            ]
        )
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        bound = runner.addresses[0]
        return runner, f"http://{bound[0]}:{bound[1]}"

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _state(self, _: web.Request) -> web.Response:
        nodes = {
            node.config.name: {"ip": node.ip, "alive": node.alive, "reachable": node.reachable, "pods": len(node.pods)}
            for node in self._agent.nodes.values()
        }
        pods = {
            runtime.key: {
                "uid": runtime.uid,
                "node": runtime.node.config.name,
                "ip": runtime.pod_ip,
                "stopping": runtime.stopping,
                "gpus": runtime.gpu_indices,
                "directory": str(runtime.directory),
                "containers": {
                    container.view.name: {
                        "pid": container.process.pid if container.process else None,
                        "ready": container.view.ready,
                        "restarts": container.view.restart_count,
                        "log": str(container.log_path),
                    }
                    for container in (*runtime.inits, *runtime.containers)
                },
            }
            for runtime in self._agent.runtimes()
        }
        unbound = {f"{ip}:{port}": error for (ip, port), error in self._agent.services.unbound.items()}
        return _json({"nodes": nodes, "pods": pods, "unbound": unbound})

    def _node(self, request: web.Request) -> Node:
        name = request.match_info["node"]
        if name not in self._agent.nodes:
            raise web.HTTPNotFound(text=f"no node {name!r}")
        return self._agent.nodes[name]

    async def _node_fault(self, request: web.Request) -> web.Response:
        node, fault = self._node(request), request.match_info["fault"]
        if fault == "fail":
            await node.fail()
        elif fault == "cut-off":
            node.cut_off()
        else:
            await node.recover()
        return _json({"node": node.config.name, "alive": node.alive, "reachable": node.reachable})

    def _containers(self, request: web.Request, wanted: str) -> list[Container]:
        key = f"{request.match_info['namespace']}/{request.match_info['name']}"
        runtime = self._agent.runtime(key)
        if runtime is None:
            raise web.HTTPNotFound(text=f"no pod {key!r} runs here")
        every: Iterable[Container] = (*runtime.containers, *runtime.inits)
        found = [c for c in every if c.process is not None and wanted in {"", c.view.name}]
        if not found:
            raise web.HTTPConflict(text=f"no container {wanted or 'at all'!r} of {key} runs")
        return found

    async def _pod_fault(self, request: web.Request) -> web.Response:
        fault = request.match_info["fault"]
        hit = []
        for container in self._containers(request, request.query.get("container", "")):
            if container.process is not None:
                os.killpg(container.process.pid, _SIGNALS[fault])
                hit.append(container.view.name)
        return _json({"containers": hit, "signal": _SIGNALS[fault].name})

    async def _exec(self, request: web.Request) -> web.Response:
        body: dict[str, Any] = orjson.loads(await request.read())
        container = self._containers(request, str(body.get("container", "")))[0]
        if container.process is None:
            raise web.HTTPConflict(text="the container has just ended")
        code, output = await processes.run_inside(
            container.process,
            body["command"],
            container.env,
            container.log_path.parent,
            float(body.get("timeout_seconds", 10)),
        )
        return _json({"exit_code": code, "output": output})

    async def _image_fault(self, request: web.Request) -> web.Response:
        image = request.query.get("image")
        if not image:
            raise web.HTTPBadRequest(text="image: required, a repository or repository:tag")
        if request.match_info["fault"] == "pull-fail":
            self._agent.images.fail(image)
        else:
            self._agent.images.heal(image)
        return _json({"image": image})

    async def _startup(self, request: web.Request) -> web.Response:
        try:
            seconds = float(request.query["seconds"])
        except (KeyError, ValueError):
            raise web.HTTPBadRequest(text="seconds: required, a number") from None
        self._agent.startup_seconds = seconds
        return _json({"startup_seconds": seconds})


def _json(value: Any) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json")
