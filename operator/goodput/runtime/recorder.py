"""Makes lines of the ledger from passes of the fleet loop; who writes them down is another part."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from goodput.domain.decision import Action, Decision
from goodput.domain.identity import Key
from goodput.domain.ledger import Asked, Line, Looked, encode
from goodput.domain.observed import Snapshot
from goodput.domain.plan import ModelPlan, Plan
from goodput.domain.samples import AT, Sample, Samples

log = logging.getLogger(__name__)

LINE_SECONDS = 60.0
# What a Model asks for is told again so often: files may be deleted from the oldest on.
ASKED_SECONDS = 3600.0
# Between passes that lie further apart (in seconds and in ticks) this process did not lead, or the clock was set.
_LONGEST_SECONDS, _LONGEST_TICKS = 120.0, 3.0
# Decisions of one Model in one line; a law that decides more often is told of by its first ones.
_MOST_DECISIONS = 16
_MOVES = frozenset(
    {Action.PLACE, Action.SCALE_UP, Action.SCALE_DOWN, Action.ADVISE_UP, Action.ADVISE_DOWN, Action.REPLACE}
)


@dataclass(slots=True)
class _Open:
    """What was seen of one Model since its last line; replicas and cost are added up over time."""

    plan: ModelPlan
    counted_at: float  # end of the last sample that was written
    seconds: float = 0.0
    desired: float = 0.0
    ready: float = 0.0
    cost: float | None = 0.0
    decisions: list[Decision] = field(default_factory=list)
    asked: Asked | None = None

    def add(self, plan: ModelPlan, seconds: float) -> None:
        """`seconds` passed as the plan before found them."""
        if seconds > 0.0:
            figures = self.plan.figures
            self.seconds += seconds
            self.desired += figures.replicas_desired * seconds
            self.ready += figures.replicas_ready * seconds
            hourly = figures.cost_per_hour
            self.cost = None if hourly is None or self.cost is None else self.cost + hourly * seconds / 3600.0
        self.plan = plan
        decision = plan.decision
        if decision.action in _MOVES and len(self.decisions) < _MOST_DECISIONS:
            # An advice stands until the load is another: it is told when it changes.
            last = self.decisions[-1] if self.decisions else None
            if last is None or (last.action, last.to_replicas) != (decision.action, decision.to_replicas):
                self.decisions.append(decision)


class Recorder:
    """Adds up passes and hands over the lines of about a minute. Never raises, never waits."""

    def __init__(self, write: Callable[[Sequence[bytes]], None], tick_seconds: float = 10.0) -> None:
        self._write = write
        self._longest = max(_LONGEST_SECONDS, _LONGEST_TICKS * tick_seconds)
        self._open: dict[Key, _Open] = {}
        self._began = self._at = float("-inf")
        self._failed = False

    def note(self, snapshot: Snapshot, plan: Plan, now: float) -> None:
        """One pass, at `now` (Unix seconds)."""
        try:
            self._note(snapshot, plan, now)
        except Exception:
            # Whatever is wrong with the ledger, the fleet goes on.
            if not self._failed:
                log.exception("the ledger lacks a pass; others like it are not told of")
            self._failed = True

    def flush(self) -> None:
        """Hand over what there is: nothing comes any more."""
        try:
            self._hand_over(None)
        except Exception:
            log.exception("the ledger lacks its last lines")

    def _note(self, snapshot: Snapshot, plan: Plan, now: float) -> None:
        if not 0.0 <= now - self._at <= self._longest:
            self._hand_over(None)
            self._open.clear()
            self._began = self._at = now
        seconds, self._at = now - self._at, now
        for model in plan.models:
            entry = self._open.get(model.key)
            if entry is None:
                entry = self._open[model.key] = _Open(model, _before_newest(model.memory.samples))
            entry.add(model, seconds)
        if now - self._began >= LINE_SECONDS:
            self._hand_over(snapshot)
            self._began = now
            present = {model.key for model in plan.models}
            for key in self._open.keys() - present:
                del self._open[key]

    def _hand_over(self, snapshot: Snapshot | None) -> None:
        lines: list[Line] = []
        if snapshot is not None:
            lines += self._asked(snapshot)
        for key, entry in self._open.items():
            if entry.seconds > 0.0:
                lines.append(_looked(key, entry, self._at))
                self._open[key] = _Open(entry.plan, _newest(entry), asked=entry.asked)
        if lines:
            self._write([encode(line) for line in lines])

    def _asked(self, snapshot: Snapshot) -> list[Asked]:
        """Models that ask for something else than before, or were not told of for an hour."""
        types = {gpu.name: gpu for gpu in snapshot.gpu_types}
        found = []
        for view in snapshot.models:
            entry = self._open.get(view.intent.key)
            pool = entry.plan.pool if entry is not None else None
            gpu = types.get(pool.placement.gpu_type) if pool is not None else None
            if entry is None or pool is None or gpu is None:
                continue
            asked = Asked(
                at=self._at,
                # What is wrong with it is in its conditions, and comes and goes.
                intent=replace(view.intent, problems=()),
                gpu=gpu,
                tensor_parallel=pool.placement.tensor_parallel,
                pipeline_parallel=pool.placement.pipeline_parallel,
            )
            before = entry.asked
            if before is None or self._at - before.at >= ASKED_SECONDS or replace(before, at=asked.at) != asked:
                entry.asked = asked
                found.append(asked)
        return found


def _looked(key: Key, entry: _Open, at: float) -> Looked:
    plan, seconds = entry.plan, entry.seconds
    figures, memory = plan.figures, plan.memory
    return Looked(
        at=round(at, 3),
        seconds=round(seconds, 3),
        key=key,
        samples=tuple(Sample(*(round(value, 3) for value in row)) for row in _after(memory.samples, entry.counted_at)),
        desired=round(entry.desired / seconds, 3),
        ready=round(entry.ready / seconds, 3),
        cost=None if entry.cost is None else round(entry.cost, 6),
        demand_rps=_short(figures.demand_rps),
        forecast_rps=_short(figures.forecast_rps),
        horizon_seconds=_short(figures.horizon_seconds),
        capacity_rps=_short(figures.capacity_rps_per_replica),
        startup_seconds=_short(figures.startup_seconds),
        correction=round(memory.correction, 4),
        prefill_correction=round(memory.prefill_correction, 4),
        decisions=tuple(entry.decisions),
    )


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _after(samples: Samples, at: float) -> Samples:
    return samples[int(samples.values[:, AT].searchsorted(at, side="right")) :]


def _before_newest(samples: Samples) -> float:
    """A process that begins to watch writes the newest sample: it may be of a time in which nobody did."""
    return samples[-2].at if len(samples) > 1 else float("-inf")


def _newest(entry: _Open) -> float:
    samples = entry.plan.memory.samples
    return max(entry.counted_at, samples[-1].at) if len(samples) else entry.counted_at
