"""A HorizontalPodAutoscaler on `vllm:num_requests_waiting`: so many waiting requests a pod."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from goodput.simulator.rivals.behaviour import KUBERNETES_DEFAULT, LLMD_SLO_AWARE, HpaState
from goodput.simulator.rivals.hpa import PlainHpa, pods_average
from goodput.simulator.rivals.law import variants
from goodput.simulator.rivals.view import PoolView


@dataclass(frozen=True, slots=True, kw_only=True)
class HpaQueue(PlainHpa):
    """The plain HPA of llm-d's published comparison has a target of 2."""

    name: ClassVar[str] = "hpa-queue"
    target_waiting: float = 2.0

    def step(self, view: PoolView, state: HpaState, now: float) -> tuple[int, HpaState]:
        """One sync of the controller."""
        proposal = pods_average(view, lambda pod: float(pod.waiting), self.target_waiting, self.tolerance)
        return self.behaviour.apply(proposal, view, state, now)

    def grid(self) -> tuple[HpaQueue, ...]:
        """Targets from one request in five pods to ten a pod, under two behaviours."""
        return variants(
            self,
            target_waiting=(0.2, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0),
            behaviour=(KUBERNETES_DEFAULT, LLMD_SLO_AWARE),
        )
