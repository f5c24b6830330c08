"""A HorizontalPodAutoscaler on `vllm:kv_cache_usage_perc`: so much of a pod's KV cache in use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from goodput.simulator.rivals.behaviour import KUBERNETES_DEFAULT, LLMD_SLO_AWARE, HpaState
from goodput.simulator.rivals.hpa import PlainHpa, pods_average
from goodput.simulator.rivals.law import variants
from goodput.simulator.rivals.view import PoolView


@dataclass(frozen=True, slots=True, kw_only=True)
class HpaKv(PlainHpa):
    """The plain HPA of llm-d's published comparison has a target of 0.7."""

    name: ClassVar[str] = "hpa-kv"
    target_kv_usage: float = 0.7

    def step(self, view: PoolView, state: HpaState, now: float) -> tuple[int, HpaState]:
        """One sync of the controller."""
        proposal = pods_average(view, lambda pod: pod.kv_usage, self.target_kv_usage, self.tolerance)
        return self.behaviour.apply(proposal, view, state, now)

    def grid(self) -> tuple[HpaKv, ...]:
        """Targets from a twentieth of the cache to nine tenths, under two behaviours."""
        return variants(
            self,
            target_kv_usage=(0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
            behaviour=(KUBERNETES_DEFAULT, LLMD_SLO_AWARE),
        )
