"""Counters of one engine pod against the mark of the last look: what arrived, what ended, what was good."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite

from goodput.decide.goodput import NOTHING, Carry, Window, aged, bounds
from goodput.domain.intent import Objective
from goodput.domain.memory import PodMark
from goodput.domain.observed import PodCounters, PodView
from goodput.domain.values import Value

# Layout of PodMark.values of an engine pod.
FIRST, TTFT_OK, FINISHED, TPOT_OK, E2E_OK, REJECTED, WAITING, RUNNING = range(8)
CARRY_LOWER, CARRY_UPPER, CARRY_OLD, CARRY_SINCE, ABORTED, UNSURE, RATE = range(8, 15)
VALUES = 15
# Observed so shortly after a start that a rate means nothing.
LEAST_SECONDS = 1.0
_ZEROS: tuple[float | None, ...] = (0.0,) * VALUES


@dataclass(slots=True)
class Sums:
    """Sums over the engine pods that have a new scrape."""

    ends: float = 0.0
    seconds: float = 0.0
    pods: int = 0
    first: float = 0.0
    finished: float = 0.0
    ttft_misses: float = 0.0
    tpot_misses: float = 0.0
    e2e_misses: float = 0.0
    lower: float = 0.0
    upper: float = 0.0
    rejected: float = 0.0
    arrived: float = 0.0
    # (requests in flight at the last scrape, seconds since) of each pod that went away or started anew.
    gone: list[tuple[float, float]] = field(default_factory=list)


def lost(mark: PodMark) -> float:
    """Of what ran at the last scrape of a pod that went away, what may have finished well since."""
    values = mark.values
    return max(0.0, (values[RUNNING] or 0.0) + (values[WAITING] or 0.0) - (values[CARRY_UPPER] or 0.0))


def unseen(sums: Sums, running: float) -> float:
    """What may have come and finished well between the last scrape of a pod and its end, by Little's law.

    Each request in flight is followed by others at the rate at which those of the fleet (`running` now) finish: a pod
    that has drained has few in flight and little unseen, one that crashed at full load has much.
    """
    if not sums.gone or running <= 0.0 or sums.seconds <= 0.0:
        return 0.0
    rate = sums.finished * sums.pods / (sums.seconds * running)
    return rate * sum(in_flight * seconds for in_flight, seconds in sums.gone)


def vanished(sums: Sums, mark: PodMark, at: float) -> None:
    """Count what a pod may have finished after its last scrape, until `at`."""
    sums.upper += lost(mark)
    sums.gone.append((mark.values[RUNNING] or 0.0, max(0.0, at - mark.scraped_at)))


def count_pod(
    sums: Sums,
    now: PodCounters,
    mark: PodMark | None,
    pod: PodView | None,
    *,
    born_at: float,
    objective: Objective | None,
    rebased: bool,
    longest_seconds: float,
) -> PodMark:
    """Add what one pod did since `mark` to `sums`; returns its new mark. A falling counter is a restart.

    A request ends within `longest_seconds`.
    """
    first, finished = now.first_tokens, now.finished
    waiting, running = now.waiting or 0.0, now.running or 0.0
    scraped_at = now.scraped_at
    served_since = pod.ready_at if pod is not None else None
    if served_since is not None and served_since >= scraped_at:
        served_since = None
    old: tuple[float | None, ...]
    carry, aborted_before = NOTHING, 0.0
    if mark is None:
        if pod is None or pod.created_at < born_at:
            # Older than our memory: what it counted so far was counted before, or never.
            return PodMark(now.pod, scraped_at, _values(now, NOTHING, 0.0, 0.0))
        if served_since is None and not (first or finished or waiting or running or now.rejected):
            # It does not serve yet: its start-up is no time in which nothing came.
            return PodMark(now.pod, scraped_at, _values(now, NOTHING, 0.0, 0.0))
        old, started = _ZEROS, served_since if served_since is not None else pod.created_at
    else:
        old, started = mark.values, mark.scraped_at
        aborted_before = old[ABORTED] or 0.0
        if old[CARRY_LOWER] or old[CARRY_UPPER]:
            carry = _carried(old)
        if fell(first, old[FIRST]) or fell(finished, old[FINISHED]):
            # The engine restarted: what was in flight may have finished well before it, unseen.
            vanished(sums, mark, scraped_at)
            old, carry, aborted_before = _ZEROS, NOTHING, 0.0
            started = max(started, served_since or 0.0)
            rebased = False
    seconds = max(LEAST_SECONDS, scraped_at - started)
    sums.pods += 1
    sums.ends += scraped_at
    sums.seconds += seconds
    got_first = delta(first, old[FIRST])
    ended = delta(finished, old[FINISHED])
    rejected = delta(now.rejected, old[REJECTED])
    sums.first += got_first
    sums.finished += ended
    sums.rejected += rejected
    arrived = max(0.0, got_first + rejected + waiting - (old[WAITING] or 0.0))
    sums.arrived += arrived
    rate = round(arrived / seconds, 4)
    aborted = 0.0
    if first is not None and finished is not None and first - finished > running:
        aborted = first - finished - running
    if (
        objective is not None
        and not (rebased or carry is not NOTHING or now.unsure)
        and (objective.ttft_seconds is None or delta(now.ttft_within, old[TTFT_OK]) == got_first)
        and (objective.tpot_seconds is None or delta(now.tpot_within, old[TPOT_OK]) == ended)
        and (objective.e2e_seconds is None or delta(now.e2e_within, old[E2E_OK]) == ended)
        and None not in (first, finished)
        and (now.ttft_within is not None or objective.ttft_seconds is None)
        and (now.tpot_within is not None or objective.tpot_seconds is None)
        and (now.e2e_within is not None or objective.e2e_seconds is None)
    ):
        # Nothing missed and nothing owed, as in most intervals of most pods.
        sums.lower += ended
        sums.upper += ended
        return PodMark(now.pod, scraped_at, _values(now, NOTHING, aborted, rate))
    growth = _Growth(got_first, ended, running + waiting, aborted, max(0.0, aborted - aborted_before))
    carry = aged(carry, scraped_at, longest_seconds)
    carry = _judge(sums, now, old, growth, carry=carry, objective=objective, rebased=rebased)
    return PodMark(now.pod, scraped_at, _values(now, carry, aborted, rate))


class _Growth(Value, frozen=True):
    """What one pod did since its last scrape."""

    first: float
    ended: float
    in_flight: float
    aborted: float  # in all, so far
    newly_aborted: float


def _judge(
    sums: Sums,
    now: PodCounters,
    old: tuple[float | None, ...],
    growth: _Growth,
    *,
    carry: Carry,
    objective: Objective | None,
    rebased: bool,
) -> Carry:
    """Add what was good at least and at most to `sums`; returns the late first tokens that are still to be charged."""
    ended = growth.ended
    if objective is None:
        # Nobody said what is good.
        sums.upper += ended
        return Carry(growth.in_flight)
    late = slow = late_end = 0.0
    unknown = rebased
    if objective.ttft_seconds is not None:
        unknown |= now.ttft_within is None or old[TTFT_OK] is None
        late = max(0.0, growth.first - delta(now.ttft_within, old[TTFT_OK]))
    if objective.tpot_seconds is not None:
        unknown |= now.tpot_within is None or old[TPOT_OK] is None
        slow = _missed(ended, now.tpot_within, old[TPOT_OK])
    if objective.e2e_seconds is not None:
        unknown |= now.e2e_within is None or old[E2E_OK] is None
        late_end = _missed(ended, now.e2e_within, old[E2E_OK])
    if unknown:
        # Counted against another threshold, or not at all: anything between none and all was good.
        sums.upper += ended
        return Carry(growth.in_flight)
    result = bounds(Window(ended, late, slow, late_end, growth.in_flight, growth.newly_aborted), carry)
    sums.ttft_misses += late
    sums.tpot_misses += slow
    sums.e2e_misses += late_end
    # Those between two edges may all lie on the one side of the threshold or on the other.
    slack = delta(now.unsure, old[UNSURE])
    sums.lower += max(0.0, result.lower - slack)
    sums.upper += min(ended, result.upper + slack)
    return result.carry


def _carried(values: tuple[float | None, ...]) -> Carry:
    return Carry(
        values[CARRY_LOWER] or 0.0, values[CARRY_UPPER] or 0.0, values[CARRY_OLD] or 0.0, values[CARRY_SINCE] or 0.0
    )


def _values(now: PodCounters, carry: Carry, aborted: float, rate: float) -> tuple[float | None, ...]:
    return (
        now.first_tokens,
        now.ttft_within,
        now.finished,
        now.tpot_within,
        now.e2e_within,
        now.rejected,
        now.waiting,
        now.running,
        carry.lower,
        carry.upper,
        carry.old,
        carry.since if carry.upper else 0.0,
        aborted,
        now.unsure,
        rate,
    )


def without_objective(mark: PodMark) -> PodMark:
    """`mark` without what was counted against thresholds that no longer hold."""
    values = list(mark.values)
    values[TTFT_OK] = values[TPOT_OK] = values[E2E_OK] = None
    return PodMark(pod=mark.pod, scraped_at=mark.scraped_at, values=tuple(values))


def fell(value: float | None, before: float | None) -> bool:
    """Whether a counter restarted."""
    return value is not None and before is not None and value < before


def delta(value: float | None, before: float | None) -> float:
    """Growth of a counter; after a restart, what it counted since. No number on either side: nothing known, 0."""
    if value is None or before is None or not isfinite(before):
        return 0.0
    return value - before if value >= before else value


def _missed(ended: float, within: float | None, before: float | None) -> float:
    """Of `ended` requests, those that were not within the objective."""
    missed = ended - delta(within, before)
    return 0.0 if missed < 0.0 else ended if missed > ended else missed
