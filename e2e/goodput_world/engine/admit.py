"""Whether a connection may reach this pod: asked of the node, which plays the network policies.

The process that simulates the node listens on a unix socket. Each accepted connection is held unread until it
answers; without an answer the connection is refused, for a policy that cannot be asked is not a permission.
"""

from __future__ import annotations

import asyncio
import json
import os

from goodput_world.engine.http1 import Connection

ANSWER_TIMEOUT_SECONDS = 5.0


class Admission:
    """Asks at `path` for connections to `pod` (namespace/name)."""

    def __init__(self, path: str, pod: str, port: int) -> None:
        self._path = path
        self._pod = pod
        self._port = port
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    def from_environment(cls, port: int) -> Admission | None:
        """The gate that GOODPUT_SIM_ADMIT and POD name; None where every connection is allowed."""
        path = os.environ.get("GOODPUT_SIM_ADMIT")
        if not path:
            return None
        pod = os.environ.get("POD")
        if not pod:
            pod = f"{os.environ.get('POD_NAMESPACE', 'default')}/{os.environ.get('POD_NAME', '')}"
        return cls(path, pod, port)

    def opened(self, connection: Connection) -> None:
        """Hold the connection until the node has answered."""
        connection.transport.pause_reading()
        task = asyncio.get_running_loop().create_task(self._decide(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _decide(self, connection: Connection) -> None:
        peer = connection.transport.get_extra_info("peername") or ("", 0)
        try:
            allowed = await asyncio.wait_for(self._ask(str(peer[0]), int(peer[1])), ANSWER_TIMEOUT_SECONDS)
        except (OSError, ValueError, TimeoutError):
            allowed = False
        if not connection.open:
            return
        if allowed:
            connection.transport.resume_reading()
        else:
            connection.transport.abort()

    async def _ask(self, address: str, port: int) -> bool:
        reader, writer = await asyncio.open_unix_connection(self._path)
        try:
            question = {"peer": [address, port], "pod": self._pod, "port": self._port}
            writer.write(json.dumps(question).encode() + b"\n")
            await writer.drain()
            answer = json.loads(await reader.readline())
            return isinstance(answer, dict) and answer.get("allow") is True
        finally:
            writer.close()
