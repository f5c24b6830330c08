"""Answers of Prometheus as columns: the values, and what the labels of their series say, which is read only once.

Most of a vector is what the last one had: the labels of its series. Where an answer has the bytes of those labels at
the places where they must be, all that is left to do is to read numbers (`answers`). Another one is taken apart and its
labels are read; what Prometheus would write otherwise is decoded as JSON.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from goodput.adapters.answers import Labels, begin_of, taken_apart, values_of
from goodput.domain.podtable import Column

# (namespace, name)
Name = tuple[str, str]
# The number of each pod.
Slots = dict[Name, int]
Rows = npt.NDArray[np.intp]


class Series(msgspec.Struct, frozen=True, gc=False):
    """Labels of a series that are read; '' or None where it has none."""

    name: str = ""
    namespace: str = ""
    pod: Name | None = None
    slot: int = -1  # number of the pod
    model: Name | None = None
    edge: float = math.nan  # upper bound of a bucket
    error_type: str = ""


class Layout:
    """The series of a vector, in their order."""

    def __init__(self, series: Sequence[Series], labels: Sequence[bytes] = ()) -> None:
        self.series = series
        self.labels = Labels.of(labels)

    @cached_property
    def slots(self) -> Rows:
        """Number of the pod of each row, -1 where it has none."""
        return np.array([each.slot for each in self.series], dtype=np.intp)

    @cached_property
    def groups(self) -> dict[tuple[str, float | None], tuple[Rows, Rows, bool]]:
        """By name and bucket edge (None: no bucket): rows of series of pods, the numbers of those pods, and whether
        one of them has several rows.
        """
        found: dict[tuple[str, float | None], list[int]] = {}
        for row, each in enumerate(self.series):
            if each.slot >= 0:
                found.setdefault((each.name, None if math.isnan(each.edge) else each.edge), []).append(row)
        return {
            key: (np.array(rows, dtype=np.intp), self.slots[rows], len(set(self.slots[rows].tolist())) < len(rows))
            for key, rows in found.items()
        }


class Vector:
    """A vector: values (rows,) and what belongs to each."""

    def __init__(self, layout: Layout, values: Column) -> None:
        self.layout = layout
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[tuple[Series, float]]:
        return zip(self.layout.series, self.values.tolist(), strict=True)


NOTHING = Vector(Layout(()), np.empty(0))
# A reading asks for about ten. More are left by readings that broke off, one after the other, before their end.
MAX_VECTORS = 32


class _Labels(msgspec.Struct, frozen=True, gc=False):
    name: str = msgspec.field(default="", name="__name__")
    namespace: str = ""
    pod: str = ""
    goodput_dev_model: str = ""
    le: str = ""
    error_type: str = ""


class _Row(msgspec.Struct, frozen=True, gc=False):
    metric: msgspec.Raw
    # Unix seconds, and the value as text: NaN and +Inf are no JSON.
    value: tuple[float, str]


class _Data(msgspec.Struct):
    # A scalar is [time, "value"].
    result: list[_Row | float | str]


class _Answer(msgspec.Struct):
    data: _Data


_ANSWER = msgspec.json.Decoder(_Answer)
_LABELS = msgspec.json.Decoder(_Labels)


class Decoder:
    """Decodes answers, and remembers the series that it has seen."""

    def __init__(self) -> None:
        self.slots: Slots = {}
        self._known: dict[bytes, Series] = {}
        # By the labels of their first series: those of the last reading, and those of this one.
        self._layouts: dict[bytes, Layout] = {}
        self._used: dict[bytes, Layout] = {}
        self._rows = 0

    def decode(self, content: bytes) -> Vector | Sequence[float | str]:
        """What the server answered: a vector, or time and value of a scalar.

        Raises:
            msgspec.DecodeError: it is no answer of Prometheus.
            ValueError: a value or an edge is no number.
        """
        begun = begin_of(content)
        if begun is not None:
            layout = self._layouts.get(begun.first)
            numbers = values_of(content, begun, layout.labels) if layout is not None else None
            if layout is not None and numbers is not None:
                return self._seen(begun.first, layout, numbers)
            parts = taken_apart(content, begun)
            if parts is not None:
                try:
                    return self._vector(*parts)
                except (ValueError, msgspec.DecodeError):
                    # Not of the form that it seemed to have.
                    pass
        result = _ANSWER.decode(content).data.result
        rows = [row for row in result if isinstance(row, _Row)]
        if len(rows) < len(result):
            return [part for part in result if not isinstance(part, _Row)]
        return self._vector([bytes(row.metric) for row in rows], [row.value[1] for row in rows]) if rows else NOTHING

    def forget_gone(self) -> None:
        """To be called after all queries of a reading: begin anew once most of what is known has gone."""
        # Each vector is as long as the fleet: one that did not come again would be the most of what is kept.
        self._layouts, self._used = self._used, {}
        if len(self._known) > 2 * self._rows:
            self._known.clear()
            self._layouts = {}
            # Readings that are still looked at keep theirs.
            self.slots = {}
        self._rows = 0

    def _vector(self, labels: list[bytes], values: Sequence[bytes | str]) -> Vector:
        numbers = np.fromiter(map(float, values), dtype=np.float64, count=len(values))
        known = self._known
        for text in labels:
            if text not in known:
                known[text] = self._series(text)
        return self._seen(labels[0], Layout([known[text] for text in labels], labels), numbers)

    def _seen(self, first: bytes, layout: Layout, numbers: Column) -> Vector:
        if len(self._used) >= MAX_VECTORS:
            self._used.clear()
        self._used[first] = layout
        self._rows += len(numbers)
        return Vector(layout, numbers)

    def _series(self, text: bytes) -> Series:
        labels = _LABELS.decode(text)
        pod = (labels.namespace, labels.pod) if labels.pod else None
        return Series(
            name=labels.name,
            namespace=labels.namespace,
            pod=pod,
            slot=self.slots.setdefault(pod, len(self.slots)) if pod is not None else -1,
            model=(labels.namespace, labels.goodput_dev_model) if labels.goodput_dev_model else None,
            edge=float(labels.le) if labels.le else math.nan,
            error_type=labels.error_type,
        )
