"""Everything that is known of the cluster, in memory: our own objects as kopf delivers them, the rest by reflectors.

Handlers and reflectors only write here and mark Models dirty; the fleet loop only reads.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from goodput.adapters.records import DeploymentRecord, JobRecord, OwnedObject, OwnPod, PodRecord
from goodput.api import SLO, GPUType, Model
from goodput.domain.identity import Key
from goodput.runtime.entries import Entry, Kept


@dataclass(frozen=True, slots=True)
class Remembered:
    """The last SLO of the Model of this uid."""

    uid: str
    slo: SLO


class World:
    """Stores and indexes; `dirty` wakes the fleet loop."""

    def __init__(self) -> None:
        self.models: Kept[Model] = Kept(Model)
        # What uses an SLO or a GPUType that goes serves on by the last one seen.
        self.slos: Kept[SLO] = Kept(SLO, keep_last=True)
        self.gpu_types: Kept[GPUType] = Kept(GPUType, keep_last=True)
        # By Model: the SLO that its own memory tells of, where there is none of that name (any more), or none that can
        # be read. For that Model alone: whoever may write in its namespace may have written the memory.
        self.remembered_slos: dict[Key, Remembered] = {}
        self.dirty = asyncio.Event()
        self._pods: dict[Key, dict[Key, OwnPod]] = defaultdict(dict)
        # node -> resource -> GPUs requested by pods that have not ended
        self._used: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        # uid of a Model -> (plural, key) of the objects that it owns
        self._owned: dict[str, set[tuple[str, Key]]] = defaultdict(set)
        # uid of a Model -> number of the last change of one of those, counted over all Models
        self._changes: dict[str, int] = {}
        self._last_change = 0
        self._sorted_pods: dict[Key, tuple[OwnPod, ...]] = {}

    def pods_of(self, model: Key) -> tuple[OwnPod, ...]:
        """All pods that carry this Model's label, sorted by name; the same object as long as none of them changes."""
        found = self._sorted_pods.get(model)
        if found is None:
            found = tuple(sorted(self._pods.get(model, {}).values(), key=lambda pod: pod.key))
            if found:
                self._sorted_pods[model] = found
        return found

    def slo_of(self, model: Key, slo: Key) -> Entry[SLO] | None:
        """The SLO that a Model names, or what was last seen, or valid, of it."""
        found = self.slos.get(slo)
        remembered = self.remembered_slos.get(model)
        if remembered is None or slo_key(remembered.slo) != slo or (found is not None and found.value is not None):
            return found
        if found is not None:
            return replace(found, value=remembered.slo)
        return Entry(slo, "", 0, 0, remembered.slo, deleted=True)

    def used_on(self, node: str) -> Mapping[str, int]:
        """GPUs requested on a node, by resource."""
        return self._used.get(node, {})

    def owned_by(self, uid: str) -> frozenset[tuple[str, Key]]:
        """Objects whose controller is this Model."""
        return frozenset(self._owned.get(uid, ()))

    def changes_of(self, uid: str) -> int:
        """A number that is another one each time that an object of this Model was seen to appear, change or go."""
        return self._changes.get(uid, 0)

    def pod_changed(self, key: Key, before: PodRecord | None, after: PodRecord | None) -> None:
        """A pod appeared, changed or went (called by its reflector)."""
        for record, sign in ((before, -1), (after, 1)):
            if record is not None and record.node and record.gpus:
                used = self._used[record.node]
                for name, count in record.gpus:
                    used[name] += sign * count
        if isinstance(before, OwnPod):
            model = Key(key.namespace, before.model)
            self._sorted_pods.pop(model, None)
            self._pods[model].pop(key, None)
            if not self._pods[model]:
                del self._pods[model]
        if isinstance(after, OwnPod):
            model = Key(key.namespace, after.model)
            self._sorted_pods.pop(model, None)
            self._pods[model][key] = after
        if (isinstance(before, OwnPod) or isinstance(after, OwnPod)) and _matters(before, after):
            self.dirty.set()

    def owned_changed(self, plural: str, key: Key, before: OwnedObject | None, after: OwnedObject | None) -> None:
        """An object that carries our label appeared, changed or went (called by its reflector)."""
        self._last_change += 1
        for record in (before, after):
            if record is not None:
                self._changes[record.owner_uid] = self._last_change
        if before is not None:
            self._owned[before.owner_uid].discard((plural, key))
        if after is not None:
            self._owned[after.owner_uid].add((plural, key))
        if before is not None and not self._owned[before.owner_uid]:
            del self._owned[before.owner_uid]
            del self._changes[before.owner_uid]
        if before is None or after is None or _differs(before, after):
            self.dirty.set()

    def touched(self, *_: object) -> None:
        """Something else changed that a decision may depend on."""
        self.dirty.set()


def slo_key(slo: SLO) -> Key:
    """Namespace and name of an SLO."""
    return Key(slo.metadata.namespace, slo.metadata.name)


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
        return _progress(before) != _progress(after)
    if isinstance(before, JobRecord) and isinstance(after, JobRecord) and before.ended != after.ended:
        return True
    return before.content != after.content


def _progress(record: DeploymentRecord) -> tuple[object, ...]:
    return (
        record.content,
        record.rolling_out,
        record.ready_replicas,
        record.total_replicas,
        record.pods_refused,
    )
