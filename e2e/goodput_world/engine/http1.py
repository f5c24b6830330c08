"""A lean HTTP/1.1 server side for one purpose: thousands of small streamed writes a second on little CPU.

Keep-alive, pipelining (one request is answered at a time, in order), Content-Length and chunked request bodies.
A lost connection is reported to whatever is being answered on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024
_REASONS = {
    200: b"OK",
    400: b"Bad Request",
    401: b"Unauthorized",
    404: b"Not Found",
    405: b"Method Not Allowed",
    413: b"Payload Too Large",
    500: b"Internal Server Error",
    503: b"Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class Request:
    """One complete HTTP request; header names are lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Handler = Callable[[Request, "Connection"], None]
Observer = Callable[["Connection"], None]


class _BadRequestError(Exception):
    """Bytes that are not an HTTP/1.1 request; carries the status to answer with."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Connection(asyncio.Protocol):
    """One client connection. A handler answers with `respond`, or with `start`, `transport.write` and `end`."""

    __slots__ = ("_buffer", "_busy", "_close_after", "_closed", "_handler", "_opened", "on_lost", "open", "transport")

    def __init__(self, handler: Handler, opened: Observer | None = None, closed: Observer | None = None) -> None:
        self._handler = handler
        self._opened = opened
        self._closed = closed
        self._buffer = bytearray()
        self._busy = False
        self._close_after = False
        self.transport: asyncio.Transport = cast("asyncio.Transport", None)
        self.on_lost: Callable[[], None] | None = None
        self.open = False

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""
        return self._busy

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to read, unless somebody has to allow the connection first."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=1 << 20)
        self.open = True
        if self._opened is not None:
            self._opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever is answering that nobody listens any more."""
        self.open = False
        lost, self.on_lost = self.on_lost, None
        if lost is not None:
            lost()
        if self._closed is not None:
            self._closed(self)

    def data_received(self, data: bytes) -> None:
        """Collect bytes; answer the next complete request if none is being answered."""
        self._buffer += data
        if not self._busy:
            self._next()

    def respond(self, status: int, body: bytes, content_type: bytes = b"application/json", extra: bytes = b"") -> None:
        """Answer the request in one write. `extra` holds whole header lines, each ended by CRLF."""
        if not self.open:
            return
        self.transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-length: %d\r\ncontent-type: %b\r\n%b%b\r\n%b"
            % (
                status,
                _REASONS.get(status, b"Unknown"),
                len(body),
                content_type,
                b"connection: close\r\n" if self._close_after else b"",
                extra,
                body,
            )
        )
        self._done()

    def start(self, content_type: bytes) -> bytes:
        """The head of a streamed 200 answer in chunked transfer coding, to be written with its first chunk."""
        return b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n%btransfer-encoding: chunked\r\n\r\n" % (
            content_type,
            b"connection: close\r\n" if self._close_after else b"",
        )

    def end(self) -> None:
        """The streamed answer is complete (its last chunk is written by the caller)."""
        self._done()

    def _done(self) -> None:
        self.on_lost = None
        self._busy = False
        if self._close_after:
            self.transport.close()
        elif self._buffer:
            asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        if not self._busy and self.open:
            self._next()

    def _next(self) -> None:
        try:
            request = self._parse()
        except _BadRequestError as error:
            self._close_after = True
            self._busy = True
            self._buffer.clear()
            self.respond(error.status, b"Invalid HTTP request received.", b"text/plain; charset=utf-8")
            return
        if request is not None:
            self._busy = True
            self._handler(request, self)

    def _parse(self) -> Request | None:
        """The first complete request of the buffer, removed from it; None if bytes are missing."""
        buffer = self._buffer
        end = buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(buffer) > MAX_HEAD_BYTES:
                raise _BadRequestError(400)
            return None
        lines = buffer[:end].decode("latin-1").split("\r\n")
        parts = lines[0].split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            raise _BadRequestError(400)
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon:
                raise _BadRequestError(400)
            headers[name.lower()] = value.strip()
        start = end + 4
        if headers.get("transfer-encoding", "").lower() == "chunked":
            chunked = _chunked_body(buffer, start)
            if chunked is None:
                return None
            body, after = chunked
        else:
            length = headers.get("content-length", "0")
            if not length.isdigit():
                raise _BadRequestError(400)
            after = start + int(length)
            if int(length) > MAX_BODY_BYTES:
                raise _BadRequestError(413)
            if len(buffer) < after:
                if headers.pop("expect", "").lower() == "100-continue" and len(buffer) == start:
                    self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                return None
            body = bytes(buffer[start:after])
        del buffer[:after]
        connection = headers.get("connection", "").lower()
        self._close_after = connection == "close" or (parts[2] == "HTTP/1.0" and connection != "keep-alive")
        return Request(parts[0], parts[1].partition("?")[0], headers, body)


def _chunked_body(buffer: bytearray, position: int) -> tuple[bytes, int] | None:
    """The decoded body and where it ends in the buffer; None if bytes are missing."""
    body = bytearray()
    while True:
        line = buffer.find(b"\r\n", position)
        if line < 0:
            return None
        try:
            size = int(bytes(buffer[position:line]).split(b";")[0], 16)
        except ValueError:
            raise _BadRequestError(400) from None
        position = line + 2
        if size == 0:
            end = buffer.find(b"\r\n", position)
            if end < 0:
                return None
            while end != position:  # trailers
                position = end + 2
                end = buffer.find(b"\r\n", position)
                if end < 0:
                    return None
            return bytes(body), position + 2
        if len(buffer) < position + size + 2:
            return None
        body += buffer[position : position + size]
        if len(body) > MAX_BODY_BYTES:
            raise _BadRequestError(413)
        position += size + 2
