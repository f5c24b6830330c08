"""Containers of an agent that was killed: their first processes died with it, their children may not have."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from pathlib import Path

log = logging.getLogger(__name__)

VARIABLE = "GOODPUT_SIM_AGENT"
"""Every process in a container carries it, with the agent's directory as its value."""
_ROUNDS = 20


def living(mark: str) -> list[int]:
    """The ids of the processes that carry this mark."""
    wanted = f"{VARIABLE}={mark}".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    found.append(int(name))
    return found


async def sweep(mark: str) -> None:
    """SIGKILL every process with the mark and wait until none is left, a second at most."""
    for _ in range(_ROUNDS):
        found = living(mark)
        if not found:
            return
        log.info("killing what an earlier agent left: %s", found)
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.05)
