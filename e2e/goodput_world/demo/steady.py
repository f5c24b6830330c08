"""What the operator writes when there is nothing to decide: counted from the API server's audit log."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from goodput_world.audit import AuditLog
from goodput_world.cluster import SYSTEM_NAMESPACE
from goodput_world.demo.ledger import last_quiet_span

STEADY_SECONDS = 120.0
_OPERATOR_USERS = f"system:serviceaccount:{SYSTEM_NAMESPACE}:"


def writes_in_last_steady_minutes(
    audit: AuditLog, decisions_epoch: Iterable[float], start_epoch: float, end_epoch: float
) -> int | None:
    """Writes of the operator, Leases left out, in the last 2 minutes in which no decision changed anything.

    None if the run had no such two minutes.
    """
    span = last_quiet_span(decisions_epoch, start_epoch, end_epoch, STEADY_SECONDS)
    if span is None:
        return None
    since, until = (datetime.fromtimestamp(at, UTC) for at in span)
    return sum(write.user.startswith(_OPERATOR_USERS) for write in audit.writes(since, until))
