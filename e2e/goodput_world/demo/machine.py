"""How busy this machine was: where everything simulated shares a few cores with what is measured, a reader has to
know.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

_PRESSURE = Path("/proc/pressure/cpu")
_SOME_TOTAL = re.compile(r"^some .*\btotal=(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CpuWait:
    """Time in which something that could run waited for a processor, in microseconds since boot, and when it was
    read.
    """

    waited_microseconds: int
    read_seconds: float

    def share_since(self, earlier: CpuWait) -> float | None:
        """Share of the time since an earlier reading; None if no time has passed."""
        passed_seconds = self.read_seconds - earlier.read_seconds
        if passed_seconds <= 0:
            return None
        return (self.waited_microseconds - earlier.waited_microseconds) / 1e6 / passed_seconds


def cpu_wait(pressure: Path = _PRESSURE) -> CpuWait | None:
    """The reading now; None where the kernel does not keep it."""
    try:
        found = _SOME_TOTAL.search(pressure.read_text(encoding="ascii"))
    except OSError:
        return None
    return None if found is None else CpuWait(int(found.group(1)), time.monotonic())
