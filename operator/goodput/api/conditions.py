"""Conditions as status carries them, and the rules for writing them (transition times move only with the status)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field

from goodput.api.base import ApiModel, Int
from goodput.api.rules import ListOf
from goodput.domain.conditions import Condition as DecidedCondition

_MAX_MESSAGE = 4096


class Condition(ApiModel):
    """One aspect of the object's state, in the form that kubectl wait, Argo CD and Flux read."""

    type: Annotated[str, Field(min_length=1, max_length=64)]
    """Which aspect: Ready, Reconciling, Stalled, SLOMet, MetricsFresh, Placed or UpdateAvailable."""
    status: Literal["True", "False", "Unknown"]
    """True, False or Unknown."""
    reason: Annotated[str, Field(min_length=1, max_length=128)]
    """One word for why."""
    message: Annotated[str, Field(max_length=_MAX_MESSAGE)] = ""
    """A sentence for people: what is so, which field it concerns and what to do."""
    last_transition_time: Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]
    """When `status` last changed, RFC 3339."""
    observed_generation: Int = Field(default=0, ge=0)
    """Generation of the spec that this condition speaks of."""


Conditions = Annotated[
    tuple[Condition, ...],
    Field(max_length=16),
    ListOf("type"),
]


def merge_conditions(
    before: Iterable[Condition], decided: Iterable[DecidedCondition], *, generation: int, now: str
) -> tuple[Condition, ...]:
    """What status should carry: `decided`, in its order, with `lastTransitionTime` kept where the status is the same.

    `now` is RFC 3339. Conditions that are not in `decided` are gone; messages are cut to what the schema admits.
    """
    known = {condition.type: condition for condition in before}

    def merged(condition: DecidedCondition) -> Condition:
        old = known.get(condition.type)
        unchanged = old is not None and old.status == condition.status
        return Condition(
            type=str(condition.type),
            status=condition.status.value,
            reason=str(condition.reason),
            message=condition.message[:_MAX_MESSAGE],
            last_transition_time=old.last_transition_time if old is not None and unchanged else now,
            observed_generation=generation,
        )

    return tuple(merged(condition) for condition in decided)
