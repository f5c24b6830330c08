"""Offered load from samples: a slow average, a fast estimate guarded against noise, and a trend where there is one."""

from __future__ import annotations

from math import sqrt

from goodput.decide.policy import Policy
from goodput.domain.samples import Samples
from goodput.domain.values import Value

# A sample that lasted longer than this many scrape intervals tells how many requests came in it, not when.
GAP_INTERVALS = 2.5


class Intervals(Value, frozen=True):
    """Requests in each of the last scrape intervals, newest first.

    The newest `apart` of them were counted one by one; what is older may be the even share of a longer time, as after
    a restart of the operator.
    """

    counts: list[float]
    apart: int


class Demand(Value, frozen=True):
    """Offered load in requests/s. `slope` is its growth per second, 0 where no trend is significant.

    The trend is not believed beyond `most` times the load.
    """

    rps: float
    slow_rps: float
    fast_rps: float
    slope: float
    source: str  # average, step or trend
    intervals: int  # scrape intervals that were seen
    most: float = 1.0


def intervals(
    samples: Samples,
    tail: tuple[tuple[float, float], ...],
    end: float,
    policy: Policy,
    wanted: int | None = None,
) -> Intervals:
    """Requests in each of the last scrape intervals before `end`; only those seen in full.

    A sample is spread evenly over its own interval. Router pods are scraped at different instants: the last rate of
    each fills the time up to `end` (`tail`).
    """
    width = policy.scrape_seconds
    if wanted is None:
        wanted = policy.trend_intervals
    bins = [0.0] * wanted
    earliest = end
    gap_end = 0.0
    horizon = end - wanted * width
    for stop, seconds, offered in samples.since(horizon):
        if seconds <= 0.0:
            continue
        start = stop - seconds
        if stop < horizon:
            earliest = min(earliest, stop)
            break
        earliest = min(earliest, start)
        if seconds > GAP_INTERVALS * width:
            gap_end = max(gap_end, stop)
        if offered and start < end:
            _spread(bins, end, width, (start, stop), offered / seconds)
    for scraped_at, rate in tail:
        if rate and scraped_at < end:
            _spread(bins, end, width, (scraped_at, end), rate)
    seen = min(int((end - earliest) / width + 0.2), wanted)
    return Intervals(bins[:seen], min(seen, int((end - gap_end) / width)))


def _spread(bins: list[float], end: float, width: float, span: tuple[float, float], rate: float) -> None:
    """Add `rate` over a span of time to the bins that it overlaps."""
    start, stop = span
    index = int((end - stop) / width) if stop < end else 0
    top = end - index * width
    while index < len(bins) and top > start:
        bottom = top - width
        overlap = (stop if stop < top else top) - (start if start > bottom else bottom)
        if overlap > 0.0:
            bins[index] += overlap * rate
        top = bottom
        index += 1


def estimate(seen: Intervals, policy: Policy) -> Demand | None:
    """Demand from requests per scrape interval; None before one interval was seen."""
    counts = seen.counts
    if not counts:
        return None
    width = policy.scrape_seconds
    slow_counts = counts[: policy.slow_intervals]
    slow = sum(slow_counts) / (len(slow_counts) * width)
    fast = counts[0] / width
    trend = _trend(_since_load_began(counts[: seen.apart]), policy)
    if trend is not None:
        level, slope, most = trend
        return Demand(max(0.0, level), slow, fast, slope, "trend", len(counts), most)
    step = _step(counts, policy)
    if step is not None:
        return Demand(step, slow, fast, 0.0, "step", len(counts))
    return Demand(slow, slow, fast, 0.0, "average", len(counts))


def _step(counts: list[float], policy: Policy) -> float | None:
    """Rate after a step up: the newest two intervals exceed what went before by more than noise would.

    Two intervals, for a single one is a burst that is over before a replica could start; the first of them may hold
    only the end of the step. The rate is that of the newer one less its own noise, or of both where that is more.
    """
    before = counts[2 : 2 + policy.slow_intervals]
    if len(before) < 2:
        return None
    mean = sum(before) / len(before)
    newest, pair = counts[0], counts[0] + counts[1]
    # Poisson: both sides vary like their counts; at least one request of noise.
    noise = sqrt(max(1.0, 2.0 * mean) * (1.0 + 2.0 / len(before)))
    if newest <= mean or pair <= 2.0 * mean + policy.fast_sigmas * noise:
        return None
    return max(pair / 2.0, newest - sqrt(newest)) / policy.scrape_seconds


def _since_load_began(counts: list[float]) -> list[float]:
    """Without the oldest intervals in which nothing came, and the one in which the load began: that is no ramp."""
    number = len(counts)
    while number and counts[number - 1] <= 0.0:
        number -= 1
    return counts if number == len(counts) else counts[: max(0, number - 1)]


def _trend(counts: list[float], policy: Policy) -> tuple[float, float, float] | None:
    """(level now, slope, `most`) of a straight line through the intervals, where its rise or fall is significant.

    Where two constant levels fit better than the line, a rise is no proof of a ramp, but a load that has just jumped
    may well go on rising (on real traces it does): the level is that of the newer one, and it may rise by a share.
    A fall in one step is over.
    """
    number = len(counts)
    if number < policy.slow_intervals:
        return None
    width = policy.scrape_seconds
    centre = (number - 1) / 2.0
    mean = sum(counts) / number
    # Time runs against the index: the newest interval comes first.
    moment = sum((centre - index) * count for index, count in enumerate(counts))
    spread = number * (number * number - 1) / 12.0
    slope = moment / spread  # requests per interval, per interval
    residual = sum((count - mean - slope * (centre - index)) ** 2 for index, count in enumerate(counts))
    variance = max(1.0, mean, residual / (number - 2))
    if abs(slope) < policy.trend_sigmas * sqrt(variance / spread):
        return None
    # The line is known at the middle of each interval; now is half an interval after the newest middle.
    level = mean + slope * (centre + 0.5)
    most = policy.trend_most
    split, left = _best_step(counts)
    if left < residual:
        if slope < 0.0:
            return None
        # Of a single new interval the line says as much.
        newer = sum(counts[:split]) / split
        level = newer if split > 1 else min(newer, level)
        most = policy.jump_most
    return level / width, slope / (width * width), most


def _best_step(counts: list[float]) -> tuple[int, float]:
    """(intervals of the newer level, sum of squares that is left) of the best two constant levels."""
    number = len(counts)
    total = sum(counts)
    squares = sum(count * count for count in counts)
    best, at = squares, number
    head = 0.0
    for split in range(1, number):
        head += counts[split - 1]
        rest = total - head
        left = squares - head * head / split - rest * rest / (number - split)
        if left < best:
            best, at = left, split
    return at, best
