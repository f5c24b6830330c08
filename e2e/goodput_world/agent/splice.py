"""Two sockets joined: what comes in on one goes out on the other, with back-pressure, at the cost of one call a chunk.

Thousands of streamed chunks a second pass here; hence raw protocols instead of streams and tasks per connection.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import cast

Dial = Callable[[tuple[str, int], "Downstream"], Awaitable[None]]
"""(address of the client, its side) -> connects the other side with `join`, or calls `refuse`."""


def set_no_delay(transport: asyncio.BaseTransport) -> None:
    """Send small chunks at once."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


CHUNK_BYTES = 64 * 1024


class Side(asyncio.BufferedProtocol):
    """One side of a joined connection.

    All sides of a loop read into one buffer: it is emptied before the next read. A plain Protocol would allocate
    256 KiB for every chunk, which was measured to cost more than all else here.
    """

    def __init__(self, buffer: memoryview) -> None:
        """Joined to nothing yet. `buffer` is scratch space of CHUNK_BYTES, shared by all sides."""
        self._buffer = buffer
        self.transport: asyncio.Transport | None = None
        self.other: asyncio.Transport | None = None
        self.peer: Side | None = None
        self.ended = False
        """Whether this side has said that it sends no more."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast("asyncio.Transport", transport)
        set_no_delay(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next chunk goes."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass a chunk on."""
        if self.other is not None:
            self.other.write(bytes(self._buffer[:nbytes]))

    def eof_received(self) -> bool:
        """Pass a half-close on; our own direction stays open."""
        self.ended = True
        if self.other is not None and not self.other.is_closing():
            if self.peer is not None and self.peer.ended:
                self.other.close()
                return False  # both have ended: close us too
            self.other.write_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the other side, roughly if this one ended roughly."""
        other, self.other, self.peer = self.other, None, None
        if other is None or other.is_closing():
            return
        if exc is None:
            other.close()
        else:
            reset(other)

    def pause_writing(self) -> None:
        """Our peer reads slowly: stop reading from the other side."""
        if self.other is not None and not self.other.is_closing():
            self.other.pause_reading()

    def resume_writing(self) -> None:
        """Our peer caught up."""
        if self.other is not None and not self.other.is_closing():
            self.other.resume_reading()


class Downstream(Side):
    """The client's side of a connection to a Service: reads nothing until the pod's side is there."""

    def __init__(self, dial: Dial, tasks: set[asyncio.Task[None]], buffer: memoryview) -> None:
        """`tasks` keeps the dialling tasks alive."""
        super().__init__(buffer)
        self._dial = dial
        self._tasks = tasks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start dialling."""
        super().connection_made(transport)
        assert self.transport is not None
        self.transport.pause_reading()
        peer = transport.get_extra_info("peername") or ("127.0.0.1", 0)
        task = asyncio.get_running_loop().create_task(self._run(peer[:2]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, peer: tuple[str, int]) -> None:
        try:
            await self._dial(peer, self)
        except OSError:
            self.refuse()

    def join(self, upstream: Side) -> None:
        """Join with the pod's side and begin to read."""
        if self.transport is None or self.transport.is_closing():
            if upstream.transport is not None:
                upstream.transport.close()
            return
        self.other, upstream.other = upstream.transport, self.transport
        self.peer, upstream.peer = upstream, self
        self.transport.resume_reading()

    def refuse(self) -> None:
        """End the connection with a reset: nobody is there to answer."""
        if self.transport is not None:
            reset(self.transport)


def reset(transport: asyncio.Transport) -> None:
    """Close a connection with RST instead of FIN."""
    sock = transport.get_extra_info("socket")
    if sock is not None and not transport.is_closing():
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
