"""`LoopMemory` <-> compact JSON text for a ConfigMap (under 100 kB for 500 pods). Unreadable text is no memory."""

from __future__ import annotations

import json
from math import isfinite, isnan, nan
from typing import Any

import numpy as np

from goodput.decide.correction import MOST_TRIM
from goodput.decide.rises import packed, unpacked
from goodput.decide.telemetry import VALUES as ROUTER_VALUES
from goodput.domain.change import NO_CHANGE, ChangeMark, Stage, Verdict
from goodput.domain.memory import MARKED, MARKED_BEFORE, MEMORY_VERSION, LoopMemory, PodMark
from goodput.domain.podtable import PodTable, empty
from goodput.domain.samples import WIDTH, Sample, Samples

_PLAIN = (
    "born_at",
    "last_scale_up_at",
    "last_scale_down_at",
    "room_since",
    "desired",
    "correction",
    "metrics_problem_since",
    "trim",
    "trimmed_at",
    "proven_rps",
    "surge",
    "ratio_at",
)
_INTEGERS = frozenset({"desired", "surge"})
_NUMBERS = ("startup_seconds", "max_ratios")
_MAYBE_NUMBERS = ("pool_mark", "objective")
_TEXTS = ("shape",)
# Absent in the memory of an operator that knew them not.
_LATER_MAYBE_NUMBERS = ("accepted_per_draft", "draft_coverage")
_LATER_NUMBERS = (
    "budget_ended",
    "budget_missed",
    "budget_at",
    "attainment",
    "steady_until",
    "strained_rps",
    "loads_capacity_rps",
    "proven_input_tokens",
    "proven_output_tokens",
    "slow_replaced_at",
)
_LATER_TEXTS = ("slow_pod",)
_LATER_SPEEDS = ("prefill_correction",)


def dumps(memory: LoopMemory) -> str:
    """Text of `memory`: equal values give equal text."""
    body: dict[str, Any] = {"version": memory.version}
    for name in (*_PLAIN, *_TEXTS, *_LATER_TEXTS, *_LATER_MAYBE_NUMBERS, *_LATER_NUMBERS, *_LATER_SPEEDS):
        body[name] = getattr(memory, name)
    for name in (*_NUMBERS, *_MAYBE_NUMBERS):
        body[name] = list(getattr(memory, name))
    body["pods_seen_ready"] = list(memory.pods_seen_ready)
    body["failed"] = [list(pair) for pair in memory.failed]
    body["loads"] = [list(pair) for pair in memory.loads]
    body["watched"] = [list(row) for row in unpacked(memory.watched)]
    body["queue"] = [list(pair) for pair in memory.queue]
    body["samples"] = [list(sample) for sample in memory.samples]
    # NaN, which is no JSON, is an absent value.
    body["marks"] = [
        [pod, *(None if isnan(value) else value for value in row)]
        for pod, row in zip(memory.marks.pods, memory.marks.values.tolist(), strict=True)
    ]
    body["router_marks"] = [[mark.pod, mark.scraped_at, *mark.values] for mark in memory.router_marks]
    change = memory.change
    body["change"] = [change.id, change.stage, change.since, change.verdict, change.note, change.base, change.before]
    return json.dumps(body, separators=(",", ":"), sort_keys=True)


def loads(text: str) -> LoopMemory | None:
    """Memory from its text; None where the text is not one of this version (then: priors, and no scale-down yet)."""
    try:
        body = json.loads(text)
        if body["version"] != MEMORY_VERSION:
            return None
        values: dict[str, Any] = {}
        for name in _PLAIN:
            values[name] = int(body[name]) if name in _INTEGERS else _number(body[name])
        for name in _NUMBERS:
            values[name] = tuple(_number(value) for value in body[name])
        for name in _MAYBE_NUMBERS:
            values[name] = tuple(_maybe(value) for value in body[name])
        for name in _TEXTS:
            values[name] = _text(body[name])
        for name in _LATER_TEXTS:
            values[name] = _text(body.get(name, ""))
        for name in _LATER_MAYBE_NUMBERS:
            values[name] = _maybe(body.get(name))
        for name in _LATER_NUMBERS:
            values[name] = _number(body.get(name, 0.0))
        for name in _LATER_SPEEDS:
            values[name] = _number(body.get(name, 1.0))
        if not all(values[name] > 0.0 for name in _LATER_SPEEDS):
            return None
        if not (0.0 < values["trim"] <= MOST_TRIM and values["correction"] > 0.0):
            return None
        if "prefill_correction" not in body:
            # One correction for both phases was one of capacity: as a speed of decode it would say something else.
            values["correction"] = 1.0
        return LoopMemory(
            **values,
            pods_seen_ready=tuple(str(uid) for uid in body["pods_seen_ready"]),
            failed=tuple((_text(uid), _text(trouble)) for uid, trouble in body.get("failed", ())),
            loads=tuple((_number(at), _number(load)) for at, load in body["loads"]),
            watched=packed(_row(row) for row in body.get("watched", ())),
            queue=tuple((_number(at), _number(requests)) for at, requests in body.get("queue", ())),
            samples=_samples(body["samples"]),
            marks=_table(body["marks"]),
            router_marks=_marks(body["router_marks"], ROUTER_VALUES),
            change=_change(body.get("change")),
        )
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, OverflowError):
        return None


def _row(values: list[Any]) -> tuple[float, float, float]:
    at, came, provided = values
    return _number(at), _number(came), _number(provided)


def _change(row: list[Any] | None) -> ChangeMark:
    """Absent in the memory of an operator that knew no changes."""
    if row is None:
        return NO_CHANGE
    identity, stage, since, verdict, note, base, before = row
    return ChangeMark(
        id=_text(identity),
        stage=Stage(stage),
        since=_number(since),
        verdict=Verdict(verdict),
        note=_text(note),
        base=_text(base),
        before=_text(before),
    )


def _samples(rows: list[list[Any]]) -> Samples:
    # Older operators did not know what slow pods missed, nor how long engines had not been looked at.
    rows = [row + [0.0] * (WIDTH - len(row)) if WIDTH - 2 <= len(row) < WIDTH else row for row in rows]
    if any(len(row) != WIDTH for row in rows):
        raise ValueError(f"a sample has {WIDTH} values")
    return Samples.of(Sample(*(_number(value) for value in row)) for row in rows)


def _table(rows: list[list[Any]]) -> PodTable:
    """Marks of engine pods; those of another layout are those of another version."""
    rows = [row + [0.0] * (MARKED - MARKED_BEFORE) if len(row) == MARKED_BEFORE + 1 else row for row in rows]
    if any(len(row) != MARKED + 1 for row in rows):
        raise ValueError(f"a mark has {MARKED} values")
    if not rows:
        return empty(MARKED)
    values = [[_number(row[1]), *(nan if value is None else _number(value) for value in row[2:])] for row in rows]
    return PodTable(tuple(str(row[0]) for row in rows), np.array(values))


def _marks(rows: list[list[Any]], values: int) -> tuple[PodMark, ...]:
    """Marks of `values` numbers each; others are those of another version."""
    if any(len(row) != values + 2 for row in rows):
        raise ValueError(f"a mark has {values} values")
    return tuple(
        PodMark(pod=str(row[0]), scraped_at=_number(row[1]), values=tuple(_maybe(value) for value in row[2:]))
        for row in rows
    )


def _number(value: Any) -> float:
    """A finite number; anything else means that the text was damaged."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise ValueError(f"not a finite number: {value!r}")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"not a text: {value!r}")
    return value


def _maybe(value: Any) -> float | None:
    return None if value is None else _number(value)
