"""What happened between looks at one Model, a row for each interval: small, and summed without touching objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, overload

import msgspec
import numpy as np

from goodput.domain.podtable import Matrix


class Sample(NamedTuple):
    """What happened between two looks: an interval that ended at `at` (Unix seconds) and lasted `seconds`."""

    at: float
    seconds: float
    offered: float  # requests that arrived
    finished: float = 0.0
    ttft_misses: float = 0.0
    tpot_misses: float = 0.0
    e2e_misses: float = 0.0
    good_lower: float = 0.0
    good_upper: float = 0.0
    rejected: float = 0.0
    prompt_tokens: float = 0.0
    cached_tokens: float = 0.0
    generation_tokens: float = 0.0
    first_tokens: float = 0.0  # requests that got their first token
    failed: float = 0.0  # requests that the router answered with an error
    slow_missed: float = 0.0  # requests that missed at best, on pods that are slower than the others
    # The longest time that one of the engine pods counted here had not been looked at; 0: no engine has a new scrape.
    engine_seconds: float = 0.0


WIDTH = len(Sample._fields)
# Columns that are looked at by themselves.
AT, SECONDS, OFFERED, FINISHED = range(4)
_REJECTED, _FAILED, _ENGINE_SECONDS = map(Sample._fields.index, ("rejected", "failed", "engine_seconds"))
_MOMENT = 0.001


class Samples(msgspec.Struct, frozen=True, gc=False, eq=False):
    """Samples, newest last: `values` is (samples, fields of Sample). Never changed once made."""

    values: Matrix

    @classmethod
    def of(cls, samples: Iterable[Sample]) -> Samples:
        """A table of these samples."""
        rows = list(samples)
        return cls(np.array(rows, dtype=np.float64)) if rows else NO_SAMPLES

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Samples) and np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash(self.values.tobytes())

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Sample]:
        return map(Sample._make, self.values.tolist())

    @overload
    def __getitem__(self, where: int) -> Sample: ...
    @overload
    def __getitem__(self, where: slice) -> Samples: ...
    def __getitem__(self, where: int | slice) -> Sample | Samples:
        if isinstance(where, slice):
            return Samples(self.values[where])
        return Sample._make(self.values[where].tolist())

    def with_new(self, new: Sample | None, oldest: float) -> Samples:
        """These and a new one, without those that ended before `oldest` (Unix seconds)."""
        values = self.values
        if len(values) and values[0, AT] < oldest:
            values = values[int(values[:, AT].searchsorted(oldest)) :]
        if new is not None:
            return Samples(np.concatenate((values, (new,))))
        return self if len(values) == len(self.values) else Samples(values.copy())

    def after(self, at: float) -> Sample:
        """Sums over those that ended after `at`."""
        begin = int(self.values[:, AT].searchsorted(at, side="right"))
        return Sample._make(self.values[begin:].sum(axis=0).tolist())

    def back_to(self, requests: float, oldest: float, gap: float) -> float:
        """When the newest samples began that hold so many finished or refused requests; not before `oldest`.

        Nor before the end of one that lasted longer than `gap`: nobody knows when in it they were.
        """
        values = self.values[::-1]
        ended = np.cumsum(values[:, FINISHED] + np.minimum(values[:, _FAILED], values[:, _REJECTED]))
        row = int(ended.searchsorted(requests))
        gaps = np.flatnonzero(np.maximum(values[: row + 1, SECONDS], values[: row + 1, _ENGINE_SECONDS]) > gap)
        if len(gaps):
            return max(oldest, float(values[gaps[0], AT]))
        if row == len(values):
            return oldest
        # One that only engines told of has no length, and is to be found after its begin all the same.
        return max(oldest, float(values[row, AT] - max(values[row, SECONDS], _MOMENT)))

    def since(self, at: float) -> Iterator[tuple[float, float, float]]:
        """(at, seconds, offered), newest first, of those that ended at `at` or later and of one that ended before."""
        begin = max(0, int(self.values[:, AT].searchsorted(at)) - 1)
        while begin and self.values[begin, SECONDS] <= 0.0:
            begin -= 1
        rows: list[tuple[float, float, float]] = self.values[begin:, : OFFERED + 1].tolist()
        return reversed(rows)


NO_SAMPLES = Samples(np.empty((0, WIDTH)))
