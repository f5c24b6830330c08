"""GPU types that are built in: accelerators as device plugins count them, and MIG profiles as types of their own.

The figures are those of data/gpus.json (see data/ATTRIBUTION.md), which scripts/catalogue-gpus writes. Memory is what
CUDA reports, FLOP/s are dense, prices are dated list prices and marked as assumed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any

from goodput.domain.intent import Carrier, GpuType

_MIB = 1024.0 * 1024.0
_GB = 1e9
_COMPUTE_SLICES = 7


@cache
def built_in_gpu_types() -> tuple[GpuType, ...]:
    """Every built-in GPU type, sorted by name."""
    text = files("goodput.perfmodel").joinpath("data", "gpus.json").read_text(encoding="utf-8")
    return tuple(sorted((_gpu_type(row) for row in json.loads(text)), key=lambda gpu: gpu.name))


@cache
def gpu_type(name: str) -> GpuType | None:
    """The built-in type of that name, None where there is none."""
    return next((gpu for gpu in built_in_gpu_types() if gpu.name == name), None)


def whole_cards(types: Iterable[GpuType]) -> tuple[GpuType, ...]:
    """`types` without MIG profiles: what can be bought or rented, before somebody partitions it."""
    return tuple(gpu for gpu in types if not gpu.slice_of)


def slices_per_card(gpu: GpuType, card: GpuType) -> int:
    """How many instances of a MIG profile one card holds: a card has seven slices of compute and eight of memory.

    A profile such as `2g.10gb` takes two of compute; bandwidth goes with the slices of memory.
    """
    compute = int(gpu.name.removeprefix(f"{card.name}-").partition("g.")[0])
    memory = card.memory_bandwidth_bytes_per_second / gpu.memory_bandwidth_bytes_per_second
    return min(_COMPUTE_SLICES // compute, round(memory))


def beyond_links(gpu: GpuType, ranks: int) -> str:
    """Why nothing is known of so many ranks that exchange what each layer computed ('' where they are near enough)."""
    if ranks <= gpu.linked_gpus:
        return ""
    near = f"{gpu.linked_gpus} GPU{'' if gpu.linked_gpus == 1 else 's'}"
    where = f"of a node of {gpu.name}" if gpu.linked_gpus == gpu.gpus_per_node else f"that links of {gpu.name} join"
    return f"{ranks} ranks are more than the {near} {where}: how fast a network is, is not known"


def _gpu_type(row: dict[str, Any]) -> GpuType:
    carriers = tuple(Carrier(item["resource"], tuple(sorted(item["labels"].items()))) for item in row["carriers"])
    return GpuType(
        name=row["name"],
        resource_name=carriers[0].resource_name if carriers else row["resource"],
        node_selector=carriers[0].node_selector if carriers else (),
        alternatives=carriers[1:],
        memory_bytes=row["memory_mib"] * _MIB,
        memory_bandwidth_bytes_per_second=row["bandwidth"],
        flops=tuple(sorted((name, float(value)) for name, value in row["flops"].items())),
        gpus_per_node=row["gpus_per_node"],
        scale_up_bytes_per_second=row["scale_up"],
        scale_up_gpus=row["scale_up_gpus"],
        tdp_watts=row["tdp_watts"],
        price_per_hour=row["price"],
        price_assumed=row["price"] is not None,
        price_source=row["price_source"] or "",
        spot_price_per_hour=row["spot_price"],
        spot_price_assumed=row["spot_price"] is not None,
        spot_price_source=row["spot_source"] or "",
        builtin=True,
        slice_of=row.get("slice_of", ""),
        slice_share=row.get("slice_share", 1.0),
        marketing_memory_bytes=row["memory_gb"] * _GB,
        unconfirmed=tuple(row["unconfirmed"]),
    )
