"""What a change says of itself: a decision for each step, and a condition for as long as it stands."""

from __future__ import annotations

from goodput.decide.change import Change, trouble
from goodput.domain.change import ChangeMark, Stage, Verdict
from goodput.domain.conditions import Condition, ConditionReason, ConditionStatus, ConditionType
from goodput.domain.decision import Action, Decision, Rule
from goodput.domain.identity import CANARY_POOL, Key

_UNCHECKED = "nobody checks its quality: spec.qualityCheck is not set"
_AGAIN = "undo the change, or edit spec.qualityCheck to check it again"
_RULES = {
    Verdict.CHECKED: Rule.CHECK_PASSED,
    Verdict.UNCHECKED: Rule.UNCHECKED,
    Verdict.SERVED_BEFORE: Rule.SERVED_BEFORE,
    Verdict.CHECK_FAILED: Rule.CHECK_FAILED,
    Verdict.CHECK_OVERDUE: Rule.CHECK_FAILED,
    Verdict.CANARY_OVERDUE: Rule.CANARY_FAILED,
}
_CHARACTERS = 600


def _what(change: Change) -> str:
    return change.what if len(change.what) <= _CHARACTERS else change.what[: _CHARACTERS - 3] + "..."


def step(key: Key, before: ChangeMark, change: Change, now: float) -> Decision | None:
    """The decision behind the step from `before` to what is remembered now; None where nothing was decided."""
    mark = change.mark
    if (before.id, before.stage) == (mark.id, mark.stage) or mark.stage is Stage.WAITING:
        return None
    detail = _what(change)
    if mark.stage is Stage.NONE:
        if before.stage is Stage.PASSED:
            return None
        action, rule, canaries = Action.DROP, Rule.CHANGE_UNDONE, (1, 0)
    elif mark.stage is Stage.STARTING:
        action, rule, canaries = Action.START_CANARY, Rule.CHANGE_ASKED, (0, 1)
        if change.seen is not None and change.seen.check_seconds is None:
            detail += f"; {_UNCHECKED}"
    elif mark.stage is Stage.CHECKING:
        action, rule, canaries = Action.CHECK_QUALITY, Rule.CANARY_READY, (1, 1)
    elif mark.stage is Stage.PASSED:
        action, rule, canaries = Action.PROMOTE, _RULES[mark.verdict], (1, 0)
    else:
        action, rule, canaries = Action.REFUSE, _RULES[mark.verdict], (1, 0)
        detail += f"; {mark.note}; what serves serves on: {_AGAIN}"
    return Decision(
        model=key,
        pool=CANARY_POOL,
        at=now,
        action=action,
        rule=rule,
        from_replicas=canaries[0],
        to_replicas=canaries[1],
        wanted_replicas=canaries[1],
        detail=detail,
    )


def under_way(change: Change) -> Condition | None:
    """Reconciling, while a change goes on."""
    kind, what = ConditionType.RECONCILING, _what(change)
    if change.stage is Stage.STARTING and change.seen is not None:
        then = _UNCHECKED if change.seen.check_seconds is None else "the quality check runs when it is ready"
        message = f"a canary of the change starts ({what}); {then}"
        return Condition(kind, ConditionStatus.TRUE, ConditionReason.CANARY_STARTING, message)
    if change.stage is Stage.CHECKING and change.seen is not None:
        check = change.seen.check
        message = f"{f'Job {check.name}' if check else 'the quality check'} judges a canary of the change ({what})"
        return Condition(kind, ConditionStatus.TRUE, ConditionReason.QUALITY_CHECK_RUNNING, message)
    if change.stage is Stage.PASSED and change.held:
        message = f"the change passed ({what}), and rolls out as soon as its canary is gone"
        return Condition(kind, ConditionStatus.TRUE, ConditionReason.ROLLING_OUT, message)
    return None


def in_the_way(change: Change) -> Condition | None:
    """Stalled, if something keeps a change from users."""
    kind, what, stage = ConditionType.STALLED, _what(change), change.stage
    if change.seen is None:
        return None
    if change.frozen and stage is not Stage.REFUSED:
        message = f"the change waits ({what}): {change.frozen}"
        return Condition(kind, ConditionStatus.TRUE, ConditionReason.ROLLOUT_BLOCKED, message)
    if stage is Stage.WAITING and change.waits:
        message = f"the change waits ({what}): {change.waits}"
        return Condition(kind, ConditionStatus.TRUE, ConditionReason.ROLLOUT_BLOCKED, message)
    if stage is Stage.STARTING and (wrong := trouble(change.seen.canary)):
        message = f"the canary of the change does not get ready ({what}), what serves serves on: {wrong}"
        return Condition(kind, ConditionStatus.TRUE, ConditionReason.ROLLOUT_BLOCKED, message)
    if stage is Stage.REFUSED:
        canary = change.mark.verdict is Verdict.CANARY_OVERDUE
        reason = ConditionReason.CANARY_FAILED if canary else ConditionReason.QUALITY_CHECK_FAILED
        message = f"the change is refused ({what}), what serves serves on: {change.mark.note}; {_AGAIN}"
        return Condition(kind, ConditionStatus.TRUE, reason, message)
    return None
