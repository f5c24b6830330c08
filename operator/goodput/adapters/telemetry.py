"""The port to telemetry: what the loop asks of a metrics store, and what it gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from goodput.domain.identity import Key
from goodput.domain.intent import Objective
from goodput.domain.observed import ModelTelemetry


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One Model whose telemetry is wanted.

    `serving` are engine pods that were ready long enough to have been scraped: nothing about them is a problem;
    `pods` are all engine pods, `routers` all router pods. Without `routed` users come by none of these: those that are
    there are what is left of an earlier routing.
    """

    key: Key
    objective: Objective | None
    pods: tuple[str, ...]
    serving: tuple[str, ...]
    routers: tuple[str, ...] = ()
    routed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Telemetry at one instant: `error` says why there is none at all (then `models` is empty)."""

    models: Mapping[Key, ModelTelemetry] = field(default_factory=dict)
    error: str = ""
    # Names of metrics that nothing exports, although pods serve.
    missing: tuple[str, ...] = ()
    # What it took without waiting for answers.
    parse_seconds: float = 0.0


class Telemetry(Protocol):
    """Reads telemetry of the whole fleet with a number of queries that does not grow with it."""

    async def read(self, wanted: Sequence[Wanted]) -> Reading: ...
