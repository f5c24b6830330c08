"""Simulated seconds on an event loop: `speed` of them pass in one second of the wall clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class SimulatedClock:
    """The loop's clock times `speed`. Timers take simulated seconds."""

    __slots__ = ("_loop", "speed")

    def __init__(self, loop: asyncio.AbstractEventLoop, speed: float = 1.0) -> None:
        """Raise `ValueError` for a speed that is not above 0."""
        if not speed > 0:
            raise ValueError(f"speed: {speed} must be greater than 0")
        self._loop = loop
        self.speed = speed

    def now(self) -> float:
        """Seconds since an arbitrary start."""
        return self._loop.time() * self.speed

    def call_at(self, when: float, callback: Callable[..., object], *arguments: Any) -> asyncio.TimerHandle:
        """Call at a time of this clock."""
        return self._loop.call_at(when / self.speed, callback, *arguments)

    def call_later(self, seconds: float, callback: Callable[..., object], *arguments: Any) -> asyncio.TimerHandle:
        """Call after that many seconds of this clock."""
        return self._loop.call_later(seconds / self.speed, callback, *arguments)

    async def sleep_until(self, when: float) -> None:
        """Wait for a time of this clock."""
        await asyncio.sleep(max(0.0, when - self.now()) / self.speed)
