"""What samples say together: attainment, lengths of requests, the history that is kept."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from math import isfinite, sqrt

from goodput.decide.policy import Policy
from goodput.domain.memory import LoopMemory, Sample
from goodput.domain.values import Value
from goodput.perfmodel import Lengths

# Standard errors by which misses must exceed what the objective allows before they are certain.
_CERTAIN_SIGMAS = 2.0


class Attainment(Value, frozen=True):
    """Bounds of the share of requests that were good, over `requests` that ended. None below the least number."""

    requests: float
    lower: float | None
    upper: float | None
    failed: float = 0.0  # refused or answered with an error
    refused: float = 0.0  # of those, at most so many for lack of room in an engine
    good_lower: float = 0.0  # requests
    good_upper: float = 0.0


class Totals(Value, frozen=True, kw_only=True):
    """Sums over the samples of a window, in requests and tokens."""

    finished: float
    good_lower: float
    good_upper: float
    misses: float
    failed: float  # answered with an error by the router
    rejected: float  # refused by engines
    prompt_tokens: float
    cached_tokens: float
    generation_tokens: float
    first_tokens: float  # of the samples whose prompt tokens are known
    generated: float  # requests that finished in the samples whose generated tokens are known


_NOTHING = Totals(
    finished=0.0,
    good_lower=0.0,
    good_upper=0.0,
    misses=0.0,
    failed=0.0,
    rejected=0.0,
    prompt_tokens=0.0,
    cached_tokens=0.0,
    generation_tokens=0.0,
    first_tokens=0.0,
    generated=0.0,
)


def totals(samples: tuple[Sample, ...], since: float, *, begun: float = 0.0) -> Totals:
    """Sums over the samples after `since` (Unix seconds).

    Samples that began before `begun` are left out: what happened in a gap in looking, nobody knows when.
    """
    begin = len(samples)
    while begin and samples[begin - 1].at > since:
        begin -= 1
    seen: Sequence[Sample] = samples[begin:]
    if begun:
        seen = [each for each in seen if each.at - each.seconds >= begun]
    if not seen:
        return _NOTHING
    column = dict(zip(Sample._fields, zip(*seen, strict=True), strict=True))
    prompt, generation = column["prompt_tokens"], column["generation_tokens"]
    return Totals(
        finished=sum(column["finished"]),
        good_lower=sum(column["good_lower"]),
        good_upper=sum(column["good_upper"]),
        misses=sum(column["ttft_misses"]) + sum(column["tpot_misses"]) + sum(column["e2e_misses"]),
        failed=sum(column["failed"]),
        rejected=sum(column["rejected"]),
        prompt_tokens=sum(prompt),
        cached_tokens=sum(column["cached_tokens"]),
        generation_tokens=sum(generation),
        first_tokens=sum(compress(column["first_tokens"], prompt)),
        generated=sum(compress(column["finished"], generation)),
    )


def attainment(seen: Totals, least_requests: float, routed: bool, *, explained: bool = False) -> Attainment:
    """Attainment over a window.

    Requests that ended: finished, and those that the router answered with an error (without one: that engines refused).
    `explained` leaves out the errors that capacity does not explain: only what engines refused counts then.

    Late first tokens are charged to the upper bound as late as they can be, but what was seen before the window is no
    miss of it: it has no more of them than were seen in it.
    """
    lower, upper = seen.good_lower, max(seen.good_upper, seen.finished - seen.misses)
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


def in_future(memory: LoopMemory, now: float, policy: Policy) -> bool:
    """Whether the memory was written at a later time than now, by more than clocks may differ."""
    latest = max(
        memory.born_at,
        memory.last_scale_up_at,
        memory.last_scale_down_at,
        memory.trimmed_at,
        memory.loads[-1][0] if memory.loads else 0.0,
        memory.samples[-1].at if memory.samples else 0.0,
    )
    return latest > now + policy.stale_scrapes * policy.scrape_seconds


def under_another_objective(samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
    """`samples` as far as they speak of load: what was good under another objective says nothing about this one."""
    return tuple(
        each._replace(good_lower=0.0, good_upper=each.finished, ttft_misses=0.0, tpot_misses=0.0, e2e_misses=0.0)
        for each in samples
    )


def keep(samples: tuple[Sample, ...], new: Sample | None, now: float, seconds: float) -> tuple[Sample, ...]:
    """`samples` with the new one, without those older than `seconds`."""
    oldest = now - seconds
    first = 0
    while first < len(samples) and samples[first].at < oldest:
        first += 1
    kept = samples[first:] if first else samples
    return kept if new is None else (*kept, new)


def window_seconds(request_p95: float | None, policy: Policy) -> float:
    """The window of attainment: ten minutes, or three times the p95 of a request if that is longer."""
    longest = 3.0 * request_p95 if request_p95 and isfinite(request_p95) else 0.0
    return min(policy.memory_window_seconds, max(policy.attainment_window_seconds, longest))


def lengths(seen: Totals, policy: Policy) -> tuple[Lengths, float]:
    """(lengths with the prior mixed in, requests they were seen on)."""
    prior = policy.prior_requests
    # Tokens flow before requests end: until enough have ended, more tokens than requests say nothing.
    computed = max(0.0, seen.prompt_tokens - seen.cached_tokens)
    input_mean = (prior * policy.prior_input_tokens + computed) / (prior + seen.first_tokens)
    output_mean = (prior * policy.prior_output_tokens + seen.generation_tokens) / (prior + seen.generated)
    return Lengths(max(1.0, input_mean), max(1.0, output_mean)), seen.first_tokens
