"""What goes wrong, and when. Pods are named by their ordinal: 1 is the first that was ever made. Nodes count from 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Crash:
    """The engine of a pod dies at once; its container starts again."""

    at_seconds: float
    pod: int


@dataclass(frozen=True, slots=True)
class CrashLoop:
    """Engines that would turn ready between two times die instead, and start again with growing back-off."""

    from_seconds: float
    to_seconds: float


@dataclass(frozen=True, slots=True)
class Unready:
    """The probes of a pod fail for a while; its engine goes on with what it has."""

    from_seconds: float
    to_seconds: float
    pod: int


@dataclass(frozen=True, slots=True)
class Throttle:
    """A pod runs at a share `speed` (0..1] of its speed for a while."""

    from_seconds: float
    to_seconds: float
    pod: int
    speed: float


@dataclass(frozen=True, slots=True)
class Slowdown:
    """From a time on every pod, also one that is made later, runs at a share `speed` (0..1] of its speed."""

    from_seconds: float
    speed: float


@dataclass(frozen=True, slots=True)
class ServerErrors:
    """Engines answer a share of the attempts with HTTP 500 for a while."""

    from_seconds: float
    to_seconds: float
    share: float


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """A node dies with its engines, and perhaps comes back. The API server learns of it after the node's grace."""

    at_seconds: float
    node: int
    back_at_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class NodeCordon:
    """A node takes no new pods for a while; `drain`: its pods are evicted, as the disruption budget allows."""

    from_seconds: float
    to_seconds: float
    node: int
    drain: bool = False


Fault: TypeAlias = Crash | CrashLoop | Unready | Throttle | Slowdown | ServerErrors | NodeFailure | NodeCordon
