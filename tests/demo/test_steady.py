"""Writes of the operator while there is nothing to decide."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from goodput_world.audit import AuditLog
from goodput_world.demo.steady import writes_in_last_steady_minutes

OPERATOR = "system:serviceaccount:goodput-system:goodput"


def event(at: float, user: str, group: str, resource: str) -> str:
    return json.dumps(
        {
            "stage": "ResponseComplete",
            "requestReceivedTimestamp": datetime.fromtimestamp(at, UTC).isoformat(),
            "verb": "patch",
            "user": {"username": user},
            "objectRef": {"apiGroup": group, "resource": resource, "namespace": "default", "name": "x"},
            "responseStatus": {"code": 200},
        }
    )


def test_only_the_operators_writes_in_the_quiet_minutes_count(tmp_path: Path) -> None:
    """Leases, others' writes, and the decision's own writes just before its resize was seen are left out."""
    lines = [
        event(1100.0, OPERATOR, "apps", "deployments"),
        event(1250.0, OPERATOR, "goodput.dev", "models"),
        event(1260.0, OPERATOR, "goodput.dev", "models"),
        event(1270.0, OPERATOR, "coordination.k8s.io", "leases"),
        event(1280.0, "system:kube-scheduler", "", "pods"),
        event(1298.5, OPERATOR, "apps", "deployments"),
    ]
    (tmp_path / "audit.log").write_text("\n".join(lines) + "\n")
    audit = AuditLog(tmp_path / "audit.log")

    assert writes_in_last_steady_minutes(audit, [1101.0, 1300.0], 1000.0, 1400.0) == {"goodput.dev/models": 2}
    assert writes_in_last_steady_minutes(audit, [1101.0, 1300.0], 1000.0, 1290.0) == {"goodput.dev/models": 2}
    assert writes_in_last_steady_minutes(audit, [1050.0, 1101.0, 1200.0], 1000.0, 1290.0) is None
