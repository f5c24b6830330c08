"""The API layer over real HTTP: retries, errors by reaction, watches, credentials."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.client import Configuration

from goodput.adapters import kube as kube_module
from goodput.adapters.kinds import DEPLOYMENTS, SERVICES
from goodput.adapters.kube import KubeClient
from goodput.adapters.kube_connection import Connection, connect
from goodput.adapters.kube_errors import (
    Conflict,
    Expired,
    KubeError,
    NotFound,
    Refused,
    SchemaOutdated,
    Unavailable,
    error_of,
)
from goodput.adapters.lease import LEASE_SECONDS, RENEW_DEADLINE_SECONDS

Handler = Callable[[web.Request], Any]


class Server:
    """An HTTP server that answers what the test says, and remembers what it was asked."""

    def __init__(self) -> None:
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.answer: Handler = lambda _: web.json_response({})

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.bodies.append(await request.read())
        result = self.answer(request)
        return await result if asyncio.iscoroutine(result) else result


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", made.handle)
    running = TestServer(application)
    await running.start_server()
    made.url = str(running.make_url("/")).rstrip("/")  # type: ignore[attr-defined]
    yield made
    await running.close()


@pytest.fixture
async def connection(server: Server) -> AsyncIterator[Connection]:
    configuration = Configuration(host=server.url)  # type: ignore[attr-defined]
    made = await connect(configuration, "test")
    yield made
    await made.close()


@pytest.fixture
def client(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> KubeClient:
    monkeypatch.setattr(kube_module, "FIRST_BACKOFF_SECONDS", 0.01)
    return KubeClient(connection, deadline_seconds=1.0)


@pytest.mark.parametrize(
    ("status", "message", "want"),
    [
        pytest.param(404, "not found", NotFound, id="not found"),
        pytest.param(409, "conflict", Conflict, id="conflict"),
        pytest.param(410, "too old", Expired, id="expired"),
        pytest.param(403, "forbidden", Refused, id="forbidden"),
        pytest.param(422, "invalid", Refused, id="invalid"),
        pytest.param(429, "slow down", Unavailable, id="too many requests"),
        pytest.param(503, "away", Unavailable, id="unavailable"),
        pytest.param(500, "boom", Unavailable, id="internal error"),
        pytest.param(
            500,
            "failed to create typed patch object: .status.pools: field not declared in schema",
            SchemaOutdated,
            id="a field that the CRD lacks is terminal although the server says 500",
        ),
    ],
)
def test_errors_by_reaction(status: int, message: str, want: type[KubeError]) -> None:
    """Each status maps to the class of its reaction and keeps the server's words."""
    error = error_of(status, {"message": message, "reason": "Why"}, "get pods")
    assert type(error) is want
    assert message in str(error)


async def test_apply_forces_our_fields(server: Server, client: KubeClient) -> None:
    """An apply is a PATCH of the apply type, as our field manager, with force."""
    manifest = {"metadata": {"namespace": "a", "name": "x"}, "spec": {"replicas": 2}}
    await client.apply(manifest, DEPLOYMENTS)
    (request,) = server.requests
    assert request.method == "PATCH"
    assert request.path == "/apis/apps/v1/namespaces/a/deployments/x"
    assert dict(request.query) == {"fieldManager": "goodput-operator", "force": "true"}
    assert request.headers["Content-Type"] == "application/apply-patch+yaml"
    assert orjson.loads(server.bodies[0]) == manifest


async def test_retries_until_it_works(server: Server, client: KubeClient) -> None:
    """Answers of 503 and 429 are retried; the answer that follows is returned, and counted once."""
    observed: list[tuple[str, str, str]] = []
    client._observer = lambda *what: observed.append(what)
    statuses = iter([503, 429, 200])
    server.answer = lambda _: web.json_response({"kind": "Service"}, status=next(statuses))
    assert await client.get(SERVICES, "a", "x") == {"kind": "Service"}
    assert observed == [("get", "Service", "ok")]


async def test_gives_up_at_the_deadline(server: Server, client: KubeClient) -> None:
    """A server that never recovers costs at most the deadline."""
    server.answer = lambda _: web.Response(status=503, text="<html>")
    started = time.monotonic()
    with pytest.raises(Unavailable):
        await client.get(SERVICES, "a", "x")
    assert time.monotonic() - started < 3.0
    assert len(server.requests) > 2


async def test_refusals_are_not_retried(server: Server, client: KubeClient) -> None:
    """A 403 is told at once."""
    server.answer = lambda _: web.json_response({"message": "no"}, status=403)
    with pytest.raises(Refused):
        await client.get(SERVICES, "a", "x")
    assert len(server.requests) == 1


async def test_a_server_that_is_not_there(client: KubeClient) -> None:
    """A refused connection is Unavailable, with the cause."""
    nowhere = KubeClient(Connection("http://127.0.0.1:1", client._connection.session), deadline_seconds=0.3)
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1"):
        await nowhere.get(SERVICES, "a", "x")


async def test_lists_follow_continue(server: Server, client: KubeClient) -> None:
    """Pages are asked for until there is no token left; items get the version and kind that a list leaves out."""

    def answer(request: web.Request) -> web.Response:
        token = request.query.get("continue")
        metadata = {"resourceVersion": "7"} if token else {"resourceVersion": "7", "continue": "more"}
        return web.json_response({"metadata": metadata, "items": [{"n": token or "first"}]})

    server.answer = answer
    pages = [page async for page in client.pages(SERVICES, None, "a=b")]
    whole = {"apiVersion": "v1", "kind": "Service"}
    assert pages == [([{**whole, "n": "first"}], "7"), ([{**whole, "n": "more"}], "7")]
    assert {request.query["labelSelector"] for request in server.requests} == {"a=b"}


async def test_watch_reads_objects_of_any_size_and_raises_errors(server: Server, client: KubeClient) -> None:
    """Lines longer than any buffer arrive whole; an ERROR event becomes the error that it tells."""
    large = {"type": "ADDED", "object": {"data": "x" * 1_000_000}}
    gone = {"type": "ERROR", "object": {"code": 410, "message": "too old"}}

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(orjson.dumps(large) + b"\n" + orjson.dumps(gone) + b"\n")
        return response

    server.answer = answer
    events = client.watch(SERVICES, None, "5")
    assert await anext(events) == large
    with pytest.raises(Expired):
        await anext(events)
    assert server.requests[0].query["resourceVersion"] == "5"
    assert server.requests[0].query["allowWatchBookmarks"] == "true"


async def test_a_silent_watch_ends(server: Server, client: KubeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream without a bookmark for too long is given up."""
    monkeypatch.setattr(kube_module, "WATCH_SILENCE_SECONDS", 0.1)

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(1)
        return response

    server.answer = answer
    with pytest.raises(Unavailable):
        async for _ in client.watch(SERVICES, None, "5"):
            pass


async def test_a_rotated_token_is_read_again(server: Server, tmp_path: Path) -> None:
    """After a 401 the token is read anew and the request repeated once, without the caller noticing."""
    token = tmp_path / "token"
    token.write_text("old")
    configuration = Configuration(host=server.url)  # type: ignore[attr-defined]

    def refresh(target: Configuration) -> None:
        target.api_key["BearerToken"] = "bearer " + token.read_text()

    configuration.refresh_api_key_hook = refresh
    connection = await connect(configuration, "test")

    def answer(request: web.Request) -> web.Response:
        well = request.headers["Authorization"] == "Bearer new"
        return web.json_response({"well": well}, status=200 if well else 401)

    server.answer = answer
    client = KubeClient(connection, deadline_seconds=1.0)
    with pytest.raises(Refused):
        await client.get(SERVICES, "a", "x")
    token.write_text("new")
    assert await client.get(SERVICES, "a", "x") == {"well": True}
    # A lent session uses the same credentials, and closing it leaves the connection usable.
    lent = connection.lend()
    async with lent.session.get(lent.server + "/x") as response:
        assert response.status == 200
    await lent.close()
    assert await client.get(SERVICES, "a", "x") == {"well": True}
    await connection.close()


async def test_no_write_is_tried_for_as_long_as_a_read(
    server: Server, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leadership was looked at once, before the first attempt: nothing arrives after the time of the last one."""
    monkeypatch.setattr(kube_module, "FIRST_BACKOFF_SECONDS", 0.01)
    monkeypatch.setattr(kube_module, "LAST_BACKOFF_SECONDS", 0.1)
    monkeypatch.setattr(kube_module, "WRITE_ATTEMPTS_SECONDS", 0.5)
    arrived: list[float] = []

    def answer(_: web.Request) -> web.Response:
        arrived.append(time.monotonic())
        return web.Response(status=503)

    server.answer = answer
    client = KubeClient(connection)
    manifest = {"metadata": {"namespace": "a", "name": "x"}}
    for write in (
        lambda: client.apply(manifest, SERVICES),
        lambda: client.merge(SERVICES, "a", "x", {}),
        lambda: client.create(SERVICES, manifest),
        lambda: client.replace(SERVICES, manifest),
        lambda: client.delete(SERVICES, "a", "x"),
    ):
        arrived.clear()
        began = time.monotonic()
        async with asyncio.timeout(5):
            with pytest.raises(Unavailable):
                await write()
        assert len(arrived) > 2
        assert arrived[-1] - began < 0.6


async def test_a_slow_answer_to_a_write_is_waited_for(
    server: Server, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A webhook may take longer than writes are tried for."""
    monkeypatch.setattr(kube_module, "WRITE_ATTEMPTS_SECONDS", 0.1)

    async def answer(_: web.Request) -> web.Response:
        await asyncio.sleep(0.3)
        return web.json_response({"kind": "Service"})

    server.answer = answer
    assert await client.merge(SERVICES, "a", "x", {}) == {"kind": "Service"}
    assert len(server.requests) == 1


def test_attempts_of_writes_end_before_another_may_lead() -> None:
    """Whoever takes itself for the leader at the first attempt still holds the Lease at the last one."""
    assert kube_module.WRITE_ATTEMPTS_SECONDS + RENEW_DEADLINE_SECONDS <= LEASE_SECONDS
    assert kube_module.WRITE_DEADLINE_SECONDS < RENEW_DEADLINE_SECONDS
