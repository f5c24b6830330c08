"""Sends one streamed completion over a connection of its own and fills in its record.

Each request opens a connection: every user is somebody else, a Service balances connections, and a kept-alive one that
the peer closes just then would count as a lost request that no fleet lost.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

import orjson

from goodput_world.replay.records import Outcome, Record
from goodput_world.replay.response import ResponseError, StreamedResponse

_SHED_STATUSES = (429, 503)


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go: an `http://host[:port]` base URL, the model's served name, an optional API key.

    `model` is what the request body names. Raises ValueError for a URL of another scheme or without a host.
    """

    url: str
    model: str
    api_key: str | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"the target must be http://HOST[:PORT], not {self.url!r}")

    @property
    def host(self) -> str:
        """Host name or address."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """Port, 80 where the URL names none."""
        return urlsplit(self.url).port or 80

    def request_bytes(self, prompt: list[int], output_tokens: int, request_id: str) -> bytes:
        """The whole HTTP request: a greedy streamed completion of exactly `output_tokens` tokens."""
        body = orjson.dumps(
            {
                "model": self.model,
                "prompt": prompt,
                "max_tokens": output_tokens,
                "ignore_eos": True,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )
        parts = urlsplit(self.url)
        headers = [
            f"POST {parts.path.rstrip('/')}/v1/completions HTTP/1.1",
            f"Host: {parts.netloc}",
            "Content-Type: application/json",
            "Accept: text/event-stream",
            f"X-Request-Id: {request_id}",
            f"Content-Length: {len(body)}",
        ]
        if self.api_key:
            headers.append(f"Authorization: Bearer {self.api_key}")
        return "\r\n".join([*headers, "", ""]).encode("ascii") + body


class _Exchange(asyncio.Protocol):
    """One request and its response on one connection; `ended` is done when either side is through."""

    def __init__(self, request: bytes, ended: asyncio.Future[str]) -> None:
        self._request = request
        self._ended = ended
        self._transport: asyncio.Transport | None = None
        self.response = StreamedResponse()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)
        self._request = b""

    def data_received(self, data: bytes) -> None:
        try:
            self.response.feed(data, time.monotonic())
        except ResponseError as error:
            self._finish(str(error))
            return
        if self.response.complete:
            self._finish("")

    def connection_lost(self, exc: Exception | None) -> None:
        self.response.closed()
        self._finish("" if self.response.complete else f"connection lost: {exc or 'closed by the peer'}")

    def _finish(self, error: str) -> None:
        if not self._ended.done():
            self._ended.set_result(error)
        if self._transport is not None:
            self._transport.close()


async def send(target: Target, request: bytes, record: Record, zero: float) -> None:
    """Send a request now and fill `record`; never raises for what the peer does. `zero` is the replay's start
    (monotonic).

    When cancelled, the record keeps what had come so far and stays `unfinished`.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[str] = loop.create_future()
    exchange = _Exchange(request, ended)
    transport: asyncio.Transport | None = None
    record.sent_seconds = time.monotonic() - zero
    try:
        transport, _ = await loop.create_connection(lambda: exchange, target.host, target.port)
        error = await ended
        _judge(record, exchange.response, error)
    except OSError as failure:
        record.outcome = Outcome.UNREACHABLE
        record.error = str(failure)
    finally:
        _fill(record, exchange.response, zero)
        if record.outcome is not Outcome.UNFINISHED:
            record.end_seconds = time.monotonic() - zero
        if transport is not None:
            transport.abort()


def _judge(record: Record, response: StreamedResponse, error: str) -> None:
    """Say how a request ended: complete means closed properly, `[DONE]` seen and every token asked for there."""
    record.error = response.error or error
    if response.status is not None and response.status != 200:
        record.outcome = Outcome.REFUSED if response.status in _SHED_STATUSES else Outcome.FAILED
    elif response.status == 200 and response.error:
        record.outcome = Outcome.FAILED
    elif response.complete and response.finished and response.tokens >= record.output_tokens:
        record.outcome = Outcome.OK
    else:
        record.outcome = Outcome.CUT
        record.error = record.error or f"ended after {response.tokens} of {record.output_tokens} tokens"


def _fill(record: Record, response: StreamedResponse, zero: float) -> None:
    record.status = response.status
    record.tokens_received = response.tokens
    record.bytes_received = response.bytes_received
    record.first_byte_seconds = _since(response.first_byte_at, zero)
    record.first_token_seconds = _since(response.first_token_at, zero)
    record.last_token_seconds = _since(response.last_token_at, zero)


def _since(instant: float | None, zero: float) -> float | None:
    return None if instant is None else instant - zero
