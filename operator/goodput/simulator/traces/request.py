"""A request of a trace."""

from __future__ import annotations

from dataclasses import dataclass

# Published traces hash a prompt in blocks of so many tokens; the last one may be shorter.
BLOCK_TOKENS = 512


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """When a request came (seconds from the first one of its trace) and how long it was.

    `blocks` are hashes of the prompt's blocks of `BLOCK_TOKENS` tokens, in order; empty where nothing is known of them.
    """

    offset_seconds: float
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()


Trace = tuple[TraceRequest, ...]
