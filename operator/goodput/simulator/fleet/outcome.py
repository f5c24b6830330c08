"""What one run gave: who was served well, and what it cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from goodput.domain.intent import Objective
from goodput.simulator.fleet.requests import End, Record, counts, good

_MINUTE = 60.0
# Of minutes with fewer requests a share says little.
_LEAST_REQUESTS = 10
_SHARES = (0.50, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """p50, p95 and p99 in seconds of the requests that have such a time; NaN where none has."""

    p50: float
    p95: float
    p99: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Quantiles:
        """The smallest values that at least so many of the others do not exceed."""
        known = sorted(value for value in values if value is not None)
        if not known:
            return cls(math.nan, math.nan, math.nan)
        return cls(*(known[max(0, math.ceil(share * len(known)) - 1)] for share in _SHARES))


@dataclass(frozen=True, slots=True)
class ScaleEvent:
    """A change of the number of replicas that is asked for."""

    at_seconds: float
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Minute:
    """One minute of the run; replicas are means over it. `offered` and `good` are requests that arrived in it."""

    at_seconds: float
    offered: int
    good: int
    desired: float
    ready: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run of one policy.

    Shares are over requests that could be good: all but those of clients that left after a timely first token.
    `lost` were answered with an error or not at all. GPUs cost from the placing of a pod until it is gone, replicas
    from the moment they are asked for until they are not.
    """

    policy: str
    seconds: float
    requests: int
    counted: int
    good: int
    lost: int
    aborted: int
    gpu_seconds: float
    replica_seconds: float
    scale_events: tuple[ScaleEvent, ...]
    worst_minute_attainment: float
    ttft: Quantiles
    tpot: Quantiles
    e2e: Quantiles
    timeline: tuple[Minute, ...]
    records: tuple[Record, ...]

    @property
    def attainment(self) -> float:
        """Share of requests that met every bound; 1 where there was none."""
        return self.good / self.counted if self.counted else 1.0

    @property
    def goodput_rps(self) -> float:
        """Good requests a second."""
        return self.good / self.seconds

    @property
    def offered_rps(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds

    @property
    def gpu_hours(self) -> float:
        """GPU-hours paid."""
        return self.gpu_seconds / 3600.0

    @property
    def mean_replicas(self) -> float:
        """Replicas asked for, on average."""
        return self.replica_seconds / self.seconds

    @property
    def scale_ups(self) -> int:
        """Changes to more replicas."""
        return sum(1 for event in self.scale_events if event.after > event.before)

    @property
    def scale_downs(self) -> int:
        """Changes to fewer replicas."""
        return len(self.scale_events) - self.scale_ups

    @property
    def direction_changes(self) -> int:
        """How often a change went the other way than the one before it."""
        ups = [event.after > event.before for event in self.scale_events]
        return sum(1 for before, after in pairwise(ups) if before != after)


def outcome(
    policy: str,
    objective: Objective,
    seconds: float,
    *,
    records: Sequence[Record],
    history: Sequence[tuple[float, int, int]],
    gpu_seconds: float,
) -> Outcome:
    """Sum up a run. `history` is (seconds, desired, ready) with each change of either."""
    judged = [(record, counts(record, objective), good(record, objective)) for record in records]
    minutes = tuple(_timeline(judged, history, seconds))
    shares = _minute_shares(judged)
    counted = sum(1 for _, counts_, _ in judged if counts_)
    fine = sum(1 for _, _, good_ in judged if good_)
    return Outcome(
        policy=policy,
        seconds=seconds,
        requests=len(records),
        counted=counted,
        good=fine,
        lost=sum(1 for record in records if record.end not in (End.FINISHED, End.ABORTED)),
        aborted=sum(1 for record in records if record.end is End.ABORTED),
        gpu_seconds=gpu_seconds,
        replica_seconds=sum(length * desired for _, length, desired, _ in _stretches(history, 0.0, seconds)),
        scale_events=tuple(_events(history, seconds)),
        worst_minute_attainment=min(shares, default=fine / counted if counted else 1.0),
        ttft=Quantiles.of(record.ttft_seconds for record in records),
        tpot=Quantiles.of(record.tpot_seconds for record in records),
        e2e=Quantiles.of(record.e2e_seconds for record in records),
        timeline=minutes,
        records=tuple(records),
    )


def _stretches(
    history: Sequence[tuple[float, int, int]], begin: float, end: float
) -> Iterator[tuple[float, float, int, int]]:
    """(begin, length, desired, ready) of each stretch without a change."""
    for number, (at, desired, ready) in enumerate(history):
        until = history[number + 1][0] if number + 1 < len(history) else end
        left, right = max(at, begin), min(until, end)
        if right > left:
            yield left, right - left, desired, ready


def _events(history: Sequence[tuple[float, int, int]], seconds: float) -> Iterator[ScaleEvent]:
    """Changes within the run, those of before it begins left out."""
    for (_, before, _), (at, after, _) in pairwise(history):
        if before != after and 0.0 <= at <= seconds:
            yield ScaleEvent(at, before, after)


def _timeline(
    judged: Sequence[tuple[Record, bool, bool]], history: Sequence[tuple[float, int, int]], seconds: float
) -> Iterator[Minute]:
    size = math.ceil(seconds / _MINUTE)
    offered, fine = [0] * size, [0] * size
    desired, ready = [0.0] * size, [0.0] * size
    for record, _, good_ in judged:
        minute = min(size - 1, int(record.ask.seconds // _MINUTE))
        offered[minute] += 1
        fine[minute] += good_
    for begin, length, wants, has in _stretches(history, 0.0, seconds):
        left = begin
        while left < begin + length - 1e-9:
            minute = min(size - 1, int(left // _MINUTE + 1e-9))
            right = min(begin + length, (minute + 1) * _MINUTE)
            desired[minute] += wants * (right - left)
            ready[minute] += has * (right - left)
            left = right
    for minute in range(size):
        length = min(_MINUTE, seconds - minute * _MINUTE)
        yield Minute(minute * _MINUTE, offered[minute], fine[minute], desired[minute] / length, ready[minute] / length)


def _minute_shares(judged: Sequence[tuple[Record, bool, bool]]) -> list[float]:
    """Attainment of each minute in which enough requests arrived."""
    totals: dict[int, list[int]] = {}
    for record, counts_, good_ in judged:
        if counts_:
            total = totals.setdefault(int(record.ask.seconds // _MINUTE), [0, 0])
            total[0] += 1
            total[1] += good_
    return [fine / offered for offered, fine in totals.values() if offered >= _LEAST_REQUESTS]
