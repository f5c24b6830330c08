"""Goodput of one pod from marginals: how many finished requests were good at least and at most.

Histograms tell how many requests missed TTFT, TPOT or end-to-end time, not which. Of f requests that finished in one
(pod, window), with t late first tokens and p slow or late ones, max(0, f - t - p) <= good <= f - max(t, p).
A late first token is seen before its request finishes, so late ones are carried until their requests have finished:
the lower bound charges them as early as it can, the upper bound as late as it can, each exactly once.

As late as it can has an end: a request that is older than any is in flight no longer. Its miss is charged to nobody
then, which only widens the bound: misses of an hour ago are none of the requests that finish now.
"""

from __future__ import annotations

from goodput.domain.values import Value


class Window(Value, frozen=True):
    """Counts of one pod over one interval; all at least 0."""

    finished: float
    late_first: float  # first tokens later than the objective
    slow: float  # finished requests over the TPOT objective
    late_end: float  # finished requests over the end-to-end objective
    in_flight: float  # requests on the pod at the end of the interval
    aborted: float  # requests known to have ended without finishing


class Carry(Value, frozen=True):
    """Late first tokens whose requests are still to be charged to each bound."""

    lower: float = 0.0
    upper: float = 0.0
    # Of those of the upper bound, as many were seen before `since` (Unix seconds).
    old: float = 0.0
    since: float = 0.0


NOTHING = Carry()


class Bounds(Value, frozen=True):
    """Good requests of a window, and what is still to be charged after it."""

    lower: float
    upper: float
    carry: Carry


def aged(carry: Carry, at: float, longest_seconds: float) -> Carry:
    """`carry` at `at` without what is too old to be in flight: between one and two times `longest_seconds`."""
    if not carry.upper:
        return Carry(carry.lower, 0.0, 0.0, at)
    age = at - carry.since
    if age < longest_seconds:
        return carry
    young = carry.upper - carry.old if age < 2.0 * longest_seconds else 0.0
    return Carry(carry.lower, young, young, at)


def bounds(window: Window, carry: Carry) -> Bounds:
    """Bounds of one window; summed over windows they stay bounds of the total."""
    finished = window.finished
    if not (window.late_first or window.slow or window.late_end or carry.lower or carry.upper):
        return Bounds(finished, finished, carry)
    # Lower: the slow and the late ones are different requests, and late first tokens finish as soon as they can.
    usable = max(0.0, finished - window.slow - window.late_end)
    owed = carry.lower + window.late_first
    charged = min(owed, usable)
    lower = usable - charged
    carry_lower = min(owed - charged, window.in_flight)
    # Upper: one request misses everything there is to miss, and late first tokens finish as late as they can.
    worst = max(window.slow, window.late_end)
    best = max(0.0, finished - worst)
    all_late = carry.upper + window.late_first
    open_late = all_late - min(all_late, worst)
    must_end = max(0.0, open_late - window.in_flight)
    forced = min(best, max(0.0, must_end - window.aborted))
    left = open_late - must_end
    old = max(0.0, carry.old - (all_late - left))
    return Bounds(min(lower, best - forced), best - forced, Carry(carry_lower, left, old, carry.since))
