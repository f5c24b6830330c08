"""GPU types of the cluster, and how many GPUs of each there are, used and free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import orjson
from msgspec.structs import replace

from goodput.adapters.records import NodeRecord
from goodput.api import GPUType
from goodput.domain.intent import GpuType
from goodput.domain.observed import GpuSupply
from goodput.runtime.entries import Entry

DEFAULT_RESOURCE = "nvidia.com/gpu"
DEFAULT_GPUS_PER_NODE = 8


def gpu_types_of(built_in: Iterable[GpuType], objects: Iterable[Entry[GPUType]]) -> tuple[GpuType, ...]:
    """Built-in types, overridden and completed by GPUType objects; sorted by name.

    An object that describes no complete type (see `incomplete`) is left out.
    """
    types = {gpu.name: gpu for gpu in built_in}
    for entry in objects:
        if entry.value is not None and not incomplete(entry.value, entry.key.name in types):
            types[entry.key.name] = _merged(entry.value, types.get(entry.key.name))
    return tuple(types[name] for name in sorted(types))


def incomplete(gpu_type: GPUType, built_in: bool) -> str:
    """Which fields a type of one's own lacks ('' if none)."""
    spec = gpu_type.spec
    needed = {
        "spec.nodeSelector": spec.node_selector,
        "spec.memory": spec.memory,
        "spec.memoryBandwidth": spec.memory_bandwidth,
        "spec.flops.bf16": spec.flops.bf16 if spec.flops else None,
    }
    return "" if built_in else ", ".join(field for field, value in needed.items() if not value)


def fault_of(entry: Entry[GPUType], built_in: bool) -> str:
    """Why what its object says now does not count, by field ('' if it does)."""
    if entry.error is not None or entry.value is None:
        return str(entry.error or "")
    lacking = incomplete(entry.value, built_in)
    return f"{lacking}: needed for a type that is not built in" if lacking else ""


def _merged(gpu_type: GPUType, base: GpuType | None) -> GpuType:
    spec = gpu_type.spec
    if base is None:
        base = GpuType(
            name=gpu_type.metadata.name,
            resource_name=DEFAULT_RESOURCE,
            node_selector=(),
            memory_bytes=0.0,
            memory_bandwidth_bytes_per_second=0.0,
            flops=(),
            gpus_per_node=DEFAULT_GPUS_PER_NODE,
            price_per_hour=None,
        )
    flops = dict(base.flops) | (spec.flops.by_precision() if spec.flops else {})
    return replace(
        base,
        resource_name=spec.resource_name or base.resource_name,
        node_selector=tuple(sorted(spec.node_selector.items())) if spec.node_selector else base.node_selector,
        tolerations=tuple(
            orjson.dumps(toleration.to_dict(), option=orjson.OPT_SORT_KEYS).decode() for toleration in spec.tolerations
        ),
        memory_bytes=spec.memory_bytes if spec.memory_bytes is not None else base.memory_bytes,
        memory_bandwidth_bytes_per_second=(
            spec.memory_bandwidth_bytes_per_second
            if spec.memory_bandwidth_bytes_per_second is not None
            else base.memory_bandwidth_bytes_per_second
        ),
        flops=tuple(sorted(flops.items())),
        gpus_per_node=spec.gpus_per_node or base.gpus_per_node,
        price_per_hour=spec.price if spec.price is not None else base.price_per_hour,
        price_assumed=base.price_assumed if spec.price is None else False,
        limit=spec.limit,
        builtin=False,
    )


def supply_of(
    types: Iterable[GpuType], nodes: Iterable[NodeRecord], used_on: Mapping[str, Mapping[str, int]]
) -> tuple[GpuSupply, ...]:
    """GPUs of each type that some node carries or that has a limit; sorted by type."""
    nodes = [node for node in nodes if node.gpus]
    found = []
    for gpu in types:
        selector = dict(gpu.node_selector)
        carriers = [node for node in nodes if selector and selector.items() <= node.labels.items()]
        counted = installed = used = 0
        for node in carriers:
            there = dict(node.gpus).get(gpu.resource_name, 0)
            if not there:
                continue
            taken = used_on.get(node.name, {}).get(gpu.resource_name, 0)
            if node.ready and not node.cordoned:
                counted += 1
                installed += there
                used += min(taken, there)
        if counted or gpu.limit is not None or carriers:
            found.append(GpuSupply(type=gpu.name, nodes=counted, installed=installed, used=used, limit=gpu.limit))
    return tuple(found)
