"""Vectors as Prometheus writes them, taken apart without decoding JSON: compact, and all rows of one instant.

    {"status":"success","data":{"resultType":"vector","result":[{"metric":LABELS,"value":[TIME,"VALUE"]},...]}}

No text of a label holds what stands between labels and values: quotes within it are escaped. Whatever is not of this
form gives None, and is to be read otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from goodput.domain.podtable import Column

_BEGIN = b'{"status":"success","data":{"resultType":"vector","result":[{"metric":'
_TO_VALUE = b',"value":['
_TO_SERIES = b'"]},{"metric":'
_END = b'"]}]}'
# Integers of so many digits are exact as floats.
_MOST_DIGITS = 15
_Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Begin:
    """The labels of the first series, and what stands between labels and values: the instant is part of it."""

    first: bytes
    to_value: bytes


def begin_of(content: bytes) -> Begin | None:
    """How a vector begins."""
    if not content.startswith(_BEGIN):
        return None
    begin = content.find(_TO_VALUE, len(_BEGIN))
    end = content.find(b',"', begin + len(_TO_VALUE))
    return None if begin < 0 or end < 0 else Begin(content[len(_BEGIN) : begin], content[begin : end + 2])


def taken_apart(content: bytes, begun: Begin) -> tuple[list[bytes], list[bytes]] | None:
    """(labels, values) of a vector."""
    parts = content.replace(_TO_SERIES, begun.to_value).split(begun.to_value)
    last, found, rest = parts[-1].partition(_END)
    if len(parts) % 2 or not found or b'"metric"' in rest:
        return None
    parts[0], parts[-1] = begun.first, last
    return parts[0::2], parts[1::2]


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels of the series of a vector: where each ends, were they behind each other, and those of each length."""

    ends: npt.NDArray[np.intp]
    by_length: tuple[tuple[npt.NDArray[np.intp], _Bytes], ...]  # rows, and their bytes as (rows, length)

    @classmethod
    def of(cls, labels: Sequence[bytes]) -> Labels:
        """Those of these series."""
        rows: dict[int, list[int]] = {}
        for row, each in enumerate(labels):
            rows.setdefault(len(each), []).append(row)
        return cls(
            np.cumsum([len(each) for each in labels], dtype=np.intp),
            tuple(
                (
                    np.array(those, dtype=np.intp),
                    np.frombuffer(b"".join([labels[row] for row in those]), dtype=np.uint8).reshape(len(those), length),
                )
                for length, those in rows.items()
            ),
        )

    def are_at(self, there: _Bytes, starts: npt.NDArray[np.intp]) -> bool:
        """Whether their texts are at these places."""
        return all(
            np.array_equal(sliding_window_view(there, known.shape[1])[starts[rows]], known)
            for rows, known in self.by_length
        )


def values_of(content: bytes, begun: Begin, labels: Labels) -> Column | None:
    """The values of a vector whose series have exactly these labels, in this order."""
    rows = len(labels.ends)
    there = np.frombuffer(content, dtype=np.uint8)
    # One bracket opens the rows, and one each value: a label with a bracket is read otherwise.
    opened, closed = _places(there, b"["), _places(there, b"]")
    if len(opened) != rows + 1 or len(closed) != rows + 1:
        return None
    starts = opened[1:] + len(begun.to_value) - len(_TO_VALUE) + 1
    ends = closed[:-1] - 1
    lengths = ends - starts
    numbers = np.arange(rows)
    befores = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    between = numbers * len(_TO_SERIES) + (numbers + 1) * len(begun.to_value)
    if lengths.min() < 1 or not np.array_equal(starts, len(_BEGIN) + labels.ends + befores + between):
        return None
    label_ends = starts - len(begun.to_value)
    label_starts = np.concatenate(([len(_BEGIN)], ends[:-1] + len(_TO_SERIES)))
    if (
        not _all_at(there, label_ends, begun.to_value)
        or not _all_at(there, ends[:-1], _TO_SERIES)
        or content[ends[-1] : ends[-1] + len(_END)] != _END
    ):
        return None
    if not labels.are_at(there, label_starts):
        return None
    return _read(content, there, starts, lengths)


# Answers of megabytes are gone through in parts: what a part needs for a moment is not asked of the system anew.
_PART_BYTES = 2**20


def _places(there: _Bytes, byte: bytes) -> npt.NDArray[np.intp]:
    """Where a byte is."""
    parts = range(0, len(there), _PART_BYTES)
    return np.concatenate([np.flatnonzero(there[at : at + _PART_BYTES] == ord(byte)) + at for at in parts])


def _all_at(there: _Bytes, places: npt.NDArray[np.intp], text: bytes) -> bool:
    """Whether this text is at all these places."""
    return all(bool((there[places + offset] == byte).all()) for offset, byte in enumerate(text))


def _read(content: bytes, there: _Bytes, starts: npt.NDArray[np.intp], lengths: npt.NDArray[np.intp]) -> Column | None:
    """Numbers from texts: nearly all are digits, some with a point; the others are read one by one."""
    found, scale = np.zeros(len(starts)), np.ones(len(starts))
    plain, pointed = lengths <= _MOST_DIGITS, np.zeros(len(starts), dtype=bool)
    last = len(there) - 1
    for at in range(min(_MOST_DIGITS, int(lengths.max()))):
        inside = lengths > at
        byte = there[np.minimum(starts + at, last)]
        # uint8: what comes before "0" is large.
        digit = byte - np.uint8(ord("0"))
        counts, point = inside & (digit <= 9), inside & (byte == ord("."))
        plain &= ~inside | counts | (point & ~pointed & (at > 0))
        pointed |= point
        found = np.where(counts, 10.0 * found + digit, found)
        scale = np.where(counts & pointed, 10.0 * scale, scale)
    # Both are exact, and their quotient is rounded once, as a decimal is that is read.
    found /= scale
    try:
        for row in np.flatnonzero(~plain).tolist():
            start = int(starts[row])
            found[row] = float(content[start : start + int(lengths[row])])
    except ValueError:
        return None
    return found
