"""Rows of tables of pods, to make and to look at."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from goodput.domain.podtable import COUNTERS, UNSURE, PodTable

# Of the columns of a scrape, in their order.
COUNTER_NAMES = (
    "scraped_at",
    "first_tokens",
    "ttft_within",
    "finished",
    "tpot_within",
    "e2e_within",
    "rejected",
    "waiting",
    "running",
    "unsure",
)


def counters(rows: Iterable[Mapping[str, Any]]) -> PodTable:
    """A table of scrapes from values by the names of columns, `pod` beside them; what is left out or None is absent."""
    found = sorted(rows, key=lambda row: str(row["pod"]))
    values = np.full((len(found), COUNTERS), np.nan)
    for at, row in enumerate(found):
        for name, value in row.items():
            if name != "pod" and value is not None:
                values[at, COUNTER_NAMES.index(name)] = value
        if row.get("unsure") is None:
            values[at, UNSURE] = 0.0
    return PodTable(tuple(str(row["pod"]) for row in found), values)


def row(table: PodTable, number: int = 0) -> SimpleNamespace:
    """Values of one pod by name; None where it has none."""
    values = table.values[number].tolist()
    found = dict(zip(COUNTER_NAMES, [None if math.isnan(value) else value for value in values], strict=True))
    return SimpleNamespace(pod=table.pods[number], **found)
