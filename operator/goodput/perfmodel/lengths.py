"""Lengths of requests as classes of a log-normal distribution: enough for percentiles, cheap enough for every tick."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import exp, log, sqrt
from statistics import NormalDist

from msgspec.structs import replace

from goodput.domain.intent import Workload
from goodput.domain.values import Value

# Coefficients of variation of a public conversation trace; means come from metrics.
INPUT_VARIATION = 0.85
OUTPUT_VARIATION = 0.80
# Means of the same trace, until metrics or an author speak.
PRIOR_INPUT_TOKENS = 1155.0
PRIOR_OUTPUT_TOKENS = 211.0
# Shares of requests below each class. Long prompts miss a TTFT objective first and make others wait: the tail of the
# inputs is cut finer. Of outputs only the mean time per token is felt.
INPUT_EDGES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.94, 0.97, 0.99, 1.0)
OUTPUT_EDGES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_NORMAL = NormalDist()
_HALVINGS = 30


class Lengths(Value, frozen=True):
    """Mean tokens of a request and their coefficient of variation (standard deviation over mean)."""

    input_mean: float
    output_mean: float
    input_variation: float = INPUT_VARIATION
    output_variation: float = OUTPUT_VARIATION

    def rounded(self) -> Lengths:
        """Lengths in steps of 2-3 %, so that equal work is done once."""
        return Lengths(
            _geometric(self.input_mean),
            _geometric(self.output_mean),
            round(self.input_variation, 1) or 0.1,
            round(self.output_variation, 1) or 0.1,
        )


class LengthClass(Value, frozen=True):
    """`share` (0..1) of requests, their mean tokens and the standard deviation among them."""

    share: float
    tokens: float
    deviation: float


@lru_cache(maxsize=1024)
def classes(mean: float, variation: float, edges: tuple[float, ...]) -> tuple[LengthClass, ...]:
    """A log-normal distribution of this mean and variation, cut at the shares `edges` (from 0 to 1, rising).

    The mean and, with the deviations, the second moment of the classes together are those of the distribution. No
    class is shorter than a token: requests of hardly more than one vary by as much less, those of one not at all.
    """
    found = _cut(mean, _sigma(variation), edges)
    if found[0].tokens >= 1.0:
        return found
    least, most = 0.0, _sigma(variation)
    for _ in range(_HALVINGS):
        middle = 0.5 * (least + most)
        least, most = (middle, most) if _cut(mean, middle, edges)[0].tokens >= 1.0 else (least, middle)
    return tuple([replace(each, tokens=max(1.0, each.tokens)) for each in _cut(mean, least, edges)])


def _cut(mean: float, sigma: float, edges: tuple[float, ...]) -> tuple[LengthClass, ...]:
    """Classes of a log-normal distribution whose logarithm has the deviation `sigma`."""
    # Bounds of the classes in standard deviations of the logarithm.
    bounds = [_NORMAL.inv_cdf(min(max(edge, 1e-12), 1.0 - 1e-12)) for edge in edges]
    # E[X^k] up to a bound is E[X^k] * Phi(bound - k * sigma).
    first = [_NORMAL.cdf(bound - sigma) for bound in bounds]
    second = [_NORMAL.cdf(bound - 2.0 * sigma) for bound in bounds]
    first[0] = second[0] = 0.0
    first[-1] = second[-1] = 1.0
    found = []
    for index, (low, high) in enumerate(pairwise(edges)):
        share = high - low
        tokens = mean * (first[index + 1] - first[index]) / share
        square = mean * mean * exp(sigma * sigma) * (second[index + 1] - second[index]) / share
        found.append(LengthClass(share, tokens, sqrt(max(0.0, square - tokens * tokens))))
    return tuple(found)


def variation_of(mean: float, p95: float) -> float:
    """Coefficient of variation of the log-normal distribution of this mean and 95th percentile.

    ln(p95 / mean) = 1.645 s - s^2 / 2 for the standard deviation s of the logarithm; p95 is at most 3.87 means.
    """
    quantile = _NORMAL.inv_cdf(0.95)
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
    sigma = _sigma(variation)
    return mean * exp(sigma * _NORMAL.inv_cdf(share) - sigma * sigma / 2.0)


def _sigma(variation: float) -> float:
    """Standard deviation of the logarithm of a log-normal value of this coefficient of variation."""
    return sqrt(log(1.0 + variation * variation))


def _geometric(value: float) -> float:
    """`value` to two and a half significant digits: at most 2.5 % off."""
    bounded = min(max(value, 1.0), 1e7)
    step = 1.0
    while step * 40.0 <= bounded:
        step *= 2.0
    return round(bounded / step) * step
