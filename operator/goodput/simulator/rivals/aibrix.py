"""AIBrix's pod autoscalers APA and KPA on the KV usage of a pod, with the controller's own stabilisation.

The metric is the mean over ready pods, averaged over the observation window. Kept as published: KPA reads that mean as
if it were a total; of a window of recommendations the highest counts on the way up and the lowest on the way down (the
reverse of an HPA), so a "cooldown" hastens a scale-down.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from goodput.simulator.rivals.law import down, up, variants
from goodput.simulator.rivals.view import PoolView


@dataclass(frozen=True, slots=True)
class AibrixState:
    """Mean KV usages and recommendations, each with its time."""

    usages: tuple[tuple[float, float], ...] = ()
    recommendations: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Aibrix(ABC):
    """What both strategies share; a subclass turns usages into a recommendation."""

    target_kv_usage: float = 0.5
    observe_window_seconds: float = 180.0
    max_scale_up_rate: float = 2.0
    max_scale_down_rate: float = 2.0
    scale_up_cooldown_seconds: float = 0.0
    scale_down_cooldown_seconds: float = 300.0
    interval_seconds: float = 10.0
    window_seconds: float = 10.0

    def start(self) -> AibrixState:
        """Nothing seen yet."""
        return AibrixState()

    def step(self, view: PoolView, state: AibrixState, now: float) -> tuple[int, AibrixState]:
        """One resync; without a ready pod there is no metric, and nothing is done."""
        ready = view.ready
        if not ready:
            return view.replicas, state
        usage = sum(pod.kv_usage for pod in ready) / len(ready)
        oldest = now - self.observe_window_seconds
        usages = (*(entry for entry in state.usages if entry[0] > oldest), (now, usage))
        recommendation = view.clamp(self._recommend(view, usages, now))
        longest = max(self.scale_up_cooldown_seconds, self.scale_down_cooldown_seconds)
        kept = (*(entry for entry in state.recommendations if entry[0] > now - longest), (now, recommendation))
        return view.clamp(self._stabilised(kept, view.replicas, now)), AibrixState(usages, kept)

    @abstractmethod
    def _recommend(self, view: PoolView, usages: tuple[tuple[float, float], ...], now: float) -> int:
        """Replicas by the strategy."""

    def _stabilised(self, recommendations: tuple[tuple[float, int], ...], current: int, now: float) -> int:
        newest = recommendations[-1][1]
        rising = newest > current
        window = self.scale_up_cooldown_seconds if rising else self.scale_down_cooldown_seconds
        inside = [count for at, count in recommendations if at > now - window] or [newest]
        if newest == current:
            return current
        return max(inside) if rising else min(inside)

    def _most(self, replicas: int) -> int:
        return up(self.max_scale_up_rate * replicas)

    def _fewest(self, replicas: int) -> int:
        return down(replicas / self.max_scale_down_rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class AibrixApa(_Aibrix):
    """Use per pod over its target, times the replicas; outside a tolerance, at most doubled or halved."""

    name: ClassVar[str] = "aibrix-apa"
    up_tolerance: float = 0.1
    down_tolerance: float = 0.1

    def _recommend(self, view: PoolView, usages: tuple[tuple[float, float], ...], now: float) -> int:
        n = view.replicas
        usage = _mean(usages, now - self.observe_window_seconds)
        ratio = usage / self.target_kv_usage
        if ratio > 1.0 + self.up_tolerance:
            wanted = min(up(n * ratio), self._most(n))
        elif ratio < 1.0 - self.down_tolerance:
            wanted = max(up(n * ratio), self._fewest(n))
        else:
            return n
        return self._pending_guard(view, usage, wanted)

    def _pending_guard(self, view: PoolView, usage: float, wanted: int) -> int:
        """Pods that are not ready count as idle on the way up and as on target on the way down; no change of sides."""
        n, ready = view.replicas, len(view.ready)
        if n in (ready, wanted):
            return wanted
        if wanted > n:
            return min(wanted, max(n, up(usage * ready / self.target_kv_usage)))
        return max(wanted, min(n, up(usage * ready / self.target_kv_usage + n - ready)))

    def grid(self) -> tuple[AibrixApa, ...]:
        """Targets, shorter windows, no "cooldown"."""
        return variants(
            self,
            target_kv_usage=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
            observe_window_seconds=(30.0, 180.0),
            scale_down_cooldown_seconds=(0.0, 300.0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AibrixKpa(_Aibrix):
    """ceil(value / target) within half and twice the replicas; in a panic the larger of both windows.

    The panic window is the shorter one.
    """

    name: ClassVar[str] = "aibrix-kpa"
    panic_window_seconds: float = 60.0
    panic_threshold: float = 2.0

    def _recommend(self, view: PoolView, usages: tuple[tuple[float, float], ...], now: float) -> int:
        stable = _mean(usages, now - self.observe_window_seconds)
        panic = _mean(usages, now - self.panic_window_seconds)
        wanted = self._within(stable, view.replicas)
        if stable <= 0.0 or panic / stable > self.panic_threshold:
            wanted = max(wanted, self._within(panic, view.replicas))
        return wanted

    def _within(self, value: float, replicas: int) -> int:
        wanted = up(value / self.target_kv_usage)
        return max(self._fewest(replicas), min(wanted, max(1, self._most(replicas))))

    def grid(self) -> tuple[AibrixKpa, ...]:
        """Targets (a mean read as a total asks for tiny ones), shorter windows."""
        return variants(
            self,
            target_kv_usage=(0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
            observe_window_seconds=(60.0, 180.0),
        )


def _mean(entries: tuple[tuple[float, float], ...], after: float) -> float:
    inside = [value for at, value in entries if at > after]
    return sum(inside) / len(inside)
