"""llm-d's SLO-aware KEDA loop: P90 latency over its objective, a dead band, and credit for replicas on their way.

Every 15 s s_raw = max(P90 TTFT / objective, P90 TPOT / objective) over one minute, clamped; s is its mean over 45 s.
With n replicas of which the share c is ready: n + ceil(n (s c / 0.55 - 1)) above s c = 0.55,
n - floor(n (1 - s / 0.40)) below s = 0.40, else n. KEDA gives that number to an HPA as an AverageValue of 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from goodput.simulator.rivals.behaviour import LLMD_SLO_AWARE, Behaviour, HpaState
from goodput.simulator.rivals.hpa import SYNC_SECONDS, TOLERANCE, external_average
from goodput.simulator.rivals.law import down, up, variants
from goodput.simulator.rivals.view import Histogram, PoolView


@dataclass(frozen=True, slots=True)
class LlmdSloState:
    """Raw saturations of the last 45 s with their times, and what the HPA remembers."""

    saturations: tuple[tuple[float, float], ...] = ()
    hpa: HpaState = field(default_factory=HpaState)


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmdSlo:
    """`predicted` reads the predictor's histogram, and the measured one where that is empty, as the rules do.

    An objective of None is not looked at; the guide knows none for the whole time of a request. The objectives are
    the user's, not to be tuned.
    """

    ttft_seconds: float | None
    tpot_seconds: float | None
    predicted: bool = False
    quantile: float = 0.9
    clamp: float = 2.0
    smoothing_seconds: float = 45.0
    threshold_up: float = 0.55
    threshold_down: float = 0.40
    tolerance: float = TOLERANCE
    behaviour: Behaviour = LLMD_SLO_AWARE
    interval_seconds: float = SYNC_SECONDS
    window_seconds: float = 60.0

    @property
    def name(self) -> str:
        """`llmd-slo`, with or without a predictor."""
        return "llmd-slo-predicted" if self.predicted else "llmd-slo"

    def start(self) -> LlmdSloState:
        """Nothing seen yet."""
        return LlmdSloState()

    def step(self, view: PoolView, state: LlmdSloState, now: float) -> tuple[int, LlmdSloState]:
        """The recording rules, the formula of the ScaledObject, one sync of its HPA."""
        kept = tuple(entry for entry in state.saturations if entry[0] > now - self.smoothing_seconds)
        saturations = (*kept, (now, min(self._saturation(view), self.clamp)))
        smoothed = sum(value for _, value in saturations) / len(saturations)
        proposal = external_average(view, float(self.formula(smoothed, view)), 1.0, self.tolerance)
        replicas, hpa = self.behaviour.apply(proposal, view, state.hpa, now)
        return replicas, LlmdSloState(saturations, hpa)

    def formula(self, saturation: float, view: PoolView) -> int:
        """The control law of the guide."""
        provisioned = view.replicas
        credited = saturation * len(view.ready) / provisioned if provisioned else 0.0
        if credited > self.threshold_up:
            return provisioned + up(provisioned * (credited / self.threshold_up - 1.0))
        if saturation < self.threshold_down:
            return provisioned - down(provisioned * (1.0 - saturation / self.threshold_down))
        return provisioned

    def _saturation(self, view: PoolView) -> float:
        """Worst P90 over its objective; no traffic reads 0."""
        return max(
            self._share(view.ttft, view.predicted_ttft, self.ttft_seconds),
            self._share(view.tpot, view.predicted_tpot, self.tpot_seconds),
        )

    def _share(self, measured: Histogram, predicted: Histogram, objective: float | None) -> float:
        if objective is None:
            return 0.0
        quantile = predicted.quantile(self.quantile) if self.predicted else None
        if quantile is None:
            quantile = measured.quantile(self.quantile)
        return 0.0 if quantile is None else quantile / objective

    def grid(self) -> tuple[LlmdSlo, ...]:
        """Bands from cautious to hot, smoothed less and more."""
        bands = ((0.2, 0.3), (0.25, 0.4), (0.3, 0.45), (0.4, 0.55), (0.5, 0.65), (0.6, 0.8), (0.75, 0.95))
        return tuple(
            variant
            for low, high in bands
            for variant in variants(
                self, threshold_down=(low,), threshold_up=(high,), smoothing_seconds=(15.0, 45.0, 90.0)
            )
        )
