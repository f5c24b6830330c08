"""Everything that is known of the cluster, in memory: our own objects as kopf delivers them, the rest by reflectors.

Handlers and reflectors only write here and mark Models dirty; the fleet loop only reads.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from goodput.adapters.records import DeploymentRecord, OwnedObject, OwnPod, PodRecord
from goodput.adapters.reflector import key_of, version_of
from goodput.api import SLO, GPUType, Model
from goodput.api.base import ApiObject
from goodput.domain.errors import InvalidObject
from goodput.domain.identity import Key

log = logging.getLogger(__name__)

T = TypeVar("T", bound=ApiObject)


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


class Kept(Generic[T]):
    """All objects of one of our kinds. A deleted one can be kept while something still depends on it."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._entries: dict[Key, Entry[T]] = {}
        self.last_activity = time.monotonic()
        self.synced = False

    def put(self, raw: Mapping[str, Any]) -> bool:
        """Take an object; False if a newer or equal one is known already."""
        manifest = dict(raw)
        key, version = key_of(manifest), version_of(manifest)
        self.last_activity = time.monotonic()
        before = self._entries.get(key)
        if before is not None and not before.deleted and before.version >= version:
            return False
        value: T | None
        error: InvalidObject | None = None
        try:
            value = self._kind.parse(manifest)
        except InvalidObject as problem:
            # Serve on by what was last valid, as long as it is the same object.
            same = before is not None and before.uid == manifest["metadata"]["uid"]
            value, error = (before.value if before is not None and same else None), problem
        metadata = manifest["metadata"]
        self._entries[key] = Entry(key, metadata["uid"], version, int(metadata.get("generation") or 0), value, error)
        return True

    def remove(self, key: Key, *, keep_last: bool = False) -> None:
        """Take note of a deletion; with `keep_last` the last value stays, marked as deleted."""
        self.last_activity = time.monotonic()
        entry = self._entries.pop(key, None)
        if entry is not None and keep_last and entry.value is not None:
            self._entries[key] = Entry(
                key, entry.uid, entry.version, entry.generation, entry.value, entry.error, deleted=True
            )

    def restore(self, key: Key, value: T) -> None:
        """Bring back the last value seen of an object that is gone (from a ConfigMap, after a restart)."""
        if key not in self._entries:
            self._entries[key] = Entry(key, "", 0, 0, value, deleted=True)

    def replace_all(self, manifests: list[dict[str, Any]], *, keep_last: bool = False) -> bool:
        """Compare with a fresh list; True if something differed."""
        present = {key_of(manifest) for manifest in manifests}
        changed = False
        for manifest in manifests:
            changed |= self.put(manifest)
        for key in [key for key, entry in self._entries.items() if key not in present and not entry.deleted]:
            self.remove(key, keep_last=keep_last)
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
        return [key for key, entry in self._entries.items() if entry.deleted]

    def __len__(self) -> int:
        return sum(1 for _ in self.entries())


class World:
    """Stores and indexes; `dirty` wakes the fleet loop."""

    def __init__(self) -> None:
        self.models: Kept[Model] = Kept(Model)
        self.slos: Kept[SLO] = Kept(SLO)
        self.gpu_types: Kept[GPUType] = Kept(GPUType)
        self.dirty = asyncio.Event()
        self._pods: dict[Key, dict[Key, OwnPod]] = defaultdict(dict)
        # node -> resource -> GPUs requested by pods that have not ended
        self._used: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        # uid of a Model -> (plural, key) of the objects that it owns
        self._owned: dict[str, set[tuple[str, Key]]] = defaultdict(set)

    def pods_of(self, model: Key) -> list[OwnPod]:
        """All pods that carry this Model's label, sorted by name."""
        return sorted(self._pods.get(model, {}).values(), key=lambda pod: pod.key)

    def used_on(self, node: str) -> Mapping[str, int]:
        """GPUs requested on a node, by resource."""
        return self._used.get(node, {})

    def owned_by(self, uid: str) -> frozenset[tuple[str, Key]]:
        """Objects whose controller is this Model."""
        return frozenset(self._owned.get(uid, ()))

    def pod_changed(self, key: Key, before: PodRecord | None, after: PodRecord | None) -> None:
        """A pod appeared, changed or went (called by its reflector)."""
        for record, sign in ((before, -1), (after, 1)):
            if record is not None and record.node and record.gpus:
                used = self._used[record.node]
                for name, count in record.gpus:
                    used[name] += sign * count
        if isinstance(before, OwnPod):
            model = Key(key.namespace, before.model)
            self._pods[model].pop(key, None)
            if not self._pods[model]:
                del self._pods[model]
        if isinstance(after, OwnPod):
            self._pods[Key(key.namespace, after.model)][key] = after
        if (isinstance(before, OwnPod) or isinstance(after, OwnPod)) and _matters(before, after):
            self.dirty.set()

    def owned_changed(self, plural: str, key: Key, before: OwnedObject | None, after: OwnedObject | None) -> None:
        """An object that carries our label appeared, changed or went (called by its reflector)."""
        if before is not None:
            self._owned[before.owner_uid].discard((plural, key))
            if not self._owned[before.owner_uid]:
                del self._owned[before.owner_uid]
        if after is not None:
            self._owned[after.owner_uid].add((plural, key))
        if before is None or after is None or _differs(before, after):
            self.dirty.set()

    def touched(self, *_: object) -> None:
        """Something else changed that a decision may depend on."""
        self.dirty.set()


def _matters(before: PodRecord | None, after: PodRecord | None) -> bool:
    if not isinstance(before, OwnPod) or not isinstance(after, OwnPod):
        return True
    return (before.state, before.trouble, before.node, before.restarts, before.revision) != (
        after.state,
        after.trouble,
        after.node,
        after.restarts,
        after.revision,
    )


def _differs(before: OwnedObject, after: OwnedObject) -> bool:
    if isinstance(before, DeploymentRecord) and isinstance(after, DeploymentRecord):
        return (before.content, before.rolling_out, before.ready_replicas, before.total_replicas) != (
            after.content,
            after.rolling_out,
            after.ready_replicas,
            after.total_replicas,
        )
    return before.content != after.content
