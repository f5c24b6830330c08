"""A report as a table, as JSON, and in the sentences that one tells of a day."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from goodput.cli import simulatedtext
from goodput.cli.figures import count, money, rate, rounded, share
from goodput.cli.recorded import Day, predictions
from goodput.cli.simulated import WhatIf
from goodput.decide.scoring import Score
from goodput.domain.decision import Action
from goodput.domain.intent import Objective
from goodput.perfmodel.verdicts import duration
from goodput.simulator.fleet.outcome import Outcome

RECORDED = "recorded"
_UPS = (Action.SCALE_UP, Action.REPLACE)
# Shares of a day that nobody watched, from which on it is said.
_UNWATCHED = 0.01
# A replay this far from what was recorded says little: shares of requests, and of the cost.
_OFF_SHARE, _OFF_COST = 0.02, 0.15


def bounds(day: Day) -> str | None:
    """Recorded attainment: from histograms it is known between two bounds."""
    seen = day.attainment
    if seen.lower is None or seen.upper is None:
        return None
    low, high = share(seen.lower), share(seen.upper)
    return low if low == high else f"{low.removesuffix('%')}-{high}"


def gpu_hours(day: Day, found: WhatIf) -> float | None:
    """GPU-hours that were paid; None where no price tells."""
    return None if day.cost is None or not found.gpu_price else day.cost / found.gpu_price


def heading(day: Day, name: str) -> Iterator[str]:
    """What was recorded, and of which time."""
    times = [datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M") for at in (day.begin, day.end)]
    yield f"{name}, {times[0]} to {times[1]} UTC: {count(day.requests)} requests recorded"
    missing = day.seconds - day.watched_seconds
    if missing > _UNWATCHED * day.seconds:
        yield f"Nobody watched for {duration(missing)} of this: what was paid then is not in the recorded cost."
    if day.changes:
        yield f"The Model or its SLO changed {day.changes} times in it: it is replayed as it was last."


def row(day: Day, found: WhatIf) -> list[Any]:
    """What was recorded, in the columns of a what-if."""
    seconds, hours = day.watched_seconds, gpu_hours(day, found)
    good = day.attainment.good_lower
    return [
        RECORDED,
        bounds(day),
        rate(good / seconds) if seconds else None,
        f"{day.replicas:.2f}",
        None if hours is None else f"{hours:.2f}",
        money(day.cost),
        day.moves(*_UPS),
        day.moves(Action.SCALE_DOWN),
        *(None for _ in simulatedtext.COLUMNS[8:]),
    ]


def told(day: Day, found: WhatIf, outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The day in a few sentences, and how far the replay is to be trusted."""
    parts = [f"{RECORDED} {bounds(day) or 'attainment unknown'}{_at(day.cost)}"]
    parts += [f"{each.policy} {share(each.attainment)}{_at(found.cost(each))}" for each in outcomes]
    yield "; ".join(parts)
    yield from _trust(day, found, outcomes)
    yield from _predicted(predictions(day, found.objective), found.objective)
    yield from simulatedtext.told(found, outcomes)


def _at(cost: float | None) -> str:
    return "" if cost is None else f" at ${money(cost)}"


def _trust(day: Day, found: WhatIf, outcomes: Sequence[Outcome]) -> Iterator[str]:
    ours = next((each for each in outcomes if each.policy == "goodput"), None)
    if ours is None:
        return
    seen, cost = day.attainment, found.cost(ours)
    off = (
        seen.lower is not None
        and seen.upper is not None
        and not (seen.lower - _OFF_SHARE <= ours.attainment <= seen.upper + _OFF_SHARE)
    )
    dearer = cost / day.cost - 1.0 if cost is not None and day.cost else 0.0
    text = "The replay of the law that ran is the row goodput: compare others with it, not with what was recorded."
    if off or abs(dearer) > _OFF_COST:
        text += (
            f" It is far from what was recorded ({share(ours.attainment)} for {bounds(day)}, cost {dearer:+.0%}): "
            "engines, lengths or routing were not as the replay takes them, and its figures say little."
        )
    yield text


def _predicted(score: Score, objective: Objective) -> Iterator[str]:
    if score.excess is not None:
        yield (
            f"Predictions: {count(score.judged)} forecasts of demand lay {score.excess:+.1%} against the busiest "
            f"minute that came within their horizon; it exceeded {share(score.exceeded / score.judged)} of them"
        )
    if score.held:
        yield (
            f"Replicas were expected to hold the SLO {count(score.held)} times; in the minute a horizon later they "
            f"certainly did not {count(score.missed)} times, and {count(score.undecided)} times that cannot be told "
            f"({share(objective.attainment)} of requests wanted)"
        )


def as_json(day: Day, found: WhatIf, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Recorded, replayed, and how true predictions came; null: unknown."""
    seen, score = day.attainment, predictions(day, found.objective)
    return {
        "model": found.name,
        "namespace": day.asked.key.namespace,
        "begin": rounded(day.begin, 12),
        "end": rounded(day.end, 12),
        "recorded": {
            "requests": round(day.requests),
            "attainment_lower": rounded(seen.lower, 6),
            "attainment_upper": rounded(seen.upper, 6),
            "cost": rounded(day.cost, 6),
            "gpu_hours": rounded(gpu_hours(day, found), 6),
            "mean_replicas": rounded(day.replicas, 6),
            "watched_seconds": rounded(day.watched_seconds, 8),
            "scale_ups": day.moves(*_UPS),
            "scale_downs": day.moves(Action.SCALE_DOWN),
        },
        "replayed": [simulatedtext.as_json(found, each) for each in outcomes],
        "predictions": {
            "forecasts": score.judged,
            "excess": rounded(score.excess, 4),
            "exceeded": score.exceeded,
            "expected_to_hold": score.held,
            "certainly_missed": score.missed,
            "undecided": score.undecided,
        },
    }
