"""Kill what a world left behind. Standard library only: it runs as a script of its own, without our environment.

Usage: python watchdog.py MARK, with a pipe as standard input. When the pipe closes (its writer has ended, no matter
how), every process whose environment holds GOODPUT_WORLD=MARK gets a few seconds to end by itself, then SIGKILL.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

MARK_VARIABLE = "GOODPUT_WORLD"
_GRACE_SECONDS = 5.0
_SWEEPS = 20
"""Processes may fork while they are being killed: sweep again until none is left, but not for ever."""


def marked(mark: str) -> list[int]:
    """The ids of the living processes that carry the mark, this one left out."""
    wanted = f"{MARK_VARIABLE}={mark}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
            if wanted in file.read().split(b"\0"):
                found.append(int(name))
    return found


def sweep(mark: str) -> list[int]:
    """SIGKILL every process with the mark; the ids of all that were found."""
    killed: dict[int, None] = {}
    for _ in range(_SWEEPS):
        found = marked(mark)
        if not found:
            break
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            killed[pid] = None
        time.sleep(0.05)
    return list(killed)


def main() -> None:
    """Wait for the end of standard input, then sweep."""
    mark = sys.argv[1]
    sys.stdin.buffer.read()
    deadline = time.monotonic() + _GRACE_SECONDS
    while marked(mark) and time.monotonic() < deadline:
        time.sleep(0.2)
    sweep(mark)


if __name__ == "__main__":
    main()
