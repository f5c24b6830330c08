"""What samples say together: attainment, lengths of requests, the history that is kept."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf, isfinite, sqrt
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from goodput.decide.demand import GAP_INTERVALS
from goodput.decide.policy import Policy
from goodput.domain.memory import LoopMemory
from goodput.domain.podtable import Column
from goodput.domain.samples import Sample, Samples
from goodput.domain.values import Value
from goodput.perfmodel import Lengths

_Rows: TypeAlias = npt.NDArray[np.intp]
_Mask: TypeAlias = npt.NDArray[np.bool_]
# Standard errors by which misses must exceed what the objective allows before they are certain.
_CERTAIN_SIGMAS = 2.0
# What misses now does so for this many times as long as it was looked at, until more replicas serve.
_LASTS = 1.5
# Fewer differences between samples than this say nothing of how prompts vary.
_LEAST_DEGREES = 2.0
# Nothing below it is believed: the model of a replica's queue is one for requests of many lengths.
_LEAST_VARIATION = 0.3
# So many times the requests that expected lengths are worth may contradict them.
_CONTRADICT = 1.5


class Attainment(Value, frozen=True):
    """Bounds of the share of requests that were good, over `requests` that ended. None below the least number."""

    requests: float
    lower: float | None
    upper: float | None
    failed: float = 0.0  # refused or answered with an error
    refused: float = 0.0  # of those, at most so many for lack of room in an engine
    good_lower: float = 0.0  # requests
    good_upper: float = 0.0


class Totals(Value, frozen=True):
    """Sums over the samples of a window, in requests and tokens."""

    seconds: float = 0.0  # of the window, those of which outcomes are known
    finished: float = 0.0
    good_lower: float = 0.0
    good_upper: float = 0.0
    misses: float = 0.0
    failed: float = 0.0  # answered with an error by the router
    rejected: float = 0.0  # refused by engines
    slow_missed: float = 0.0  # requests that missed at best, on pods that are slower than the others
    prompt_tokens: float = 0.0
    cached_tokens: float = 0.0
    generation_tokens: float = 0.0
    first_tokens: float = 0.0  # of the samples whose prompt tokens are known
    generated: float = 0.0  # requests that finished in the samples whose generated tokens are known
    # Of the samples whose prompt tokens are known: how many, and the sum of (tokens computed)^2 / requests.
    prompt_samples: float = 0.0
    prompt_squares: float = 0.0


def totals(fleet: Sequence[Samples], since: Sequence[float], slack: float = inf) -> list[Totals]:
    """Sums over the samples of each Model after its `since` (Unix seconds).

    Of samples that began more than `slack` seconds before that, outcomes are left out: they are of a gap in looking,
    and nobody knows when in it they happened. Lengths of requests are what they were.
    """
    found = [Totals()] * len(fleet)
    filled = [number for number, samples in enumerate(fleet) if len(samples)]
    if not filled:
        return found
    sizes = [len(fleet[number]) for number in filled]
    values = np.concatenate([fleet[number].values for number in filled])
    whose = np.repeat(filled, sizes)
    columns = dict(zip(Sample._fields, values.T, strict=True))
    at, lasted = columns["at"], np.maximum(columns["seconds"], columns["engine_seconds"])
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    begins = np.array(since)[whose]
    chosen = at > begins
    known = chosen & (at - lasted >= begins - slack)
    prompt, generation = columns["prompt_tokens"], columns["generation_tokens"]
    computed, prompts = np.maximum(0.0, prompt - columns["cached_tokens"]), columns["first_tokens"]
    told = (prompt > 0.0) & (prompts >= 1.0)
    outcomes = (
        _new_seconds(at, lasted, known, np.repeat(starts, sizes)),
        columns["finished"],
        columns["good_lower"],
        columns["good_upper"],
        columns["ttft_misses"] + columns["tpot_misses"] + columns["e2e_misses"],
        columns["failed"],
        columns["rejected"],
        columns["slow_missed"],
    )
    of_lengths = (
        prompt,
        columns["cached_tokens"],
        generation,
        np.where(prompt > 0.0, columns["first_tokens"], 0.0),
        np.where(generation > 0.0, columns["finished"], 0.0),
        told,
        np.where(told, computed * computed / np.maximum(1.0, prompts), 0.0),
    )
    counted = (np.where(known, np.stack(outcomes), 0.0), np.where(chosen, np.stack(of_lengths), 0.0))
    sums = np.add.reduceat(np.concatenate(counted), starts, axis=1).T.tolist()
    for number, row in zip(filled, sums, strict=True):
        found[number] = Totals(*row)
    return found


def _new_seconds(at: Column, lasted: Column, known: _Mask, starts: _Rows) -> Column:
    """Seconds of each sample that those of its Model before it do not cover: pods are scraped at unlike instants."""
    rows = np.arange(len(at))
    # The newest one before each that says something of some time.
    before = np.concatenate(([-1], np.maximum.accumulate(np.where(known & (lasted > 0.0), rows, -1))[:-1]))
    until = np.where(before >= starts, at[before], -np.inf)
    return np.where(lasted > 0.0, np.maximum(0.0, at - np.maximum(at - lasted, until)), 0.0)


def attainment(seen: Totals, least_requests: float, routed: bool, *, explained: bool = False) -> Attainment:
    """Attainment over a window.

    Requests that ended: finished, and those that the router answered with an error (without one: that engines refused).
    `explained` leaves out what the number of replicas does not explain: errors other than what engines refused, and
    what missed on pods that are slower than the others.

    Late first tokens are charged to the upper bound as late as they can be, but what was seen before the window is no
    miss of it: it has no more of them than were seen in it.
    """
    lower, upper = seen.good_lower, max(seen.good_upper, seen.finished - seen.misses)
    if explained:
        lower, upper = lower + seen.slow_missed, upper + seen.slow_missed
    failed = seen.failed if routed else seen.rejected
    refused = min(failed, seen.rejected)
    ended = seen.finished + (refused if explained else failed)
    if ended < max(1.0, least_requests):
        return Attainment(ended, None, None, failed, refused, lower, upper)
    return Attainment(
        ended, min(1.0, lower / ended), min(1.0, max(lower, upper) / ended), failed, refused, lower, upper
    )


def certainly_below(seen: Attainment, objective: float) -> bool:
    """Whether even the upper bound is below the objective by more than the noise of so few requests."""
    if seen.upper is None:
        return False
    noise = sqrt(objective * (1.0 - objective) / seen.requests)
    return seen.upper < objective - _CERTAIN_SIGMAS * noise


def spends_budget(seen: Attainment, recent: Attainment, objective: float, expected: float) -> bool:
    """Whether misses as in the last moments, for half as long again, would break the objective over the window.

    Requests that arrive by chance come in bunches: at a load that is held, a minute and a half may be bad by itself.
    The present load makes `expected` requests in a window.
    """
    if recent.upper is None:
        return False
    allowed = (1.0 - objective) * max(recent.requests, min(seen.requests, expected))
    missed = max(0.0, seen.requests - seen.good_upper)
    return missed + _LASTS * (1.0 - recent.upper) * recent.requests >= allowed


def gap_seconds(policy: Policy) -> float:
    """What lasted longer between two looks was a gap in looking."""
    return max(GAP_INTERVALS * policy.scrape_seconds, policy.scrape_seconds + policy.tick_seconds)


def in_future(memory: LoopMemory, now: float, policy: Policy) -> bool:
    """Whether the memory was written at a later time than now, by more than clocks may differ."""
    latest = max(
        memory.born_at,
        memory.last_scale_up_at,
        memory.last_scale_down_at,
        memory.trimmed_at,
        memory.loads[-1][0] if memory.loads else 0.0,
        memory.samples[-1].at if len(memory.samples) else 0.0,
    )
    return latest > now + policy.stale_scrapes * policy.scrape_seconds


def under_another_objective(samples: Samples) -> Samples:
    """`samples` as far as they speak of load: what was good under another objective says nothing about this one."""
    return Samples.of(
        each._replace(good_lower=0.0, good_upper=each.finished, ttft_misses=0.0, tpot_misses=0.0, e2e_misses=0.0)
        for each in samples
    )


def window_seconds(request_p95: float | None, policy: Policy) -> float:
    """The window of attainment: ten minutes, or three times the p95 of a request if that is longer."""
    longest = 3.0 * request_p95 if request_p95 and isfinite(request_p95) else 0.0
    return min(policy.memory_window_seconds, max(policy.attainment_window_seconds, longest))


def lengths(seen: Totals, expected: Lengths, policy: Policy) -> tuple[Lengths, float]:
    """(means with those `expected` mixed in, and the variation; requests they were seen on)."""
    prior = policy.prior_requests
    # Tokens flow before requests end: until enough have ended, more tokens than requests say nothing.
    computed = max(0.0, seen.prompt_tokens - seen.cached_tokens)
    output_mean = (prior * expected.output_mean + seen.generation_tokens) / (prior + seen.generated)
    variation = _input_variation(seen, computed, expected.input_variation)
    input_mean = _input_mean(computed, seen.first_tokens, expected, prior)
    found = Lengths(max(1.0, input_mean), max(1.0, output_mean), variation, expected.output_variation)
    return found, seen.first_tokens


def _input_mean(computed: float, requests: float, expected: Lengths, prior: float) -> float:
    """The mean of so many requests with the one expected mixed in, worth `prior` requests; once clearly more are seen,
    as far as it agrees with theirs: within a standard error of that.
    """
    mixed = (prior * expected.input_mean + computed) / (prior + requests)
    # Short prompts are counted first; that prompts are alike, which is worth replicas, is known later.
    if requests < _CONTRADICT * prior:
        return mixed
    found, error = computed / requests, expected.input_variation / sqrt(requests)
    return min(found * (1.0 + error), max(found * (1.0 - error), mixed))


def _input_variation(seen: Totals, computed: float, expected: float) -> float:
    """The variation `expected` of prompts, or less where they are seen to differ by less between samples.

    The tokens of n prompts vary by n times the variance of one, and both are counted at first tokens. What is known of
    it is an interval of confidence: inside it the expected value stays, or its noise would move the capacity. More is
    not taken from it: a few prompts of another kind make any variance, and what they miss is seen. (How outputs vary
    shows in no counter: their tokens are counted long before they end.)
    """
    degrees = seen.prompt_samples - 1.0
    if degrees < _LEAST_DEGREES or computed <= 0.0:
        return expected
    prompts = seen.first_tokens
    found = max(0.0, seen.prompt_squares - computed * computed / prompts) / degrees
    squared = found * (prompts / computed) ** 2
    # Long tails make few requests say less of a variance: excess kurtosis of a log-normal value, were it as expected.
    wide = 1.0 + expected * expected
    kurtosis = wide**4 + 2.0 * wide**3 + 3.0 * wide**2 - 6.0
    most = sqrt(squared * exp(_CERTAIN_SIGMAS * sqrt(2.0 / degrees + kurtosis / prompts)))
    return min(expected, max(_LEAST_VARIATION, most))
