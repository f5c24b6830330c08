"""Errors of the Kubernetes API, by how a caller reacts.

KubeError
  NotFound         404: the object (or the whole kind) is not there
  Conflict         409: somebody else was first; read again and decide anew
  Expired          410: the resource version is too old; list again
  Refused          any other 4xx: will not work until something changes; the message is the server's
    SchemaOutdated an apply names a field that the CRD does not declare: the CRDs are older than the operator
  Unavailable      429, 5xx, no connection or no time left, after retries: try again later
"""

from __future__ import annotations

from typing import Any

from goodput.domain.errors import GoodputError


class KubeError(GoodputError):
    """Base of errors of the Kubernetes API; `status` is the HTTP status (0: there was no answer)."""

    def __init__(self, message: str, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class NotFound(KubeError):
    """The object or its kind does not exist."""


class Conflict(KubeError):
    """The object changed since it was read, or exists already."""


class Expired(KubeError):
    """The resource version is no longer in the server's history."""


class Refused(KubeError):
    """The server understood and said no."""


class SchemaOutdated(Refused):
    """The CRD lacks a field that this operator writes: upgrade the CRDs."""


class Unavailable(KubeError):
    """The server did not answer, or asked to come back later; `retry_after_seconds` if it said when."""

    def __init__(self, message: str, status: int = 0, reason: str = "", retry_after_seconds: float = 0.0) -> None:
        super().__init__(message, status, reason)
        self.retry_after_seconds = retry_after_seconds


def error_of(status: int, body: Any, what: str, retry_after_seconds: float = 0.0) -> KubeError:
    """Map an HTTP answer to an error; `body` is the decoded Status object, or anything."""
    told = body if isinstance(body, dict) else {}
    reason = str(told.get("reason") or "")
    message = f"{what}: {told.get('message') or f'HTTP {status}'}"
    # The server answers an apply with an undeclared field as an internal error, which no retry will mend.
    if status == 500 and "field not declared in schema" in message:
        return SchemaOutdated(message, status, reason)
    if status == 404:
        return NotFound(message, status, reason)
    if status == 409:
        return Conflict(message, status, reason)
    if status == 410:
        return Expired(message, status, reason)
    if status == 429 or status >= 500:
        return Unavailable(message, status, reason, retry_after_seconds)
    return Refused(message, status, reason)
