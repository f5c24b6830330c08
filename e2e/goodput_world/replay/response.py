"""A lean reader of one streamed completion: HTTP/1.1 framing and server-sent events, bytes in, counts out. No I/O, no
clock.

A general client spends several times as long on every chunk; at thousands of chunks a second on a shared core that time
would be taken from what is being measured.
"""

from __future__ import annotations

import re
from enum import Enum, auto

_COMPLETION_TOKENS = re.compile(rb'"completion_tokens": ?(\d+)')
# An error body is kept up to this length, to be shown in the record.
_ERROR_BYTES = 300


class ResponseError(Exception):
    """The peer sent something that is not an HTTP/1.1 response with a stream of events."""


class _Framing(Enum):
    HEAD = auto()
    CHUNK_SIZE = auto()
    CHUNK_DATA = auto()
    TRAILER = auto()
    LENGTH = auto()
    UNTIL_CLOSE = auto()
    DONE = auto()


class StreamedResponse:
    """State of one response. Feed it bytes with the instant they came; `complete` says the framing ended properly.

    `tokens` is what the engine's usage says where it came, else the number of events with text. `finished` says that
    the stream ended with `[DONE]`. `error` holds what an error event or an error body said.
    """

    __slots__ = (
        "_buffer",
        "_carry",
        "_framing",
        "_left",
        "_usage_tokens",
        "bytes_received",
        "error",
        "finished",
        "first_byte_at",
        "first_token_at",
        "last_token_at",
        "status",
        "token_events",
    )

    def __init__(self) -> None:
        self._framing = _Framing.HEAD
        self._buffer = b""
        self._carry = b""
        self._left = 0
        self._usage_tokens: int | None = None
        self.status: int | None = None
        self.bytes_received = 0
        self.token_events = 0
        self.first_byte_at: float | None = None
        self.first_token_at: float | None = None
        self.last_token_at: float | None = None
        self.finished = False
        self.error = ""

    @property
    def tokens(self) -> int:
        """Output tokens received."""
        return self.token_events if self._usage_tokens is None else self._usage_tokens

    @property
    def complete(self) -> bool:
        """Whether the response ended where its own framing says it ends."""
        return self._framing is _Framing.DONE

    def closed(self) -> None:
        """The peer closed the connection: the proper end of a response without a length, else a cut."""
        if self._framing is _Framing.UNTIL_CLOSE:
            self._framing = _Framing.DONE

    def feed(self, data: bytes, now: float) -> None:
        """Take bytes as they came. Raises ResponseError on what cannot be read."""
        if self.first_byte_at is None:
            self.first_byte_at = now
        self.bytes_received += len(data)
        rest = self._buffer + data if self._buffer else data
        self._buffer = b""
        while rest and self._framing is not _Framing.DONE:
            framing = self._framing
            if framing is _Framing.CHUNK_DATA or framing is _Framing.LENGTH:
                rest = self._take(rest, now)
            elif framing is _Framing.UNTIL_CLOSE:
                self._body(rest, now)
                rest = b""
            elif framing is _Framing.HEAD:
                head, found, after = rest.partition(b"\r\n\r\n")
                if not found:
                    self._buffer = rest
                    return
                self._head(head)
                rest = after
            else:
                line, found, after = rest.partition(b"\r\n")
                if not found:
                    self._buffer = rest
                    return
                self._line(line)
                rest = after

    def _take(self, rest: bytes, now: float) -> bytes:
        """Take up to what is left of a chunk or of a body with a length; a chunk's own CRLF reads as an empty size
        line.
        """
        piece = rest[: self._left]
        self._left -= len(piece)
        if self._left == 0:
            self._framing = _Framing.CHUNK_SIZE if self._framing is _Framing.CHUNK_DATA else _Framing.DONE
        self._body(piece, now)
        return rest[len(piece) :]

    def _line(self, line: bytes) -> None:
        if self._framing is _Framing.TRAILER:
            if not line:
                self._framing = _Framing.DONE
            return
        if not line:
            return
        try:
            self._left = int(line.partition(b";")[0], 16)
        except ValueError:
            raise ResponseError(f"not a chunk size: {line[:40]!r}") from None
        self._framing = _Framing.CHUNK_DATA if self._left else _Framing.TRAILER

    def _head(self, head: bytes) -> None:
        first, *lines = head.split(b"\r\n")
        parts = first.split(b" ", 2)
        if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit():
            raise ResponseError(f"not an HTTP/1.1 status line: {first[:60]!r}")
        status = int(parts[1])
        if status == 100:
            return
        self.status = status
        headers = {}
        for line in lines:
            name, _, value = line.partition(b":")
            headers[name.strip().lower()] = value.strip()
        if b"chunked" in headers.get(b"transfer-encoding", b"").lower():
            self._framing = _Framing.CHUNK_SIZE
        elif b"content-length" in headers:
            self._left = int(headers[b"content-length"])
            self._framing = _Framing.LENGTH if self._left else _Framing.DONE
        else:
            self._framing = _Framing.UNTIL_CLOSE

    def _body(self, piece: bytes, now: float) -> None:
        if self.status != 200:
            if len(self.error) < _ERROR_BYTES:
                self.error += piece[: _ERROR_BYTES - len(self.error)].decode("utf-8", "replace")
            return
        *events, self._carry = ((self._carry + piece) if self._carry else piece).split(b"\n\n")
        for event in events:
            self._event(event, now)

    def _event(self, event: bytes, now: float) -> None:
        if not event.startswith(b"data:"):
            return
        if b'"choices":[]' in event or b'"choices": []' in event:
            counted = _COMPLETION_TOKENS.search(event)
            if counted:
                self._usage_tokens = int(counted.group(1))
        elif event.startswith((b"data: [DONE]", b"data:[DONE]")):
            self.finished = True
        elif event.startswith((b'data: {"error"', b'data:{"error"')):
            self.error = event[5 : 5 + _ERROR_BYTES].decode("utf-8", "replace").strip()
        else:
            self.token_events += 1
            self.last_token_at = now
            if self.first_token_at is None:
                self.first_token_at = now
