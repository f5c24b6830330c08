"""llm-d's token-aware guide for pods that do prefill and decode: seconds of prompt backlog, and full KV caches.

replicas = max(ceil(backlog tokens / V_P / threshold), ceil(sum of KV usage / 0.8)), both as AverageValue triggers of
one ScaledObject. V_P is what one idle replica does on a full chunk: chunk tokens over the median TTFT.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from goodput.simulator.rivals.behaviour import (
    KUBERNETES_DEFAULT,
    LLMD_SLO_AWARE,
    LLMD_TOKEN_AWARE,
    Behaviour,
    HpaState,
)
from goodput.simulator.rivals.hpa import SYNC_SECONDS, TOLERANCE, external_average
from goodput.simulator.rivals.law import variants
from goodput.simulator.rivals.view import PoolView

# "For a p90/p99 SLO, shave to 60-70 % of the formula's result."
TAIL_SHARE = 0.65
SHIPPED_THRESHOLD_SECONDS = 1.5


def prefill_threshold(
    ttft_seconds: float | None, uncached_input_tokens: float, prefill_tokens_per_second: float, tail_share: float = 1.0
) -> float:
    """Seconds of backlog a replica may have: what the TTFT objective leaves after the prompt's own time.

    The shipped value where there is no such objective, or where it leaves nothing (no threshold meets it then).
    """
    if ttft_seconds is None or ttft_seconds * prefill_tokens_per_second <= uncached_input_tokens:
        return SHIPPED_THRESHOLD_SECONDS
    return tail_share * (ttft_seconds - uncached_input_tokens / prefill_tokens_per_second)


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmdToken:
    """`prefill_tokens_per_second` is the calibration that the guide asks for, of the hardware and not to be tuned."""

    name: ClassVar[str] = "llmd-token"
    prefill_tokens_per_second: float
    threshold_seconds: float = SHIPPED_THRESHOLD_SECONDS
    kv_target: float = 0.8
    tolerance: float = TOLERANCE
    behaviour: Behaviour = LLMD_TOKEN_AWARE
    interval_seconds: float = SYNC_SECONDS
    window_seconds: float = SYNC_SECONDS

    def start(self) -> HpaState:
        """Nothing recommended yet."""
        return HpaState()

    def step(self, view: PoolView, state: HpaState, now: float) -> tuple[int, HpaState]:
        """One sync of the HPA that KEDA owns."""
        return self.behaviour.apply(self.proposal(view), view, state, now)

    def proposal(self, view: PoolView) -> int:
        """The larger of the two triggers."""
        backlog_seconds = sum(pod.prefill_backlog_tokens for pod in view.pods) / self.prefill_tokens_per_second
        full_caches = sum(pod.kv_usage for pod in view.pods)
        return max(
            external_average(view, backlog_seconds, self.threshold_seconds, self.tolerance),
            external_average(view, full_caches, self.kv_target, self.tolerance),
        )

    def grid(self) -> tuple[LlmdToken, ...]:
        """Less or more backlog, emptier or fuller caches, three behaviours."""
        return variants(
            self,
            threshold_seconds=tuple(self.threshold_seconds * share for share in (0.1, 0.3, 0.65, 1.0)),
            kv_target=(0.2, 0.4, 0.6, 0.8),
            behaviour=(LLMD_TOKEN_AWARE, LLMD_SLO_AWARE, KUBERNETES_DEFAULT),
        )
