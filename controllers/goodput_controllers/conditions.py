"""The full set of conditions of a Model, in a fixed order, from the plan and from what writing found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from goodput.domain.conditions import Condition, ConditionReason, ConditionStatus, ConditionType
from goodput.domain.errors import InvalidObject
from goodput.domain.intent import Problem
from goodput.domain.plan import ModelPlan

# A flip of these is written at once; one of the others is a figure in words and waits for its turn.
URGENT = frozenset(
    {
        ConditionType.READY,
        ConditionType.RECONCILING,
        ConditionType.STALLED,
        ConditionType.PLACED,
        ConditionType.METRICS_FRESH,
    }
)
_UNKNOWN = {
    ConditionType.READY: (ConditionStatus.UNKNOWN, ConditionReason.FIRST_SEEN),
    ConditionType.RECONCILING: (ConditionStatus.TRUE, ConditionReason.FIRST_SEEN),
    ConditionType.STALLED: (ConditionStatus.FALSE, ConditionReason.NOT_STALLED),
    ConditionType.SLO_MET: (ConditionStatus.UNKNOWN, ConditionReason.TOO_FEW_REQUESTS),
    ConditionType.METRICS_FRESH: (ConditionStatus.UNKNOWN, ConditionReason.NO_PODS),
    ConditionType.PLACED: (ConditionStatus.UNKNOWN, ConditionReason.FIRST_SEEN),
}


_FIRST_SEEN = {kind: Condition(kind, status, reason) for kind, (status, reason) in _UNKNOWN.items()}


def first_seen() -> tuple[Condition, ...]:
    """Before anything is known: without conditions kstatus would call the Model current."""
    return tuple(_FIRST_SEEN.values())


def undecided(message: str, statuses: Mapping[str, str]) -> tuple[Condition, ...]:
    """Of a Model that nothing could be decided for: what is laid over the conditions that it has (`statuses`)."""
    stalled = Condition(ConditionType.STALLED, ConditionStatus.TRUE, ConditionReason.INTERNAL_ERROR, message)
    if statuses.get(ConditionType.RECONCILING) == ConditionStatus.FALSE:
        return (stalled,)
    return Condition(ConditionType.RECONCILING, ConditionStatus.FALSE, ConditionReason.HELD_UP), stalled


def not_managed(error: InvalidObject) -> tuple[Condition, ...]:
    """Of a Model that runs and whose spec this process could never read: what is laid over the conditions that it has.

    It was valid under an earlier version, or was edited before this process began.
    """
    goes_on = f"its pods go on as they are, and are not managed until {error.field} is mended"
    unknown = (ConditionType.READY, ConditionType.SLO_MET, ConditionType.METRICS_FRESH)
    return (
        *(Condition(kind, ConditionStatus.UNKNOWN, ConditionReason.NOT_MANAGED, goes_on) for kind in unknown),
        Condition(ConditionType.RECONCILING, ConditionStatus.FALSE, ConditionReason.HELD_UP),
        Condition(ConditionType.STALLED, ConditionStatus.TRUE, error.reason, f"{error}; {goes_on}"),
    )


def never_valid(message: str, reason: ConditionReason) -> tuple[Condition, ...]:
    """Of a Model whose spec could never be read, and of which nothing runs."""
    conditions = {condition.type: condition for condition in first_seen()}
    conditions[ConditionType.READY] = Condition(
        ConditionType.READY, ConditionStatus.FALSE, ConditionReason.NO_REPLICA_READY, "nothing runs"
    )
    conditions[ConditionType.RECONCILING] = Condition(
        ConditionType.RECONCILING, ConditionStatus.FALSE, ConditionReason.SETTLED
    )
    conditions[ConditionType.STALLED] = Condition(ConditionType.STALLED, ConditionStatus.TRUE, reason, message)
    return tuple(conditions.values())


def conditions_of(plan: ModelPlan, problems: Iterable[Problem], update_available: str | None) -> tuple[Condition, ...]:
    """Conditions as decided, completed, with what only writing can know laid over them."""
    found = dict(_FIRST_SEEN)
    for condition in plan.conditions:
        found[condition.type] = condition
    for problem in problems:
        stalled = found[ConditionType.STALLED]
        if problem.type is ConditionType.STALLED and stalled.status is not ConditionStatus.TRUE:
            found[ConditionType.STALLED] = Condition(
                ConditionType.STALLED, ConditionStatus.TRUE, problem.reason, problem.message
            )
    if found[ConditionType.STALLED].status is ConditionStatus.TRUE:
        # kstatus reads Reconciling first: a stalled Model must not look as if it were on its way.
        reconciling = found[ConditionType.RECONCILING]
        if reconciling.status is not ConditionStatus.FALSE:
            found[ConditionType.RECONCILING] = replace(
                reconciling, status=ConditionStatus.FALSE, reason=ConditionReason.HELD_UP
            )
    if update_available is not None:
        found[ConditionType.UPDATE_AVAILABLE] = (
            Condition(
                ConditionType.UPDATE_AVAILABLE,
                ConditionStatus.TRUE,
                ConditionReason.RENDERING_CHANGED,
                f"{update_available}; change the Model or set spec.engine.update: Automatic to take it",
            )
            if update_available
            else Condition(ConditionType.UPDATE_AVAILABLE, ConditionStatus.FALSE, ConditionReason.UP_TO_DATE)
        )
    return tuple(found[kind] for kind in ConditionType if kind in found)
