"""Load to provide for: the demand expected at its highest until capacity that is ordered now can serve."""

from __future__ import annotations

from functools import lru_cache
from math import ceil, sqrt
from statistics import NormalDist

from goodput.decide.demand import Demand, estimate, intervals
from goodput.decide.policy import Policy
from goodput.domain.memory import LoopMemory
from goodput.domain.samples import Samples
from goodput.domain.values import Value

_MOST_RATIOS = 40
# Fewer requests than this in an average say nothing about growth.
_LEAST_REQUESTS = 40.0
# The highest of the averages of a horizon exceeds a steady load by up to so many standard errors of one (p90).
_NOISE_SIGMAS = 1.8


class Forecast(Value, frozen=True):
    """Highest expected demand over the horizon, in requests/s."""

    rps: float
    horizon_seconds: float
    ratio: float  # growth over a horizon that is provided for without a trend


def quantile(values: tuple[float, ...], share: float) -> float:
    """Nearest-rank quantile; `values` must not be empty."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, ceil(share * len(ordered)) - 1))]


def startup_seconds(memory: LoopMemory, policy: Policy, weight_bytes: float) -> float:
    """p90 of learned start-ups; before one was seen, a prior that grows with the weights to load."""
    if memory.startup_seconds:
        return quantile(memory.startup_seconds, 0.9)
    return max(
        policy.startup_prior_seconds, policy.startup_prior_seconds / 2.0 + weight_bytes / policy.load_bytes_per_second
    )


def horizon_seconds(startup: float, policy: Policy) -> float:
    """From a change of load to the first request served by a replica that it called for."""
    return 2.0 * policy.scrape_seconds + policy.tick_seconds + policy.scheduling_seconds + startup


def max_ratio(memory: LoopMemory, horizon: float, policy: Policy) -> float:
    """Growth over a horizon to provide for: a quantile of the prior's distribution and of what was seen, together.

    Horizons not seen yet are filled up from the prior, so that the quantile is over the same number from the first one
    on: with few of them, the quantile of what was seen alone would be its maximum, and one step would rule for hours.
    """
    prior = policy.prior_growth_per_minute * sqrt(horizon / 60.0)
    seen = memory.max_ratios
    unseen = policy.prior_horizons - len(seen)
    if not seen or unseen <= 0:
        return max(1.0, quantile(seen, policy.max_ratio_quantile)) if seen else 1.0 + prior
    # Half of the horizons see no growth, and a normal distribution of it reaches the prior at the quantile.
    expected = [1.0 + prior * share for share in _normal_shares(unseen, policy.max_ratio_quantile)]
    return max(1.0, quantile((*seen, *expected), policy.max_ratio_quantile))


@lru_cache(maxsize=64)
def _normal_shares(number: int, reference: float) -> tuple[float, ...]:
    """`number` equally likely points of a normal distribution whose `reference` quantile is 1, none below 0."""
    normal = NormalDist()
    unit = normal.inv_cdf(reference)
    return tuple(max(0.0, normal.inv_cdf((index + 0.5) / number)) / unit for index in range(number))


def forecast(demand: Demand, memory: LoopMemory, startup: float, policy: Policy) -> Forecast:
    """The larger of persistence x ratio and the trend, over the horizon."""
    horizon = horizon_seconds(startup, policy)
    ratio = max_ratio(memory, horizon, policy)
    # While the load falls, the growth to cover is a rebound from the line: half of it.
    persistence = demand.rps * (ratio if demand.slope >= 0.0 else (1.0 + ratio) / 2.0)
    return Forecast(max(persistence, _line(demand, horizon, policy)), horizon, ratio)


def _line(demand: Demand, horizon: float, policy: Policy) -> float:
    """Where the trend leads."""
    return min(demand.rps + max(0.0, demand.slope) * policy.trend_damping * horizon, demand.most * demand.rps)


def learn_ratio(
    memory: LoopMemory, samples: Samples, end: float, horizon: float, policy: Policy
) -> tuple[tuple[float, ...], float]:
    """(`max_ratios`, `ratio_at`) after `end`: one ratio per whole horizon.

    The highest average in the horizon over what was expected at its start, trend included: a ramp that the line
    foresaw is not growth to provide for a second time.
    """
    if not memory.ratio_at:
        return memory.max_ratios, end
    if end < memory.ratio_at + horizon:
        return memory.max_ratios, memory.ratio_at
    window = policy.slow_intervals * policy.scrape_seconds
    begin = memory.ratio_at
    known = estimate(intervals(samples, (), begin, policy), policy)
    if known is None or known.intervals < policy.slow_intervals or known.rps * window < _LEAST_REQUESTS:
        return memory.max_ratios, end
    expected = _line(known, horizon, policy)
    # Averages as the forecast uses them, one interval further each time.
    counts = intervals(
        samples, (), begin + horizon, policy, int(horizon / policy.scrape_seconds) + policy.slow_intervals
    ).counts
    sums = [sum(counts[index : index + policy.slow_intervals]) for index in range(int(horizon / policy.scrape_seconds))]
    highest = max(sums, default=0.0) / window
    # What counting alone makes of a steady load is no growth: capacity is that of Poisson arrivals.
    noise = _NOISE_SIGMAS / sqrt(expected * window)
    grown = max(0.0, highest / expected - 1.0)
    return (*memory.max_ratios, round(1.0 + sqrt(max(0.0, grown * grown - noise * noise)), 4))[-_MOST_RATIOS:], end
