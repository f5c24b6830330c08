"""Prompts as token ids: unique random ones, or equal text for equal block hashes.

Token ids and not words: their number is exact on any tokenizer, and vllm-router passes them on and matches prefixes on
them without asking an engine to tokenize.
"""

from __future__ import annotations

import random
from array import array

from goodput_world.replay.schedule import Request
from goodput_world.replay.traces import MOONCAKE_BLOCK_TOKENS

# 14 random bits above the ids that tokenizers give to control tokens: valid in every vocabulary of 17,384 tokens or
# more.
_FIRST_TOKEN_ID = 1000
_TOKEN_ID_MASK = 0x3FFF


def _random_tokens(name: str, count: int) -> list[int]:
    drawn = array("H", random.Random(name).randbytes(2 * count))
    return [_FIRST_TOKEN_ID + (value & _TOKEN_ID_MASK) for value in drawn]


def prompt_token_ids(request: Request, seed: int) -> list[int]:
    """The prompt of a request: exactly `input_tokens` ids, the same for the same request and seed.

    Without block hashes no two requests share a prefix but by a chance of 1 in 16,384 a token; with them, equal hashes
    give equal tokens.
    """
    if not request.blocks:
        return _random_tokens(f"{seed}/request/{request.id}", request.input_tokens)
    tokens: list[int] = []
    for block in request.blocks:
        tokens += _random_tokens(f"{seed}/block/{block}", MOONCAKE_BLOCK_TOKENS)
    return tokens[: request.input_tokens]
