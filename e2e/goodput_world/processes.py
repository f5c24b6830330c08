"""Processes that never outlive the world that started them.

Three things see to that. A process gets SIGKILL from the kernel when the thread that started it dies; it runs in a
session of its own, so that Ctrl-C reaches only the world, which then stops its processes in the right order; and it
carries the world's mark in its environment, by which `watchdog.py` finds what is left, grandchildren included.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from goodput_world import watchdog
from goodput_world.errors import ProcessExited

_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.02
_TAIL_BYTES = 64 * 1024

# Loaded once here: between fork and exec nothing may be imported or allocated.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with_parent() -> Callable[[], None]:
    """A `preexec_fn` that has the kernel kill the child when the thread that starts it dies.

    Start processes from a thread that lives as long as they should, the main thread as a rule.
    """
    parent = os.getpid()

    def arm() -> None:
        if _libc is not None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the signal was armed
            os._exit(127)

    return arm


def tail_of(path: Path, lines: int = 20) -> str:
    """The last lines of a text file, or a note that there is none."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return f"(no log at {path})"
    return "\n".join(text.splitlines()[-lines:]) or f"(empty log at {path})"


class Process:
    """One process of the world with its log file; it can be stopped, killed and started again."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str | os.PathLike[str]],
        *,
        log_path: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        """`env` replaces the whole environment; None passes on our own. The log is appended to on a restart."""
        self.name = name
        self.log_path = log_path
        self._argv = [os.fspath(word) for word in argv]
        self._env = env
        self._cwd = cwd
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def pid(self) -> int | None:
        """The process id while it runs, else None."""
        return self._popen.pid if self._popen is not None and self.running else None

    @property
    def returncode(self) -> int | None:
        """Its exit status (negative: the signal that ended it), None before it has ended."""
        return None if self._popen is None else self._popen.poll()

    def start(self) -> None:
        """Start it. Raises RuntimeError when it runs already, OSError when the program is missing."""
        if self.running:
            raise RuntimeError(f"{self.name} is already running")
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        log: IO[bytes]
        with self.log_path.open("ab") as log:
            self._popen = subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._env,
                cwd=self._cwd,
                start_new_session=True,
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - it only calls prctl and getppid, both safe after fork
            )

    def tail(self, lines: int = 20) -> str:
        """The end of its log."""
        return tail_of(self.log_path, lines)

    def raise_if_exited(self) -> None:
        """Raise ProcessExited, with the end of the log, when it does not run."""
        if not self.running:
            how = "was never started" if self._popen is None else f"exited with status {self.returncode}"
            raise ProcessExited(f"{self.name} {how}; the end of {self.log_path}:\n{self.tail()}")

    async def wait(self, timeout_seconds: float) -> int | None:
        """Its exit status, or None if it still runs after the timeout."""
        deadline = time.monotonic() + timeout_seconds
        while self.running and time.monotonic() < deadline:  # noqa: ASYNC110 - a Popen has no event to wait for
            await asyncio.sleep(_POLL_SECONDS)
        return self.returncode

    async def stop(self, grace_seconds: float = 10.0) -> None:
        """SIGTERM, then after the grace SIGKILL to its whole process group. No-op when it does not run."""
        if self._popen is None or not self.running:
            return
        self._popen.terminate()
        try:
            await self.wait(grace_seconds)
        finally:  # a cancelled stop must not leave it running
            if self.running:
                self.kill()

    def kill(self) -> None:
        """SIGKILL to its whole process group, and reap it."""
        if self._popen is None or not self.running:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()


class Watchdog:
    """A helper process that kills every process with a mark once we are gone, however we went."""

    def __init__(self, mark: str) -> None:
        """`mark` is the world's own value of the variable `watchdog.MARK_VARIABLE`."""
        self.mark = mark
        self._popen: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start watching: the helper holds the other end of a pipe that closes when we end."""
        self._popen = subprocess.Popen(
            [sys.executable, "-I", "-S", watchdog.__file__, self.mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            env={},
        )

    def stop(self) -> list[int]:
        """Stop watching; kill what is left with the mark and return the ids of what had to be killed."""
        left = watchdog.sweep(self.mark)
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait()
            if self._popen.stdin is not None:
                self._popen.stdin.close()
            self._popen = None
        return left
