"""A proxy in front of the API server that answers HTTP 503 while it storms."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

_HOP = frozenset({"host", "connection", "transfer-encoding", "content-length", "keep-alive"})


@dataclass(slots=True)
class StormProxy:
    """`async with` it; `kubeconfig` leads through it. `storm(True)` also cuts what is open."""

    admin: Path
    """The kubeconfig whose server and token are used."""
    directory: Path
    refused: int = 0
    kubeconfig: Path = field(init=False)
    _storming: bool = False
    _open: set[asyncio.Task[Any]] = field(default_factory=set)
    _runner: web.AppRunner | None = None
    _session: aiohttp.ClientSession | None = None
    _server: str = ""

    async def __aenter__(self) -> StormProxy:
        """Listen on loopback, without TLS."""
        text = yaml.safe_load(self.admin.read_text())
        cluster = text["clusters"][0]["cluster"]
        self._server = cluster["server"]
        tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
        connector = aiohttp.TCPConnector(ssl=tls, limit=0)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        text["clusters"][0]["cluster"] = {"server": f"http://{host}:{port}"}
        self.kubeconfig = self.directory / "through-the-storm.kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(text))
        self.kubeconfig.chmod(0o600)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        self.storm(True)
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    def storm(self, on: bool) -> None:
        """Refuse everything, or nothing."""
        self._storming = on
        for task in list(self._open) if on else ():
            task.cancel()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        if self._storming:
            self.refused += 1
            return web.json_response({"kind": "Status", "code": 503, "message": "storm"}, status=503)
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            return await self._forward(request)
        finally:
            self._open.discard(task)

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        assert self._session is not None
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        async with self._session.request(
            request.method,
            self._server + request.raw_path,
            headers=headers,
            # Without a body there is to be no type of one either: the API server refuses it.
            data=await request.read() or None,
            timeout=aiohttp.ClientTimeout(total=None),
        ) as answer:
            passed = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}
            response = web.StreamResponse(status=answer.status, headers=passed)
            await response.prepare(request)
            with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
            await response.write_eof()
            return response
