"""KubeAI's autoscaler: the mean of active requests over ten minutes, over a target per replica.

Every 10 s the active requests of all proxies, held ones included, enter a window that starts full of zeros. A
scale-down waits for so many ticks in a row that would all scale down; a tick without a ready replica is skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from goodput.simulator.rivals.law import up, variants
from goodput.simulator.rivals.view import PoolView


@dataclass(frozen=True, slots=True)
class KubeAiState:
    """The window of samples, oldest first, and the ticks in a row that wanted fewer replicas."""

    samples: tuple[float, ...]
    scale_downs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeAi:
    """Defaults of the chart and of a Model."""

    name: ClassVar[str] = "kubeai"
    target_requests: float = 100.0
    time_window_seconds: float = 600.0
    scale_down_delay_seconds: float = 30.0
    interval_seconds: float = 10.0

    @property
    def window_seconds(self) -> float:
        """It reads gauges only."""
        return self.interval_seconds

    def start(self) -> KubeAiState:
        """A window full of zeros."""
        return KubeAiState((0.0,) * ceil(self.time_window_seconds / self.interval_seconds))

    def step(self, view: PoolView, state: KubeAiState, now: float) -> tuple[int, KubeAiState]:
        """One tick."""
        if not view.ready:
            return view.replicas, state
        active = view.held + sum(pod.running + pod.waiting for pod in view.pods)
        samples = (*state.samples[1:], float(active))
        wanted = view.clamp(up(sum(samples) / len(samples) / self.target_requests))
        if wanted >= view.replicas:
            return wanted, KubeAiState(samples)
        if state.scale_downs < ceil(self.scale_down_delay_seconds / self.interval_seconds):
            return view.replicas, KubeAiState(samples, state.scale_downs + 1)
        return wanted, KubeAiState(samples, state.scale_downs)

    def grid(self) -> tuple[KubeAi, ...]:
        """Targets from 8 requests a replica, shorter windows, a longer delay."""
        return variants(
            self,
            target_requests=(8.0, 16.0, 24.0, 32.0, 48.0, 64.0, 100.0),
            time_window_seconds=(60.0, 180.0, 600.0),
            scale_down_delay_seconds=(30.0, 300.0),
        )
