"""The engine model on the wall clock: steps begin and end at the model's own times, late timers or not.

Simulated time is a chain: a step begins where the last one ended, or where the first waiting request became visible.
A timer that fires late delays what clients see, never the chain, so lateness does not add up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from goodput.simulator.engine import Engine, StepResult
from goodput.simulator.sequences import EngineRequest, Sequence
from goodput_world.engine.clock import SimulatedClock


class EngineDriver:
    """Steps `engine` on `clock` while there is work; `on_step` gets each result when its tokens exist, and the time."""

    def __init__(self, engine: Engine, clock: SimulatedClock, on_step: Callable[[StepResult, float], None]) -> None:
        self.engine = engine
        self._clock = clock
        self._on_step = on_step
        self._free_at = clock.now()
        self._timer: asyncio.TimerHandle | None = None
        self._in_flight: StepResult | None = None
        self._stopped = False

    @property
    def idle(self) -> bool:
        """Nothing runs, nothing waits, nothing is about to be emitted."""
        return self._in_flight is None and self.engine.unfinished == 0

    def submit(self, request: EngineRequest, arrived_at: float, owner: Any) -> Sequence:
        """Queue a request that arrived at `arrived_at` on that clock. Raises as `Engine.submit`."""
        sequence = self.engine.submit(request, arrived_at, owner)
        if self._timer is None:
            self._arrange()
        return sequence

    def abort(self, request_id: str) -> None:
        """Drop a request; a step in flight is not undone."""
        self.engine.abort(request_id)

    def stop(self) -> None:
        """No step begins or ends any more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arrange(self) -> None:
        """Set the timer to the next begin of a step."""
        self._timer = None
        if self._stopped:
            return
        start = self.engine.next_start(self._free_at)
        if start is None:
            return
        if start <= self._clock.now():
            self._begin(start)
        else:
            self._timer = self._clock.call_at(start, self._begin, start)

    def _begin(self, start: float) -> None:
        result = self.engine.step(start)
        if result is None:
            # All that was visible has been aborted meanwhile.
            self._free_at = start
            self._arrange_later()
            return
        self._in_flight = result
        self._free_at = result.ends_at
        self._timer = self._clock.call_at(result.ends_at, self._end)

    def _arrange_later(self) -> None:
        self._timer = None
        following = self.engine.next_start(self._free_at)
        if following is not None and not self._stopped:
            self._timer = self._clock.call_at(following, self._begin, following)

    def _end(self) -> None:
        result, self._in_flight = self._in_flight, None
        self._timer = None
        if result is not None:
            self._on_step(result, self._clock.now())
        if self._timer is None:
            self._arrange()
