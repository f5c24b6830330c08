"""Answers of Prometheus, decoded straight into the few labels that are read, and those only once.

Most of a vector is what the last one had: the labels of its series. Their JSON text is looked up, and read only where
it is new; a vector of 60,000 series takes a third of the time, and allocates little more than its values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

# (namespace, name)
Name = tuple[str, str]
# The number of each pod.
Slots = dict[Name, int]


class Series(msgspec.Struct, frozen=True, gc=False):
    """Labels of a series that are read; '' or None where it has none."""

    name: str = ""
    namespace: str = ""
    pod: Name | None = None
    slot: int = -1  # number of the pod
    model: Name | None = None
    edge: float = math.nan  # upper bound of a bucket
    error_type: str = ""


Row = tuple[Series, float]
# Labels as they came, and what they say.
_Vector = tuple[list[bytes], list[Series]]
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
        # By its first series: the vectors of the last reading, and those of this one.
        self._vectors: dict[bytes, _Vector] = {}
        self._used: dict[bytes, _Vector] = {}
        self._rows = 0

    def decode(self, content: bytes) -> Sequence[Row] | Sequence[float | str]:
        """What the server answered: the rows of a vector, or time and value of a scalar.

        Raises:
            msgspec.DecodeError: it is no answer of Prometheus.
            ValueError: a value or an edge is no number.
        """
        result = _ANSWER.decode(content).data.result
        rows = [row for row in result if isinstance(row, _Row)]
        if len(rows) < len(result):
            return [part for part in result if not isinstance(part, _Row)]
        if not rows:
            return ()
        self._rows += len(rows)
        series = self._series_of([bytes(row.metric) for row in rows])
        return list(zip(series, [float(row.value[1]) for row in rows], strict=True))

    def forget_gone(self) -> None:
        """To be called after all queries of a reading: begin anew once most of what is known has gone."""
        # Each vector is as long as the fleet: one that did not come again would be the most of what is kept.
        self._vectors, self._used = self._used, {}
        if len(self._known) > 2 * self._rows:
            self._known.clear()
            self._vectors = {}
            # Readings that are still looked at keep theirs.
            self.slots = {}
        self._rows = 0

    def _series_of(self, texts: list[bytes]) -> list[Series]:
        vector = self._vectors.get(texts[0])
        # Where nothing came or went, the server answers in the same order. Comparing goes through memory once;
        # looking up each text jumps about in it.
        if vector is None or vector[0] != texts:
            known = self._known
            for text in texts:
                if text not in known:
                    known[text] = self._series(text)
            vector = texts, [known[text] for text in texts]
        if len(self._used) >= MAX_VECTORS:
            self._used.clear()
        self._used[texts[0]] = vector
        return vector[1]

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
