"""Numbers of the pods of one Model: a row for each pod, a column for each quantity.

Ten thousand pods are counted in a tick. As columns they are a few arrays, which are gone through in order; as an object
for each pod they are a hundred thousand small ones, and looking those up in memory takes longer than all arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

Column: TypeAlias = npt.NDArray[np.float64]  # (pods,)
Matrix: TypeAlias = npt.NDArray[np.float64]  # (pods, columns)

# What one scrape of an engine says: cumulative counters and gauges. NaN: the pod exports no such series.
# `*_WITHIN` are requests at or under the objective (NaN: no such objective, or no such edge).
(
    SCRAPED_AT,  # Unix seconds
    FIRST_TOKENS,  # requests that got a first token
    TTFT_WITHIN,
    FINISHED,  # requests finished, aborts not counted
    TPOT_WITHIN,
    E2E_WITHIN,
    REJECTED,  # requests that admission refused, cumulative
    WAITING,
    RUNNING,
    UNSURE,  # requests between the edges next to thresholds that are no edge: on either side of them
) = range(10)
COUNTERS = 10
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


class PodTable(msgspec.Struct, frozen=True, gc=False, eq=False):
    """Rows of `values` belong to `pods`, in their order (sorted by name). Never changed once made."""

    pods: tuple[str, ...]
    values: Matrix

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, PodTable)
            and self.pods == other.pods
            and np.array_equal(self.values, other.values, equal_nan=True)
        )

    def __hash__(self) -> int:
        return hash(self.pods)

    def __len__(self) -> int:
        return len(self.pods)

    def index(self) -> dict[str, int]:
        """Row of each pod."""
        return {pod: row for row, pod in enumerate(self.pods)}

    def column(self, number: int) -> Column:
        """One quantity of all pods."""
        return self.values[:, number]

    def take(self, rows: Sequence[int]) -> PodTable:
        """Some of the rows, in the order given."""
        if not rows:
            return empty(self.values.shape[1])
        return PodTable(tuple([self.pods[row] for row in rows]), self.values[list(rows)])


def empty(columns: int) -> PodTable:
    """No pod."""
    return PodTable((), np.empty((0, columns)))


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
