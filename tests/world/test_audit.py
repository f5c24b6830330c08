"""Counting writes from the API server's audit log."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from goodput_world.audit import AuditLog, parse

START = datetime(2026, 1, 1, tzinfo=UTC)
OPERATOR = "system:serviceaccount:goodput-system:goodput"


def event(second: float = 0, **changes: Any) -> dict[str, Any]:
    """One line of the log: by default the operator patches a Deployment, and the server accepts."""
    at = (START + timedelta(seconds=second)).isoformat().replace("+00:00", "Z")
    return {
        "kind": "Event",
        "level": "Metadata",
        "stage": "ResponseComplete",
        "requestURI": "/apis/apps/v1/namespaces/a/deployments/m-serve?fieldManager=goodput&force=true",
        "verb": "patch",
        "user": {"username": OPERATOR},
        "userAgent": "goodput/0.1.0",
        "objectRef": {"resource": "deployments", "namespace": "a", "name": "m-serve", "apiGroup": "apps"},
        "responseStatus": {"code": 200},
        "requestReceivedTimestamp": at,
        "stageTimestamp": at,
    } | changes


def log_of(path: Path, *events: dict[str, Any]) -> AuditLog:
    """A log file with these lines."""
    path.write_text("".join(json.dumps(each) + "\n" for each in events))
    return AuditLog(path)


def span(seconds: float) -> tuple[datetime, datetime]:
    """From the start for so many seconds."""
    return START, START + timedelta(seconds=seconds)


def test_writes_are_counted_by_user_verb_and_resource(tmp_path: Path) -> None:
    """Groups and sub-resources are part of the name: a status write is told from a write of the object."""
    model = {"resource": "models", "apiGroup": "goodput.dev", "namespace": "a", "name": "m", "subresource": "status"}
    log = log_of(tmp_path / "audit.log", event(1), event(2), event(3, objectRef=model))
    assert log.counts(*span(10)) == {
        (OPERATOR, "patch", "apps/deployments"): 2,
        (OPERATOR, "patch", "goodput.dev/models/status"): 1,
    }


def test_the_interval_is_half_open(tmp_path: Path) -> None:
    """Two adjoining intervals count each write once."""
    log = log_of(tmp_path / "audit.log", event(0), event(5), event(10))
    first = list(log.writes(START, START + timedelta(seconds=5)))
    second = list(log.writes(START + timedelta(seconds=5), START + timedelta(seconds=10)))
    assert ([write.at.second for write in first], [write.at.second for write in second]) == ([0], [5])


def test_leases_and_given_users_are_left_out(tmp_path: Path) -> None:
    """A renewed Lease is no write in a steady state; the simulated kubelets are not under test."""
    lease = event(1, objectRef={"resource": "leases", "apiGroup": "coordination.k8s.io", "name": "goodput"})
    kubelet = event(2, user={"username": "goodput-world:agent"})
    log = log_of(tmp_path / "audit.log", lease, kubelet)
    assert log.counts(*span(10), exclude_users={"goodput-world:agent"}) == {}
    assert log.counts(*span(10), exclude_users={"goodput-world:agent"}, exclude_resources=()) == {
        (OPERATOR, "patch", "coordination.k8s.io/leases"): 1
    }


def test_a_refused_write_changed_nothing_but_can_be_asked_for(tmp_path: Path) -> None:
    """A conflict is not a write; a test that looks for forbidden attempts sees them with `failed`."""
    log = log_of(tmp_path / "audit.log", event(1, responseStatus={"code": 403}))
    assert log.counts(*span(10)) == {}
    (refused,) = log.writes(*span(10), failed=True)
    assert (refused.status, refused.succeeded) == (403, False)


def test_only_some_users(tmp_path: Path) -> None:
    """`users` answers what one of them did."""
    log = log_of(tmp_path / "audit.log", event(1), event(2, user={"username": "admin"}))
    assert log.counts(*span(10), users={"admin"}) == {("admin", "patch", "apps/deployments"): 1}


def test_requests_that_store_nothing_are_no_writes() -> None:
    """Dry runs, access reviews and token requests are sent as writes, but the cluster is the same afterwards."""
    dry_run = event(requestURI="/api/v1/namespaces/a/configmaps?dryRun=All")
    review = event(objectRef={"resource": "subjectaccessreviews", "apiGroup": "authorization.k8s.io"})
    token = event(objectRef={"resource": "serviceaccounts", "name": "m", "subresource": "token"})
    early = event(stage="RequestReceived")
    assert [parse(json.dumps(each)) for each in (dry_run, review, token, early)] == [None] * 4


def test_a_line_that_is_still_being_written_is_read_later(tmp_path: Path) -> None:
    """The log is read while the server writes it: half a line is neither an error nor lost."""
    path = tmp_path / "audit.log"
    log = log_of(path, event(1))
    line = json.dumps(event(2)) + "\n"
    with path.open("a") as file:
        file.write(line[:40])
    assert sum(log.counts(*span(10)).values()) == 1
    with path.open("a") as file:
        file.write(line[40:])
    assert sum(log.counts(*span(10)).values()) == 2


def test_no_log_is_no_writes(tmp_path: Path) -> None:
    """Before the API server has written anything there is no file."""
    assert AuditLog(tmp_path / "none.log").counts(*span(10)) == {}
