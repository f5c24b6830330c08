"""Which nodes carry which GPU type, and by which labels: GFD's, a cloud's, or a user's own.

Pods are rendered with one set of labels. Of those by which nodes really carry a type, the set on most GPUs is taken;
where two are equal, that of the node provisioner, which can make nodes for it. A set that also fits nodes that must not
be used (GPUs shared in time, or partitioned) is not taken: a nodeSelector cannot say "but not those".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from goodput.domain.intent import Carrier, GpuType
from goodput.perfmodel.cost import priced

if TYPE_CHECKING:
    from goodput.adapters.records import NodeRecord

GFD_PRODUCT = "nvidia.com/gpu.product"
GKE_ACCELERATOR = "cloud.google.com/gke-accelerator"
GKE_PARTITION = "cloud.google.com/gke-gpu-partition-size"
GKE_SHARING = "cloud.google.com/gke-gpu-sharing-strategy"
# Labels whose owner makes nodes that pods ask for.
PROVISIONERS = ("karpenter.k8s.aws/", "cloud.google.com/")
# Labels of nodes that their cloud takes back at any time, at a lower price.
SPOT_LABELS = (
    ("karpenter.sh/capacity-type", "spot"),
    ("cloud.google.com/gke-spot", "true"),
    ("cloud.google.com/gke-provisioning", "spot"),
    ("eks.amazonaws.com/capacityType", "SPOT"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
)
_MIB = 1024.0 * 1024.0
_SHOWN = 3  # of kinds of nodes that no type counts
# Labels that name what a node's accelerators are, for those that no type names.
_TELLING = (GFD_PRODUCT, "amd.com/gpu.product-name", "amd.com/gpu.device-id", GKE_ACCELERATOR)


@dataclass(frozen=True, slots=True)
class Carried:
    """GPU types with the labels and the price that count in this cluster, and the nodes of each.

    `notes` says by type what its author should know; `strangers` what accelerators there are that no type counts.
    """

    types: tuple[GpuType, ...]
    nodes: Mapping[str, tuple[NodeRecord, ...]]
    notes: Mapping[str, str]
    strangers: str


@dataclass(frozen=True, slots=True)
class _Group:
    """Nodes that are alike in every label that matters here, and in the kinds of their accelerators."""

    labels: Mapping[str, str]
    resources: frozenset[str]
    nodes: list[NodeRecord] = field(default_factory=list)

    def fits(self, carrier: Carrier) -> bool:
        return (
            bool(carrier.node_selector)
            and carrier.resource_name in self.resources
            and all(self.labels.get(key) == value for key, value in carrier.node_selector)
        )

    def gpus(self, resource: str) -> int:
        return sum(dict(node.gpus).get(resource, 0) for node in self.nodes)

    @property
    def spot(self) -> bool:
        return is_spot(self.labels)


def is_spot(labels: Mapping[str, str]) -> bool:
    """Whether nodes with these labels can be taken back at any time, at a lower price."""
    return any(labels.get(key) == value for key, value in SPOT_LABELS)


def shared_in_time(labels: Mapping[str, str], resource: str) -> bool:
    """Whether one unit of `resource` is not a device of its own, but a turn on one (time slicing, or MPS).

    GFD appends -SHARED to the product and counts replicas; GKE names its strategy.
    """
    replicas = labels.get(f"{resource}.replicas", "")
    return (
        labels.get(f"{resource}.product", "").endswith("-SHARED")
        or (replicas.isdecimal() and int(replicas) > 1)
        or labels.get(f"{resource}.sharing-strategy", "none") not in ("", "none")
        or GKE_SHARING in labels
    )


def _partitioned(labels: Mapping[str, str]) -> bool:
    """Whether nvidia.com/gpu counts MIG instances here (strategy `single`, and GKE's partitions)."""
    return "-MIG-" in labels.get(GFD_PRODUCT, "") or GKE_PARTITION in labels


def _means_whole_cards(carrier: Carrier) -> bool:
    """Whether its labels are built in and name a card. Of a user's own labels their author knows what they mean."""
    selector = dict(carrier.node_selector)
    return (
        carrier.resource_name == "nvidia.com/gpu"
        and GKE_PARTITION not in selector
        and "-MIG-" not in selector.get(GFD_PRODUCT, "")
        and all(key == GFD_PRODUCT or key.startswith(PROVISIONERS) for key in selector)
    )


def _misused(carrier: Carrier, group: _Group) -> str:
    """Why pods must not go to these nodes although the labels fit; '' if they may."""
    if shared_in_time(group.labels, carrier.resource_name):
        return "share their GPUs between pods (time slicing isolates nothing: no objective holds)"
    if _means_whole_cards(carrier) and _partitioned(group.labels):
        return "are partitioned"
    return ""


def carried(types: Iterable[GpuType], nodes: Iterable[NodeRecord]) -> Carried:
    """Every type as this cluster has it; pure, and a function of nodes as sets (their order does not matter)."""
    types, nodes = tuple(types), tuple(nodes)
    groups = _groups(types, nodes)
    provisioners = tuple(
        owner for owner in PROVISIONERS if any(key.startswith(owner) for node in nodes for key in node.labels)
    )
    found: list[GpuType] = []
    on: dict[str, tuple[NodeRecord, ...]] = {}
    notes: dict[str, str] = {}
    counted: set[tuple[int, str]] = set()
    refused: dict[tuple[int, str], str] = {}
    for gpu in types:
        usable, why = _usable(gpu, groups, refused)
        ranked = _ranked(gpu, usable, provisioners)
        taken = usable.get(ranked[0], [])
        first, others = ranked[0], ranked[1:]
        resolved = replace(
            gpu, resource_name=first.resource_name, node_selector=first.node_selector, alternatives=others
        )
        for carrier, those in usable.items():
            counted |= {(id(group), carrier.resource_name) for group in those}
        resolved, note = _believe_labels(resolved, taken)
        note = note or _elsewhere(first, usable)
        ready = [group for group in taken if any(node.ready for node in group.nodes)]
        spot = all(group.spot for group in ready) if ready else is_spot(dict(first.node_selector))
        found.append(priced(resolved, spot=spot))
        on[gpu.name] = tuple(node for group in taken for node in group.nodes)
        if note or (why and not taken):
            notes[gpu.name] = note or why
    return Carried(tuple(found), on, notes, "; ".join(_strangers(types, groups, counted, refused)))


def _groups(types: tuple[GpuType, ...], nodes: tuple[NodeRecord, ...]) -> list[_Group]:
    resources = {name for node in nodes for name, count in node.gpus if count}
    keys = {key for gpu in types for carrier in gpu.carriers for key, _ in carrier.node_selector}
    keys |= {key for key, _ in SPOT_LABELS} | {GKE_PARTITION, GKE_SHARING, *_TELLING}
    keys |= {f"{name}.{part}" for name in resources for part in ("product", "replicas", "sharing-strategy", "memory")}
    ordered = sorted(keys)
    groups: dict[tuple[object, ...], _Group] = {}
    for node in sorted(nodes, key=lambda node: node.name):
        names = frozenset(name for name, count in node.gpus if count)
        if not names:
            continue
        values = tuple([node.labels.get(key) for key in ordered])
        group = groups.get((names, values))
        if group is None:
            labels = {key: value for key, value in zip(ordered, values, strict=True) if value is not None}
            group = groups[names, values] = _Group(labels, names)
        group.nodes.append(node)
    return list(groups.values())


def _usable(
    gpu: GpuType, groups: list[_Group], refused: dict[tuple[int, str], str]
) -> tuple[dict[Carrier, list[_Group]], str]:
    """Ways by which nodes carry the type, with those nodes; and why nodes that fit are not used."""
    usable: dict[Carrier, list[_Group]] = {}
    why = ""
    for carrier in gpu.carriers:
        fitting = [group for group in groups if group.fits(carrier)]
        misused = [(group, reason) for group in fitting if (reason := _misused(carrier, group))]
        for group, reason in misused:
            if shared_in_time(group.labels, carrier.resource_name):
                refused[id(group), carrier.resource_name] = reason
            why = f"nodes that its labels fit {reason}"
        if fitting and not misused:
            usable[carrier] = fitting
    return usable, why


def _ranked(gpu: GpuType, usable: Mapping[Carrier, list[_Group]], provisioners: tuple[str, ...]) -> tuple[Carrier, ...]:
    """Ways to ask for the type, best first: those that nodes carry, or all while none does."""

    def makes_nodes(carrier: Carrier) -> bool:
        return any(key.startswith(provisioners) for key, _ in carrier.node_selector) if provisioners else False

    def rank(carrier: Carrier) -> tuple[int, bool]:
        gpus = sum(group.gpus(carrier.resource_name) for group in usable.get(carrier, ()))
        return -gpus, not makes_nodes(carrier)

    return tuple(sorted(usable or gpu.carriers, key=rank))


def _believe_labels(gpu: GpuType, groups: list[_Group]) -> tuple[GpuType, str]:
    """The type with the memory that its nodes report where that is less; an engine that plans with more fails."""
    label = f"{gpu.resource_name}.memory"
    told = [group.labels[label] for group in groups if group.labels.get(label, "").isdecimal()]
    least = min((int(text) for text in told), default=0)
    if not 0 < least * _MIB < gpu.memory_bytes:
        return gpu, ""
    note = f"label {label} of its nodes says {least} MiB, less than {gpu.memory_bytes / _MIB:.0f} MiB: the label counts"
    return replace(gpu, memory_bytes=least * _MIB), note


def _elsewhere(first: Carrier, usable: Mapping[Carrier, list[_Group]]) -> str:
    """Nodes that carry the type by other labels than those that pods ask for, in words."""
    taken = {id(group) for group in usable.get(first, ())}
    left = {id(group): group for those in usable.values() for group in those if id(group) not in taken}
    count = sum(len(group.nodes) for group in left.values())
    asked = ",".join(f"{key}={value}" for key, value in first.node_selector)
    return f"{count} more nodes carry it by other labels; pods ask for {asked}" if count else ""


def _strangers(
    types: tuple[GpuType, ...],
    groups: list[_Group],
    counted: set[tuple[int, str]],
    refused: Mapping[tuple[int, str], str],
) -> Iterator[str]:
    """Accelerators that no type counts, most nodes first."""
    known = {carrier.resource_name for gpu in types for carrier in gpu.carriers}
    tally: dict[tuple[str, str], int] = {}
    for group in groups:
        for resource in sorted(group.resources):
            key = id(group), resource
            if key in counted or not (resource in known or resource.startswith(("nvidia.com/", "amd.com/"))):
                continue
            told = [f"{label}={group.labels[label]}" for label in _TELLING if label in group.labels]
            what = f"{resource} ({', '.join(told)})" if told else f"{resource} and no label that tells their kind"
            if key in refused or shared_in_time(group.labels, resource) or resource.endswith(".shared"):
                reason = "shared between pods, and time slicing isolates nothing: not used"
            else:
                reason = "which no GPU type names: write a GPUType for them"
            tally[what, reason] = tally.get((what, reason), 0) + len(group.nodes)
    ordered = sorted(tally.items(), key=lambda item: (-item[1], item[0]))
    for (what, reason), count in ordered[:_SHOWN]:
        yield f"{count} node{'s have' if count > 1 else ' has'} {what}, {reason}"
    if len(ordered) > _SHOWN:
        yield f"and {len(ordered) - _SHOWN} more kinds of nodes"
