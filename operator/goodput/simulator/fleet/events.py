"""What is going to happen, in order of time; what was planned first comes first at equal times."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any

Act = Callable[..., None]


class Events:
    """A clock (seconds of the run) and the acts that are due on it."""

    def __init__(self, now: float) -> None:
        self.now = now
        self._heap: list[tuple[float, int, Act, tuple[Any, ...]]] = []
        self._serial = 0

    @property
    def next_at(self) -> float:
        """When the next act is due; infinity if there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def at(self, seconds: float, act: Act, *arguments: Any) -> None:
        """Plan an act; one whose time has passed is due now."""
        self._serial += 1
        heapq.heappush(self._heap, (max(seconds, self.now), self._serial, act, arguments))

    def act(self) -> None:
        """Set the clock to the next act and do it."""
        self.now, _, act, arguments = heapq.heappop(self._heap)
        act(*arguments)
