"""A random time as a mixture of shifted log-normal parts: its tail and its percentiles."""

from __future__ import annotations

from math import erfc, exp, log, sqrt

from goodput.domain.values import Value

_SQRT2 = sqrt(2.0)
# Shares below this are not looked at.
RARE = 1e-4


class Part(Value, frozen=True):
    """`share` (0..1) of the outcomes: `shift` plus a log-normal value, by mean and variance."""

    share: float
    shift: float
    mean: float
    variance: float

    def above(self, limit: float) -> float:
        """Probability (0..1) that an outcome of this part exceeds `limit`."""
        room = limit - self.shift
        if room <= 0.0:
            return 1.0
        if self.mean <= 1e-12 or self.variance <= 1e-9 * self.mean * self.mean:
            return 1.0 if self.mean > room else 0.0
        square = log(1.0 + self.variance / (self.mean * self.mean))
        return 0.5 * erfc((log(room) - log(self.mean) + 0.5 * square) / (sqrt(square) * _SQRT2))


class Mixture(Value, frozen=True):
    """Outcomes in seconds. A `late_share` of them comes later still by an exponential time of mean `late_seconds`."""

    parts: tuple[Part, ...]
    late_share: float = 0.0
    late_seconds: float = 0.0

    def above(self, limit: float) -> float:
        """Share (0..1) of outcomes that exceed `limit`."""
        total = 0.0
        late = self.late_share > RARE and self.late_seconds > 0.0
        for part in self.parts:
            beyond = part.above(limit)
            if late:
                # The part is taken at its mean here: where requests are late, that is what makes them so.
                room = max(0.0, limit - part.shift - part.mean)
                beyond += (1.0 - beyond) * self.late_share * exp(-room / self.late_seconds)
            total += part.share * beyond
        return total

    @property
    def mean(self) -> float:
        """Mean of the outcomes."""
        return sum(part.share * (part.shift + part.mean) for part in self.parts) + self.late_share * self.late_seconds

    def quantile(self, share: float) -> float:
        """The time that `share` (0..1, exclusive) of outcomes do not exceed, to a thousandth; 0 below a microsecond."""
        low, high = 0.0, 1e-6
        while self.above(high) > 1.0 - share:
            low, high = high, high * 2.0
            if high > 1e9:
                return high
        while high - low > 1e-3 * high and low > 0.0:
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.above(middle) > 1.0 - share else (low, middle)
        return high if low > 0.0 else 0.0
