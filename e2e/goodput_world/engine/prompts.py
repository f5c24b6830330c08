"""How many tokens a prompt has, and the names of its blocks for the prefix cache.

A list of token ids counts exactly. Text counts one token per word, and each chat message one more for its role.
Equal starts give equal block hashes in every process.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any


class PromptError(ValueError):
    """A prompt that is none; the text is for the client."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt's length and the chained hashes of its full blocks."""

    tokens: int
    block_hashes: tuple[int, ...]


def _chain(pieces: Sequence[bytes]) -> tuple[int, ...]:
    hashes: list[int] = []
    parent = b""
    for piece in pieces:
        parent = blake2b(parent + piece, digest_size=8).digest()
        hashes.append(int.from_bytes(parent, "little"))
    return tuple(hashes)


def from_token_ids(ids: Sequence[int], block_size: int, salt: str = "") -> Prompt:
    """A prompt given as token ids. Raises `PromptError` for anything that is not an id."""
    try:
        data = array("I", ids).tobytes()
    except (TypeError, OverflowError):
        raise PromptError("prompt: token ids must be non-negative integers") from None
    width = 4 * block_size
    full = len(ids) // block_size
    pieces = [data[index * width : (index + 1) * width] for index in range(full)]
    if pieces and salt:
        pieces[0] += salt.encode()
    return Prompt(len(ids), _chain(pieces))


def from_words(words: Sequence[str], block_size: int, salt: str = "") -> Prompt:
    """A prompt given as words; an empty one is the one token that starts every text."""
    full = len(words) // block_size
    pieces = [" ".join(words[index * block_size : (index + 1) * block_size]).encode() for index in range(full)]
    if pieces and salt:
        pieces[0] += salt.encode()
    return Prompt(max(1, len(words)), _chain(pieces))


def of_completion(prompt: Any, block_size: int, salt: str = "") -> Prompt:
    """The `prompt` of /v1/completions. Raises `PromptError`."""
    if isinstance(prompt, str):
        return from_words(prompt.split(), block_size, salt)
    if isinstance(prompt, list) and prompt:
        if isinstance(prompt[0], int):
            return from_token_ids(prompt, block_size, salt)
        if len(prompt) == 1:
            return of_completion(prompt[0], block_size, salt)
        raise PromptError("prompt: several prompts in one request are not simulated")
    raise PromptError("prompt: give a text or a non-empty list of token ids")


def of_chat(messages: Any, block_size: int, salt: str = "") -> Prompt:
    """The `messages` of /v1/chat/completions. Raises `PromptError`."""
    if not isinstance(messages, list) or not messages:
        raise PromptError("messages: give at least one message")
    words: list[str] = []
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise PromptError("messages: each message needs a role")
        words.append(f"<{message['role']}>")
        content = message.get("content")
        parts = content if isinstance(content, list) else [{"text": content or ""}]
        for part in parts:
            text = part.get("text") if isinstance(part, Mapping) else None
            if not isinstance(text, str):
                raise PromptError("messages: only text content is simulated")
            words.extend(text.split())
    return from_words(words, block_size, salt)
