"""Readers of published request traces: arrivals and lengths as they were, nothing made up."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import IO

# Mooncake hashes a prompt in blocks of this many tokens; the last one may be shorter.
MOONCAKE_BLOCK_TOKENS = 512


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request of a trace: when it came (seconds from the first one) and how long it was.

    `blocks` are hashes of the prompt's blocks of `MOONCAKE_BLOCK_TOKENS` tokens, in order; empty where a trace has
    none.
    """

    offset_seconds: float
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    if path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            yield stream
    else:
        with path.open(encoding="utf-8") as stream:
            yield stream


def azure_conversation() -> tuple[TraceRequest, ...]:
    """The Azure LLM inference trace of 2023, conversation (CC-BY-4.0; see data/ATTRIBUTION.md): 19,366 requests, 3,502
    s.
    """
    with gzip.open(
        str(files("goodput_world") / "data" / "azure2023_conversation.csv.gz"), "rt", encoding="utf-8"
    ) as stream:
        offset_ms = 0
        requests = []
        for row in csv.DictReader(stream):
            offset_ms += int(row["gap_ms"])
            requests.append(TraceRequest(offset_ms / 1000, int(row["input_tokens"]), int(row["output_tokens"])))
    return tuple(requests)


def read_azure(path: Path) -> tuple[TraceRequest, ...]:
    """An Azure LLM inference trace as published: columns TIMESTAMP, ContextTokens, GeneratedTokens (`.gz` is read
    too).
    """
    with _opened(path) as stream:
        # Seven fractional digits are in the file; Python reads six.
        rows = [
            (datetime.fromisoformat(row["TIMESTAMP"][:26]), int(row["ContextTokens"]), int(row["GeneratedTokens"]))
            for row in csv.DictReader(stream)
        ]
    rows.sort(key=lambda row: row[0])
    return tuple(TraceRequest((at - rows[0][0]).total_seconds(), given, made) for at, given, made in rows)


def read_mooncake(path: Path) -> tuple[TraceRequest, ...]:
    """A Mooncake trace as published: JSON lines with timestamp (ms), input_length, output_length, hash_ids.

    Raises ValueError when the hashes of a line do not cover its input.
    """
    requests = []
    with _opened(path) as stream:
        for number, line in enumerate(stream, start=1):
            row = json.loads(line)
            blocks = tuple(int(block) for block in row["hash_ids"])
            if len(blocks) * MOONCAKE_BLOCK_TOKENS < row["input_length"]:
                raise ValueError(
                    f"{path}:{number}: hash_ids cover fewer tokens than input_length {row['input_length']}"
                )
            requests.append(TraceRequest(row["timestamp"] / 1000, row["input_length"], row["output_length"], blocks))
    return tuple(requests)
