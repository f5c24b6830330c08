"""What can go wrong with the embedded world.

WorldError                 anything below; the message says what failed and what to do
├── BinaryError            a program of the world cannot be found or built
├── ProcessExited          a process of the world ended by itself; the message carries the end of its log
├── WaitTimeout            a condition did not come true in time; the message carries what was seen last
└── CommandFailed          kubectl or helm said no; the message carries what it printed
"""

from __future__ import annotations


class WorldError(Exception):
    """The embedded world cannot do what was asked of it."""


class BinaryError(WorldError):
    """A program of the world cannot be found or built."""


class ProcessExited(WorldError):
    """A process that should run has ended."""


class WaitTimeout(WorldError):
    """A condition did not come true in time."""


class CommandFailed(WorldError):
    """A command of the world (kubectl, helm) returned a non-zero status.

    `status` is its exit status, `stderr` what it printed there.
    """

    def __init__(self, message: str, *, status: int, stderr: str) -> None:
        super().__init__(message)
        self.status = status
        self.stderr = stderr
