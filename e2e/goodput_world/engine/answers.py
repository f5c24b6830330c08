"""Answers of the OpenAI routes. Streams are bytes built once per request: a token costs one write of a ready chunk."""

from __future__ import annotations

from typing import Any

import orjson

from goodput_world.engine.http1 import Connection

TOKEN_TEXT = " token"
_EVENT_STREAM = b"text/event-stream; charset=utf-8"
_DONE = b"data: [DONE]\n\n"
_END = b"0\r\n\r\n"


def error_body(status: int, kind: str, message: str, param: str | None = None) -> bytes:
    """The error object of vLLM's OpenAI routes."""
    return orjson.dumps({"error": {"message": message, "type": kind, "param": param, "code": status}})


def _framed(payload: bytes) -> bytes:
    """One chunk of chunked transfer coding."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def _event(value: Any) -> bytes:
    return _framed(b"data: " + orjson.dumps(value) + b"\n\n")


def usage(prompt_tokens: int, completion_tokens: int, cached_tokens: int | None = None) -> dict[str, Any]:
    """The usage object; cached tokens are shown with --enable-prompt-tokens-details only."""
    details = None if cached_tokens is None else {"cached_tokens": cached_tokens}
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
        "prompt_tokens_details": details,
    }


class StreamedAnswer:
    """Server-sent events, one per token."""

    __slots__ = (
        "_chat",
        "_chunk",
        "_connection",
        "_envelope",
        "_include_usage",
        "_prompt_tokens",
        "_running_usage",
        "_transport",
        "closed",
        "sent",
    )

    def __init__(
        self,
        connection: Connection,
        envelope: dict[str, Any],
        *,
        chat: bool,
        prompt_tokens: int,
        include_usage: bool,
        running_usage: bool,
    ) -> None:
        self._connection = connection
        self._transport = connection.transport
        self._envelope = envelope
        self._chat = chat
        self._prompt_tokens = prompt_tokens
        self._include_usage = include_usage
        self._running_usage = running_usage
        self._chunk = _event({**envelope, "choices": [self._choice(TOKEN_TEXT, None)]})
        self.closed = False
        self.sent = 0

    def accepted(self) -> None:
        """The request is in the engine: as in vLLM the head of the answer goes out now, long before the first token."""
        self._transport.write(self._connection.start(_EVENT_STREAM))

    def _choice(self, text: str, reason: str | None) -> dict[str, Any]:
        if self._chat:
            delta = {"content": text}
            return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason, "token_ids": None}
        return {"index": 0, "text": text, "logprobs": None, "finish_reason": reason, "stop_reason": None}

    def token(self, last: str | None) -> None:
        """Write the token's event; the first of a chat brings the role along, the last the end of the stream."""
        self.sent += 1
        if self.sent > 1 and last is None and not self._running_usage:
            self._transport.write(self._chunk)
            return
        pieces = []
        if self.sent == 1 and self._chat:
            role = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None}
            pieces.append(_event({**self._envelope, "choices": [{**role, "finish_reason": None}]}))
        if self._running_usage or last is not None:
            event = {**self._envelope, "choices": [self._choice(TOKEN_TEXT, last)]}
            if self._running_usage:
                event["usage"] = usage(self._prompt_tokens, self.sent)
            pieces.append(_event(event))
        else:
            pieces.append(self._chunk)
        if last is not None:
            if self._include_usage:
                totals = usage(self._prompt_tokens, self.sent)
                pieces.append(_event({**self._envelope, "choices": [], "usage": totals}))
            pieces += [_framed(_DONE), _END]
        self._transport.write(b"".join(pieces))
        if last is not None:
            self.closed = True
            self._connection.end()


class UnaryAnswer:
    """One JSON object when the last token exists."""

    __slots__ = ("_chat", "_connection", "_envelope", "_prompt_tokens", "closed", "sent")

    def __init__(self, connection: Connection, envelope: dict[str, Any], *, chat: bool, prompt_tokens: int) -> None:
        self._connection = connection
        self._envelope = envelope
        self._chat = chat
        self._prompt_tokens = prompt_tokens
        self.closed = False
        self.sent = 0

    def accepted(self) -> None:
        """The request is in the engine; there is nothing to send before the end."""

    def token(self, last: str | None) -> None:
        """Count; answer when it was the last."""
        self.sent += 1
        if last is None:
            return
        text = (TOKEN_TEXT * self.sent).lstrip() if self._chat else TOKEN_TEXT * self.sent
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": last, "stop_reason": None}
        if self._chat:
            choice["message"] = {"role": "assistant", "content": text, "tool_calls": []}
        else:
            choice["text"] = text
        body = {**self._envelope, "choices": [choice], "usage": usage(self._prompt_tokens, self.sent)}
        self.closed = True
        self._connection.respond(200, orjson.dumps(body))
