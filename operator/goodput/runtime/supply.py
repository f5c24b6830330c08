"""GPU types of the cluster, and how many GPUs of each there are, used and free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import orjson
from msgspec.structs import replace

from goodput.api import GPUType
from goodput.api.gputype import GPUTypeSpec
from goodput.api.podspec import Toleration
from goodput.domain.intent import Carrier, GpuType
from goodput.domain.taints import Taints, toleration_of, untolerated
from goodput.perfmodel.cost import priced
from goodput.perfmodel.gpus import gpu_type as built_in_type
from goodput.runtime.carriers import Carried, is_spot
from goodput.runtime.entries import Entry

if TYPE_CHECKING:
    from goodput.domain.observed import GpuSupply

DEFAULT_RESOURCE = "nvidia.com/gpu"
DEFAULT_GPUS_PER_NODE = 8


def gpu_types_of(built_in: Iterable[GpuType], objects: Iterable[Entry[GPUType]]) -> tuple[GpuType, ...]:
    """Built-in types, overridden and completed by GPUType objects; sorted by name.

    An object that describes no complete type (see `incomplete`) is left out. A MIG profile without an object of its own
    costs its share of its card. The price is that of a purchase, else of spot where the labels ask for spot nodes.
    """
    types = {gpu.name: gpu for gpu in built_in}
    ours: set[str] = set()
    for entry in objects:
        if entry.value is not None and not incomplete(entry.value, entry.key.name in types):
            types[entry.key.name] = _merged(entry.value, types.get(entry.key.name))
            ours.add(entry.key.name)
    for name, gpu in types.items():
        if gpu.slice_of in ours and name not in ours:
            types[name] = _as_its_card(gpu, types[gpu.slice_of])
    return tuple(priced(types[name], spot=is_spot(dict(types[name].node_selector))) for name in sorted(types))


def tolerations_json(tolerations: Iterable[Toleration]) -> tuple[str, ...]:
    """Tolerations as decisions hold them."""
    return tuple(orjson.dumps(each.to_dict(), option=orjson.OPT_SORT_KEYS).decode() for each in tolerations)


def incomplete(gpu_type: GPUType, built_in: bool) -> str:
    """Which fields a type of one's own lacks ('' if none)."""
    spec = gpu_type.spec
    needed: dict[str, object] = {}
    if not built_in:
        needed = {
            "spec.nodeSelector": spec.node_selector,
            "spec.memory": spec.memory,
            "spec.memoryBandwidth": spec.memory_bandwidth,
            "spec.flops.bf16": spec.flops.bf16 if spec.flops else None,
        }
    if spec.bought is not None and spec.bought.power_price_per_kwh is not None:
        base = built_in_type(gpu_type.metadata.name)
        needed["spec.tdpWatts"] = spec.tdp_watts or (base.tdp_watts if base is not None else None)
    return ", ".join(field for field, value in needed.items() if not value)


def fault_of(entry: Entry[GPUType], built_in: bool) -> str:
    """Why what its object says now does not count, by field ('' if it does)."""
    if entry.error is not None or entry.value is None:
        return str(entry.error or "")
    lacking = incomplete(entry.value, built_in)
    if lacking == "spec.tdpWatts":
        return f"{lacking}: needed where spec.purchase.powerPricePerKWh is set, no figure is built in"
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
    resource = spec.resource_name or base.resource_name
    selector, others = base.node_selector, base.alternatives
    if spec.node_selector:
        selector, others = tuple(sorted(spec.node_selector.items())), ()
    elif spec.resource_name:
        others = tuple(Carrier(resource, way.node_selector) for way in others)
    flops = dict(base.flops) | (spec.flops.by_precision() if spec.flops else {})
    return replace(
        _with_prices(spec, base),
        resource_name=resource,
        node_selector=selector,
        alternatives=others,
        tolerations=tolerations_json(spec.tolerations),
        memory_bytes=spec.memory_bytes if spec.memory_bytes is not None else base.memory_bytes,
        memory_bandwidth_bytes_per_second=(
            spec.memory_bandwidth_bytes_per_second
            if spec.memory_bandwidth_bytes_per_second is not None
            else base.memory_bandwidth_bytes_per_second
        ),
        flops=tuple(sorted(flops.items())),
        gpus_per_node=spec.gpus_per_node or base.gpus_per_node,
        scale_up_bytes_per_second=spec.scale_up_bytes_per_second or base.scale_up_bytes_per_second,
        tdp_watts=float(spec.tdp_watts) if spec.tdp_watts is not None else base.tdp_watts,
        limit=spec.limit,
        builtin=False,
    )


def _with_prices(spec: GPUTypeSpec, base: GpuType) -> GpuType:
    """`base` with what its author says that it costs: a price of theirs leaves no room for an assumed one."""
    changed = replace(base, purchase=spec.bought)
    if spec.price is not None:
        changed = replace(changed, price_per_hour=spec.price, price_assumed=False, price_source="spec.pricePerHour")
    if spec.spot_price is not None:
        return replace(
            changed,
            spot_price_per_hour=spec.spot_price,
            spot_price_assumed=False,
            spot_price_source="spec.spotPricePerHour",
        )
    if spec.price is not None:
        return replace(changed, spot_price_per_hour=None, spot_price_assumed=False, spot_price_source="")
    return changed


def _as_its_card(profile: GpuType, card: GpuType) -> GpuType:
    """A MIG profile with its share of what the card costs by the GPUType of the card."""

    def part(price: float | None) -> float | None:
        return None if price is None else price * profile.slice_share

    bought = card.purchase
    return replace(
        profile,
        price_per_hour=part(card.price_per_hour),
        price_assumed=card.price_assumed,
        price_source=card.price_source,
        spot_price_per_hour=part(card.spot_price_per_hour),
        spot_price_assumed=card.spot_price_assumed,
        spot_price_source=card.spot_price_source,
        purchase=None if bought is None else replace(bought, price=bought.price * profile.slice_share),
    )


def supply_of(fleet: Carried, used_on: Mapping[str, Mapping[str, int]]) -> tuple[GpuSupply, ...]:
    """GPUs of each type that some node carries or that has a limit; in the order of types.

    `used_on` is what pods hold, by node and resource.
    """
    # Offline there is no supply: the command line starts without what observing needs.
    from goodput.domain.observed import GpuSupply, Tainted

    found = []
    for gpu in fleet.types:
        carriers, note = fleet.nodes[gpu.name], fleet.notes.get(gpu.name, "")
        # Nodes, GPUs and those in use, by the taints that pods of the type do not tolerate anyway.
        rows: dict[Taints, list[int]] = {}
        tolerated = (toleration_of(gpu.resource_name), *gpu.tolerations)
        for node in carriers:
            if node.ready and not node.cordoned:
                there = dict(node.gpus)[gpu.resource_name]
                held = min(used_on.get(node.name, {}).get(gpu.resource_name, 0), there)
                row = rows.setdefault(untolerated(node.taints, tolerated) if node.taints else (), [0, 0, 0])
                for index, count in enumerate((1, there, held)):
                    row[index] += count
        if carriers or note or gpu.limit is not None:
            nodes, installed, used = (sum(counts) for counts in zip([0, 0, 0], *rows.values(), strict=True))
            tainted = tuple(
                Tainted(taints=taints, nodes=row[0], installed=row[1], used=row[2])
                for taints, row in sorted(rows.items(), key=lambda item: [str(taint) for taint in item[0]])
                if taints
            )
            found.append(
                GpuSupply(
                    type=gpu.name,
                    nodes=nodes,
                    installed=installed,
                    used=used,
                    limit=gpu.limit,
                    note=note,
                    tainted=tainted,
                )
            )
    return tuple(found)
