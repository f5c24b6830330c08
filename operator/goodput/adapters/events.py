"""Kubernetes events of our own: one Event object per (object, reason, message) and window, counted as a series.

Equal events within the window only count; the count is written when it doubles, so that a repeating event costs a
handful of writes and not one each.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from goodput.adapters.kinds import EVENTS
from goodput.adapters.kube import KubeApi
from goodput.adapters.kube_errors import Conflict, KubeError, NotFound
from goodput.adapters.objects import Object

log = logging.getLogger(__name__)

WINDOW_SECONDS = 600.0
MAX_NOTE_BYTES = 1000
MAX_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Subject:
    """The object that an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(slots=True)
class _Series:
    name: str
    first_at: float
    count: int = 1
    written: int = 1


class EventRecorder:
    """Writes events; a failure to write one is logged and otherwise ignored.

    Who does not lead writes none: the leader tells of what it sees, and a process that was frozen speaks of the past.
    """

    def __init__(
        self,
        api: KubeApi,
        instance: str,
        clock: Callable[[], float] = time.time,
        leading: Callable[[], bool] = lambda: True,
    ) -> None:
        self._api = api
        self._instance = instance
        self._clock = clock
        self._leading = leading
        self._series: dict[tuple[str, str, str], _Series] = {}

    async def record(self, subject: Subject, *, reason: str, action: str, note: str, warning: bool = False) -> None:
        """Tell about `subject`: `reason` is one CamelCase word for why, `action` one for what was done."""
        if not self._leading():
            log.info("event %s of %s/%s not written: no longer the leader", reason, subject.namespace, subject.name)
            return
        now = self._clock()
        note = _cut(note)
        identity = (subject.uid, reason, note)
        series = self._series.get(identity)
        try:
            if series is None or now - series.first_at > WINDOW_SECONDS:
                series = _Series(_name(subject, reason, note, now), now)
                self._remember(identity, series, now)
                await self._create(subject, series, reason=reason, action=action, note=note, warning=warning)
                return
            series.count += 1
            if series.count >= 2 * series.written:
                series.written = series.count
                await self._count(subject, series)
        except Conflict:
            pass  # written before a restart: one Event of this name is enough
        except KubeError as error:
            log.warning("event %s of %s/%s not written: %s", reason, subject.namespace, subject.name, error)

    def _remember(self, identity: tuple[str, str, str], series: _Series, now: float) -> None:
        if len(self._series) >= MAX_REMEMBERED:
            old = [key for key, value in self._series.items() if now - value.first_at > WINDOW_SECONDS]
            for key in old or list(self._series)[: MAX_REMEMBERED // 2]:
                del self._series[key]
        self._series[identity] = series

    async def _create(
        self, subject: Subject, series: _Series, *, reason: str, action: str, note: str, warning: bool
    ) -> None:
        regarding = {
            "apiVersion": subject.api_version,
            "kind": subject.kind,
            "name": subject.name,
            "namespace": subject.namespace,
            "uid": subject.uid,
        }
        manifest: Object = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": series.name, "namespace": subject.namespace or "default"},
            "eventTime": _micro_time(series.first_at),
            "reportingController": "goodput.dev/operator",
            "reportingInstance": self._instance[:128],
            "action": action,
            "reason": reason,
            "regarding": {key: value for key, value in regarding.items() if value},
            "note": note,
            "type": "Warning" if warning else "Normal",
        }
        await self._api.create(EVENTS, manifest)

    async def _count(self, subject: Subject, series: _Series) -> None:
        patch = {"series": {"count": series.count, "lastObservedTime": _micro_time(self._clock())}}
        try:
            await self._api.merge(EVENTS, subject.namespace or "default", series.name, patch)
        except NotFound:
            series.first_at = float("-inf")  # expired on the server: the next one is created anew


def _name(subject: Subject, reason: str, note: str, now: float) -> str:
    window = int(now // WINDOW_SECONDS)
    text = f"{subject.uid}|{reason}|{note}|{window}"
    return f"{subject.name[:200]}.{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _cut(note: str) -> str:
    content = note.encode()
    if len(content) <= MAX_NOTE_BYTES:
        return note
    return content[: MAX_NOTE_BYTES - 3].decode("utf-8", "ignore") + "..."


def _micro_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
