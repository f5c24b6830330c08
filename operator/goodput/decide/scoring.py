"""How true decisions came: the load and the attainment that each expected, against those of its horizon.

A decision forecasts the highest demand until a replica that it orders can serve, and replicas that carry it within the
SLO: it expects the SLO to hold then. Bounded: as many decisions wait for their horizon as fit into one.
"""

from __future__ import annotations

from math import sqrt

from msgspec.structs import replace

from goodput.domain.intent import Objective
from goodput.domain.values import Value

# Decisions that wait for the end of their horizon; of more, the oldest are not judged.
MOST_WAITING = 64
# Demand came out above its forecast where it did so by more than so many standard errors of counting it.
_SIGMAS = 2.0


class Expected(Value, frozen=True, kw_only=True):
    """What a decision at `at` (Unix seconds) expected until `until`: `rps` at most, and whether the SLO holds."""

    at: float
    until: float
    rps: float
    holds: bool
    highest_rps: float = 0.0  # seen so far
    highest_error: float = 0.0  # one standard error of it


class Seen(Value, frozen=True, kw_only=True):
    """Some time that ended at `at` (Unix seconds): requests that came, that ended, and that were good."""

    at: float
    seconds: float
    offered: float
    ended: float
    good_lower: float
    good_upper: float


class Score(Value, frozen=True, kw_only=True):
    """Sums over the decisions that were judged; of demand, forecast and highest seen of each, in requests/s."""

    waiting: tuple[Expected, ...] = ()
    judged: int = 0
    forecast_rps: float = 0.0
    seen_rps: float = 0.0
    exceeded: int = 0  # times that more came than was forecast
    held: int = 0  # times that the SLO was expected to hold, and enough requests ended to see it
    missed: int = 0  # of these, times that it certainly did not
    undecided: int = 0  # of these, times that bounds leave it open

    @property
    def excess(self) -> float | None:
        """Forecast over seen demand, less 1, of all together: quiet times count as little as they ask for."""
        return self.forecast_rps / self.seen_rps - 1.0 if self.seen_rps > 0.0 else None


def expects(score: Score, expected: Expected) -> Score:
    """A decision was taken."""
    return replace(score, waiting=(*score.waiting, expected)[-MOST_WAITING:])


def saw(score: Score, seen: Seen, objective: Objective) -> Score:
    """Time passed: those whose horizon ended are judged by it."""
    if seen.seconds <= 0.0:
        return score
    rps, error = seen.offered / seen.seconds, sqrt(max(1.0, seen.offered)) / seen.seconds
    waiting = []
    for each in score.waiting:
        # Only time that lies wholly after the decision is of its horizon.
        after = seen.at - seen.seconds >= each.at - 1.0
        if after and rps > each.highest_rps:
            each = replace(each, highest_rps=rps, highest_error=error)  # noqa: PLW2901
        if after and seen.at >= each.until:
            score = _judged(score, each, seen, objective)
        else:
            waiting.append(each)
    return replace(score, waiting=tuple(waiting))


def _judged(score: Score, expected: Expected, seen: Seen, objective: Objective) -> Score:
    if expected.highest_rps > 0.0:
        score = replace(
            score,
            judged=score.judged + 1,
            forecast_rps=score.forecast_rps + expected.rps,
            seen_rps=score.seen_rps + expected.highest_rps,
            exceeded=score.exceeded + (expected.highest_rps - _SIGMAS * expected.highest_error > expected.rps),
        )
    if not expected.holds or seen.ended < max(1.0, objective.min_requests):
        return score
    # A minute of a fleet that holds its SLO may be bad by chance.
    noise = _SIGMAS * sqrt(objective.attainment * (1.0 - objective.attainment) / seen.ended)
    missed = seen.good_upper / seen.ended < objective.attainment - noise
    return replace(
        score,
        held=score.held + 1,
        missed=score.missed + missed,
        undecided=score.undecided + (not missed and seen.good_lower / seen.ended < objective.attainment - noise),
    )
