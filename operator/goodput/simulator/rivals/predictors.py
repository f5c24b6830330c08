"""One-step-ahead predictors of Dynamo's planner: the last value, and a Kalman filter of a local linear trend.

Its default, an ARIMA model chosen by a search over orders after five points, is not rebuilt here; for a series that
wanders it is the last value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

# Variances of the filter's steps and observations, and the points before it speaks, as the planner sets them.
_LEVEL_VARIANCE = 1.0
_TREND_VARIANCE = 0.1
_OBSERVATION_VARIANCE = 10.0
_LEAST_POINTS = 5
# Nothing is known of level and trend at first.
_PRIOR_VARIANCE = 1000.0


@dataclass(frozen=True, slots=True)
class Series:
    """What a predictor knows after `points` observations: the last one; level, trend and their covariance."""

    points: int = 0
    last: float = 0.0
    level: float = 0.0
    trend: float = 0.0
    level_variance: float = _PRIOR_VARIANCE
    covariance: float = 0.0
    trend_variance: float = _PRIOR_VARIANCE

    def observe(self, value: float) -> Series:
        """One observation more."""
        if self.points == 0:
            return replace(self, points=1, last=value, level=value)
        level = self.level + self.trend
        level_variance = self.level_variance + 2.0 * self.covariance + self.trend_variance + _LEVEL_VARIANCE
        covariance = self.covariance + self.trend_variance
        trend_variance = self.trend_variance + _TREND_VARIANCE
        total = level_variance + _OBSERVATION_VARIANCE
        level_gain, trend_gain = level_variance / total, covariance / total
        surprise = value - level
        return Series(
            points=self.points + 1,
            last=value,
            level=level + level_gain * surprise,
            trend=self.trend + trend_gain * surprise,
            level_variance=(1.0 - level_gain) * level_variance,
            covariance=(1.0 - level_gain) * covariance,
            trend_variance=trend_variance - trend_gain * covariance,
        )

    def forecast(self, kalman: bool) -> float:
        """The next value, never negative."""
        if not kalman or self.points < _LEAST_POINTS:
            return self.last
        return max(0.0, self.level + self.trend)
