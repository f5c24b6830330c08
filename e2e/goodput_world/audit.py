"""The API server's audit log, read as counts of writes: who changed what between two instants."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "verbs": ["create", "update", "patch", "delete", "deletecollection"]},
        {"level": "None"},
    ],
}
"""Every write with its user, verb, object and times; no bodies (Secrets stay out of the log); no reads."""

_NOT_STORED_GROUPS = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
"""Reviews are POSTed but leave nothing in the cluster."""

Key: TypeAlias = tuple[str, str, str]
"""User, verb, resource (`group/resource/subresource`, without what is empty)."""


@dataclass(frozen=True, slots=True)
class Write:
    """One write request that the API server answered."""

    at: datetime
    user: str
    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    status: int
    """HTTP status of the answer; 0 where the server gave none."""
    user_agent: str

    @property
    def succeeded(self) -> bool:
        """Whether the API server accepted it."""
        return 200 <= self.status < 300

    @property
    def kind(self) -> str:
        """`group/resource/subresource`, the empty parts left out: `apps/deployments/status`, `pods`."""
        return "/".join(part for part in (self.group, self.resource, self.subresource) if part)


def parse(line: str) -> Write | None:
    """The write that one line of the log tells of, or None if it changed nothing (dry run, review, token request)."""
    event: dict[str, Any] = json.loads(line)
    if event.get("stage") not in {"ResponseComplete", "Panic"} or "dryRun=" in event.get("requestURI", ""):
        return None
    target: dict[str, str] = event.get("objectRef") or {}
    if target.get("apiGroup", "") in _NOT_STORED_GROUPS or target.get("subresource") == "token":
        return None
    return Write(
        at=datetime.fromisoformat(event["requestReceivedTimestamp"]),
        user=event.get("user", {}).get("username", ""),
        verb=event["verb"],
        group=target.get("apiGroup", ""),
        resource=target.get("resource", ""),
        subresource=target.get("subresource", ""),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        status=int((event.get("responseStatus") or {}).get("code", 0)),
        user_agent=event.get("userAgent", ""),
    )


class AuditLog:
    """The audit log of one API server, read incrementally: each question parses only what is new since the last."""

    def __init__(self, path: Path) -> None:
        """`path` may not exist yet: then there are no writes."""
        self.path = path
        self._offset = 0
        self._writes: list[Write] = []

    def _read_new(self) -> None:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._offset)
            for raw in file:
                if not raw.endswith(b"\n"):  # the server is in the middle of this line: next time
                    break
                self._offset += len(raw)
                write = parse(raw.decode())
                if write is not None:
                    self._writes.append(write)

    def writes(
        self,
        since: datetime,
        until: datetime,
        *,
        exclude_users: Collection[str] = (),
        exclude_resources: Collection[str] = ("leases",),
        users: Collection[str] | None = None,
        failed: bool = False,
    ) -> Iterator[Write]:
        """The writes received in [since, until), both timezone-aware, in the order of the log.

        `users` keeps only these; `failed` keeps those that the API server refused, too. Leases are left out unless
        `exclude_resources` says otherwise.
        """
        self._read_new()
        for write in self._writes:
            if (
                since <= write.at < until
                and write.user not in exclude_users
                and write.resource not in exclude_resources
                and (users is None or write.user in users)
                and (failed or write.succeeded)
            ):
                yield write

    def counts(
        self,
        since: datetime,
        until: datetime,
        *,
        exclude_users: Collection[str] = (),
        exclude_resources: Collection[str] = ("leases",),
        users: Collection[str] | None = None,
        failed: bool = False,
    ) -> Counter[Key]:
        """`writes` counted by user, verb and resource."""
        found = self.writes(
            since,
            until,
            exclude_users=exclude_users,
            exclude_resources=exclude_resources,
            users=users,
            failed=failed,
        )
        return Counter((write.user, write.verb, write.kind) for write in found)
