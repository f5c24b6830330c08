"""Answers of Prometheus are decoded into what is read of them, whatever else they hold."""

from __future__ import annotations

import math

import msgspec
import pytest

from goodput.adapters.vectors import Decoder, Series


def test_a_vector_gives_its_labels_and_values() -> None:
    """Labels in any order, unknown ones skipped; NaN and +Inf come through."""
    content = b"""{"status":"success","data":{"resultType":"vector","result":[
        {"metric":{"pod":"p","namespace":"n","__name__":"x","job":"j"},"value":[1796043215.123,"NaN"]},
        {"value":[1796043215,"+Inf"],"metric":{"le":"0.5","goodput_dev_model":"m"}}]},"warnings":["w"]}"""
    decoder = Decoder()
    for _ in range(2):
        first, second = decoder.decode(content)
        assert isinstance(first, tuple)
        assert isinstance(second, tuple)
        series, value = first
        assert (series.name, series.pod, series.model) == ("x", ("n", "p"), None)
        assert math.isnan(series.edge)
        assert math.isnan(value)
        assert second == (Series(model=("", "m"), edge=0.5), math.inf)


def test_a_scalar_gives_its_time_and_value() -> None:
    """`time()` is answered by a scalar."""
    assert Decoder().decode(b'{"status":"success","data":{"resultType":"scalar","result":[10.5,"10.5"]}}') == [
        10.5,
        "10.5",
    ]


@pytest.mark.parametrize(
    "content",
    [b"", b"<html>", b"[]", b'{"data":null}', b'{"data":{"result":[{"metric":{"pod":1}}]}}', b'{"data":{"res'],
)
def test_anything_else_is_refused(content: bytes) -> None:
    """What is no answer of Prometheus raises, and is not read as an empty vector."""
    with pytest.raises(msgspec.DecodeError):
        Decoder().decode(content)


def test_series_that_are_gone_are_forgotten() -> None:
    """Of a fleet whose pods change their names all day, no more is kept than twice what a reading has."""
    decoder = Decoder()
    for reading in range(100):
        for pod in range(10):
            name = f"p-{reading}-{pod}"
            row = f'{{"metric":{{"namespace":"n","pod":"{name}"}},"value":[1,"2"]}}'
            ((series, value),) = decoder.decode(f'{{"data":{{"result":[{row}]}}}}'.encode())  # type: ignore[misc]
            assert (series.pod, value) == (("n", name), 2.0)
        decoder.forget_gone()
        assert len(decoder._known) <= 20
