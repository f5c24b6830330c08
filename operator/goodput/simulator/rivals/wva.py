"""llm-d's Workload Variant Autoscaler, saturation analyzer V2 (tokens), with one variant.

A replica holds min(k1, k2) tokens: k1 is 0.80 of its KV cache; k2 what it held while at least 5 requests waited, else
the mean of the last 10 such observations, else what its arguments suggest, else k1. Demand is the tokens in use plus
what waits. Missing is D / 0.85 - supply (ready and pending), to spare supply (ready) - D / 0.70; the optimizer adds
ceil(missing / capacity) or takes floor(spare / capacity) replicas, never the last one. An HPA follows the gauge.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from goodput.simulator.rivals.behaviour import KUBERNETES_DEFAULT, LLMD_SLO_AWARE, Behaviour, HpaState
from goodput.simulator.rivals.hpa import SYNC_SECONDS, TOLERANCE, external_average
from goodput.simulator.rivals.law import down, up, variants
from goodput.simulator.rivals.view import PoolView

_OBSERVATIONS_KEPT = 10
_HISTORY_SECONDS = 24 * 3600.0
# Below so many output tokens a workload is short, medium; what was observed of one says nothing of the others.
_SHORT_TOKENS = 100.0
_MEDIUM_TOKENS = 500.0


@dataclass(frozen=True, slots=True)
class Observed:
    """What saturated replicas held, the last observations of one kind of workload; `at` is the newest one's time."""

    tokens: tuple[float, ...] = ()
    at: float = 0.0

    def mean(self, now: float) -> float | None:
        """Their mean, unless there is none or it is a day old."""
        if not self.tokens or now - self.at > _HISTORY_SECONDS:
            return None
        return sum(self.tokens) / len(self.tokens)

    def with_one(self, tokens: float, now: float) -> Observed:
        """One observation more."""
        return Observed((*self.tokens, tokens)[-_OBSERVATIONS_KEPT:], now)


@dataclass(frozen=True, slots=True)
class WvaState:
    """Observations of short, medium and long outputs; the gauge and when it was set; the HPA's memory.

    `capacity` is that of a replica at the last look that saw a ready one.
    """

    observed: tuple[Observed, Observed, Observed] = (Observed(), Observed(), Observed())
    capacity: float = 0.0
    gauge: int | None = None
    gauge_at: float = 0.0
    hpa: HpaState = field(default_factory=HpaState)


@dataclass(frozen=True, slots=True)
class Signals:
    """Tokens: what a replica holds, what is asked for, what is missing and what is to spare."""

    capacity: float
    demand: float
    required: float
    spare: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Wva:
    """`optimise_seconds` is the controller's own interval; its HPA looks every `interval_seconds`."""

    name: ClassVar[str] = "wva"
    kv_cache_threshold: float = 0.80
    queue_length_threshold: int = 5
    scale_up_threshold: float = 0.85
    scale_down_boundary: float = 0.70
    optimise_seconds: float = 60.0
    tolerance: float = TOLERANCE
    behaviour: Behaviour = KUBERNETES_DEFAULT
    interval_seconds: float = SYNC_SECONDS
    window_seconds: float = 60.0

    def start(self) -> WvaState:
        """Nothing learned yet."""
        return WvaState()

    def step(self, view: PoolView, state: WvaState, now: float) -> tuple[int, WvaState]:
        """Optimise when it is time, then one sync of the HPA."""
        gauge = state.gauge
        if gauge is None or now - state.gauge_at >= self.optimise_seconds:
            signals, state = self.analyse(view, state, now)
            gauge = self.optimise(view, signals)
            state = replace(state, gauge=gauge, gauge_at=now)
        proposal = external_average(view, float(gauge), 1.0, self.tolerance)
        replicas, hpa = self.behaviour.apply(proposal, view, state.hpa, now)
        return replicas, replace(state, hpa=hpa)

    def optimise(self, view: PoolView, signals: Signals) -> int:
        """Replicas of the only variant."""
        if signals.capacity <= 0.0:
            return view.replicas
        if signals.required > 0.0:
            return view.replicas + up(signals.required / signals.capacity)
        return max(min(view.replicas, 1), view.replicas - down(signals.spare / signals.capacity))

    def analyse(self, view: PoolView, state: WvaState, now: float) -> tuple[Signals, WvaState]:
        """Capacity, demand, and what was learned from this look."""
        output = view.mean_output_tokens or 0.0
        kind = 0 if output < _SHORT_TOKENS else 1 if output < _MEDIUM_TOKENS else 2
        history = state.observed[kind]
        charge = (view.mean_input_tokens or 0.0) + output
        memory_bound = int(view.kv_pool_tokens * self.kv_cache_threshold)
        capacities: list[float] = []
        demand = 0.0
        for pod in view.ready:
            in_use = int(pod.kv_usage * view.kv_pool_tokens + 0.5)
            demand += in_use + pod.waiting * charge
            if pod.waiting >= self.queue_length_threshold and in_use > 0:
                history = history.with_one(in_use, now)
                compute_bound = float(in_use)
            else:
                compute_bound = history.mean(now) or _suggested(view) or memory_bound
            capacities.append(min(memory_bound, compute_bound))
        capacity = _lower_median(capacities) if capacities else state.capacity
        hit_rate = view.prefix_hit_rate
        demand += view.held * ((view.mean_input_tokens or 0.0) * (1.0 - hit_rate) + output)
        required = max(0.0, demand / self.scale_up_threshold - view.replicas * capacity)
        spare = max(0.0, len(view.ready) * capacity - demand / self.scale_down_boundary)
        observed = (*state.observed[:kind], history, *state.observed[kind + 1 :])
        learned = replace(state, observed=(observed[0], observed[1], observed[2]), capacity=capacity)
        return Signals(capacity, demand, required, spare), learned

    def grid(self) -> tuple[Wva, ...]:
        """Earlier and later thresholds, a quicker controller, the other behaviour of the guides."""
        return tuple(
            variant
            for high, low in ((0.3, 0.2), (0.45, 0.3), (0.6, 0.45), (0.7, 0.55), (0.85, 0.7), (0.95, 0.8))
            for variant in variants(
                self,
                scale_up_threshold=(high,),
                scale_down_boundary=(low,),
                optimise_seconds=(15.0, 60.0),
                behaviour=(KUBERNETES_DEFAULT, LLMD_SLO_AWARE),
            )
        )


def _suggested(view: PoolView) -> float | None:
    """k2 by the engine's arguments: sequences of a steady state, each half way through its output."""
    given, made = view.mean_input_tokens, view.mean_output_tokens
    if given is None or not made:
        return None
    sequences = min(view.max_num_batched_tokens * made / (given + made), view.max_num_seqs)
    return sequences * (given + made / 2.0)


def _lower_median(values: list[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]
