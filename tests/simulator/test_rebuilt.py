"""A load that is rebuilt from counters has the requests, mean lengths and cached share that were counted."""

from __future__ import annotations

from statistics import mean, stdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goodput.domain.samples import Sample
from goodput.perfmodel.lengths import Lengths
from goodput.simulator.rebuilt import load, ordered

BEGIN = 1_760_000_000.0
EXPECTED = Lengths(1000.0, 200.0)


def sample(
    at: float, offered: float, seconds: float = 15.0, *, given: float = 2000.0, made: float = 300.0, cached: float = 0.0
) -> Sample:
    return Sample(
        BEGIN + at,
        seconds,
        offered,
        finished=offered,
        first_tokens=offered,
        prompt_tokens=offered * given,
        cached_tokens=offered * given * cached,
        generation_tokens=offered * made,
    )


def steady(offered: float = 30.0, minutes: int = 60, **each: float) -> list[Sample]:
    return [sample(15.0 * number, offered, **each) for number in range(1, 4 * minutes + 1)]


def rebuilt(samples: list[Sample], seed: int = 1, most: int = 100_000) -> tuple:  # type: ignore[type-arg]
    return load(samples, BEGIN, expected=EXPECTED, most_tokens=most, seed=seed)


def test_each_interval_gets_the_requests_that_were_counted_in_it() -> None:
    counts = [0.0, 5.0, 90.0, 2.0, 0.0, 30.0]
    asks = rebuilt([sample(15.0 * (place + 1), count) for place, count in enumerate(counts)])
    assert [sum(1 for ask in asks if 15.0 * place <= ask.seconds < 15.0 * (place + 1)) for place in range(6)] == counts


def test_lengths_have_the_recorded_means_and_the_variation_of_conversations() -> None:
    asks = rebuilt(steady())
    given, made = [ask.input_tokens for ask in asks], [ask.output_tokens for ask in asks]
    assert mean(given) == pytest.approx(2000.0, rel=0.03)
    assert mean(made) == pytest.approx(300.0, rel=0.03)
    assert stdev(made) / mean(made) == pytest.approx(0.80, rel=0.15)


def test_lengths_follow_the_day() -> None:
    morning, evening = steady(minutes=30, made=100.0), steady(minutes=60, made=500.0)[120:]
    asks = rebuilt(morning + evening)
    assert mean(ask.output_tokens for ask in asks if ask.seconds < 1800.0) == pytest.approx(100.0, rel=0.05)
    assert mean(ask.output_tokens for ask in asks if ask.seconds >= 1800.0) == pytest.approx(500.0, rel=0.05)


def test_the_cached_share_is_that_of_shared_prefixes() -> None:
    asks = rebuilt(steady(cached=0.4))
    blocks = [len(ask.block_hashes) * ask.hash_tokens for ask in asks]
    assert sum(blocks) / sum(ask.input_tokens for ask in asks) == pytest.approx(0.4, abs=0.01)
    assert len({ask.block_hashes[0] for ask in asks if ask.block_hashes}) == 64
    assert not any(ask.block_hashes for ask in rebuilt(steady()))


def test_what_was_not_counted_is_as_expected_and_a_seed_gives_one_load() -> None:
    blind = [Sample(BEGIN + 15.0 * number, 15.0, 30.0) for number in range(1, 241)]
    asks = rebuilt(blind)
    assert mean(ask.input_tokens for ask in asks) == pytest.approx(1000.0, rel=0.03)
    assert rebuilt(blind) == asks
    assert rebuilt(blind, seed=2) != asks


def test_a_time_in_which_nobody_looked_is_empty_and_twice_written_samples_count_once() -> None:
    asks = rebuilt([sample(15.0, 10.0), sample(15.0, 10.0), sample(600.0, 10.0)])
    assert len(asks) == 20
    assert not [ask for ask in asks if 15.0 < ask.seconds < 585.0]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.0, 4000.0), st.floats(1.0, 300.0), st.floats(0.0, 40.0)), max_size=30),
    st.integers(2, 4096),
)
def test_any_samples_give_requests_that_an_engine_can_take(rows: list[tuple[float, float, float]], most: int) -> None:
    samples = [sample(at, offered, seconds) for at, seconds, offered in rows]
    asks = rebuilt(samples, most=most)
    counted = sum(each.offered for each in ordered(samples, BEGIN))
    assert counted - 1.0 <= len(asks) + 1e-6 <= counted + 1.0
    assert all(ask.input_tokens >= 1 and ask.output_tokens >= 1 for ask in asks)
    assert all(ask.input_tokens + ask.output_tokens <= most for ask in asks)
    assert [ask.seconds for ask in asks] == sorted(ask.seconds for ask in asks)
