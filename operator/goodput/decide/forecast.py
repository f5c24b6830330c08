"""Load to provide for: the demand expected at its highest until capacity that is ordered now can serve."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from goodput.decide.demand import Demand
from goodput.decide.policy import Policy
from goodput.domain.memory import LoopMemory, Sample

_MOST_RATIOS = 40


@dataclass(frozen=True, slots=True)
class Forecast:
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


def max_ratio(memory: LoopMemory, policy: Policy) -> float:
    """Growth over a horizon to provide for: the prior, replaced by experience horizon by horizon."""
    seen = memory.max_ratios
    if not seen:
        return policy.prior_max_ratio
    weight = min(1.0, len(seen) / policy.prior_horizons)
    learned = max(1.0, quantile(seen, policy.max_ratio_quantile))
    return weight * learned + (1.0 - weight) * policy.prior_max_ratio


def forecast(demand: Demand, memory: LoopMemory, startup: float, policy: Policy) -> Forecast:
    """The larger of persistence x ratio and the trend, over the horizon."""
    horizon = horizon_seconds(startup, policy)
    ratio = max_ratio(memory, policy)
    # While the load falls, the growth to cover is a rebound from the line: half of it.
    persistence = demand.rps * (ratio if demand.slope >= 0.0 else (1.0 + ratio) / 2.0)
    # A trend is not believed beyond tripling: no line lasts that long.
    line = min(demand.rps + max(0.0, demand.slope) * horizon, 3.0 * demand.rps)
    return Forecast(max(persistence, line), horizon, ratio)


def learn_ratio(
    memory: LoopMemory, samples: tuple[Sample, ...], end: float, horizon: float, policy: Policy
) -> tuple[tuple[float, ...], float]:
    """(`max_ratios`, `ratio_at`) after `end`: one ratio per whole horizon, from averages as the forecast uses them."""
    if not memory.ratio_at:
        return memory.max_ratios, end
    if end < memory.ratio_at + horizon:
        return memory.max_ratios, memory.ratio_at
    window = policy.slow_intervals * policy.scrape_seconds
    begin = memory.ratio_at
    base = _mean_rate(samples, begin - window, begin)
    if base is None or base * window < 20.0:
        return memory.max_ratios, end
    highest = 1.0
    at = begin + policy.scrape_seconds
    while at <= begin + horizon:
        rate = _mean_rate(samples, at - window, at)
        if rate is not None:
            highest = max(highest, rate / base)
        at += policy.scrape_seconds
    return (*memory.max_ratios, round(highest, 4))[-_MOST_RATIOS:], end


def _mean_rate(samples: tuple[Sample, ...], start: float, stop: float) -> float | None:
    """Offered requests/s between two instants; None if samples do not reach back to the first."""
    total = 0.0
    covered = False
    for sample in samples:
        if sample.seconds <= 0.0:
            continue
        begin = sample.at - sample.seconds
        covered |= begin <= start + 1.0
        overlap = min(sample.at, stop) - max(begin, start)
        if overlap > 0.0:
            total += sample.offered * overlap / sample.seconds
    return total / (stop - start) if covered else None
