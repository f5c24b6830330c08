"""What was made of GPUs in an interval: MFU and MBU, of wall time (what is paid) and of busy time (what binds)."""

from __future__ import annotations

from goodput.domain.values import Value


class Usage(Value, frozen=True, kw_only=True):
    """Time of an interval, in seconds of replicas: all of it, that of steps, and what work takes at the peaks."""

    wall_seconds: float = 0.0
    busy_seconds: float = 0.0
    compute_seconds: float = 0.0  # that the FLOP which the model needs take at dense peak
    memory_seconds: float = 0.0  # that the bytes which GPUs move take at full bandwidth

    @property
    def mfu(self) -> float | None:
        """Model FLOP utilisation of wall time; None: nothing was watched."""
        return _share(self.compute_seconds, self.wall_seconds)

    @property
    def mbu(self) -> float | None:
        """Memory bandwidth utilisation of wall time."""
        return _share(self.memory_seconds, self.wall_seconds)

    @property
    def busy_mfu(self) -> float | None:
        """The same of the time of steps; None: there were none."""
        return _share(self.compute_seconds, self.busy_seconds)

    @property
    def busy_mbu(self) -> float | None:
        """The same of the time of steps."""
        return _share(self.memory_seconds, self.busy_seconds)

    def plus(self, other: Usage) -> Usage:
        """Of both intervals."""
        return Usage(
            wall_seconds=self.wall_seconds + other.wall_seconds,
            busy_seconds=self.busy_seconds + other.busy_seconds,
            compute_seconds=self.compute_seconds + other.compute_seconds,
            memory_seconds=self.memory_seconds + other.memory_seconds,
        )


def _share(part: float, whole: float) -> float | None:
    """At most 1: what is counted and what is timed end at unlike instants."""
    return min(1.0, part / whole) if whole > 0.0 else None
