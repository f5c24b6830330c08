"""Counters of engine pods against the marks of the last look: what arrived, what ended, what was good.

All pods of the fleet are counted together, as columns. A falling counter is a restart: its value is what came since. A
pod without a mark that is younger than the memory started at 0; an older one only sets its mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from goodput.decide.goodput import Carry, Window, aged, bounds
from goodput.decide.policy import Policy
from goodput.domain import podtable as pt
from goodput.domain.intent import Objective
from goodput.domain.memory import (
    ABORTED,
    ARRIVAL_RATE,
    BUSY,
    CARRY_LOWER,
    CARRY_SINCE,
    CARRY_UPPER,
    MARKED,
    SERVED,
    SLOW_SINCE,
    LoopMemory,
)
from goodput.domain.observed import PoolView
from goodput.domain.podtable import Column, Matrix, PodTable

Mask: TypeAlias = npt.NDArray[np.bool_]
# Observed so shortly after a start that a rate means nothing.
LEAST_SECONDS = 1.0
NO_COUNTERS = pt.empty(pt.COUNTERS)
_WITHIN = (pt.TTFT_WITHIN, pt.TPOT_WITHIN, pt.E2E_WITHIN)


@dataclass(frozen=True, slots=True)
class Look:
    """One Model: its pods, their scrapes, and what is remembered of them. A request ends within `longest_seconds`."""

    pool: PoolView
    table: PodTable
    memory: LoopMemory
    objective: Objective | None
    rebased: bool  # the marks were counted against other thresholds
    longest_seconds: float


@dataclass(slots=True)
class Sums:
    """Sums over the engine pods that have a new scrape."""

    ends: float = 0.0
    seconds: float = 0.0
    pods: float = 0.0
    first: float = 0.0
    finished: float = 0.0
    ttft_misses: float = 0.0
    tpot_misses: float = 0.0
    e2e_misses: float = 0.0
    lower: float = 0.0
    upper: float = 0.0
    rejected: float = 0.0
    arrived: float = 0.0
    slow_missed: float = 0.0
    longest: float = 0.0  # of `seconds`, those of the pod that was not looked at for longest
    # Of each pod that went away or started anew: requests in flight at its last scrape, times the seconds since.
    gone: float = 0.0
    # Gauges of all pods that exist, with a new scrape or without.
    waiting: float = 0.0
    running: float = 0.0
    squares: float = 0.0  # of what each runs
    scraped: float = 0.0  # how many


_NAMES = tuple(field.name for field in fields(Sums))
_UPPER, _LONGEST = _NAMES.index("upper"), _NAMES.index("longest")


@dataclass(slots=True)
class Counted:
    """What the pods of one Model did, and the marks that they leave."""

    sums: Sums
    marks: PodTable
    whole: bool = False  # every pod was scraped, and none is new or gone
    complete: bool = False  # each exports all that decisions need
    oldest_scrape: float = 0.0  # Unix seconds


def count_pods(looks: Sequence[Look], policy: Policy) -> list[Counted]:
    """Count the engine pods of all these Models; one that went away may have served a scrape interval unseen."""
    aligned = [_align(look) for look in looks]
    filled = [(look, rows) for look, rows in zip(looks, aligned, strict=True) if len(rows.table)]
    found = iter(_count([look for look, _ in filled], [rows for _, rows in filled], policy) if filled else ())
    return [
        _conclude(look, rows, next(found) if len(rows.table) else None, policy)
        for look, rows in zip(looks, aligned, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Scrapes and marks of the pods of one Model, row by row."""

    table: PodTable
    marks: Matrix  # NaN: no mark
    # None: each row has a mark, and is a pod that exists; nothing else does.
    alive: list[bool] | None = None
    lost: PodTable | None = None  # marks of pods that have no scrape


def _align(look: Look) -> _Rows:
    table, marks = look.table, look.memory.marks
    if look.rebased:
        marks = _without_objective(marks)
    if table.pods == marks.pods and table.pods == look.pool.tally.names:
        return _Rows(table, marks.values)
    names = set(look.pool.tally.names)
    index = marks.index()
    rows = [row for row, pod in enumerate(table.pods) if pod in names or pod in index]
    table = table.take(rows)
    values = np.full((len(rows), MARKED), np.nan)
    for row, pod in enumerate(table.pods):
        at = index.pop(pod, None)
        if at is not None:
            values[row] = marks.values[at]
    return _Rows(table, values, [pod in names for pod in table.pods], marks.take(list(index.values())))


def _without_objective(marks: PodTable) -> PodTable:
    """`marks` without what was counted against thresholds that no longer hold."""
    values = marks.values.copy()
    values[:, list(_WITHIN)] = np.nan
    return PodTable(marks.pods, values)


@dataclass(frozen=True, slots=True)
class _Found:
    """What was counted for one Model: new marks, rows that have none or kept the old one, and sums."""

    marks: Matrix
    kept_old: Mask
    skipped: Mask
    sums: list[float]
    complete: bool
    oldest_scrape: float


@dataclass(frozen=True, slots=True)
class _Fleet:
    """Rows of all Models under each other."""

    looks: Sequence[Look]
    rows: Sequence[_Rows]
    values: Matrix
    marks: Matrix
    starts: npt.NDArray[np.intp]  # first row of each Model
    sizes: npt.NDArray[np.intp]
    whose: npt.NDArray[np.intp]  # Model of each row
    alive: Mask
    longest: Column
    rebased: Mask
    judged: Mask  # somebody said what is good
    bounded: dict[int, Mask]  # by the column of what is within the bound: rows that have such a bound

    def pod(self, row: int) -> tuple[Look, str]:
        """The Model of a row, and the name of its pod."""
        number = self.whose[row]
        return self.looks[number], self.rows[number].table.pods[row - self.starts[number]]


def _gather(looks: Sequence[Look], rows: Sequence[_Rows]) -> _Fleet:
    sizes = np.array([len(each.table) for each in rows])
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    whose = np.repeat(np.arange(len(looks)), sizes)
    alive = np.ones(len(whose), dtype=bool)
    for start, size, each in zip(starts, sizes, rows, strict=True):
        if each.alive is not None:
            alive[start : start + size] = each.alive
    settings = np.array([_settings(look) for look in looks])[whose]
    return _Fleet(
        looks,
        rows,
        np.concatenate([each.table.values for each in rows]),
        np.concatenate([each.marks for each in rows]),
        starts,
        sizes,
        whose,
        alive,
        longest=settings[:, 0],
        rebased=settings[:, 1] > 0.0,
        judged=settings[:, 2] > 0.0,
        bounded={column: settings[:, 3 + number] > 0.0 for number, column in enumerate(_WITHIN)},
    )


def _settings(look: Look) -> tuple[float, ...]:
    bounded = bounded_columns(look.objective)
    return look.longest_seconds, look.rebased, look.objective is not None, *(column in bounded for column in _WITHIN)


def bounded_columns(objective: Objective | None) -> list[int]:
    """Columns of what is within a bound that the objective has."""
    if objective is None:
        return []
    bounds_of = (objective.ttft_seconds, objective.tpot_seconds, objective.e2e_seconds)
    return [column for column, bound in zip(_WITHIN, bounds_of, strict=True) if bound is not None]


@dataclass(frozen=True, slots=True)
class _Compared:
    """Which rows are counted, since when, and against what."""

    before: Matrix  # marks; 0 for pods that started anew
    started: Column  # Unix seconds
    counted: Mask
    kept_old: Mask  # no new scrape, or one that says nothing
    skipped: Mask  # no mark, and a scrape that says nothing
    rebased: Mask
    upper_lost: Column  # what may have finished well between the last scrape and a restart
    gone: Column  # as in Sums


def _compare(fleet: _Fleet, policy: Policy) -> _Compared:
    values, before = fleet.values, fleet.marks.copy()
    scraped, first, finished = values[:, pt.SCRAPED_AT], values[:, pt.FIRST_TOKENS], values[:, pt.FINISHED]
    started = before[:, pt.SCRAPED_AT].copy()
    silent, marked = np.isnan(first) | np.isnan(finished), ~np.isnan(started)
    kept_old = marked & (silent | (scraped <= started))
    counted = marked & ~kept_old
    fell = counted & ((first < before[:, pt.FIRST_TOKENS]) | (finished < before[:, pt.FINISHED]))
    upper_lost, gone = np.zeros(len(values)), np.zeros(len(values))
    if fell.any():
        # The engine restarted: what was in flight may have finished well before it, unseen.
        upper_lost[fell] = lost(before[fell])
        # It died before it missed a scrape, however long it was away.
        unseen = np.clip(scraped - started, 0.0, policy.scrape_seconds)
        gone[fell] = _or_zero(before[fell, pt.RUNNING]) * unseen[fell]
        for row in np.flatnonzero(fell).tolist():
            started[row] = max(started[row], _served_since(*fleet.pod(row), scraped[row]) or 0.0)
        before[fell] = 0.0
    for row in np.flatnonzero(~marked & ~silent).tolist():
        since = _began(*fleet.pod(row), values[row])
        if since is not None:
            counted[row], started[row] = True, since
            before[row] = 0.0
    return _Compared(before, started, counted, kept_old, ~marked & silent, fleet.rebased & ~fell, upper_lost, gone)


def _count(looks: Sequence[Look], rows: Sequence[_Rows], policy: Policy) -> list[_Found]:
    fleet = _gather(looks, rows)
    values, compared = fleet.values, _compare(fleet, policy)
    before = compared.before
    scraped, first = values[:, pt.SCRAPED_AT], values[:, pt.FIRST_TOKENS]
    waiting, running = _or_zero(values[:, pt.WAITING]), _or_zero(values[:, pt.RUNNING])
    seconds = np.maximum(LEAST_SECONDS, scraped - compared.started)
    got_first = delta(first, before[:, pt.FIRST_TOKENS])
    ended = delta(values[:, pt.FINISHED], before[:, pt.FINISHED])
    rejected = delta(values[:, pt.REJECTED], before[:, pt.REJECTED])
    arrived = np.maximum(0.0, got_first + rejected + waiting - _or_zero(before[:, pt.WAITING]))
    aborted = _or_zero(np.maximum(0.0, first - values[:, pt.FINISHED] - running))
    newly_aborted = np.maximum(0.0, aborted - _or_zero(before[:, ABORTED]))
    judged = _judge(fleet, compared, got_first, ended, in_flight=running + waiting, newly_aborted=newly_aborted)

    new = np.zeros((len(values), MARKED))
    new[:, : pt.COUNTERS] = values
    carry = (judged.carry.lower, judged.carry.upper, judged.carry.old, judged.carry.since)
    new[:, CARRY_LOWER : CARRY_SINCE + 1] = np.stack(carry, axis=1)
    new[:, ABORTED] = aborted
    new[:, ARRIVAL_RATE] = np.round(arrived / seconds, 4)
    kept = 0.5 ** (seconds / policy.slow_halflife_seconds)
    new[:, SERVED] = np.round(kept * _or_zero(before[:, SERVED]) + ended, 3)
    ran = (running + _or_zero(before[:, pt.RUNNING])) / 2.0
    new[:, BUSY] = np.round(kept * _or_zero(before[:, BUSY]) + ran * seconds, 3)
    new[:, SLOW_SINCE] = _or_zero(before[:, SLOW_SINCE])
    new[~compared.counted, pt.COUNTERS :] = 0.0
    new[compared.kept_old] = fleet.marks[compared.kept_old]

    ones = np.ones(len(values))
    # In the order of Sums.
    slow = np.where(before[:, SLOW_SINCE] > 0.0, ended - judged.upper, 0.0)
    counts = (
        *(scraped, seconds, ones, got_first, ended, *judged.misses),
        *(judged.lower, judged.upper, rejected, arrived, slow),
    )
    per_pod = np.where(compared.counted, np.stack(counts), 0.0)
    per_pod[_UPPER] += compared.upper_lost
    gauges = np.where(fleet.alive, np.stack((waiting, running, running * running, ones)), 0.0)
    added = np.add.reduceat(np.concatenate((per_pod, compared.gone[None], gauges)), fleet.starts, axis=1)
    longest = np.maximum.reduceat(per_pod[1], fleet.starts)
    sums = np.concatenate((added[:_LONGEST], longest[None], added[_LONGEST:])).T.tolist()
    whole = ~np.isnan(first + values[:, pt.FINISHED] + values[:, pt.WAITING])
    for column, bounded in fleet.bounded.items():
        whole &= ~bounded | ~np.isnan(values[:, column])
    complete = np.logical_and.reduceat(whole, fleet.starts).tolist()
    oldest = np.minimum.reduceat(scraped, fleet.starts).tolist()
    found = []
    for number, (start, size) in enumerate(zip(fleet.starts.tolist(), fleet.sizes.tolist(), strict=True)):
        of = slice(start, start + size)
        kept_old, skipped = compared.kept_old[of], compared.skipped[of]
        found.append(_Found(new[of], kept_old, skipped, sums[number], complete[number], oldest[number]))
    return found


@dataclass(frozen=True, slots=True)
class _Judged:
    """What was good at least and at most, misses of each bound, and late first tokens that are still to be charged."""

    lower: Column
    upper: Column
    misses: list[Column]
    carry: Carry


def _judge(
    fleet: _Fleet, compared: _Compared, got_first: Column, ended: Column, *, in_flight: Column, newly_aborted: Column
) -> _Judged:
    values, before = fleet.values, compared.before
    # Counted against another threshold, or not at all, or nobody said what is good: anything between none and all was.
    unknown = ~fleet.judged | compared.rebased
    for column, bounded in fleet.bounded.items():
        unknown |= bounded & np.isnan(values[:, column] + before[:, column])
    misses = []
    for column, bounded in fleet.bounded.items():
        among = got_first if column == pt.TTFT_WITHIN else ended
        missed = np.clip(among - delta(values[:, column], before[:, column]), 0.0, among)
        misses.append(np.where(bounded & ~unknown, missed, 0.0))
    late, slow, late_end = misses
    carried = _or_zero(before[:, CARRY_LOWER : CARRY_SINCE + 1])
    carry = aged(Carry(*carried.T), values[:, pt.SCRAPED_AT], fleet.longest)
    found = bounds(Window(ended, late, slow, late_end, in_flight, newly_aborted), carry)
    # Those between two edges may all lie on the one side of the threshold or on the other.
    slack = delta(values[:, pt.UNSURE], before[:, pt.UNSURE])
    upper = np.where(unknown, 0.0, found.carry.upper)
    return _Judged(
        np.where(unknown, 0.0, np.maximum(0.0, found.lower - slack)),
        np.where(unknown, ended, np.minimum(ended, found.upper + slack)),
        misses,
        Carry(
            np.where(unknown, in_flight, found.carry.lower),
            upper,
            np.where(unknown, 0.0, found.carry.old),
            np.where(upper > 0.0, found.carry.since, 0.0),
        ),
    )


def _served_since(look: Look, name: str, scraped_at: float) -> float | None:
    """Since when a pod serves, if it did when it was scraped."""
    pod = next((pod for pod in look.pool.pods if pod.name == name), None)
    since = pod.ready_at if pod is not None else None
    return since if since is not None and since < scraped_at else None


def _began(look: Look, name: str, scrape: Column) -> float | None:
    """Since when a pod without a mark is counted from 0; None: its first scrape is only remembered."""
    pod = next(pod for pod in look.pool.pods if pod.name == name)
    if pod.created_at < look.memory.born_at:
        return None
    since = _served_since(look, name, scrape[pt.SCRAPED_AT])
    if since is not None:
        return since
    seen = (pt.FIRST_TOKENS, pt.FINISHED, pt.WAITING, pt.RUNNING, pt.REJECTED)
    # One that does not serve yet: its start-up is no time in which nothing came.
    return pod.created_at if np.nansum(scrape[list(seen)]) > 0.0 else None


def _conclude(look: Look, rows: _Rows, found: _Found | None, policy: Policy) -> Counted:
    """Marks that stay, and what pods that went away may have finished unseen."""
    sums = Sums(*found.sums) if found is not None else Sums()
    if rows.alive is None and found is not None:
        _add_unseen(sums)
        # A copy: a part of the columns of the fleet would keep all of them alive.
        marks = PodTable(rows.table.pods, found.marks.copy())
        return Counted(sums, marks, True, found.complete, found.oldest_scrape)
    ended = float(look.table.column(pt.SCRAPED_AT).max()) if len(look.table) else 0.0
    kept: list[tuple[str, Column]] = []

    def vanished(mark: Column, until: float) -> None:
        sums.upper += float(lost(mark[None])[0])
        sums.gone += float(_or_zero(mark[pt.RUNNING])) * max(0.0, until - float(mark[pt.SCRAPED_AT]))

    def unscraped(pod: str, mark: Column, exists: bool) -> None:
        if exists or not sums.pods:
            kept.append((pod, mark))
        else:
            # It went away: what was in flight at its last scrape may have finished well, unseen. (Told with the next
            # scrape of another pod: that one shows how fast requests finish.)
            vanished(mark, min(ended, float(mark[pt.SCRAPED_AT]) + policy.scrape_seconds))

    if found is not None and rows.alive is not None:
        for row, (pod, exists) in enumerate(zip(rows.table.pods, rows.alive, strict=True)):
            if found.kept_old[row]:
                unscraped(pod, found.marks[row], exists)
            elif exists and not found.skipped[row]:
                kept.append((pod, found.marks[row]))
            elif not exists:
                vanished(found.marks[row], ended)
    if rows.lost is not None and len(rows.lost):
        names = set(look.pool.tally.names)
        for pod, mark in zip(rows.lost.pods, rows.lost.values, strict=True):
            unscraped(pod, mark, pod in names)
    _add_unseen(sums)
    kept.sort(key=lambda each: each[0])
    if not kept:
        return Counted(sums, pt.empty(MARKED))
    return Counted(sums, PodTable(tuple([pod for pod, _ in kept]), np.array([mark for _, mark in kept])))


def lost(marks: Matrix) -> Column:
    """Of what ran at the last scrape of pods that went away, what may have finished well since."""
    ran = _or_zero(marks[:, pt.RUNNING]) + _or_zero(marks[:, pt.WAITING]) - _or_zero(marks[:, CARRY_UPPER])
    return np.maximum(0.0, ran)


def _add_unseen(sums: Sums) -> None:
    """Add what may have come and finished well between the last scrape of a pod and its end, by Little's law.

    Each request in flight is followed by others at the rate at which those of the fleet (running now) finish: a pod
    that has drained has few in flight and little unseen, one that crashed at full load has much.
    """
    if sums.gone and sums.running > 0.0 and sums.seconds > 0.0:
        sums.upper += sums.finished * sums.pods / (sums.seconds * sums.running) * sums.gone


def _or_zero(values: Column) -> Column:
    return np.where(np.isnan(values), 0.0, values)


def delta(value: Column, before: Column) -> Column:
    """Growth of counters; after a restart, what they counted since. No number on either side: nothing known, 0."""
    grown = np.where(value >= before, value - before, value)
    return np.where(np.isnan(value) | np.isnan(before), 0.0, grown)
