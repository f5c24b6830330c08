"""Steady state: a constant Poisson load on a fixed spec, and what the operator writes meanwhile.

Nothing may be written but Leases, except what is written seldom by design: the status of a Model or of its SLO once in
5 minutes, where a figure moved beyond its noise, and the memory of a Model once an hour.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from goodput_world.audit import Write
from goodput_world.cluster import SYSTEM_NAMESPACE
from goodput_world.replay import Objectives, ReplaySummary
from goodput_world.replay.client import Target
from goodput_world.replay.poisson import constant_load
from goodput_world.replay.replayer import Replay, ReplayPlan
from goodput_world.world import World

OPERATOR_USERS = f"system:serviceaccount:{SYSTEM_NAMESPACE}:"
# Kind of a write -> the least time between two of one object, in seconds.
SELDOM_SECONDS = {
    "goodput.dev/models/status": 300.0,
    "goodput.dev/slos/status": 300.0,
    "configmaps": 3600.0,
}
CHAT = Objectives(ttft_seconds=0.5, tpot_seconds=0.05)


@dataclass(frozen=True, slots=True)
class SteadyLoad:
    """The load: `warm_up_seconds` of it are not counted, in which the operator gets to know it."""

    rate_rps: float
    warm_up_seconds: float
    counted_seconds: float
    input_tokens: int = 1155
    output_tokens: int = 211
    seed: int = 1


@dataclass(frozen=True, slots=True)
class SteadyResult:
    """What the operator wrote in the counted time to one namespace and to what has none, Leases left out."""

    writes: tuple[Write, ...]
    counted_seconds: float
    replay: ReplaySummary

    def by_kind(self) -> dict[str, int]:
        """Number of writes by kind."""
        return dict(sorted(Counter(write.kind for write in self.writes).items()))

    def too_many(self) -> list[str]:
        """Writes that a steady state must not see, in words; empty when all is well."""
        counts = Counter((write.kind, write.namespace, write.name) for write in self.writes)
        found = []
        for (kind, namespace, name), count in sorted(counts.items()):
            seldom = SELDOM_SECONDS.get(kind)
            # One every `seldom` seconds: as many as such instants fit into the counted time.
            allowed = 0 if seldom is None else math.ceil(self.counted_seconds / seldom)
            if count > allowed:
                found.append(f"{count} writes of {kind} {namespace}/{name}, {allowed} allowed")
        return found


async def steady_state(world: World, namespace: str, model: str, load: SteadyLoad, folder: Path) -> SteadyResult:
    """Send the load to the Model, whose served name is its own, and count what the operator writes to `namespace`."""
    seconds = load.warm_up_seconds + load.counted_seconds
    requests = constant_load(load.rate_rps, seconds, load.input_tokens, load.output_tokens, load.seed)
    plan = ReplayPlan(requests, seconds, load.seed, CHAT, grace_seconds=60.0)
    replay = Replay(plan, Target(await world.service_url(namespace, model), model), folder)
    running = asyncio.create_task(replay.run())
    try:
        while not running.done():
            await asyncio.wait({running}, timeout=5.0)
            world.raise_if_dead()
        summary = await running
    finally:
        running.cancel()
    since, until = (datetime.fromtimestamp(replay.started_epoch + at, UTC) for at in (load.warm_up_seconds, seconds))
    return SteadyResult(tuple(_of_operator(world, since, until, namespace)), load.counted_seconds, summary)


def _of_operator(world: World, since: datetime, until: datetime, namespace: str) -> Iterable[Write]:
    for write in world.audit.writes(since, until):
        if write.user.startswith(OPERATOR_USERS) and write.namespace in (namespace, ""):
            yield write
