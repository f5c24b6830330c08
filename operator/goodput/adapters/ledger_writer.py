"""Writes the ledger beside the loop: a disk that is full or hangs costs lines, never a decision."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Sequence
from typing import Protocol

log = logging.getLogger(__name__)

# Minutes of lines that wait while the disk hangs.
_WAITING = 5
# The process that ends waits this long for what is still to be written.
_END_SECONDS = 2.0


class Lines(Protocol):
    """Where lines go (`LedgerFiles`)."""

    def append(self, lines: Sequence[bytes]) -> None:
        """Raises `OSError` where they cannot be kept."""


class LedgerWriter:
    """A thread that appends what it is given. It ends with the process, also where the disk hangs."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._queue: queue.Queue[Sequence[bytes] | None] = queue.Queue(_WAITING)
        self._told: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)
        self._thread.start()

    def put(self, lines: Sequence[bytes]) -> None:
        """Have `lines` written; where too many wait already, they are dropped."""
        try:
            self._queue.put_nowait(lines)
        except queue.Full:
            self._tell("the disk does not answer")

    def close(self) -> None:
        """Wait a moment for what is under way."""
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        while True:
            lines = self._queue.get()
            if lines is None:
                return
            try:
                self._lines.append(lines)
            except OSError as error:
                self._tell(error.strerror or str(error))
            except Exception as error:
                self._tell(f"{type(error).__name__}: {error}")

    def _tell(self, why: str) -> None:
        """Each reason once: a full disk is full every minute."""
        if why not in self._told:
            self._told.add(why)
            log.warning("the ledger lacks lines: %s (decisions do not wait for it; said once)", why)
