"""Conditions as they are written to status."""

from __future__ import annotations

from goodput.api.conditions import Condition, merge_conditions
from goodput.domain.conditions import Condition as Decided
from goodput.domain.conditions import ConditionReason, ConditionStatus, ConditionType

_NOON, _LATER = "2026-01-01T12:00:00Z", "2026-01-01T13:00:00Z"


def _ready(status: ConditionStatus, reason: ConditionReason = ConditionReason.SERVING, message: str = "") -> Decided:
    return Decided(ConditionType.READY, status, reason, message)


def test_the_transition_time_moves_with_the_status_only() -> None:
    """A new reason or message is no transition."""
    first = merge_conditions((), [_ready(ConditionStatus.TRUE)], generation=1, now=_NOON)
    reworded = merge_conditions(first, [_ready(ConditionStatus.TRUE, message="2 of 2")], generation=2, now=_LATER)
    flipped = merge_conditions(reworded, [_ready(ConditionStatus.FALSE)], generation=2, now=_LATER)
    assert [c.last_transition_time for c in (*first, *reworded, *flipped)] == [_NOON, _NOON, _LATER]
    assert (reworded[0].message, reworded[0].observed_generation) == ("2 of 2", 2)


def test_conditions_that_are_not_decided_any_more_go() -> None:
    """Stalled is there only while something is stalled."""
    stalled = Decided(
        ConditionType.STALLED, ConditionStatus.TRUE, ConditionReason.SLO_NOT_FOUND, "spec.slo: no such SLO"
    )
    before = merge_conditions((), [_ready(ConditionStatus.TRUE), stalled], generation=1, now=_NOON)
    after = merge_conditions(before, [_ready(ConditionStatus.TRUE)], generation=1, now=_LATER)
    assert [(condition.type, condition.status) for condition in before] == [("Ready", "True"), ("Stalled", "True")]
    assert [(condition.type, condition.status) for condition in after] == [("Ready", "True")]


def test_long_messages_are_cut_to_what_the_schema_takes() -> None:
    """A status that is refused would say nothing at all."""
    (condition,) = merge_conditions((), [_ready(ConditionStatus.TRUE, message="x" * 9999)], generation=1, now=_NOON)
    assert len(condition.message) == 4096
    assert Condition.model_validate(condition.to_dict()) == condition


def test_every_type_and_reason_fits_the_schema() -> None:
    """Each can be written to status."""
    for kind in ConditionType:
        for reason in ConditionReason:
            decided = Decided(kind, ConditionStatus.UNKNOWN, reason)
            (condition,) = merge_conditions((), [decided], generation=0, now=_NOON)
            assert (condition.type, condition.reason) == (kind.value, reason.value)
