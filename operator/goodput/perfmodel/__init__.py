"""What one replica can do: memory, step time and capacity. Numbers only: no I/O but the package's own data."""

from goodput.perfmodel.capacity import Capacity, Wall, capacity, latency
from goodput.perfmodel.catalogue import architecture, model_ids
from goodput.perfmodel.config import architecture_from_config
from goodput.perfmodel.gpus import built_in_gpu_types
from goodput.perfmodel.lengths import Lengths
from goodput.perfmodel.memory import KvPool, engine_defaults, fit
from goodput.perfmodel.queueing import Latency
from goodput.perfmodel.replica import Shape

__all__ = [
    "Capacity",
    "KvPool",
    "Latency",
    "Lengths",
    "Shape",
    "Wall",
    "architecture",
    "architecture_from_config",
    "built_in_gpu_types",
    "capacity",
    "engine_defaults",
    "fit",
    "latency",
    "model_ids",
]
