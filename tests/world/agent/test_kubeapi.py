"""The API layer of the agent against a server that misbehaves as real ones do."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from aiohttp import web

from goodput_world.agent.kubeapi import Api, ApiError, Endpoint, Reflector, load_kubeconfig


def pod(name: str, version: str, uid: str = "") -> dict[str, Any]:
    """A pod at a resource version."""
    return {"metadata": {"name": name, "namespace": "ns", "uid": uid or name, "resourceVersion": version}}


class Server:
    """Answers lists from `listed` and watches from `watches`, one script a watch; statuses first, if any."""

    def __init__(self) -> None:
        """Empty."""
        self.listed: list[list[dict[str, Any]]] = []
        self.watches: list[list[dict[str, Any]]] = []
        self.statuses: list[int] = []
        self.requests: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One request."""
        self.requests.append(f"{request.method} {request.query.get('resourceVersion', '')}")
        if self.statuses:
            status = self.statuses.pop(0)
            return web.json_response({"reason": "Test", "message": "no"}, status=status, headers={"Retry-After": "0"})
        if "watch" not in request.query:
            items = self.listed.pop(0) if len(self.listed) > 1 else self.listed[0]
            return web.json_response({"metadata": {"resourceVersion": "100"}, "items": items})
        response = web.StreamResponse()
        await response.prepare(request)
        if not self.watches:
            await asyncio.sleep(30)
        for event in self.watches.pop(0):
            raw = orjson.dumps(event) + b"\n"
            await response.write(raw[:5])  # an event does not come in one piece
            await asyncio.sleep(0)
            await response.write(raw[5:])
        return response


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, Api]]:
    """A server and a client of it."""
    scripted = Server()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", scripted.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    async with Api(Endpoint(f"http://{host}:{port}", None, ssl.create_default_context(), b"")) as api:
        yield scripted, api
    await runner.cleanup()


async def test_busy_answers_are_tried_again(server: tuple[Server, Api]) -> None:
    """429 and 503 pass; 403 is final at once and tells the reason."""
    scripted, api = server
    scripted.listed = [[]]
    scripted.statuses = [429, 503]
    assert (await api.get("/api/v1/pods"))["items"] == []

    scripted.statuses = [403, 200]
    with pytest.raises(ApiError, match="HTTP 403 Test: no") as caught:
        await api.get("/api/v1/pods")
    assert caught.value.status == 403
    assert scripted.statuses == [200]


async def test_a_missing_object_is_none(server: tuple[Server, Api]) -> None:
    """Where the caller says that it may be missing."""
    scripted, api = server
    scripted.statuses = [404]

    assert await api.get_or_none("/x") is None


async def test_a_relist_after_410_finds_what_was_missed(server: tuple[Server, Api]) -> None:
    """Deleted while no watch ran: told as a deletion; a pod of the same name with another uid is another pod."""
    scripted, api = server
    scripted.listed = [[pod("a", "1"), pod("b", "1"), pod("c", "1", "old")], [pod("b", "2"), pod("c", "3", "new")]]
    gone = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}
    scripted.watches = [[{"type": "ADDED", "object": pod("d", "101")}, gone]]
    seen: list[tuple[str, str, str]] = []
    reflector = Reflector(
        api, "/api/v1/pods", lambda kind, obj: seen.append((kind, obj["metadata"]["name"], obj["metadata"]["uid"]))
    )
    task = asyncio.create_task(reflector.run())
    for _ in range(200):
        if ("ADDED", "c", "new") in seen:
            break
        await asyncio.sleep(0.02)
    task.cancel()

    assert seen[:4] == [("ADDED", "a", "a"), ("ADDED", "b", "b"), ("ADDED", "c", "old"), ("ADDED", "d", "d")]
    assert sorted(seen[4:]) == [
        ("ADDED", "c", "new"),
        ("DELETED", "a", "a"),
        ("DELETED", "c", "old"),
        ("DELETED", "d", "d"),
        ("MODIFIED", "b", "b"),
    ]
    assert sorted(reflector.items) == ["ns/b", "ns/c"]


async def test_a_watch_goes_on_where_the_last_one_ended(server: tuple[Server, Api]) -> None:
    """At the version of the last event or bookmark, without a new list."""
    scripted, api = server
    scripted.listed = [[]]
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "150"}}}
    scripted.watches = [[{"type": "ADDED", "object": pod("a", "120")}, bookmark]]
    reflector = Reflector(api, "/api/v1/pods", lambda *_: None)
    task = asyncio.create_task(reflector.run())
    for _ in range(200):
        if len(scripted.requests) >= 3:
            break
        await asyncio.sleep(0.02)
    task.cancel()

    assert scripted.requests[:3] == ["GET 0", "GET 100", "GET 150"]
    assert list(reflector.items) == ["ns/a"]


async def test_a_handler_that_raises_does_not_stop_the_watch(server: tuple[Server, Api]) -> None:
    """The next event is handled."""
    scripted, api = server
    scripted.listed = [[pod("a", "1"), pod("b", "1")]]
    seen = []

    def handle(_: str, obj: Any) -> None:
        seen.append(obj["metadata"]["name"])
        raise RuntimeError("a bug")

    reflector = Reflector(api, "/api/v1/pods", handle)
    task = asyncio.create_task(reflector.run())
    await asyncio.wait_for(reflector.synced.wait(), 5)
    task.cancel()

    assert seen == ["a", "b"]


def test_kubeconfig(tmp_path: Path) -> None:
    """Server and token of the current context; the address for pods is taken from the server's URL."""
    path = tmp_path / "config"
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:7443/"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
            }
        )
    )

    endpoint = load_kubeconfig(path)

    assert (endpoint.server, endpoint.token, endpoint.address) == ("https://127.0.0.1:7443", "t", ("127.0.0.1", 7443))
