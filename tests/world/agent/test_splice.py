"""Joined sockets: bytes, half-closes, resets and back-pressure pass through."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from goodput_world.agent.services import Admission, ServiceProxy

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def pod(ip: str, *, ready: bool = True) -> dict[str, Any]:
    """A pod of the Service."""
    return {
        "metadata": {"name": "p", "namespace": "ns", "labels": {"app": "web"}},
        "spec": {"containers": []},
        "status": {"podIP": ip, "conditions": [{"type": "Ready", "status": str(ready)}]},
    }


class World:
    """A pod that runs a handler, behind a proxy on loopback."""

    def __init__(self) -> None:
        """Nothing runs yet."""
        self.allowed = True
        self.pods: list[dict[str, Any]] = []
        self.handler: Handler = echo
        self.open: set[tuple[str, int]] = set()
        self.port = 0

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the Service."""
        return await asyncio.open_connection("127.0.0.1", self.port)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send back what comes, until the end."""
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A Service with one pod that echoes."""
    made = World()
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await made.handler(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        made.port = free.getsockname()[1]
    made.pods = [pod("127.0.0.1")]
    proxy = ServiceProxy(
        pods_of=lambda _: made.pods,
        admit=lambda *_: Admission(made.allowed),
        api_address=("127.0.0.1", 1),
        connected=made.open.add,
        disconnected=made.open.discard,
    )
    port = {"port": made.port, "targetPort": server.sockets[0].getsockname()[1]}
    spec = {"clusterIP": "127.0.0.1", "selector": {"app": "web"}, "ports": [port]}
    proxy.set_services({"ns/web": {"metadata": {"name": "web", "namespace": "ns"}, "spec": spec}})
    await proxy.listen()
    yield made
    proxy.close()
    server.close()
    for writer in writers:
        writer.close()


async def test_bytes_pass_both_ways_and_a_half_close_too(world: World) -> None:
    """The client ends its side, the pod answers the rest and ends: nothing is lost, nothing stays open."""
    reader, writer = await world.connect()
    sent = bytes(range(256)) * 4096
    writer.write(sent)
    writer.write_eof()

    received = await reader.read(-1)

    assert received == sent
    writer.close()
    await asyncio.sleep(0.05)
    assert world.open == set()


async def test_a_pod_that_resets_resets_the_client(world: World) -> None:
    """A crash is seen as a crash, not as a clean end."""

    async def crash(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()

    world.handler = crash
    reader, writer = await world.connect()
    writer.write(b"x")

    with pytest.raises(ConnectionResetError):
        await reader.read(-1)


async def test_nobody_ready_is_a_reset(world: World) -> None:
    """Neither a pod that is not Ready nor a policy that refuses lets a byte through."""
    world.pods = [pod("127.0.0.1", ready=False)]
    reader, writer = await world.connect()
    with pytest.raises(ConnectionResetError):
        await reader.read(1)
    writer.close()


async def test_a_refused_connection_is_a_reset(world: World) -> None:
    """The pod never sees it."""
    world.allowed = False
    reader, writer = await world.connect()
    with pytest.raises(ConnectionResetError):
        await reader.read(1)
    writer.close()
    assert world.open == set()


async def test_a_slow_client_slows_the_pod(world: World) -> None:
    """The proxy buffers little: the pod's writes block while the client does not read."""
    written = 0

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        for _ in range(2000):
            writer.write(b"x" * 65536)
            await writer.drain()
            written += 65536
        writer.close()

    world.handler = flood
    reader, writer = await world.connect()
    await asyncio.sleep(0.5)
    stuck = written
    await asyncio.sleep(0.2)

    assert written == stuck
    assert stuck < 40 * 2**20
    total = 0
    while data := await reader.read(2**20):
        total += len(data)
    assert total == 2000 * 65536
    writer.close()
