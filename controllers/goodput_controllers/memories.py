"""What the loop remembers of each Model: in this process, and in one ConfigMap per Model between processes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from goodput.adapters.kinds import CONFIG_MAPS
from goodput.api import SLO
from goodput.api.base import Metadata
from goodput.decide import memory_codec
from goodput.domain.change import NO_CHANGE, ChangeMark
from goodput.domain.identity import Key
from goodput.domain.intent import ModelIntent
from goodput.domain.memory import LoopMemory
from goodput.resources import names
from goodput.resources.inputs import KubeObject
from goodput.resources.kinds.memory import MEMORY_ENTRY, memory_config_map
from goodput.runtime.entries import Entry
from goodput_controllers.cluster import Cluster

log = logging.getLogger(__name__)

# Written with each decision that changes something, else at most this often: a fleet at rest is silent for long, and
# what a crash loses in between is learned again.
WRITE_SECONDS = 3600.0
SLO_ENTRY = "slo.json"


@dataclass(slots=True)
class Memories:
    """Memory of all Models of this process."""

    cluster: Cluster
    _memories: dict[Key, LoopMemory] = field(default_factory=dict)
    _uids: dict[Key, str] = field(default_factory=dict)
    _written_at: dict[Key, float] = field(default_factory=dict)
    # The change that the memory of the API server tells of.
    _changes: dict[Key, ChangeMark] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget all: another leader may have written since (on taking over)."""
        self._memories.clear()
        self._uids.clear()
        self._written_at.clear()
        self._changes.clear()

    def load(self, intents: Mapping[Key, ModelIntent], now: float) -> Mapping[Key, LoopMemory]:
        """Memory of these Models; those not known yet are read from their ConfigMaps, if those can be read."""
        for known in (self._memories, self._uids, self._written_at, self._changes):
            for key in known.keys() - intents.keys():
                del known[key]
        for key, intent in intents.items():
            # A Model that was deleted and made again under its name begins anew.
            if self._uids.get(key) != intent.uid:
                self._memories.pop(key, None)
                self._changes.pop(key, None)
                self._uids[key] = intent.uid
                memory = memory_codec.loads(self._data(key, intent.uid).get(MEMORY_ENTRY, ""))
                if memory is not None:
                    self._memories[key] = memory
                    self._written_at[key] = now
                    self._changes[key] = memory.change
        return self._memories

    def last_slo(self, key: Key, uid: str) -> SLO | None:
        """The SLO that the Model used last, for when it was deleted before this process started."""
        text = self._data(key, uid).get(SLO_ENTRY)
        if not text:
            return None
        try:
            return SLO.model_validate_json(text)
        except ValueError as error:
            log.warning("the last SLO of %s cannot be read: %s", key, error)
            return None

    def put(self, key: Key, memory: LoopMemory) -> None:
        self._memories[key] = memory

    def due(self, key: Key, now: float) -> bool:
        """Whether it was not written for long, or does not tell of a change as it is."""
        if self.change_untold(key):
            return True
        return now - self._written_at.get(key, float("-inf")) >= WRITE_SECONDS

    def change(self, key: Key) -> ChangeMark:
        """How far the change of a Model is."""
        memory = self._memories.get(key)
        return memory.change if memory is not None else NO_CHANGE

    def change_untold(self, key: Key) -> bool:
        """Whether a change took a step that is not written yet."""
        return self.change(key) != self._changes.get(key, NO_CHANGE)

    def written(self, key: Key, change: ChangeMark, now: float) -> None:
        """Take note that a memory that tells of `change` was written."""
        self._written_at[key] = now
        self._changes[key] = change

    def config_map(self, intent: ModelIntent, slo: Entry[SLO] | None) -> Callable[[], KubeObject]:
        """The ConfigMap of a Model as it should be now, made only if it is needed."""
        memory = self._memories.get(intent.key)

        def make() -> KubeObject:
            manifest = memory_config_map(intent, memory_codec.dumps(memory) if memory is not None else "")
            # What an SLO says is its owner's to share.
            if slo is not None and slo.value is not None and slo.value.allows(intent.key.namespace):
                last = _as_seen_from(intent.key.namespace, slo.value)
                manifest["data"][SLO_ENTRY] = last.model_dump_json(by_alias=True, exclude_none=True, exclude_unset=True)
            return manifest

        return make

    def _data(self, key: Key, uid: str) -> dict[str, str]:
        record = self.cluster.owned[CONFIG_MAPS.plural].get(Key(key.namespace, names.memory(key.name)))
        if record is None or record.owner_uid != uid:
            return {}
        return dict(record.manifest().get("data") or {})


def _as_seen_from(namespace: str, slo: SLO) -> SLO:
    """What a Model of `namespace` needs of an SLO: not whom else it is shared with, nor what its owner notes on it."""
    return SLO(
        metadata=Metadata(name=slo.metadata.name, namespace=slo.metadata.namespace),
        spec=slo.spec.model_copy(update={"allowed_namespaces": (namespace,)}),
    )
