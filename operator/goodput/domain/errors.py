"""Errors that callers treat differently.

GoodputError
  InvalidObject        a user's object is wrong: becomes a condition, never retried until the object changes
  Unread               what a user's object refers to cannot be read, or not yet: becomes a condition, tried again
  ModelDoesNotFit      no replica of this shape holds the model: becomes `Placed=False`
  TelemetryUnavailable telemetry could not be read: the tick holds
"""

from __future__ import annotations

from goodput.domain.conditions import ConditionReason


class GoodputError(Exception):
    """Base of all errors that Goodput raises on purpose."""


class InvalidObject(GoodputError):
    """A user's object has a wrong value at `field`; `message` says what to do about it."""

    def __init__(self, field: str, message: str, reason: ConditionReason = ConditionReason.INVALID_SPEC) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message
        self.reason = reason


class Unread(GoodputError):
    """Nothing is known of what a user's object refers to, not even that it is absent; the message says why."""


class ModelDoesNotFit(GoodputError):
    """Weights, activations and one request exceed the memory; `part` names what is too large."""

    def __init__(self, part: str, message: str) -> None:
        super().__init__(message)
        self.part = part


class TelemetryUnavailable(GoodputError):
    """Prometheus did not answer, or not in time."""
