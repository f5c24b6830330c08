"""Tells decisions and conditions: as event (changes only), metric (enums) and log line (everything)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from goodput.adapters.events import EventRecorder, Subject
from goodput.adapters.kinds import MODELS
from goodput.api.conditions import Condition as WrittenCondition
from goodput.api.modelstatus import ModelStatus
from goodput.domain.conditions import Condition, ConditionStatus, ConditionType
from goodput.domain.decision import STEPS, Action, Clamp, Decision, Rule
from goodput.domain.identity import Key
from goodput.domain.intent import ModelIntent
from goodput.runtime.metrics import Metrics

log = logging.getLogger(__name__)

# Conditions whose bad side is worth a Warning event.
_WARN: Mapping[str, str] = {
    ConditionType.STALLED: ConditionStatus.TRUE,
    ConditionType.PLACED: ConditionStatus.FALSE,
    ConditionType.METRICS_FRESH: ConditionStatus.FALSE,
    ConditionType.SLO_MET: ConditionStatus.FALSE,
}


# What an author should look at before users do.
_DOUBTFUL = frozenset({Rule.UNCHECKED, Rule.CHECK_FAILED, Rule.CANARY_FAILED})


def subject_of(key: Key, uid: str) -> Subject:
    """A Model as the subject of an event."""
    return Subject(MODELS.api_version, MODELS.kind, key.namespace, key.name, uid)


@dataclass(slots=True)
class Teller:
    """One place that speaks of Models, so that the four ways agree."""

    events: EventRecorder
    metrics: Metrics
    # By Model: type -> status and reason.
    _conditions: dict[Key, dict[str, tuple[str, str]]] = field(default_factory=dict)

    def clear(self) -> None:
        """Know no conditions, and publish none."""
        self._conditions.clear()
        self.count_conditions()

    def forget(self, present: set[Key]) -> None:
        for key in self._conditions.keys() - present:
            del self._conditions[key]

    async def tell(self, intent: ModelIntent, decision: Decision) -> None:
        """A decision that says something new."""
        self.metrics.count(decision)
        data = {
            "model": str(decision.model),
            "decision": decision.id,
            "action": decision.action.value,
            "rule": decision.rule.value,
            "clamp": decision.clamp.value,
            "from": decision.from_replicas,
            "to": decision.to_replicas,
            "wanted": decision.wanted_replicas,
            "inputs": {item.name: f"{item.value:.6g} {item.unit}".strip() for item in decision.inputs},
            "rejected": {item.option: item.reason for item in decision.rejected},
        }
        log.info("%s", decision.message, extra={"data": data})
        advice = decision.action in (Action.ADVISE_UP, Action.ADVISE_DOWN)
        if not decision.changes and not advice and decision.action not in STEPS:
            return
        clamped = decision.clamp is not Clamp.NONE
        await self.events.record(
            subject_of(intent.key, intent.uid),
            reason=decision.clamp.value if clamped else decision.rule.value,
            action=decision.action.value,
            note=f"{decision.message} (decision {decision.id})",
            warning=(clamped and decision.wanted_replicas > decision.to_replicas) or decision.rule in _DOUBTFUL,
        )

    async def conditions(
        self, key: Key, uid: str, conditions: Iterable[Condition | WrittenCondition], present: ModelStatus | None
    ) -> None:
        """Warn of conditions that turned bad.

        `present` is what status says: after a restart all is new to us, but what stands there was told before.
        """
        new = tuple(conditions)
        before = self._conditions.get(key)
        if before is None:
            before = _statuses(present.conditions if present is not None else ())
        now = self._conditions[key] = _statuses(new)
        for condition in new:
            bad = _WARN.get(condition.type) == condition.status
            if not bad or before.get(condition.type) == now[condition.type]:
                continue
            log.warning("%s: %s=%s %s: %s", key, condition.type, condition.status, condition.reason, condition.message)
            await self.events.record(
                subject_of(key, uid),
                reason=str(condition.reason),
                action=str(condition.type),
                note=condition.message or str(condition.reason),
                warning=True,
            )

    def count_conditions(self) -> None:
        """Publish how many Models are in which condition."""
        counts: dict[tuple[str, str, str], int] = {}
        for conditions in self._conditions.values():
            for kind, (status, reason) in conditions.items():
                label = (kind, status, reason)
                counts[label] = counts.get(label, 0) + 1
        self.metrics.conditions.clear()
        for label, count in counts.items():
            self.metrics.conditions.labels(*label).set(count)


def _statuses(conditions: Iterable[Condition | WrittenCondition]) -> dict[str, tuple[str, str]]:
    return {str(c.type): (str(c.status), str(c.reason)) for c in conditions}
