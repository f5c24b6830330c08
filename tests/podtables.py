"""Rows of tables of pods, to look at."""

from __future__ import annotations

import math
from types import SimpleNamespace

from goodput.domain.podtable import COUNTER_NAMES, PodTable


def row(table: PodTable, number: int = 0) -> SimpleNamespace:
    """Values of one pod by name; None where it has none."""
    values = table.values[number].tolist()
    found = dict(zip(COUNTER_NAMES, [None if math.isnan(value) else value for value in values], strict=True))
    return SimpleNamespace(pod=table.pods[number], **found)
