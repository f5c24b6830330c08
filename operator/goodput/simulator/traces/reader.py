"""Readers of request traces: arrivals and lengths as they were, nothing made up.

Known are CSV files with one of three headers, columns in any order, and Mooncake's JSON lines; gzip is read too.
  seconds,input_tokens,output_tokens[,hash_ids]
  TIMESTAMP,ContextTokens,GeneratedTokens                 Azure's LLM inference traces
  arrived_at,num_prefill_tokens,num_decode_tokens
  {"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [...]}
Requests are returned in order of arrival, offsets counted from the first, to the microsecond.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from goodput.simulator.traces import fields
from goodput.simulator.traces.lines import TraceError, cells, lines, record
from goodput.simulator.traces.request import BLOCK_TOKENS, Trace, TraceRequest


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a format keeps what; `blocks` may be absent from a file where `blocks_required` is False."""

    at: str
    read_at: Callable[[object, str], float]
    input_tokens: str
    output_tokens: str
    blocks: str | None = None
    blocks_required: bool = False

    @property
    def required(self) -> tuple[str, ...]:
        """The names that every row has."""
        names = (self.at, self.input_tokens, self.output_tokens)
        return (*names, self.blocks) if self.blocks and self.blocks_required else names

    def request(self, row: Mapping[str, object]) -> TraceRequest:
        """The request of a row. Raises `ValueError` naming the field."""
        at = self.read_at(row[self.at], self.at)
        given = fields.tokens(row[self.input_tokens], self.input_tokens)
        made = fields.tokens(row[self.output_tokens], self.output_tokens)
        blocks: tuple[int, ...] = ()
        if self.blocks is not None and self.blocks in row:
            blocks = fields.block_hashes(row[self.blocks], self.blocks)
            if (blocks or self.blocks_required) and len(blocks) * BLOCK_TOKENS < given:
                raise ValueError(
                    f"{self.blocks}: {len(blocks)} blocks of {BLOCK_TOKENS} tokens do not cover an input of {given}"
                )
        return TraceRequest(at, given, made, blocks)


SECONDS = Layout("seconds", fields.seconds, "input_tokens", "output_tokens", "hash_ids")
AZURE = Layout("TIMESTAMP", fields.timestamp, "ContextTokens", "GeneratedTokens")
ARRIVED_AT = Layout("arrived_at", fields.seconds, "num_prefill_tokens", "num_decode_tokens")
MOONCAKE = Layout("timestamp", fields.milliseconds, "input_length", "output_length", "hash_ids", blocks_required=True)
_HEADERS = (SECONDS, AZURE, ARRIVED_AT)
# Whatever plays a trace goes through all of its time.
_MOST_SECONDS = 366.0 * 86_400.0


def read_trace(path: Path) -> Trace:
    """The requests of a file in any of the known formats.

    Raises `TraceError` that names the file, the line and what is wrong with it.
    """
    rows = lines(path)
    first = next(rows, None)
    if first is None:
        raise TraceError(path, "holds no request")
    if first[1].startswith("{"):
        requests = [
            (_request(path, number, MOONCAKE, _object(path, number, text)), number) for number, text in (first, *rows)
        ]
    else:
        layout, header = _header(path, *first)
        requests = [(_request(path, number, layout, row), number) for number, row in _rows(path, header, rows)]
    if not requests:
        raise TraceError(path, "holds a header and no request")
    requests.sort(key=lambda each: each[0].offset_seconds)
    start, (last, line) = requests[0][0].offset_seconds, requests[-1]
    if last.offset_seconds - start > _MOST_SECONDS:
        days = _MOST_SECONDS / 86_400.0
        raise TraceError(
            path, f"a request comes more than {days:.0f} days after the first one: is the unit right?", line
        )
    return tuple(replace(each, offset_seconds=round(each.offset_seconds - start, 6)) for each, _ in requests)


def _header(path: Path, number: int, text: str) -> tuple[Layout, list[str]]:
    names = [name.strip() for name in cells(path, number, text)]
    for layout in _HEADERS:
        if set(layout.required) <= set(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise TraceError(path, f"the header names {', '.join(twice)} twice", number)
            return layout, names
    known = "; ".join(",".join(layout.required) for layout in _HEADERS)
    raise TraceError(path, f"{text[:80]!r} is no known header ({known}) and no JSON object", number)


def _rows(path: Path, header: list[str], rows: Iterator[tuple[int, str]]) -> Iterator[tuple[int, dict[str, str]]]:
    for number, text in rows:
        yield number, record(path, number, text, header)


def _object(path: Path, number: int, text: str) -> dict[str, object]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TraceError(path, f"is no JSON ({error})", number) from None
    if not isinstance(row, dict):
        raise TraceError(path, "is no JSON object", number)
    missing = [name for name in MOONCAKE.required if name not in row]
    if missing:
        raise TraceError(path, f"lacks {', '.join(missing)}", number)
    return row


def _request(path: Path, number: int, layout: Layout, row: Mapping[str, object]) -> TraceRequest:
    try:
        return layout.request(row)
    except ValueError as error:
        raise TraceError(path, str(error), number) from None
