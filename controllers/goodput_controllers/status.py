"""When the status of a Model is worth a write.

At once: a flip of an urgent condition, a decision that says something new, a change of replicas, an edited SLO.
Otherwise at most once in five minutes, and only where a verdict turned or a figure moved beyond its noise. Live values
are metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from zlib import crc32

from goodput.api.modelstatus import DecisionStatus, ModelStatus, PinnedStatus
from goodput.domain.conditions import Condition, ConditionType
from goodput.domain.decision import Action, Clamp, Decision, Rule
from goodput.domain.identity import Key
from goodput.domain.observed import ModelView
from goodput.domain.plan import ModelPlan
from goodput_controllers.conditions import URGENT
from goodput_controllers.figures import Figure, FigureWindow, attainment_figure
from goodput_controllers.status_text import canary_of, cost_text, pool_of, pool_summary, replicas_text, status_of

QUIET_SECONDS = 300.0
# After that time figures are looked at this often, each Model at an instant of its own.
LOOK_SECONDS = 60.0
# What a user should find in status for as long as it holds; the other rules come and go with the noise of the load.
LASTING_RULES = frozenset(
    {
        Rule.HOLD_METRICS,
        Rule.HOLD_PAUSED,
        Rule.HOLD_CONFLICT,
        Rule.HOLD_PROBLEM,
        Rule.HOLD_MEMORY,
        Rule.HOLD_CHANGE,
    }
)
ADVICE = frozenset({Action.ADVISE_UP, Action.ADVISE_DOWN})
Verdicts = frozenset[tuple[str, str, str]]


def _tuple(decision: Decision) -> tuple[object, ...]:
    return decision.action, decision.rule, decision.clamp, decision.from_replicas, decision.to_replicas


def noteworthy(decision: Decision, last: Decision | None, told: Decision | None) -> bool:
    """Whether a decision says something new.

    It changes what runs (and is not last tick's over again), advises another number, or begins or ends a hold or a cap.
    """
    if last is None or told is None:
        return True
    if decision.changes:
        return _tuple(decision) != _tuple(last)
    if decision.action in ADVICE:
        return (decision.action, decision.to_replicas) != (told.action, told.to_replicas)
    return _lasting(decision) != _lasting(told)


def _lasting(decision: Decision) -> tuple[Rule | None, Clamp]:
    capped = decision.clamp if decision.wanted_replicas > decision.to_replicas else Clamp.NONE
    return (decision.rule if decision.rule in LASTING_RULES else None), capped


@dataclass(slots=True)
class _Known:
    """What is in the API server for one Model, and the figures behind its text."""

    written: bool = False
    written_at: float = float("-inf")
    signature: tuple[object, ...] = ()
    verdicts: Verdicts = frozenset()
    decision_id: str = ""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    last: Decision | None = None
    told: Decision | None = None
    step: Decision | None = None  # the last one of a change of checkpoint, precision or speculation
    # The decision that an earlier process left in status, while at most one was told since.
    found: DecisionStatus | None = None
    window: FigureWindow = field(default_factory=FigureWindow)
    update_available: str | None = None
    # When its figures were looked at, and how far into a minute the intervals begin in which they are once.
    looked_at: float = 0.0
    offset_seconds: float = 0.0

    @property
    def latest(self) -> Decision | None:
        """What was told last."""
        if self.step is None or (self.told is not None and self.told.at > self.step.at):
            return self.told
        return self.step

    def interval(self, at: float) -> float:
        """The number of the interval."""
        return (at + self.offset_seconds) // LOOK_SECONDS


@dataclass(slots=True)
class StatusBook:
    """Builds status and says whether it is to be written."""

    _known: dict[Key, _Known] = field(default_factory=dict)

    def clear(self) -> None:
        """Believe nothing of what was written: another leader may have written since."""
        self._known.clear()

    def overwritten(self, key: Key) -> None:
        """Take note that its status says something else by now than what was built here."""
        self._of(key).written = False

    def forget(self, present: set[Key]) -> None:
        """Drop Models that are gone."""
        for key in self._known.keys() - present:
            del self._known[key]

    def note_update(self, key: Key, update_available: str | None) -> None:
        """What a roll-out would change ('' nothing, None unknown)."""
        self._of(key).update_available = update_available

    def update_available(self, key: Key) -> str | None:
        return self._of(key).update_available

    def count(self, plan: ModelPlan, now: float) -> None:
        """Take a tick's counts."""
        self._of(plan.key).window.add(plan.figures, now)

    def observe(self, plan: ModelPlan) -> bool:
        """Take a decision that is going to be carried out; True if it says something new."""
        known = self._of(plan.key)
        new = noteworthy(plan.decision, known.last, known.told)
        known.last = plan.decision
        return new

    def tell(self, decision: Decision) -> None:
        """Take note that it was told: the last one, for status, until the next is."""
        known = self._of(decision.model)
        if known.told is not None:
            known.found = None
        known.told = decision

    def tell_step(self, decision: Decision) -> None:
        """Take note that a step of a change was told; the next decision is not compared with it."""
        known = self._of(decision.model)
        known.found = None
        known.step = decision

    def due(
        self,
        view: ModelView,
        plan: ModelPlan,
        conditions: Iterable[Condition],
        present: ModelStatus | None,
        now: float,
    ) -> bool:
        """Whether the status of a Model has to be written now."""
        known = self._of(plan.key)
        signature = _signature(view, plan, conditions)
        if not known.written:
            if present is None or not present.conditions:
                return True
            self._adopt(known, view, present, now)
        if signature != known.signature or _update_flips(conditions, present):
            return True
        latest = known.latest
        if latest is not None and latest.id != known.decision_id and not _says(known.found, latest):
            return True
        if now - known.written_at < QUIET_SECONDS:
            return False
        if _verdicts(conditions) != known.verdicts:
            return True
        # In one pass it is asked whether to write, and once more when writing.
        if now != known.looked_at and known.interval(now) == known.interval(known.looked_at):
            return False
        known.looked_at = now
        figures = _figures(plan, known.window, now)
        return any(
            name not in known.figures or figure.differs(known.figures[name].value) for name, figure in figures.items()
        )

    def figures(self, plan: ModelPlan, now: float) -> Mapping[str, Figure]:
        """Ten-minute figures as they are now: a write may take as long as others need to be counted."""
        return _figures(plan, self._of(plan.key).window, now)

    def build(
        self,
        view: ModelView,
        plan: ModelPlan,
        conditions: Iterable[Condition],
        present: ModelStatus | None,
        *,
        figures: Mapping[str, Figure],
        pinned: PinnedStatus | None,
        now: float,
    ) -> ModelStatus:
        """The whole status: a server-side apply drops what it leaves out."""
        known = self._of(plan.key)
        return status_of(
            view,
            plan,
            conditions=conditions,
            before=present,
            decision=known.latest,
            figures=figures,
            pinned=pinned,
            now=now,
        )

    def written(
        self,
        view: ModelView,
        plan: ModelPlan,
        conditions: Iterable[Condition],
        status: ModelStatus,
        *,
        figures: Mapping[str, Figure],
        now: float,
    ) -> None:
        """Take note that this status, with these figures, was written."""
        known = self._of(plan.key)
        known.written, known.written_at = True, now
        known.signature = _signature(view, plan, conditions)
        known.verdicts = _verdicts(conditions)
        known.decision_id = status.last_decision.id if status.last_decision else ""
        known.found = None
        known.figures = figures

    def _of(self, key: Key) -> _Known:
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _Known(offset_seconds=crc32(str(key).encode()) % LOOK_SECONDS)
        return known

    @staticmethod
    def _adopt(known: _Known, view: ModelView, present: ModelStatus, now: float) -> None:
        """After a restart: what is there was written by us before. Its figures count as written now."""
        urgent = {kind.value for kind in URGENT}
        verdicts = frozenset((c.type, c.status, c.reason) for c in present.conditions)
        if known.written_at == float("-inf"):
            known.found = present.last_decision
        known.written, known.written_at = True, now
        known.verdicts = verdicts
        known.signature = (
            present.observed_generation,
            present.replicas,
            present.pool_summary,
            present.cost_per_hour,
            frozenset(verdict for verdict in verdicts if verdict[0] in urgent),
            view.intent.objective,
        )
        known.decision_id = present.last_decision.id if present.last_decision else ""


def _says(found: DecisionStatus | None, told: Decision) -> bool:
    """Whether the status that an earlier process left says as much as the first decision that this one told."""
    if found is None or told.changes:
        return False
    return told.action not in ADVICE or (told.action, told.to_replicas) == (found.action, found.to)


def _verdicts(conditions: Iterable[Condition]) -> Verdicts:
    # These enums are strings, equal to what the API server has.
    return frozenset((c.type, c.status, c.reason) for c in conditions)


def _update_flips(conditions: Iterable[Condition], present: ModelStatus | None) -> bool:
    """Whether an update came or went. Unknown (nothing was rendered yet, or paused) is no change of what was said."""
    kind = ConditionType.UPDATE_AVAILABLE
    now = next((c.status for c in conditions if c.type is kind), None)
    if now is None:
        return False
    return now != next((c.status for c in present.conditions if c.type == kind), None) if present is not None else True


def _signature(view: ModelView, plan: ModelPlan, conditions: Iterable[Condition]) -> tuple[object, ...]:
    pool, canary = pool_of(view, plan), canary_of(view, plan)
    urgent = frozenset((c.type, c.status, c.reason) for c in conditions if c.type in URGENT)
    # By another SLO what was said of the earlier one is wrong.
    said = view.intent.generation, replicas_text(pool), pool_summary(pool, canary), cost_text(plan), urgent
    return *said, view.intent.objective


def _figures(plan: ModelPlan, window: FigureWindow, now: float) -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    demand = window.demand(now)
    if demand is not None:
        found["demand"] = demand
    goodput = window.goodput(now)
    if goodput is not None:
        found["goodput lower"], found["goodput upper"] = goodput
    found |= window.use(now)
    figures = plan.figures
    if figures.attainment_lower is not None and figures.attainment_upper is not None:
        found["attainment lower"] = attainment_figure(figures.attainment_lower, figures.attainment_requests)
        found["attainment upper"] = attainment_figure(figures.attainment_upper, figures.attainment_requests)
    for name, mean in (("input tokens", figures.input_tokens_mean), ("output tokens", figures.output_tokens_mean)):
        if mean is not None:
            # Lengths spread about as wide as their mean; some hundred requests are behind it.
            found[name] = Figure(mean, 0.05 * mean)
    return found
