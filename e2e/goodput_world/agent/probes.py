"""Probe counting and restart back-off: pure state machines with the rules of the kubelet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

BACKOFF_RESET_SECONDS = 600.0
"""A container that ran this long starts its back-off anew (the kubelet: twice the longest back-off)."""


@dataclass(frozen=True, slots=True)
class ProbeSpec:
    """A probe with the API's defaults filled in. All times in seconds."""

    action: Mapping[str, Any]
    initial_delay_seconds: float
    period_seconds: float
    timeout_seconds: float
    success_threshold: int
    failure_threshold: int
    termination_grace_seconds: float | None


def parse_probe(raw: Mapping[str, Any] | None) -> ProbeSpec | None:
    """A probe of a container spec, None when there is none."""
    if not raw:
        return None
    return ProbeSpec(
        action=raw,
        initial_delay_seconds=raw.get("initialDelaySeconds") or 0,
        period_seconds=raw.get("periodSeconds") or 10,
        timeout_seconds=raw.get("timeoutSeconds") or 1,
        success_threshold=raw.get("successThreshold") or 1,
        failure_threshold=raw.get("failureThreshold") or 3,
        termination_grace_seconds=raw.get("terminationGracePeriodSeconds"),
    )


@dataclass(slots=True)
class ProbeCounter:
    """Counts equal results in a row; the result changes only when a threshold is reached.

    `result` starts as the kubelet's initial value: False for readiness and startup, True for liveness.
    """

    success_threshold: int
    failure_threshold: int
    result: bool
    _last: bool | None = None
    _run: int = 0

    def record(self, success: bool) -> bool | None:
        """Count one outcome. Returns the result that is now confirmed by its threshold, None while it is not."""
        self._run = self._run + 1 if success == self._last else 1
        self._last = success
        if self._run < (self.success_threshold if success else self.failure_threshold):
            return None
        self.result = success
        return success


@dataclass(slots=True)
class RestartBackoff:
    """CrashLoopBackOff: the first restart is at once, then `base` seconds after the exit, doubling up to `limit`."""

    base_seconds: float
    limit_seconds: float
    _next: float = 0.0

    def delay_after(self, ran_seconds: float) -> float:
        """Seconds to wait after an exit of a container that ran so long."""
        if ran_seconds >= BACKOFF_RESET_SECONDS:
            self._next = 0.0
        delay = self._next
        self._next = min(max(self._next * 2, self.base_seconds), self.limit_seconds)
        return delay


def should_restart(policy: str, exit_code: int) -> bool:
    """Whether a container that ended is started again under the pod's restart policy."""
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)
