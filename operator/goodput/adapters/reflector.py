"""Keeps slim records of all objects of one resource in memory: a list, then a watch, for ever.

`keep` turns an object into a record (or None: not of interest) and runs for every event, so it must be cheap; the
object itself is dropped. A relist is compared with the store, so that an object whose deletion was missed goes as
well. A relist also happens every `relist_seconds`, in case events were lost on the way.

What this process just wrote may be put into the store before its event arrives (`assume`); older events do not undo it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from goodput.adapters.kinds import Resource
from goodput.adapters.kube import KubeApi
from goodput.adapters.kube_errors import Expired, KubeError, NotFound
from goodput.adapters.objects import Object, key_of, version_of
from goodput.domain.identity import Key

log = logging.getLogger(__name__)

RELIST_SECONDS = 900.0
FIRST_BACKOFF_SECONDS = 0.5
LAST_BACKOFF_SECONDS = 15.0
RECONNECT_SECONDS = 0.1
# Yield to other tasks after so many events of one burst: about 15 ms.
EVENTS_BETWEEN_YIELDS = 200


class Record(Protocol):
    """What a store holds: `version` is the numeric resourceVersion of the object."""

    @property
    def version(self) -> int: ...


R = TypeVar("R", bound=Record)


class Reflector(Generic[R]):
    """Store and watcher of one resource; `changed(key, before, after)` is called in the event loop on each change."""

    def __init__(
        self,
        api: KubeApi,
        resource: Resource,
        keep: Callable[[Object], R | None],
        *,
        changed: Callable[[Key, R | None, R | None], None] | None = None,
        namespaces: tuple[str, ...] = (),
        label_selector: str = "",
        optional: bool = False,
        relist_seconds: float = RELIST_SECONDS,
    ) -> None:
        self.resource = resource
        self._api = api
        self._keep = keep
        self._changed = changed
        self._namespaces: tuple[str | None, ...] = namespaces or (None,)
        self._selector = label_selector
        self._optional = optional
        self._relist_seconds = relist_seconds
        self._store: dict[Key, R] = {}
        self._listed: set[str | None] = set()
        self.last_activity = time.monotonic()
        self.absent = False  # the kind does not exist in this cluster (only if optional)
        self.problem = ""  # why it cannot read now
        self.events = 0

    @property
    def synced(self) -> bool:
        """Whether every namespace was listed once."""
        return self.absent or len(self._listed) == len(self._namespaces)

    def get(self, key: Key) -> R | None:
        return self._store.get(key)

    def values(self) -> Iterator[R]:
        return iter(self._store.values())

    def items(self) -> Iterator[tuple[Key, R]]:
        return iter(self._store.items())

    def __len__(self) -> int:
        return len(self._store)

    def assume(self, manifest: Object) -> None:
        """Take what the API server answered to our own write, ahead of its event."""
        self._take(manifest)

    def forget(self, key: Key) -> None:
        """Take note of our own deletion, ahead of its event."""
        self._put(key, None)

    async def run(self) -> None:
        """Reflect until cancelled."""
        await asyncio.gather(*(self._reflect(namespace) for namespace in self._namespaces))

    async def _reflect(self, namespace: str | None) -> None:
        backoff = FIRST_BACKOFF_SECONDS
        while True:
            try:
                version = await self._list(namespace)
                self.absent = False
                self.problem = ""
                backoff = FIRST_BACKOFF_SECONDS
                await self._watch(namespace, version)
            except Expired:
                log.info("history of %s is gone, listing again", self.resource.plural)
                await asyncio.sleep(RECONNECT_SECONDS)
            except NotFound as error:
                self._note(error, absent=self._optional)
                # An optional kind may be installed later.
                await asyncio.sleep(60.0 if self._optional else backoff)
                backoff = min(LAST_BACKOFF_SECONDS, 2 * backoff)
            except KubeError as error:
                self._note(error)
                await asyncio.sleep(backoff * random.uniform(0.5, 1.0))
                backoff = min(LAST_BACKOFF_SECONDS, 2 * backoff)

    def _note(self, error: KubeError, *, absent: bool = False) -> None:
        self.absent = absent
        self.problem = "" if absent else str(error)
        if not absent:
            log.warning("cannot read %s: %s", self.resource.plural, error)

    async def _list(self, namespace: str | None) -> str:
        present: set[Key] = set()
        version = ""
        known = {key for key in self._store if namespace is None or key.namespace == namespace}
        async for items, version in self._api.pages(self.resource, namespace, self._selector):  # noqa: B007
            for item in items:
                present.add(self._take(item))
            self.last_activity = time.monotonic()
            await asyncio.sleep(0)
        for ghost in known - present:
            # It may have gone between two pages, by a deletion of our own. A list from before an object says nothing of
            # it (a lagging server, or a write of our own meanwhile).
            record = self._store.get(ghost)
            if record is not None and record.version <= int(version or 0):
                self._put(ghost, None)
        self._listed.add(namespace)
        return version

    async def _watch(self, namespace: str | None, version: str) -> None:
        relist_at = time.monotonic() + self._relist_seconds * random.uniform(0.9, 1.1)
        failures = 0
        while time.monotonic() < relist_at:
            try:
                async with asyncio.timeout(relist_at - time.monotonic()):
                    async for event in self._api.watch(self.resource, namespace, version, self._selector):
                        version = event["object"]["metadata"]["resourceVersion"]
                        self._handle(event)
                        self.problem = ""
                        failures = 0
                        if self.events % EVENTS_BETWEEN_YIELDS == 0:
                            await asyncio.sleep(0)
            except TimeoutError:
                return
            except (Expired, NotFound):
                raise
            except KubeError as error:
                # The stream broke: go on from the last version seen, which costs the server no list.
                failures += 1
                self.problem = str(error)
                pause = min(LAST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2 ** min(failures, 8))
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            else:
                # The server ends a watch now and then. One that it ends at once must not become a storm.
                self.last_activity = time.monotonic()
                await asyncio.sleep(RECONNECT_SECONDS)

    def _handle(self, event: dict[str, Any]) -> None:
        self.events += 1
        self.last_activity = time.monotonic()
        kind = event["type"]
        if kind in ("ADDED", "MODIFIED"):
            self._take(event["object"])
        elif kind == "DELETED":
            key = key_of(event["object"])
            before = self._store.get(key)
            # A new object of the same name may be known already from our own write.
            if before is not None and before.version <= version_of(event["object"]):
                self._put(key, None)

    def _take(self, manifest: Object) -> Key:
        key = key_of(manifest)
        before = self._store.get(key)
        if before is not None and before.version >= version_of(manifest):
            return key
        try:
            after = self._keep(manifest)
        except Exception:
            # One object that nobody foresaw must not stop all others from being seen.
            log.exception("%s %s cannot be read", self.resource.kind, key)
            after = None
        self._put(key, after)
        return key

    def _put(self, key: Key, after: R | None) -> None:
        before = self._store.get(key)
        if after is None:
            self._store.pop(key, None)
        else:
            self._store[key] = after
        if self._changed is not None and (before is not None or after is not None):
            self._changed(key, before, after)
