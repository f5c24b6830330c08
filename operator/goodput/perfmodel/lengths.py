"""Lengths of requests as a few points of a distribution: enough for percentiles, cheap enough for every tick."""

from __future__ import annotations

from functools import lru_cache
from math import exp, log, sqrt
from statistics import NormalDist

from goodput.domain.intent import Workload
from goodput.domain.values import Value

# Coefficients of variation of a public conversation trace; means come from metrics.
INPUT_VARIATION = 0.85
OUTPUT_VARIATION = 0.80
# Means of the same trace, until metrics or an author speak.
PRIOR_INPUT_TOKENS = 1155.0
PRIOR_OUTPUT_TOKENS = 211.0
_POINTS = 10


class Lengths(Value, frozen=True):
    """Mean tokens of a request and their coefficient of variation (standard deviation over mean)."""

    input_mean: float
    output_mean: float
    input_variation: float = INPUT_VARIATION
    output_variation: float = OUTPUT_VARIATION


@lru_cache(maxsize=512)
def points(mean: float, variation: float) -> tuple[float, ...]:
    """Equally likely points of a log-normal distribution of this mean and variation, scaled to the exact mean."""
    sigma = sqrt(log(1.0 + variation * variation))
    normal = NormalDist()
    raw = [exp(sigma * normal.inv_cdf((index + 0.5) / _POINTS)) for index in range(_POINTS)]
    scale = mean / (sum(raw) / _POINTS)
    return tuple(max(1.0, value * scale) for value in raw)


def variation_of(mean: float, p95: float) -> float:
    """Coefficient of variation of the log-normal distribution of this mean and 95th percentile.

    ln(p95 / mean) = 1.645 s - s^2 / 2 for the standard deviation s of the logarithm; p95 is at most 3.87 means.
    """
    quantile = NormalDist().inv_cdf(0.95)
    ratio = log(max(1.0, p95 / mean))
    sigma = quantile - sqrt(max(0.0, quantile * quantile - 2.0 * ratio))
    return sqrt(exp(sigma * sigma) - 1.0)


def expected(
    workload: Workload, input_tokens: float = PRIOR_INPUT_TOKENS, output_tokens: float = PRIOR_OUTPUT_TOKENS
) -> Lengths:
    """Lengths that an author expects; what is not said is the given mean, and the variation of public conversations."""
    return Lengths(
        workload.input_tokens or input_tokens,
        workload.output_tokens or output_tokens,
        INPUT_VARIATION if workload.input_variation is None else workload.input_variation,
        OUTPUT_VARIATION if workload.output_variation is None else workload.output_variation,
    )


def percentile(mean: float, variation: float, share: float) -> float:
    """The length that `share` (0..1, exclusive) of requests does not exceed."""
    sigma = sqrt(log(1.0 + variation * variation))
    return mean * exp(sigma * NormalDist().inv_cdf(share) - sigma * sigma / 2.0)
