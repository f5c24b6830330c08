"""Answers of Prometheus are decoded into what is read of them, whatever else they hold."""

from __future__ import annotations

import json
import math
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput.adapters.vectors import MAX_VECTORS, Decoder, Series, Vector


def test_a_vector_gives_its_labels_and_values() -> None:
    """Labels in any order, unknown ones skipped; NaN and +Inf come through."""
    content = b"""{"status":"success","data":{"resultType":"vector","result":[
        {"metric":{"pod":"p","namespace":"n","__name__":"x","job":"j"},"value":[1796043215.123,"NaN"]},
        {"value":[1796043215,"+Inf"],"metric":{"le":"0.5","goodput_dev_model":"m"}}]},"warnings":["w"]}"""
    decoder = Decoder()
    for _ in range(2):
        (series, value), second = pairs(decoder, content)
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
            ((series, value),) = pairs(decoder, f'{{"data":{{"result":[{row}]}}}}'.encode())
            assert (series.pod, value) == (("n", name), 2.0)
        decoder.forget_gone()
        assert len(decoder._known) <= 20


def _vector(query: str, pods: list[str]) -> bytes:
    rows = [f'{{"metric":{{"__name__":"{query}","namespace":"n","pod":"{pod}"}},"value":[1,"2"]}}' for pod in pods]
    body = f'{{"status":"success","data":{{"resultType":"vector","result":[{",".join(rows)}]}}}}'
    return body.encode()


def test_vectors_that_did_not_come_again_are_forgotten() -> None:
    """Where the first pod of a fleet is replaced again and again, one vector is kept for each query."""
    decoder = Decoder()
    pods = [f"p-{number}" for number in range(50)]
    queries = [f"q{number}" for number in range(5)]
    for generation in range(40):
        pods[0] = f"a-{generation}"
        for query in queries:
            decoder.decode(_vector(query, pods))
        decoder.forget_gone()
        assert len(decoder._layouts) + len(decoder._used) == len(queries)


def test_vectors_of_readings_that_broke_off_are_bounded() -> None:
    """A reading that fails before its end never tells that it ended."""
    decoder = Decoder()
    for generation in range(200):
        decoder.decode(_vector("q", [f"p-{generation}", "p"]))
    assert len(decoder._layouts) + len(decoder._used) <= MAX_VECTORS


def test_a_vector_like_the_last_one_is_not_looked_up_again() -> None:
    """The layout of its series is the one of last time, which is what makes large readings cheap."""
    decoder = Decoder()
    content = _vector("q", ["a", "b"])
    first = decoder.decode(content)
    decoder.forget_gone()
    again = decoder.decode(content)
    assert isinstance(first, Vector)
    assert isinstance(again, Vector)
    assert again.layout is first.layout


TEXT = st.text("ab1é\u20ac\U0001f600 ,:.\\\"'{}[]\n\t\x7f", max_size=12) | st.sampled_from(
    ['"]},{"metric":', ',"value":[1,"', '"]}]}', "}{", "\n", '\\"', ",", "value"]
)
LABELS = st.dictionaries(st.sampled_from(["__name__", "namespace", "pod", "le", "value", "metric", "job"]), TEXT)
VALUES = st.sampled_from(["0", "1.5", "17", "1e+06", "NaN", "+Inf", "-2", "0.000123", "5.", ".5", "1796043215.123"]) | (
    st.floats().map(repr) | st.integers(0, 10**20).map(str)
)


ROWS = st.lists(st.tuples(LABELS, VALUES), max_size=6)


def written(rows: list[tuple[dict[str, str], str]], times: list[float], *, blanks: bool, tail: str) -> bytes:
    result = [
        {"metric": {**labels, "le": "0.5"}, "value": [at, value]}
        for (labels, value), at in zip(rows, times, strict=False)
    ]
    body = json.dumps(
        {"status": "success", "data": {"resultType": "vector", "result": result}},
        separators=(", ", ": ") if blanks else (",", ":"),
        ensure_ascii=False,
    )
    return (body[:-1] + tail + "}").encode()


@given(
    first=ROWS,
    other=ROWS,
    values=st.lists(VALUES, min_size=6, max_size=6),
    swapped=st.booleans(),
    times=st.lists(st.sampled_from([1796043215, 1796043215.5]), min_size=6, max_size=6),
    blanks=st.booleans(),
    tail=st.sampled_from(["", ',"warnings":["w"]', ',"stats":{"metric":1}']),
)
def test_however_an_answer_is_written_the_same_is_read(
    *,
    first: list[tuple[dict[str, str], str]],
    other: list[tuple[dict[str, str], str]],
    values: list[str],
    swapped: bool,
    times: list[float],
    blanks: bool,
    tail: str,
) -> None:
    """Read by its place, taken apart, or decoded as JSON: whatever labels hold, and whatever the last answer was."""
    renewed = [(labels, value) for (labels, _), value in zip(first, values, strict=False)]
    if swapped:
        renewed[1:] = renewed[:0:-1]
    decoder = Decoder()
    for rows in (first, first, renewed, other, [*first[:1], *other[1:]], first):
        for instants in (times, times[:1] * 6):
            found = pairs(decoder, written(rows[:6], instants, blanks=blanks, tail=tail))
            assert [str(value) for _, value in found] == [str(float(value)) for _, value in rows[:6]]
            assert [(each.name, each.namespace, each.pod[1] if each.pod else "", each.edge) for each, _ in found] == [
                (labels.get("__name__", ""), labels.get("namespace", ""), labels.get("pod", ""), 0.5)
                for labels, _ in rows[:6]
            ]
        decoder.forget_gone()


@pytest.mark.parametrize("at", range(120))
def test_a_byte_that_changed_is_noticed(at: int) -> None:
    """Each byte of an answer in turn, after one that was right: read as a new decoder reads it, or refused."""
    rows = [({"__name__": "q", "namespace": "n", "pod": f"p{number}"}, f"{number}7") for number in range(3)]
    content = written(rows, [1796043215] * 6, blanks=False, tail="")
    begin = content.index(b"metric")
    for byte in (b"1", b"]", b"[", b'"', b"x"):
        changed = content[: begin + at] + byte + content[begin + at + 1 :]
        decoder = Decoder()
        decoder.decode(content)
        decoder.forget_gone()
        outcomes = []
        for each in (decoder, Decoder()):
            try:
                outcomes.append([(str(series), value) for series, value in pairs(each, changed)])
            except (msgspec.DecodeError, ValueError) as error:
                outcomes.append(type(error).__name__)  # type: ignore[arg-type]
        assert _without_slots(outcomes[0]) == _without_slots(outcomes[1])


def _without_slots(outcome: object) -> str:
    return re.sub(r"slot=-?\d+", "", str(outcome))


def pairs(decoder: Decoder, content: bytes) -> list[tuple[Series, float]]:
    found = decoder.decode(content)
    assert isinstance(found, Vector)
    return list(found)
