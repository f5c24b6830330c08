"""Answers of Prometheus are decoded into what is read of them, whatever else they hold."""

from __future__ import annotations

import math

import msgspec
import pytest

from goodput.adapters.vectors import Labels, Row, decode


def test_a_vector_gives_its_labels_and_values() -> None:
    """Labels in any order, unknown ones skipped; values stay text, so that NaN and +Inf come through."""
    content = b"""{"status":"success","data":{"resultType":"vector","result":[
        {"metric":{"pod":"p","namespace":"n","__name__":"x","job":"j"},"value":[1796043215.123,"NaN"]},
        {"value":[1796043215,"+Inf"],"metric":{"le":"0.5","goodput_dev_model":"m"}}]},"warnings":["w"]}"""
    first, second = decode(content)
    assert first == Row(Labels(name="x", namespace="n", pod="p"), (1796043215.123, "NaN"))
    assert isinstance(second, Row)
    assert (second.metric.le, second.metric.goodput_dev_model, second.metric.pod) == ("0.5", "m", "")
    assert math.isinf(float(second.value[1]))


def test_a_scalar_gives_its_time_and_value() -> None:
    """`time()` is answered by a scalar."""
    assert decode(b'{"status":"success","data":{"resultType":"scalar","result":[10.5,"10.5"]}}') == [10.5, "10.5"]


@pytest.mark.parametrize(
    "content",
    [b"", b"<html>", b"[]", b'{"data":null}', b'{"data":{"result":[{"metric":{"pod":1}}]}}', b'{"data":{"res'],
)
def test_anything_else_is_refused(content: bytes) -> None:
    """What is no answer of Prometheus raises, and is not read as an empty vector."""
    with pytest.raises(msgspec.DecodeError):
        decode(content)
