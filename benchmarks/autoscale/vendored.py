"""The published traces of this benchmark as they lie in the repository: small, complete, in their order.

`gap_ms` is the time since the request before, in whole milliseconds of the offset from the first. A Mooncake prompt is
a list of block hashes that begins like an earlier one and goes on with hashes never seen before: it is kept as how many
requests back that earlier one is and how many blocks both share.

    python -m benchmarks.autoscale.vendored FROM TO    packs a published Azure CSV or Mooncake JSONL
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from goodput.simulator.traces.reader import read_trace
from goodput.simulator.traces.request import BLOCK_TOKENS, Trace, TraceRequest

ROOT = Path(__file__).parents[2]
TRACES = ROOT / "benchmarks" / "data" / "traces"
AZURE_CONVERSATION = ROOT / "e2e" / "goodput_world" / "data" / "azure2023_conversation.csv.gz"
AZURE_CODE = TRACES / "azure2023_code.csv.gz"
MOONCAKE_CONVERSATION = TRACES / "mooncake_conversation.csv.gz"
SERVEGEN_LARGE = TRACES / "servegen_m-large_rate10min.csv.gz"
SERVEGEN_SMALL = TRACES / "servegen_m-small_rate10min.csv.gz"

_PLAIN = ("gap_ms", "input_tokens", "output_tokens")
_SHARED = ("back", "shared_blocks")


def read(path: Path) -> Trace:
    """A packed trace."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as stream:
        return unpacked(stream)


def unpacked(lines: Iterable[str]) -> Trace:
    """The trace in the lines of a packed file. Raises `ValueError` where a prompt shares what no prompt before has."""
    requests: list[TraceRequest] = []
    offset_ms = 0
    fresh = 0
    for row in csv.DictReader(lines):
        offset_ms += int(row["gap_ms"])
        given, made = int(row["input_tokens"]), int(row["output_tokens"])
        blocks: tuple[int, ...] = ()
        if "back" in row:
            back, shared = int(row["back"]), int(row["shared_blocks"])
            before = requests[-back].blocks if 0 < back <= len(requests) else ()
            total = -(-given // BLOCK_TOKENS)
            if shared > min(len(before), total):
                raise ValueError(f"request {len(requests) + 1} shares {shared} blocks with one that has {len(before)}")
            new = total - shared
            blocks = (*before[:shared], *range(fresh, fresh + new))
            fresh += new
        requests.append(TraceRequest(offset_ms / 1000.0, given, made, blocks))
    return tuple(requests)


def packed(trace: Trace) -> str:
    """A trace as CSV. Raises `ValueError` for blocks that are no tree of prompts, each beginning like another."""
    shared = any(request.blocks for request in trace)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow((*_PLAIN, *_SHARED) if shared else _PLAIN)
    before_ms = 0
    for request, (back, blocks) in zip(trace, _shares(trace), strict=True):
        at_ms = round(request.offset_seconds * 1000.0)
        row = (at_ms - before_ms, request.input_tokens, request.output_tokens)
        writer.writerow((*row, back, blocks) if shared else row)
        before_ms = at_ms
    return out.getvalue()


def _shares(trace: Trace) -> Iterator[tuple[int, int]]:
    """For each request (requests back to the one that began alike, blocks that both have); 0, 0: none."""
    seen: dict[int, tuple[int, int]] = {}  # hash -> first request that had it, at which place
    for number, request in enumerate(trace):
        blocks = request.blocks
        if blocks and len(blocks) != -(-request.input_tokens // BLOCK_TOKENS):
            raise ValueError(f"request {number + 1}: {len(blocks)} blocks for {request.input_tokens} tokens")
        known = next((place for place, each in enumerate(blocks) if each not in seen), len(blocks))
        if any(each in seen for each in blocks[known:]):
            raise ValueError(f"request {number + 1}: a known block follows a new one")
        owner = seen[blocks[known - 1]][0] if known else number
        if trace[owner].blocks[:known] != blocks[:known]:
            raise ValueError(f"request {number + 1}: its blocks are no beginning of another prompt")
        for place, each in enumerate(blocks[known:], start=known):
            seen[each] = (number, place)
        yield number - owner, known


def main(arguments: list[str]) -> int:
    """Pack one published file."""
    source, target = map(Path, arguments)
    with target.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as stream:
        stream.write(packed(read_trace(source)).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
