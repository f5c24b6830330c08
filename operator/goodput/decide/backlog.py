"""Batch: what waits is to be done before its deadline, in the order in which it came.

A request that comes later never delays an earlier one, so what must be done by a deadline is all that came until then
and is not done. No forecast is needed: what is still to come has its whole deadline ahead.
"""

from __future__ import annotations

from goodput.decide.policy import Policy
from goodput.domain.samples import Sample
from goodput.domain.values import Value

# (Unix seconds of arrival, requests that are not done), oldest first.
Queue = tuple[tuple[float, float], ...]
# Entries of a queue: what came within this share of a deadline counts as having come together.
_ENTRIES = 64
# Of a request that runs so much is still to be done, on average.
_LEFT_OF_RUNNING = 0.5


class Backlog(Value, frozen=True, kw_only=True):
    """What is to be done, and how fast the fleet has to be for that."""

    queue: Queue
    requests: float  # what is left of those that run counts as that part
    rps: float  # of the whole fleet, from when more replicas serve
    seconds: float  # until the requests that ask for this rate are to be done; 0: nothing is to be done


def unfinished(queue: Queue, sample: Sample | None, in_flight: float, now: float, deadline: float) -> Queue:
    """`queue` with what came since the last look, without what is done: engines work in the order of arrival.

    Of requests in flight that nobody saw coming, half the deadline is taken to be over.
    """
    if sample is not None and sample.offered > 0.0:
        at = min(sample.at, now)
        if queue and at - queue[-1][0] < deadline / _ENTRIES:
            queue = (*queue[:-1], (queue[-1][0], queue[-1][1] + sample.offered))
        else:
            queue = (*queue, (round(at, 3), sample.offered))
    left: list[tuple[float, float]] = []
    rest = in_flight
    for at, requests in reversed(queue):
        if rest <= 0.0:
            break
        left.append((at, round(min(requests, rest), 3)))
        rest -= requests
    if rest >= 1.0:
        oldest = min(left[-1][0] if left else now, now - 0.5 * deadline)
        left.append((round(oldest, 3), round(rest, 3)))
    return tuple(reversed(left))


def backlog(
    queue: Queue,
    running: float,
    *,
    now: float,
    deadline: float,
    starts_in: float,
    ready: int,
    capacity_rps: float,
    policy: Policy,
) -> Backlog:
    """The rate that gets `queue` done in time: `ready` replicas work now, others from `starts_in` seconds on.

    What is late already, or nearly, is given a share of the deadline more: nothing that follows is done before it.
    """
    least = policy.late_share * deadline
    works = ready * capacity_rps
    rate, seconds, work = 0.0, 0.0, -(1.0 - _LEFT_OF_RUNNING) * running
    for at, requests in queue:
        work += requests
        left = max(least, at + policy.deadline_share * deadline - now)
        # What those do not get done that work already is for the others.
        beyond = work - works * left
        needed = work / left if beyond <= 0.0 else works + beyond / max(least, left - starts_in)
        if needed > rate:
            rate, seconds = needed, left
    return Backlog(queue=queue, requests=max(0.0, work), rps=rate, seconds=seconds)
