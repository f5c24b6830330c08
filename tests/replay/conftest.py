"""A tiny streaming server whose behaviour a request's `max_tokens` picks, so that one replay meets every way to end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import orjson
import pytest
from aiohttp import web

BODIES = web.AppKey("bodies", list[dict[str, object]])
FAIL_TOKENS, SHED_TOKENS, CUT_TOKENS, ABORT_TOKENS, ERROR_TOKENS, HANG_TOKENS = 901, 902, 903, 904, 905, 906


def _event(payload: object) -> bytes:
    return b"data: " + orjson.dumps(payload) + b"\n\n"


async def _completions(request: web.Request) -> web.StreamResponse:
    body = orjson.loads(await request.read())
    request.app[BODIES].append(body)
    wanted = body["max_tokens"]
    if wanted == FAIL_TOKENS:
        return web.json_response({"error": {"message": "engine died"}}, status=500)
    if wanted == SHED_TOKENS:
        return web.json_response({"error": {"message": "queue full"}}, status=503)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    made = wanted if wanted < FAIL_TOKENS else 3
    for _ in range(made):
        await response.write(_event({"choices": [{"index": 0, "text": " a"}]}))
        await asyncio.sleep(0.002)
    if wanted == CUT_TOKENS:
        assert request.transport is not None
        request.transport.close()
    elif wanted == HANG_TOKENS:
        await asyncio.sleep(30)
    elif wanted == ERROR_TOKENS:
        await response.write(_event({"error": {"message": "out of blocks"}}))
    else:
        await response.write(_event({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": made}}))
    await response.write(b"data: [DONE]\n\n")
    return response


@pytest.fixture
async def server() -> AsyncIterator[tuple[str, list[dict[str, object]]]]:
    """Base URL of the server and the request bodies it has seen."""
    app = web.Application(client_max_size=2**26)
    app[BODIES] = []
    app.router.add_post("/v1/completions", _completions)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert runner.addresses
    yield f"http://127.0.0.1:{runner.addresses[0][1]}", app[BODIES]
    await runner.cleanup()
