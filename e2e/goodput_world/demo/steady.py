"""What the operator writes when there is nothing to decide: counted from the API server's audit log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

from goodput_world.audit import AuditLog
from goodput_world.cluster import SYSTEM_NAMESPACE
from goodput_world.demo.ledger import last_quiet_span

STEADY_SECONDS = 120.0
# A resize is seen up to this long after the first write of the decision behind it: a write, and a look once a second.
_SEEN_AFTER_SECONDS = 5.0
_OPERATOR_USERS = f"system:serviceaccount:{SYSTEM_NAMESPACE}:"


def writes_in_last_steady_minutes(
    audit: AuditLog, resizes_epoch: Iterable[float], start_epoch: float, end_epoch: float
) -> dict[str, int] | None:
    """Writes of the operator by kind, Leases left out, in the last 2 minutes in which no decision changed anything.

    None if the run had no such two minutes.
    """
    deciding = [at for seen in resizes_epoch for at in (seen - _SEEN_AFTER_SECONDS, seen)]
    span = last_quiet_span(deciding, start_epoch, end_epoch, STEADY_SECONDS)
    if span is None:
        return None
    since, until = (datetime.fromtimestamp(at, UTC) for at in span)
    writes = (write for write in audit.writes(since, until) if write.user.startswith(_OPERATOR_USERS))
    return dict(sorted(Counter(write.kind for write in writes).items()))
