"""Goodput of pods from marginals: how many finished requests were good at least and at most.

Histograms tell how many requests missed TTFT, TPOT or end-to-end time, not which. Of f requests that finished in one
(pod, window), with t late first tokens and p slow or late ones, max(0, f - t - p) <= good <= f - max(t, p).
A late first token is seen before its request finishes, so late ones are carried until their requests have finished:
the lower bound charges them as early as it can, the upper bound as late as it can, each exactly once.

As late as it can has an end: a request that is older than any is in flight no longer. Its miss is charged to nobody
then, which only widens the bound: misses of an hour ago are none of the requests that finish now.

All values are columns, an element for each pod.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from goodput.domain.podtable import Column


@dataclass(frozen=True, slots=True)
class Window:
    """Counts of pods over one interval; all at least 0."""

    finished: Column
    late_first: Column  # first tokens later than the objective
    slow: Column  # finished requests over the TPOT objective
    late_end: Column  # finished requests over the end-to-end objective
    in_flight: Column  # requests on the pod at the end of the interval
    aborted: Column  # requests known to have ended without finishing


@dataclass(frozen=True, slots=True)
class Carry:
    """Late first tokens whose requests are still to be charged to each bound."""

    lower: Column
    upper: Column
    # Of those of the upper bound, as many were seen before `since` (Unix seconds).
    old: Column
    since: Column


@dataclass(frozen=True, slots=True)
class Bounds:
    """Good requests of a window, and what is still to be charged after it."""

    lower: Column
    upper: Column
    carry: Carry


def aged(carry: Carry, at: Column, longest_seconds: Column) -> Carry:
    """`carry` at `at` without what is too old to be in flight: between one and two times `longest_seconds`."""
    age = at - carry.since
    turns = (carry.upper <= 0.0) | (age >= longest_seconds)
    young = np.where(age < 2.0 * longest_seconds, np.maximum(0.0, carry.upper - carry.old), 0.0)
    return Carry(
        carry.lower,
        np.where(turns, young, carry.upper),
        np.where(turns, young, carry.old),
        np.where(turns, at, carry.since),
    )


def bounds(window: Window, carry: Carry) -> Bounds:
    """Bounds of one window; summed over windows they stay bounds of the total."""
    finished = window.finished
    # Lower: the slow and the late ones are different requests, and late first tokens finish as soon as they can.
    usable = np.maximum(0.0, finished - window.slow - window.late_end)
    owed = carry.lower + window.late_first
    charged = np.minimum(owed, usable)
    lower = usable - charged
    carry_lower = np.minimum(owed - charged, window.in_flight)
    # Upper: one request misses everything there is to miss, and late first tokens finish as late as they can.
    worst = np.maximum(window.slow, window.late_end)
    best = np.maximum(0.0, finished - worst)
    all_late = carry.upper + window.late_first
    open_late = all_late - np.minimum(all_late, worst)
    must_end = np.maximum(0.0, open_late - window.in_flight)
    forced = np.minimum(best, np.maximum(0.0, must_end - window.aborted))
    left = open_late - must_end
    old = np.maximum(0.0, carry.old - (all_late - left))
    return Bounds(np.minimum(lower, best - forced), best - forced, Carry(carry_lower, left, old, carry.since))
