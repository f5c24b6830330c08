"""An API server of a few lines that kopf can talk to: three kinds without objects, and what goes wrong on demand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web

from goodput.adapters.kinds import GPU_TYPES, MODELS, SLOS
from goodput.adapters.kube_connection import Connection

KINDS = (MODELS, SLOS, GPU_TYPES)
API = f"/apis/{MODELS.api_version}"


class ApiServer:
    """What it answers: discovery, empty lists, watches that stay open. `fault` may answer in its place."""

    def __init__(self) -> None:
        self.fault: Callable[[web.Request], web.Response | dict[str, Any] | None] = lambda _: None
        # Plurals that discovery tells of.
        self.known = {kind.plural for kind in KINDS}
        # Paths of the watches that are open.
        self.watched: list[str] = []
        self.lists = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """One request. A fault that is a dictionary is an event of the watch."""
        fault = self.fault(request)
        if isinstance(fault, web.Response):
            return fault
        if "watch" in request.query:
            return await self._watch(request, fault)
        found = self._documents().get(request.path)
        if found is not None:
            return web.json_response(found)
        self.lists += 1
        return web.json_response({"items": [], "metadata": {"resourceVersion": "5"}})

    async def _watch(self, request: web.Request, event: dict[str, Any] | None) -> web.StreamResponse:
        stream = web.StreamResponse()
        await stream.prepare(request)
        if event is not None:
            await stream.write(json.dumps(event).encode() + b"\n")
            return stream
        self.watched.append(request.path)
        try:
            await asyncio.sleep(60.0)
        finally:
            self.watched.remove(request.path)
        return stream

    def _documents(self) -> dict[str, Any]:
        version = {"groupVersion": MODELS.api_version, "version": MODELS.version}
        extensions = {"groupVersion": "apiextensions.k8s.io/v1", "version": "v1"}
        verbs = ["get", "list", "watch", "patch"]
        return {
            "/api": {"versions": ["v1"]},
            "/apis": {
                "groups": [
                    {"name": MODELS.group, "versions": [version], "preferredVersion": version},
                    {"name": "apiextensions.k8s.io", "versions": [extensions], "preferredVersion": extensions},
                ]
            },
            API: {
                "resources": [
                    {
                        "name": kind.plural,
                        "singularName": kind.kind.lower(),
                        "namespaced": kind.namespaced,
                        "kind": kind.kind,
                        "verbs": verbs,
                    }
                    for kind in KINDS
                    if kind.plural in self.known
                ]
            },
            "/apis/apiextensions.k8s.io/v1": {
                "resources": [
                    {
                        "name": "customresourcedefinitions",
                        "singularName": "customresourcedefinition",
                        "namespaced": False,
                        "kind": "CustomResourceDefinition",
                        "verbs": verbs,
                    }
                ]
            },
            "/api/v1": {
                "resources": [
                    {"name": "namespaces", "singularName": "namespace", "namespaced": False, "kind": "Namespace"}
                    | {"verbs": verbs},
                    {"name": "events", "singularName": "event", "namespaced": True, "kind": "Event", "verbs": verbs},
                ]
            },
        }


def refusal(code: int) -> web.Response:
    """An answer that kopf gives up on."""
    return web.json_response({"kind": "Status", "code": code, "message": "no", "reason": "No"}, status=code)


@asynccontextmanager
async def serving(server: ApiServer) -> AsyncIterator[Connection]:
    """A connection to it."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.0, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    _, port = runner.addresses[0]
    session = aiohttp.ClientSession()
    try:
        yield Connection(f"http://127.0.0.1:{port}", session)
    finally:
        await session.close()
        await runner.cleanup()
