"""How fast simulated time runs: one factor for start-up, probes, back-off and grace."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """`speed` simulated seconds pass in one second of the wall clock."""

    speed: float = 1.0

    async def sleep(self, seconds: float) -> None:
        """Sleep for so many simulated seconds."""
        await asyncio.sleep(seconds / self.speed)
