"""What is kept of every request, and whether it met the SLO."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path


class Outcome(StrEnum):
    """How a request ended. Only `OK` can meet an SLO."""

    OK = "ok"  # every token asked for came, and the stream was closed properly
    REFUSED = "refused"  # HTTP 429 or 503: the fleet shed it or had nobody to serve it
    UNREACHABLE = "unreachable"  # no connection
    FAILED = "failed"  # another HTTP status, or an error inside the stream
    CUT = "cut"  # the stream ended before all tokens came
    UNFINISHED = "unfinished"  # still open when the replayer stopped waiting


@dataclass(frozen=True, slots=True)
class Objectives:
    """Thresholds of an SLO in seconds; None where it has none."""

    ttft_seconds: float | None = None
    tpot_seconds: float | None = None
    e2e_seconds: float | None = None


@dataclass(slots=True)
class Record:
    """One request as the client saw it. Instants are seconds from the start of the replay; None where they never came.

    TTFT and end-to-end time run from the instant of sending (connecting included), not from the scheduled one: the
    replayer's own lateness is reported for itself and makes a run invalid when it matters.
    """

    id: str
    scheduled_seconds: float
    input_tokens: int
    output_tokens: int
    sent_seconds: float | None = None
    first_byte_seconds: float | None = None
    first_token_seconds: float | None = None
    last_token_seconds: float | None = None
    end_seconds: float | None = None
    tokens_received: int = 0
    bytes_received: int = 0
    status: int | None = None
    outcome: Outcome = Outcome.UNFINISHED
    error: str = ""

    @property
    def lateness_seconds(self) -> float | None:
        """How much later than scheduled it was sent."""
        return None if self.sent_seconds is None else self.sent_seconds - self.scheduled_seconds

    @property
    def ttft_seconds(self) -> float | None:
        """Time to the first token."""
        if self.first_token_seconds is None or self.sent_seconds is None:
            return None
        return self.first_token_seconds - self.sent_seconds

    @property
    def tpot_seconds(self) -> float | None:
        """Mean time per output token after the first, (last - first) / (n - 1); None for fewer than two tokens."""
        if self.first_token_seconds is None or self.last_token_seconds is None or self.tokens_received < 2:
            return None
        return (self.last_token_seconds - self.first_token_seconds) / (self.tokens_received - 1)

    @property
    def e2e_seconds(self) -> float | None:
        """Time from sending to the last token."""
        if self.last_token_seconds is None or self.sent_seconds is None:
            return None
        return self.last_token_seconds - self.sent_seconds

    def met(self, objectives: Objectives) -> bool:
        """Whether it was answered in full and within every objective. A one-token answer has no TPOT and cannot miss
        it.
        """
        if self.outcome is not Outcome.OK:
            return False
        return (
            _within(self.ttft_seconds, objectives.ttft_seconds)
            and (self.tokens_received < 2 or _within(self.tpot_seconds, objectives.tpot_seconds))
            and _within(self.e2e_seconds, objectives.e2e_seconds)
        )


def _within(value: float | None, limit: float | None) -> bool:
    return limit is None or (value is not None and value <= limit)


_STORED = [field.name for field in fields(Record)]
_INSTANTS = ("sent_seconds", "first_byte_seconds", "first_token_seconds", "last_token_seconds", "end_seconds")
_DERIVED = ["lateness_seconds", "ttft_seconds", "tpot_seconds", "e2e_seconds"]
COLUMNS = [*_STORED, *_DERIVED, "finished", "met"]


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6f}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def row(record: Record, objectives: Objectives) -> list[str]:
    """The record as CSV cells in the order of `COLUMNS`; what never happened is an empty cell."""
    cells = [_cell(getattr(record, name)) for name in (*_STORED, *_DERIVED)]
    return [*cells, _cell(record.outcome is Outcome.OK), _cell(record.met(objectives))]


def write_csv(path: Path, records: Iterable[Record], objectives: Objectives) -> None:
    """Write all records, whole or not at all: a reader never sees half a file."""
    partial = path.with_name(path.name + ".new")
    with partial.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        writer.writerows(row(record, objectives) for record in records)
    os.replace(partial, path)


def append_csv(path: Path, records: Iterable[Record], objectives: Objectives) -> None:
    """Append records to a file that is still growing, with the header where it is new."""
    with path.open("a", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        if stream.tell() == 0:
            writer.writerow(COLUMNS)
        writer.writerows(row(record, objectives) for record in records)


def read_csv(path: Path) -> list[Record]:
    """Read what `write_csv` wrote (derived columns are computed anew)."""
    records = []
    with path.open(encoding="utf-8", newline="") as stream:
        for cells in csv.DictReader(stream):
            instants = {name: float(cells[name]) if cells[name] else None for name in _INSTANTS}
            records.append(
                Record(
                    id=cells["id"],
                    scheduled_seconds=float(cells["scheduled_seconds"]),
                    input_tokens=int(cells["input_tokens"]),
                    output_tokens=int(cells["output_tokens"]),
                    tokens_received=int(cells["tokens_received"]),
                    bytes_received=int(cells["bytes_received"]),
                    status=int(cells["status"]) if cells["status"] else None,
                    outcome=Outcome(cells["outcome"]),
                    error=cells["error"],
                    **instants,
                )
            )
    return records
