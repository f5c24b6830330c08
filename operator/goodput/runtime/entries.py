"""Objects of our own kinds as they were last read: the value, and what is wrong with it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from goodput.adapters.objects import key_of, version_of
from goodput.api.base import ApiObject
from goodput.domain.errors import InvalidObject
from goodput.domain.identity import Key

T = TypeVar("T", bound=ApiObject)

# Deletions of so many names are remembered. Only what is still on its way from before them matters.
DELETIONS_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """One object of ours: the last valid reading of it, and what is wrong with the present one."""

    key: Key
    uid: str
    version: int
    generation: int
    value: T | None
    error: InvalidObject | None = None
    deleted: bool = False
    # Its spec as it stands, where it was never valid.
    unread: Mapping[str, Any] = field(default_factory=dict, compare=False)


class Kept(Generic[T]):
    """All objects of one of our kinds. An object that is being deleted counts as gone.

    Events of objects of one name may come in any order when it was deleted and made again: kopf orders those of one uid
    only, and a list may be older than either. What is older than a deletion is not believed.

    With `keep_last` the last value of one that is gone stays, marked as deleted: something may depend on it.
    """

    def __init__(self, kind: type[T], *, keep_last: bool = False) -> None:
        self._kind = kind
        self._keep_last = keep_last
        self._entries: dict[Key, Entry[T]] = {}
        # Version of the last deletion seen, the latest seen last.
        self._deletions: dict[Key, int] = {}
        self.last_activity = time.monotonic()
        self.synced = False

    def put(self, raw: Mapping[str, Any]) -> bool:
        """Take an object; False if a newer or equal one is known already, or that it was deleted since."""
        manifest = dict(raw)
        key, version = key_of(manifest), version_of(manifest)
        self.last_activity = time.monotonic()
        before = self._entries.get(key)
        if before is not None and not before.deleted and before.version >= version:
            return False
        if version <= self._deletions.get(key, -1):
            return False
        if manifest["metadata"].get("deletionTimestamp"):
            # Whoever deletes it waits for its children to go: nothing may bring them back.
            self._note_deletion(key, version)
            self._drop(key)
            return before is not None and not before.deleted
        value: T | None
        error: InvalidObject | None = None
        try:
            value = self._kind.parse(manifest)
        except InvalidObject as problem:
            # Serve on by what was last valid, as long as it is the same object.
            same = before is not None and before.uid == manifest["metadata"]["uid"]
            value, error = (before.value if before is not None and same else None), problem
        metadata, unread = manifest["metadata"], {} if value is not None else manifest.get("spec") or {}
        generation = int(metadata.get("generation") or 0)
        self._entries[key] = Entry(key, metadata["uid"], version, generation, value, error, unread=unread)
        return True

    def remove(self, key: Key, uid: str, version: int = 0) -> bool:
        """Take note of the deletion of one object (at this version, if known); False if it is not the one kept."""
        self.last_activity = time.monotonic()
        self._note_deletion(key, version)
        entry = self._entries.get(key)
        if entry is None or entry.deleted or entry.uid != uid:
            return False
        self._drop(key)
        return True

    def _note_deletion(self, key: Key, version: int) -> None:
        latest = max(version, self._deletions.pop(key, 0))
        if latest:
            self._deletions[key] = latest
        if len(self._deletions) > DELETIONS_REMEMBERED:
            del self._deletions[next(iter(self._deletions))]

    def _drop(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None and self._keep_last and entry.value is not None:
            self._entries[key] = replace(entry, deleted=True)

    def replace_all(self, manifests: list[dict[str, Any]], version: str) -> bool:
        """Compare with a list of this resource version; True if something differed."""
        present = {key_of(manifest) for manifest in manifests}
        changed = False
        for manifest in manifests:
            changed |= self.put(manifest)
        for key, entry in list(self._entries.items()):
            # A list from before an object says nothing of it: its event may have come while the list was read.
            if key not in present and not entry.deleted and entry.version <= int(version or 0):
                self._drop(key)
                changed = True
        self.synced = True
        return changed

    def get(self, key: Key) -> Entry[T] | None:
        return self._entries.get(key)

    def entries(self) -> Iterator[Entry[T]]:
        """Present objects, sorted by key."""
        for key in sorted(self._entries):
            entry = self._entries[key]
            if not entry.deleted:
                yield entry

    def forget_deleted(self, key: Key) -> None:
        """Drop the last value of a deleted object that nothing depends on any more."""
        entry = self._entries.get(key)
        if entry is not None and entry.deleted:
            del self._entries[key]

    def deleted_keys(self) -> list[Key]:
        """Objects that are gone and whose last value is kept."""
        return [key for key, entry in self._entries.items() if entry.deleted]

    def __len__(self) -> int:
        return sum(1 for _ in self.entries())
