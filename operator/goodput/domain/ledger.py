"""Lines of the ledger: what was asked of a Model, and minute by minute what `decide` saw of it and decided."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from goodput.domain.decision import Decision
from goodput.domain.identity import Key
from goodput.domain.intent import GpuType, ModelIntent
from goodput.domain.samples import Sample
from goodput.domain.values import Value

# Lines of another version are not read: their numbers may mean something else.
LEDGER_VERSION = 1


class Asked(Value, frozen=True, kw_only=True, tag_field="line", tag="model"):
    """What a Model asked for, and the replicas that it got, from `at` (Unix seconds) on."""

    version: int = LEDGER_VERSION
    at: float
    intent: ModelIntent
    gpu: GpuType
    tensor_parallel: int
    pipeline_parallel: int

    @property
    def key(self) -> Key:
        return self.intent.key

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.tensor_parallel * self.pipeline_parallel


class Looked(Value, frozen=True, kw_only=True, tag_field="line", tag="look"):
    """About a minute of one Model that ended at `at` (Unix seconds); None: unknown.

    Replicas are means over it, figures those of its last decision; `samples` are what was counted since the line
    before, and `decisions` those that changed what runs, or would have. Corrections are true over believed speed.
    """

    version: int = LEDGER_VERSION
    at: float
    seconds: float
    key: Key
    samples: tuple[Sample, ...] = ()
    desired: float
    ready: float
    cost: float | None = None  # paid in it
    demand_rps: float | None = None
    forecast_rps: float | None = None
    horizon_seconds: float | None = None
    capacity_rps: float | None = None  # of one replica
    startup_seconds: float | None = None
    correction: float = 1.0
    prefill_correction: float = 1.0
    decisions: tuple[Decision, ...] = ()


Line = Asked | Looked


class Read(Value, frozen=True):
    """Lines that were read, and how many were not: damaged (a cut file), or of another version."""

    lines: tuple[Line, ...]
    damaged: int = 0
    foreign: int = 0


class _Versioned(Value, frozen=True):
    version: int


def encode(line: Line) -> bytes:
    """One line of JSON, its end included."""
    return msgspec.json.encode(line) + b"\n"


def decode(texts: Iterable[bytes]) -> Read:
    """The lines of a ledger. What cannot be read is counted, never guessed."""
    lines: list[Line] = []
    damaged = foreign = 0
    version = msgspec.json.Decoder(_Versioned)
    line = msgspec.json.Decoder(Line)
    for text in texts:
        if not text.strip():
            continue
        try:
            if version.decode(text).version != LEDGER_VERSION:
                foreign += 1
                continue
            lines.append(line.decode(text))
        except (msgspec.DecodeError, ValueError, RecursionError):
            damaged += 1
    return Read(tuple(lines), damaged, foreign)
