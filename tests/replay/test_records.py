"""What a record says of a request, and what a summary says of all of them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from goodput_world.replay import Objectives, Outcome, Record, summarise
from goodput_world.replay.records import COLUMNS, append_csv, read_csv, write_csv
from goodput_world.replay.summary import percentile

SLO = Objectives(ttft_seconds=0.5, tpot_seconds=0.05)


def record(
    ttft: float | None = 0.1,
    decode: float = 0.4,
    tokens: int = 11,
    outcome: Outcome = Outcome.OK,
    sent: float | None = 2.0,
) -> Record:
    first = None if ttft is None or sent is None else sent + ttft
    last = None if first is None else first + decode
    return Record(
        "x",
        2.0,
        5,
        11,
        sent,
        first,
        first,
        last,
        last,
        tokens_received=tokens,
        bytes_received=7,
        status=200,
        outcome=outcome,
    )


def test_times_are_those_of_vllm() -> None:
    """TPOT divides by n - 1; TTFT and end-to-end start at the sending."""
    seen = record(ttft=0.25, decode=0.5, tokens=11, sent=2.01)

    assert seen.lateness_seconds == pytest.approx(0.01)
    assert seen.ttft_seconds == pytest.approx(0.25)
    assert seen.tpot_seconds == pytest.approx(0.05)
    assert seen.e2e_seconds == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("seen", "objectives", "met"),
    [
        pytest.param(record(), SLO, True, id="in-time"),
        pytest.param(record(ttft=0.5001), SLO, False, id="late-first-token"),
        pytest.param(record(decode=0.51), SLO, False, id="slow-tokens"),
        pytest.param(record(tokens=1, decode=0.0), SLO, True, id="one-token-has-no-tpot"),
        pytest.param(record(outcome=Outcome.CUT), SLO, False, id="cut"),
        pytest.param(record(outcome=Outcome.REFUSED, ttft=None), SLO, False, id="refused"),
        pytest.param(record(outcome=Outcome.UNFINISHED), SLO, False, id="unfinished-though-fast"),
        pytest.param(record(), Objectives(e2e_seconds=0.4), False, id="late-end"),
        pytest.param(record(), Objectives(e2e_seconds=0.6), True, id="end-in-time"),
        pytest.param(record(ttft=None), SLO, False, id="absent-is-not-zero"),
    ],
)
def test_a_request_meets_the_slo_only_whole_and_in_time(seen: Record, objectives: Objectives, met: bool) -> None:
    """Late, failed, refused, cut or unfinished is a miss."""
    assert seen.met(objectives) is met


def test_every_offered_request_counts() -> None:
    """Three of six met: 50 %, whatever became of the others; the one never sent included."""
    never_sent = Record("y", 3.0, 5, 11)
    records = [record(), record(), record(), record(ttft=0.9), record(outcome=Outcome.FAILED), never_sent]

    summary = summarise(records, SLO, seconds=10.0)

    assert summary.attainment == 0.5
    assert (summary.met, summary.late, summary.lost) == (3, 1, 2)
    assert summary.lost_by_outcome == {"refused": 0, "unreachable": 0, "failed": 1, "cut": 0, "unfinished": 1}
    assert (summary.goodput_rps, summary.offered_rps) == (0.3, 0.6)


def test_no_request_is_no_attainment() -> None:
    """Absent is not zero and not one hundred per cent."""
    summary = summarise([], SLO, seconds=10.0)

    assert summary.attainment is None
    assert summary.lateness_p99_seconds is None
    assert not summary.valid


@pytest.mark.parametrize(("late_by", "count", "valid"), [(0.2, 1, True), (0.2, 2, False), (0.049, 100, True)])
def test_a_late_replayer_makes_the_run_invalid(late_by: float, count: int, valid: bool) -> None:
    """More than one in a hundred requests sent over 50 ms late: neither pass nor fail."""
    records = [record(sent=2.0 + (late_by if index < count else 0.0)) for index in range(100)]

    assert summarise(records, SLO, seconds=10.0).valid is valid


def test_percentiles_are_nearest_rank() -> None:
    """The textbook example: mean 390, median 100."""
    values = [100, 102, 100, 100, 99, 104, 110, 90, 3000, 95]

    assert percentile(values, 0.5) == 100
    assert percentile(values, 0.9) == 110
    assert percentile(values, 0.99) == 3000
    assert percentile(values, 1.0) == 3000
    assert percentile([], 0.5) is None


def test_records_survive_the_file(tmp_path: Path) -> None:
    """What never happened is an empty cell and reads back as None; the derived columns are there for others to read."""
    records = [record(), Record("y", 3.0, 5, 11, error='a, "b"\nc')]
    path = tmp_path / "requests.csv"
    write_csv(path, records, SLO)

    assert read_csv(path) == records
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [each["met"] for each in rows] == ["yes", "no"]
    assert [each["finished"] for each in rows] == ["yes", "no"]
    assert rows[1]["ttft_seconds"] == ""
    assert list(rows[0]) == COLUMNS
    assert [each.name for each in tmp_path.iterdir()] == ["requests.csv"]


def test_a_growing_file_has_one_header(tmp_path: Path) -> None:
    """Appending twice reads as one table."""
    path = tmp_path / "partial.csv"
    append_csv(path, [record()], SLO)
    append_csv(path, [record(), record()], SLO)

    assert len(read_csv(path)) == 3
