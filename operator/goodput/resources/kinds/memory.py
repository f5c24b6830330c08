"""The ConfigMap in which the loop remembers one Model."""

from __future__ import annotations

from goodput.domain.intent import ModelIntent
from goodput.resources import meta, names
from goodput.resources.inputs import KubeObject

MEMORY_ENTRY = "memory.json"


def memory_config_map(intent: ModelIntent, text: str) -> KubeObject:
    """`text` is the encoded memory; it is written with decisions and not at every tick, so not by `render_model`."""
    config_map = meta.new_object("v1", "ConfigMap", names.memory(intent.key.name), intent)
    config_map["data"] = {MEMORY_ENTRY: text}
    return config_map
