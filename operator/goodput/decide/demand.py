"""Offered load from samples: the longest average that shorter ones agree with, a step, or a trend if there is one."""

from __future__ import annotations

from math import ceil, sqrt

from msgspec.structs import replace

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
    """Offered load in requests/s, known to `error` (one standard error, if arrivals are Poisson).

    `slope` is its growth per second, 0 where no trend is significant. The trend is not believed beyond `most` times
    the load.
    """

    rps: float
    slow_rps: float
    fast_rps: float
    slope: float
    source: str  # average, step or trend
    intervals: int  # scrape intervals that were seen
    most: float = 1.0
    error: float = 0.0
    seconds: float = 0.0  # over which it is averaged


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
        wanted = policy.level_intervals
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
    trend = _trend(_since_load_began(counts[: min(seen.apart, policy.trend_intervals)]), policy)
    half = policy.trend_intervals // 2
    if trend is not None and (trend[1] < 0.0 or _above(counts, half, policy.trend_intervals, policy)):
        level, slope, most = trend
        level = max(0.0, level)
        known = Demand(level, slow, fast, slope, "trend", len(counts), most)
        return _over(known, policy.slow_intervals * width)
    step = _step(counts, policy)
    if step is not None:
        return _over(Demand(step, slow, fast, 0.0, "step", len(counts)), 2.0 * width)
    level, over = _level(counts, policy)
    return _over(Demand(level, slow, fast, 0.0, "average", len(counts)), over * width)


def _over(known: Demand, seconds: float) -> Demand:
    """What is known from so many seconds."""
    return replace(known, error=_error(known.rps * seconds) / seconds, seconds=seconds)


def _error(requests: float) -> float:
    """Standard error of a count of Poisson arrivals; never below one request."""
    return sqrt(max(1.0, requests))


def _level(counts: list[float], policy: Policy) -> tuple[float, int]:
    """(requests/s, intervals averaged): the longest average that agrees with every shorter one.

    Intervals of confidence of growing windows are intersected, until they have nothing in common or what is added
    differs by itself: an average over a time in which the load moved is not one. A steady load is known to a percent or
    two by that, where 75 s know it to five, and a load that moves is followed as fast as its movement exceeds the noise
    of counting.
    """
    width = policy.scrape_seconds
    over = min(policy.slow_intervals, len(counts))
    total = sum(counts[:over])
    level = total / (over * width)
    low, high = 0.0, float("inf")
    number = over
    while True:
        margin = policy.level_sigmas * _error(total)
        low, high = max(low, (total - margin) / number), min(high, (total + margin) / number)
        if low > high:
            return level, over
        level, over = total / (number * width), number
        if number >= min(len(counts), policy.level_intervals):
            return level, over
        further = min(len(counts), policy.level_intervals, max(number + 1, number * 3 // 2))
        older = sum(counts[number:further])
        expected = total / number * (further - number)
        if abs(older - expected) > policy.block_sigmas * _error(expected) * sqrt(further / number):
            return level, over
        total += older
        number = further


def distinct(refused_share: float, policy: Policy) -> float:
    """Requests that are meant, over requests that come, where a share is refused and each refused one comes back.

    A client asks again up to `repeats` times: each request comes 1 + r + r^2 + ... times. More of them than expected
    look like load: what is refused makes at most so much of it, and more once more replicas serve and still refuse.
    """
    share = min(1.0, max(0.0, refused_share))
    meant = 1.0 / sum(share**number for number in range(policy.repeats + 1))
    return min(meant, policy.refused_most * (1.0 - share))


def meant(demand: Demand, share: float) -> Demand:
    """A share of the demand. That repeats grow is no trend of what is meant."""
    if share == 1.0:
        return demand
    return replace(demand, rps=share * demand.rps, slope=0.0, error=share * demand.error, source="repeats")


def latest(demand: Demand, policy: Policy) -> Demand:
    """Demand as its shortest average has it, where that is lower: what is less certain, but falls with the load."""
    if demand.source != "average" or demand.slow_rps >= demand.rps:
        return demand
    return _over(replace(demand, rps=demand.slow_rps), policy.slow_intervals * policy.scrape_seconds)


def as_before(seen: Intervals, demand: Demand, since: float, policy: Policy) -> bool:
    """Whether the load is the one of before something that it seemed to ask for, `since` seconds ago.

    The shortest average before that is left out: it may be why.
    """
    first = ceil(since / policy.scrape_seconds) + policy.slow_intervals
    before = seen.counts[first : first + 2 * policy.slow_intervals]
    if len(before) < policy.slow_intervals:
        return False
    seconds = len(before) * policy.scrape_seconds
    error = _error(sum(before)) / seconds
    return abs(sum(before) / seconds - demand.rps) <= policy.level_sigmas * sqrt(error**2 + demand.error**2)


def _step(counts: list[float], policy: Policy) -> float | None:
    """Rate after a step up: the newest two intervals exceed what went before by more than noise would.

    Two intervals, for a single one is a burst that is over before a replica could start; the first of them may hold
    only the end of the step. The rate is that of the newer one less its own noise, or of both where that is more.
    """
    before = counts[2:]
    if len(before) < 2:
        return None
    level, over = _level(before, policy)
    mean = level * policy.scrape_seconds
    newest, pair = counts[0], counts[0] + counts[1]
    # Poisson: both sides vary like their counts; at least one request of noise.
    noise = sqrt(max(1.0, 2.0 * mean) * (1.0 + 2.0 / over))
    if newest <= mean or pair <= 2.0 * mean + policy.fast_sigmas * noise:
        return None
    return max(pair / 2.0, newest - sqrt(newest)) / policy.scrape_seconds


def _above(counts: list[float], newest: int, after: int, policy: Policy) -> bool:
    """Whether the newest intervals exceed the level of those before `after` by more than noise would."""
    before = counts[after:]
    if len(before) < policy.slow_intervals:
        return True
    level, over = _level(before, policy)
    expected = newest * level * policy.scrape_seconds
    noise = sqrt(max(1.0, expected) * (1.0 + newest / over))
    return sum(counts[:newest]) - expected >= policy.moved_sigmas * noise


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
