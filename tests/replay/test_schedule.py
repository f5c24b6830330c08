"""From a trace to a schedule: determinism, order, wrap-around, and the envelope's totals."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goodput_world.replay import (
    DEMO_ENVELOPE,
    FLAT_ENVELOPE,
    Envelope,
    Request,
    TraceRequest,
    azure_conversation,
    busiest_minute_rps,
    read_azure,
    read_mooncake,
    read_schedule,
    schedule,
    write_schedule,
)
from goodput_world.replay.prompts import prompt_token_ids

TRACE = azure_conversation()


def test_the_vendored_trace_is_whole() -> None:
    """19,366 requests in 3,502 s with the published mean and extreme lengths."""
    assert len(TRACE) == 19_366
    assert 3_501 < TRACE[-1].offset_seconds < 3_503
    assert round(sum(request.input_tokens for request in TRACE) / len(TRACE)) == 1155
    assert round(sum(request.output_tokens for request in TRACE) / len(TRACE)) == 211
    assert max(request.input_tokens for request in TRACE) == 14_050


def test_a_flat_run_is_the_trace_itself() -> None:
    """Without thinning or doubling, arrivals and lengths are the trace's own, cut to the run."""
    expected = [(r.offset_seconds, r.input_tokens, r.output_tokens) for r in TRACE if r.offset_seconds < 600]

    actual = [(r.offset_seconds, r.input_tokens, r.output_tokens) for r in schedule(TRACE, 600, FLAT_ENVELOPE, 1)]

    assert expected == actual


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), seconds=st.floats(1, 900))
def test_the_same_seed_gives_the_same_schedule_in_order(seed: int, seconds: float) -> None:
    """Deterministic, ordered, inside the run, every id once."""
    first = schedule(TRACE[:2000], seconds, DEMO_ENVELOPE, seed)

    assert first == schedule(TRACE[:2000], seconds, DEMO_ENVELOPE, seed)
    assert all(a.offset_seconds <= b.offset_seconds for a, b in itertools.pairwise(first))
    assert all(0 <= request.offset_seconds < seconds for request in first)
    assert len({request.id for request in first}) == len(first)


def test_seeds_differ() -> None:
    """Another seed keeps and doubles other requests."""
    assert schedule(TRACE, 300, DEMO_ENVELOPE, 1) != schedule(TRACE, 300, DEMO_ENVELOPE, 2)


@pytest.mark.parametrize("seed", range(5))
def test_the_envelope_holds_over_each_tenth_of_the_run(seed: int) -> None:
    """In every tenth, the number of requests is the trace's times the factor, within five standard deviations."""
    even = tuple(TraceRequest(index * 0.02, 100, 10) for index in range(45_000))
    counts = [0] * 10
    for request in schedule(even, 900, DEMO_ENVELOPE, seed):
        counts[int(request.offset_seconds // 90)] += 1

    for tenth, count in enumerate(counts):
        expected = 4500 * DEMO_ENVELOPE.factor((tenth + 0.5) / 10)
        # Each request adds at most a quarter of variance (a coin of any bias), and copies may cross a border.
        assert abs(count - expected) < 5 * math.sqrt(4500 / 4) + 50, (tenth, count, expected)


def test_demand_grows_eightfold_and_returns() -> None:
    """x0.25 at both ends, x2 in the middle, linear between."""
    factors = [DEMO_ENVELOPE.factor(share) for share in (-1, 0, 0.25, 0.5, 0.75, 1, 2)]

    assert factors == [0.25, 0.25, 1.125, 2.0, 1.125, 0.25, 0.25]


def test_a_copy_comes_up_to_a_second_later() -> None:
    """At factor 2 every request comes twice, the copy 0 to 1 s after it with the same lengths."""
    requests = schedule(TRACE, 120, Envelope(((0, 2), (1, 2))), 3)
    originals = {request.id: request for request in requests if "+" not in request.id}
    copies = [request for request in requests if "+" in request.id]

    delays = [copy.offset_seconds - originals[copy.id.removesuffix("+1")].offset_seconds for copy in copies]
    assert len(originals) - 10 < len(copies) <= len(originals)
    assert all(0 <= delay <= 1 for delay in delays)
    assert max(delays) > 0.9
    assert all(copy.input_tokens == originals[copy.id.removesuffix("+1")].input_tokens for copy in copies)


def test_a_longer_run_wraps_around() -> None:
    """The second lap repeats the first one, shifted by the trace's length and its mean gap."""
    trace = (TraceRequest(5.0, 10, 1), TraceRequest(6.0, 20, 2), TraceRequest(9.0, 30, 3))

    requests = schedule(trace, 14.0, FLAT_ENVELOPE, 1)

    assert [(r.offset_seconds, r.input_tokens, r.id) for r in requests] == [
        (0.0, 10, "0"),
        (1.0, 20, "1"),
        (4.0, 30, "2"),
        (6.0, 10, "2.0"),
        (7.0, 20, "2.1"),
        (10.0, 30, "2.2"),
        (12.0, 10, "3.0"),
        (13.0, 20, "3.1"),
    ]


@pytest.mark.parametrize(("trace", "seconds"), [((), 10.0), (TRACE[:1], 0.0), (TRACE[:1], math.nan)])
def test_nothing_to_replay_is_an_error(trace: tuple[TraceRequest, ...], seconds: float) -> None:
    """An empty trace or run is refused, not answered with an empty list."""
    with pytest.raises(ValueError, match=r"no request|longer than 0"):
        schedule(trace, seconds, FLAT_ENVELOPE, 1)


@pytest.mark.parametrize(
    "points",
    [((0.0, 1.0),), ((0.0, 1.0), (0.9, 1.0)), ((0.0, 1.0), (0.5, 1.0), (0.5, 2.0), (1.0, 1.0)), ((0, -1), (1, 1))],
)
def test_a_broken_envelope_is_refused(points: tuple[tuple[float, float], ...]) -> None:
    """Shares rise from 0 to 1, factors are not negative."""
    with pytest.raises(ValueError, match=r"envelope"):
        Envelope(points)


def test_the_busiest_minute_is_a_whole_minute() -> None:
    """30, 120 and 60 requests in three minutes: 2 a second."""
    requests = [
        Request(minute * 60 + index / 10, 1, 1, f"{minute}-{index}")
        for minute, count in enumerate((30, 120, 60))
        for index in range(count)
    ]

    assert busiest_minute_rps(requests) == 2.0
    assert busiest_minute_rps([]) == 0.0


def test_a_schedule_survives_the_file(tmp_path: Path) -> None:
    """What is read is what was written."""
    requests = schedule(TRACE, 60, DEMO_ENVELOPE, 4)
    write_schedule(tmp_path / "s.jsonl", requests, 60.0, 4)

    assert read_schedule(tmp_path / "s.jsonl") == (requests, 60.0, 4)


def test_the_published_formats_are_read(tmp_path: Path) -> None:
    """Azure's CSV with seven fractional digits, and Mooncake's JSON lines with block hashes."""
    azure = tmp_path / "azure.csv"
    azure.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:50.9951690,396,109\n"
    )
    mooncake = tmp_path / "mooncake.jsonl"
    mooncake.write_text('{"timestamp": 3000, "input_length": 600, "output_length": 9, "hash_ids": [7, 8]}\n')

    assert read_azure(azure) == (TraceRequest(0.0, 374, 44), TraceRequest(4.314579, 396, 109))
    assert read_mooncake(mooncake) == (TraceRequest(3.0, 600, 9, (7, 8)),)
    mooncake.write_text('{"timestamp": 3000, "input_length": 600, "output_length": 9, "hash_ids": [7]}\n')
    with pytest.raises(ValueError, match=r"mooncake.jsonl:1: hash_ids"):
        read_mooncake(mooncake)


def test_prompts_are_unique_unless_their_hashes_are_equal() -> None:
    """The exact length, the same for the same request, nothing shared without hashes, equal text for equal hashes."""
    plain = [prompt_token_ids(Request(0.0, 1000, 1, f"{index}"), 1) for index in range(20)]
    first = prompt_token_ids(Request(0.0, 1100, 1, "a", (1, 2, 3)), 1)
    second = prompt_token_ids(Request(0.0, 1536, 1, "b", (1, 2, 4)), 1)

    assert {len(prompt) for prompt in plain} == {1000}
    assert len({tuple(prompt[:2]) for prompt in plain}) == 20
    assert plain[3] == prompt_token_ids(Request(9.0, 1000, 7, "3"), 1)
    assert plain[3] != prompt_token_ids(Request(0.0, 1000, 1, "3"), 2)
    assert len(first) == 1100
    assert first[:1024] == second[:1024]
    assert first[1024:] != second[1024:1100]
