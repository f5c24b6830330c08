"""The one session to the API server is enough for any number of watches."""

from __future__ import annotations

import asyncio

from aiohttp import web
from kubernetes.client import Configuration

from goodput.adapters.kinds import CONFIG_MAPS, PODS
from goodput.adapters.kube import KubeClient
from goodput.adapters.kube_connection import connect

WATCHES = 150
"""Kinds times namespaces, for an operator that serves a dozen namespaces."""


async def test_open_watches_leave_room_for_writes() -> None:
    """With 150 watches open a write is answered at once: each watch holds a connection for ever."""
    open_watches = 0

    async def watch(request: web.Request) -> web.StreamResponse:
        nonlocal open_watches
        response = web.StreamResponse()
        await response.prepare(request)
        open_watches += 1
        await asyncio.sleep(3600)
        return response

    async def create(_: web.Request) -> web.Response:
        return web.json_response({"metadata": {"name": "written"}}, status=201)

    app = web.Application()
    app.router.add_get("/api/v1/namespaces/{namespace}/pods", watch)
    app.router.add_post("/api/v1/namespaces/{namespace}/configmaps", create)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    configuration = Configuration()
    configuration.host = f"http://127.0.0.1:{runner.addresses[0][1]}"
    connection = await connect(configuration, "test")
    client = KubeClient(connection, deadline_seconds=5.0)

    async def reflect(namespace: str) -> None:
        async for _ in client.watch(PODS, namespace, "1"):
            pass

    watches = [asyncio.create_task(reflect(f"n{index}")) for index in range(WATCHES)]
    try:
        async with asyncio.timeout(20):
            while open_watches < WATCHES:
                await asyncio.sleep(0.02)
        answer = await client.create(CONFIG_MAPS, {"metadata": {"name": "written", "namespace": "a"}})
        assert answer["metadata"]["name"] == "written"
    finally:
        for task in watches:
            task.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        await connection.close()
        await runner.cleanup()
