"""Memory <-> text: nothing is lost, damage is noticed, and it fits into a ConfigMap."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput.decide.memory_codec import dumps, loads
from goodput.decide.rises import packed
from goodput.domain import podtable
from goodput.domain.change import ChangeMark, Stage, Verdict
from goodput.domain.memory import MARKED, MARKED_BEFORE, LoopMemory, PodMark
from goodput.domain.podtable import PodTable
from goodput.domain.samples import Sample, Samples

numbers = st.floats(0, 1e10, allow_nan=False)


def marks_of(values: int) -> st.SearchStrategy[PodMark]:
    counted = st.lists(st.none() | numbers, min_size=values, max_size=values).map(tuple)
    return st.builds(PodMark, pod=st.text(max_size=20), scraped_at=numbers, values=counted)


def table_of(rows: dict[str, list[float]]) -> PodTable:
    return PodTable(tuple(rows), np.array(list(rows.values()))) if rows else podtable.empty(MARKED)


absent_or_number = st.just(math.nan) | numbers
rows = st.tuples(numbers, st.lists(absent_or_number, min_size=MARKED - 1, max_size=MARKED - 1)).map(
    lambda row: [row[0], *row[1]]
)
tables = st.dictionaries(st.text(max_size=20), rows, max_size=4).map(table_of)
samples = st.tuples(*(numbers for _ in Sample._fields)).map(Sample._make)
memories = st.builds(
    LoopMemory,
    born_at=numbers,
    desired=st.integers(0, 1000),
    surge=st.integers(0, 10),
    startup_seconds=st.lists(numbers, max_size=4).map(tuple),
    pods_seen_ready=st.lists(st.text(max_size=10), max_size=4).map(tuple),
    failed=st.lists(st.tuples(st.text(max_size=10), st.text(max_size=10)), max_size=4).map(tuple),
    correction=st.floats(0.5, 2.0),
    prefill_correction=st.floats(0.5, 2.0),
    accepted_per_draft=st.none() | st.floats(0.0, 16.0),
    draft_coverage=st.none() | st.floats(0.0, 1.0),
    samples=st.lists(samples, max_size=4).map(Samples.of),
    marks=tables,
    router_marks=st.lists(marks_of(3), max_size=2).map(tuple),
    pool_mark=st.lists(st.none() | numbers, max_size=5).map(tuple),
    loads=st.lists(st.tuples(numbers, numbers), max_size=4).map(tuple),
    watched=st.lists(st.tuples(numbers, numbers, numbers), max_size=4).map(packed),
    queue=st.lists(st.tuples(numbers, numbers), max_size=4).map(tuple),
    objective=st.lists(st.none() | numbers, max_size=3).map(tuple),
    shape=st.text(max_size=20),
    change=st.builds(
        ChangeMark,
        id=st.text(max_size=10),
        stage=st.sampled_from(Stage),
        since=numbers,
        verdict=st.sampled_from(Verdict),
        note=st.text(max_size=20),
        base=st.text(max_size=10),
        before=st.text(max_size=10),
    ),
)


@given(memories)
def test_text_gives_the_memory_back(memory):
    """Round trip, for any content."""
    assert loads(dumps(memory)) == memory


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", "7", '{"version":1}', '{"version":2}', "\x00", '{"version":"1"}', "[" * 10_000],
)
def test_unreadable_text_is_no_memory(text):
    """Another version or damaged text means priors, never an exception."""
    assert loads(text) is None


@given(st.text())
def test_any_text_is_memory_or_none(text):
    """No text raises."""
    assert loads(text) is None or isinstance(loads(text), LoopMemory)


@pytest.mark.parametrize("field", ["born_at", "samples", "marks", "loads", "pool_mark", "correction"])
@pytest.mark.parametrize("value", [None, "x", float("nan"), [["x"]], {"a": 1}, True])
def test_a_damaged_field_is_noticed(field, value):
    """A value of the wrong kind in one field makes the whole memory unreadable."""
    body = json.loads(dumps(LoopMemory()))
    body[field] = value
    assert loads(json.dumps(body)) is None


@pytest.mark.parametrize("value", ["x", float("nan"), [1.0], True, {"a": 1}])
@pytest.mark.parametrize(
    "field", ["queue", "prefill_correction", "accepted_per_draft", "draft_coverage", "steady_until"]
)
def test_a_damaged_later_field_is_noticed_too(field, value):
    body = json.loads(dumps(LoopMemory()))
    body[field] = value
    assert loads(json.dumps(body)) is None


def test_memory_of_an_operator_that_knew_less_is_read():
    """What it did not learn is not known yet; its sums, which were fewer, are no reason to forget the rest."""
    memory = LoopMemory(
        born_at=7.0,
        trim=0.8,
        proven_rps=3.0,
        pool_mark=(1.0, 2.0, 3.0, 4.0, 5.0, 6.0),
        samples=Samples.of([Sample(at=1.0, seconds=15.0, offered=3.0)]),
        marks=table_of({"pod-0": [5.0, *([0.0] * (MARKED - 1))]}),
    )
    body = json.loads(dumps(memory))
    later = ("accepted_per_draft", "draft_coverage", "steady_until", "failed", "watched", "loads_capacity_rps")
    for field in ("prefill_correction", *later):
        del body[field]
    body["samples"] = [row[:-1] for row in body["samples"]]
    body["marks"] = [row[: MARKED_BEFORE + 1] for row in body["marks"]]
    body["good_carry"] = 3.0  # of one that knew what nobody needs any more
    assert loads(json.dumps(body)) == memory


@pytest.mark.parametrize(("alone", "believed"), [(False, 0.8), (True, 1.0)])
def test_a_correction_of_capacity_is_not_taken_for_a_speed_of_decode(alone, believed):
    """Memory with one correction for both phases is of an operator that scaled capacity with it."""
    body = json.loads(dumps(LoopMemory(correction=0.8)))
    if alone:
        del body["prefill_correction"]
    found = loads(json.dumps(body))
    assert found is not None
    assert found.correction == believed


def test_a_large_memory_fits_into_a_config_map():
    """500 pods and half an hour of samples stay under 100 kB."""
    memory = LoopMemory(
        samples=Samples.of(
            Sample(
                at=1.7e9 + 10.123 * k, seconds=15.001, offered=431.0, finished=430.0, good_lower=421.5, good_upper=428.0
            )
            for k in range(180)
        ),
        watched=packed((1.7e9 + 15.123 * k, 431.1234, 512.4321) for k in range(240)),
        marks=table_of(
            {
                f"llama-8b-serve-7d9c6b5f4-{k:05d}": [1.7e9 + k / 7, *(12345.0,) * 8, *(0.0,) * 6, 1.2345]
                for k in range(500)
            }
        ),
    )
    assert len(dumps(memory)) < 100_000


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("trim", 0.0),
        ("trim", 2.0),
        ("correction", 0.0),
        ("correction", -1.0),
        ("marks", [["pod-0", 1.0, 2.0]]),
        ("shape", None),
        ("shape", 1.0),
    ],
)
def test_values_that_no_version_wrote_are_no_memory(field, value):
    """A zero to divide by, or a mark of another layout, would break every decision that reads it."""
    body = json.loads(dumps(LoopMemory()))
    body[field] = value
    assert loads(json.dumps(body)) is None


def test_memory_of_an_operator_that_knew_no_changes_is_read():
    """It says nothing of any, and all else."""
    body = json.loads(dumps(LoopMemory(born_at=5.0)))
    del body["change"]
    assert loads(json.dumps(body)) == LoopMemory(born_at=5.0)
    body["change"] = ["id", "Nowhere", 0.0, "", "", "", ""]
    assert loads(json.dumps(body)) is None
