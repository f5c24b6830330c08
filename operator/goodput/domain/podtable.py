"""Numbers of the pods of one Model: a row for each pod, a column for each quantity.

Ten thousand pods are counted in a tick. As columns they are a few arrays, which are gone through in order; as an object
for each pod they are a hundred thousand small ones, and looking those up in memory takes longer than all arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

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
# Counts that are not exact any more are none.
MOST_COUNT = 2.0**53


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
