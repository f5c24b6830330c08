"""NVIDIA Dynamo's planner, throughput-based scaling to an SLA (1.2 to 1.6), for replicas that do prefill and decode.

Every 180 s the requests and mean lengths of the interval are forecast one interval ahead; replicas = ceil(forecast
requests/s over the requests/s of one engine). That rate is the best over batch sizes whose computed TTFT and ITL meet
the SLA: no queueing, no head-room, no percentile. Step times come from a callable, as the planner's come from profiling
the engine before it is deployed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from goodput.simulator.rivals.law import up, variants
from goodput.simulator.rivals.predictors import Series
from goodput.simulator.rivals.view import PoolView

# Seconds of one forward pass over (prompt tokens, decoding sequences, tokens of context they read).
StepSeconds = Callable[[int, int, float], float]

_MOST_CANDIDATES = 128
_MOST_HITS = 0.95


@dataclass(frozen=True, slots=True)
class DynamoState:
    """The three series that are forecast."""

    requests: Series = field(default_factory=Series)
    input_tokens: Series = field(default_factory=Series)
    output_tokens: Series = field(default_factory=Series)


@dataclass(frozen=True, slots=True)
class Operation:
    """What an engine does at one batch size."""

    batch: int
    rps: float
    ttft_seconds: float
    itl_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Dynamo:
    """`sla_share` is the share of the objectives that the planner is told as its SLA: the only head-room it has."""

    name: ClassVar[str] = "dynamo"
    step_seconds: StepSeconds
    ttft_seconds: float | None
    tpot_seconds: float | None
    sla_share: float = 1.0
    kalman: bool = False
    min_endpoint: int = 1
    max_change: int = 8
    interval_seconds: float = 180.0

    @property
    def window_seconds(self) -> float:
        """It looks at whole intervals."""
        return self.interval_seconds

    def start(self) -> DynamoState:
        """Nothing seen yet."""
        return DynamoState()

    def step(self, view: PoolView, state: DynamoState, now: float) -> tuple[int, DynamoState]:
        """Observe, forecast, size. Intervals before the first request are no observations."""
        if state.requests.points == 0 and view.arrivals == 0:
            return view.replicas, state
        given = state.input_tokens.last if view.mean_input_tokens is None else view.mean_input_tokens
        made = state.output_tokens.last if view.mean_output_tokens is None else view.mean_output_tokens
        state = DynamoState(
            state.requests.observe(float(view.arrivals)),
            state.input_tokens.observe(given) if given > 0.0 else state.input_tokens,
            state.output_tokens.observe(made) if made > 0.0 else state.output_tokens,
        )
        if not view.ready or state.output_tokens.points == 0 or state.input_tokens.points == 0:
            return view.replicas, state
        operation = self.best_operation(
            view, state.input_tokens.forecast(self.kalman), state.output_tokens.forecast(self.kalman)
        )
        if operation is None:
            return view.replicas, state
        rps = state.requests.forecast(self.kalman) / view.window_seconds
        wanted = max(up(rps / operation.rps), self.min_endpoint)
        limited = max(view.replicas - self.max_change, min(view.replicas + self.max_change, wanted))
        return view.clamp(limited), state

    def best_operation(self, view: PoolView, input_tokens: float, output_tokens: float) -> Operation | None:
        """The highest rate within the SLA, else the highest of all; None where not even one request fits."""
        given = max(1, up(input_tokens * (1.0 - min(_MOST_HITS, view.prefix_hit_rate))))
        made = max(1.0, output_tokens)
        context = given + made // 2
        most = min(view.max_num_seqs, int(view.kv_pool_tokens // context))
        operations = [
            operation
            for batch in _candidates(most)
            if (operation := self._operation(view.max_num_batched_tokens, batch, given, made, context)) is not None
        ]
        good = [operation for operation in operations if self._meets(operation)]
        return max(good or operations, key=lambda operation: operation.rps, default=None)

    def _operation(
        self, max_num_batched_tokens: int, batch: int, given: int, made: float, context: float
    ) -> Operation | None:
        """Aggregated serving: each pass decodes the batch and takes in the prompts that replace what finishes."""
        prompt_tokens = up(batch * given / made)
        room = max_num_batched_tokens - batch
        if prompt_tokens > room:
            return None
        read = batch * context
        itl = self.step_seconds(prompt_tokens, batch, read)
        whole, rest = divmod(prompt_tokens + given, room)
        ttft = whole * self.step_seconds(room, batch, read)
        if rest:
            ttft += self.step_seconds(rest, batch, read)
        return Operation(batch, batch / (made * itl), ttft, itl)

    def _meets(self, operation: Operation) -> bool:
        ttft, tpot = self.ttft_seconds, self.tpot_seconds
        return (ttft is None or operation.ttft_seconds <= ttft * self.sla_share) and (
            tpot is None or operation.itl_seconds <= tpot * self.sla_share
        )

    def grid(self) -> tuple[Dynamo, ...]:
        """Tighter SLAs, shorter intervals, both predictors."""
        return variants(
            self,
            sla_share=(0.4, 0.5, 0.65, 0.8, 1.0),
            interval_seconds=(30.0, 60.0, 180.0),
            kalman=(False, True),
        )


def _candidates(most: int) -> list[int]:
    """Batch sizes from 1 to `most`: all of them, or as many as are searched, evenly spaced, both ends included."""
    if most <= _MOST_CANDIDATES:
        return list(range(1, most + 1))
    return [1 + round(index * (most - 1) / (_MOST_CANDIDATES - 1)) for index in range(_MOST_CANDIDATES)]
