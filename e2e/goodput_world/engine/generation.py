"""From the body of an OpenAI request to what the engine is asked for; mistakes get vLLM's answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from goodput_world.engine import prompts

COMPLETION_DEFAULT_TOKENS = 16


class ClientError(Exception):
    """A request that is refused, with the status and error type that vLLM gives."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message
        self.param = param


@dataclass(frozen=True, slots=True)
class Generation:
    """`output_tokens` ends with `finish_reason`; `max_tokens` is the request's own limit, None if it named none."""

    prompt: prompts.Prompt
    output_tokens: int
    finish_reason: str
    max_tokens: int | None
    stream: bool
    include_usage: bool
    running_usage: bool
    model: str


def _bad(message: str, param: str | None = None) -> ClientError:
    return ClientError(400, "BadRequestError", message, param)


def _count(body: Mapping[str, Any], name: str, lowest: int) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
        raise _bad(f"{name} must be at least {lowest}, got {value}.", name)
    return value


def natural_length(prompt: prompts.Prompt, min_tokens: int) -> int:
    """Where an answer without a limit ends by itself: 32 to 287 tokens, the same for the same prompt."""
    seed = prompt.block_hashes[-1] if prompt.block_hashes else prompt.tokens * 2654435761
    return max(min_tokens, 32 + seed % 256)


def parse(raw: bytes, *, chat: bool, served: tuple[str, ...], max_model_len: int, block_size: int) -> Generation:
    """Read the body of /v1/chat/completions or /v1/completions. Raises `ClientError`."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise _bad(f"Invalid JSON body: {error}") from None
    if not isinstance(body, dict):
        raise _bad("The body must be a JSON object.")
    model = body.get("model") or served[0]
    if model not in served:
        raise ClientError(404, "NotFoundError", f"The model `{model}` does not exist.", "model")
    if (_count(body, "n", 1) or 1) != 1:
        raise _bad("n beyond 1 is not simulated.", "n")
    salt = str(body.get("cache_salt") or "")
    try:
        if chat:
            prompt = prompts.of_chat(body.get("messages"), block_size, salt)
        else:
            prompt = prompts.of_completion(body.get("prompt"), block_size, salt)
    except prompts.PromptError as error:
        raise _bad(str(error)) from None
    limit = _count(body, "max_completion_tokens", 1) if chat else None
    if limit is None:
        limit = _count(body, "max_tokens", 1)
    if limit is None and not chat:
        limit = COMPLETION_DEFAULT_TOKENS
    min_tokens = _count(body, "min_tokens", 0) or 0
    if limit is not None and min_tokens > limit:
        raise _bad(f"min_tokens must be less than or equal to max_tokens={limit}, got {min_tokens}.", "min_tokens")
    room = max_model_len - prompt.tokens
    if room < (limit or 1):
        raise _bad(
            f"This model's maximum context length is {max_model_len} tokens. However, you requested {limit or 0} "
            f"output tokens and your prompt contains {prompt.tokens} input tokens, for a total of "
            f"{prompt.tokens + (limit or 0)} tokens. Please reduce the length of the input prompt or the number of "
            "requested output tokens.",
            "input_tokens",
        )
    if limit is not None:
        output, reason = limit, "length"
    elif body.get("ignore_eos"):
        output, reason = room, "length"
    else:
        output, reason = natural_length(prompt, min_tokens), "stop"
        if output > room:
            output, reason = room, "length"
    options = body.get("stream_options") or {}
    if not isinstance(options, dict):
        raise _bad("stream_options must be an object.", "stream_options")
    stream = bool(body.get("stream"))
    if options and not stream:
        raise _bad("Stream options can only be defined when `stream=True`.", "stream_options")
    return Generation(
        prompt=prompt,
        output_tokens=output,
        finish_reason=reason,
        max_tokens=limit,
        stream=stream,
        include_usage=bool(options.get("include_usage")),
        running_usage=bool(options.get("continuous_usage_stats")),
        model=model,
    )
