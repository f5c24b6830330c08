"""Decisions are judged by what came within their horizon, with what waits bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput.decide.scoring import MOST_WAITING, Expected, Score, Seen, expects, saw
from goodput.domain.intent import Objective

CHAT = Objective(ttft_seconds=0.5, tpot_seconds=0.05, e2e_seconds=None, attainment=0.95)


def minute(number: int, rps: float = 2.0, good: float = 0.98, best: float = 1.0) -> Seen:
    """The minute that ends `number` minutes after 0."""
    ended = 60.0 * rps
    return Seen(
        at=60.0 * number,
        seconds=60.0,
        offered=ended,
        ended=ended,
        good_lower=good * ended,
        good_upper=best * ended,
    )


def judged(expected: Expected, *minutes: Seen) -> Score:
    score = expects(Score(), expected)
    for seen in minutes:
        score = saw(score, seen, CHAT)
    return score


HOLDS = Expected(at=0.0, until=180.0, rps=3.0, holds=True)


def test_a_forecast_is_compared_with_the_busiest_minute_of_its_horizon() -> None:
    score = judged(HOLDS, minute(1, 2.0), minute(2, 2.5), minute(3, 1.0), minute(4, 90.0))
    assert score.judged == 1
    assert score.excess == pytest.approx(3.0 / 2.5 - 1.0)
    assert score.exceeded == 0
    assert not score.waiting


def test_more_than_forecast_counts_only_beyond_the_noise_of_counting() -> None:
    # 186 requests a minute where 180 were expected are no proof; 240 are.
    assert judged(HOLDS, *(minute(number, 3.1) for number in (1, 2, 3))).exceeded == 0
    assert judged(HOLDS, *(minute(number, 4.0) for number in (1, 2, 3))).exceeded == 1


@pytest.mark.parametrize(
    ("good", "best", "missed", "undecided"),
    [(0.99, 1.0, 0, 0), (0.80, 1.0, 0, 1), (0.5, 0.80, 1, 0), (0.93, 0.94, 0, 0)],
)
def test_attainment_is_judged_at_the_end_of_the_horizon(good: float, best: float, missed: int, undecided: int) -> None:
    """95 % of 120 requests is known to 4 %: what misses by less may be chance."""
    score = judged(HOLDS, minute(1, good=0.0, best=0.0), minute(2), minute(3, good=good, best=best))
    assert (score.held, score.missed, score.undecided) == (1, missed, undecided)


def test_a_decision_that_expected_no_attainment_is_judged_by_its_demand_only() -> None:
    score = judged(Expected(at=0.0, until=60.0, rps=3.0, holds=False), minute(1, good=0.0, best=0.0))
    assert (score.judged, score.held) == (1, 0)


def test_few_requests_say_nothing_of_attainment() -> None:
    assert judged(Expected(at=0.0, until=60.0, rps=3.0, holds=True), minute(1, rps=0.1, good=0.0, best=0.0)).held == 0


@given(st.lists(st.tuples(st.floats(0.0, 1e4), st.floats(0.0, 1.0), st.floats(0.0, 1e3)), max_size=200))
def test_memory_is_bounded_and_counts_agree(events: list[tuple[float, float, float]]) -> None:
    score = Score()
    for number, (rps, good, forecast) in enumerate(events, start=1):
        score = saw(score, minute(number, rps, good), CHAT)
        score = expects(score, Expected(at=60.0 * number, until=60.0 * number + 9_000.0, rps=forecast, holds=True))
        assert len(score.waiting) <= MOST_WAITING
        assert score.exceeded <= score.judged
        assert score.missed + score.undecided <= score.held
