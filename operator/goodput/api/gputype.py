"""GPUType: what a platform team owns. Cluster-scoped; overrides the built-in catalogue entry of the same name."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from goodput.api.base import SUBDOMAIN, ApiModel, ApiObject, Int
from goodput.api.conditions import Conditions
from goodput.api.podspec import PLAIN_NAME, LabelMap, Tolerations
from goodput.api.quantities import KubeQuantity, Period, Price, parse_period_seconds, parse_price, parse_quantity
from goodput.api.rules import Rule, cel_string, matches
from goodput.domain import intent as domain

MAX_GPUTYPE_NAME = 63
GPUTypeName = Annotated[
    str,
    Field(min_length=1, max_length=MAX_GPUTYPE_NAME),
    matches(
        SUBDOMAIN,
        "the name of a GPU type is lower-case letters, digits, - and ., beginning and ending with a letter or digit",
    ),
]

_ResourceName = Annotated[
    str,
    Field(min_length=3, max_length=120),
    matches(
        f"{SUBDOMAIN}/{PLAIN_NAME}",
        "the extended resource of a device plugin, such as nvidia.com/gpu",
    ),
    Rule(
        cel="!self.endsWith('.shared')",
        message="time-sliced GPUs are refused (no isolation, no objective): use whole GPUs or MIG profiles",
        holds=lambda name: not name.endswith(".shared"),
    ),
]


def _at_least(least: str, message: str) -> Rule:
    """A quantity below `least` lacks its unit: nobody means 80 bytes, or 3,350 bytes a second."""
    return Rule(
        cel=f"!isQuantity(string(self)) || quantity(string(self)).compareTo(quantity({cel_string(least)})) >= 0",
        message=message,
        holds=lambda text: parse_quantity(text) >= parse_quantity(least),
    )


_LinkSpeed = Annotated[
    KubeQuantity, _at_least("1G", "links of GPUs carry 1G bytes per second or more: write 450G for 450 GB/s")
]
_Memory = Annotated[KubeQuantity, _at_least("2Gi", "a GPU that serves has 2Gi or more: write 79.2Gi for 79.2 GiB")]
_Bandwidth = Annotated[
    KubeQuantity, _at_least("10G", "memory of GPUs moves 10G bytes per second or more: write 3350G for 3,350 GB/s")
]
_Flops = Annotated[KubeQuantity, _at_least("1T", "GPUs compute 1T per second or more: write 989T for 989 TFLOP/s")]


class Flops(ApiModel):
    """Dense peak FLOP/s of one GPU by precision. Vendors often quote sparse figures, which are twice as high."""

    bf16: _Flops | None = None
    """Dense bf16 FLOP/s, such as `989T`; of a GPU without bf16 its fp16. Unset: the built-in figure of the type of this
    name."""
    fp8: _Flops | None = None
    """Dense fp8 FLOP/s. Unset: the built-in figure; none: the type has no fp8."""
    int8: _Flops | None = None
    """Dense int8 operations per second. Unset: the built-in figure; none: the type has no int8."""
    fp4: _Flops | None = None
    """Dense fp4 FLOP/s (nvfp4, mxfp4). Unset: the built-in figure; none: the type has no fp4."""

    def by_precision(self) -> dict[str, float]:
        """FLOP/s of the precisions that are set."""
        return {name: float(parse_quantity(text)) for name, text in self if text is not None}


class Interconnect(ApiModel):
    """What GPUs of one replica exchange their results over."""

    scale_up: _LinkSpeed
    """What one GPU sends to the others of its node, in bytes per second and one direction: `450G` for the NVLink of an
    H100, which vendors quote as 900 GB/s for both. From `100G` on it is taken for links of their own (NVLink, Infinity
    Fabric), below for PCIe, which answers later."""


class Purchase(ApiModel):
    """GPUs that were bought: an hour costs price / amortisation, plus the energy of `tdpWatts`."""

    price: Price
    """Price of one GPU with its share of the machine, such as `"30000"`, in the currency of `pricePerHour`."""
    amortisation: Period
    """Time over which the price is written off evenly, such as `4y`."""
    power_price_per_kwh: Price | None = Field(default=None, alias="powerPricePerKWh")
    """Price of one kWh, cooling included, such as `"0.15"`; the type needs a TDP. Unset: energy is not counted."""


class GPUTypeSpec(ApiModel):
    """One kind of accelerator. Every unset field is the built-in catalogue's for the type of this name; a type that the
    catalogue lacks needs `nodeSelector`, `memory`, `memoryBandwidth` and `flops.bf16`, else `Ready` is False."""

    resource_name: _ResourceName | None = None
    """Extended resource of the device plugin. Unset: the built-in one, `nvidia.com/gpu` for a type of your own. GPUs
    that pods share in turns (`nvidia.com/gpu.shared`) are refused: nothing isolates them, so no objective holds."""
    node_selector: LabelMap | None = None
    """Labels of the nodes that carry this type, such as `nvidia.com/gpu.product: NVIDIA-L40S`. Unset: the built-in
    ones, of whichever labelling the nodes have (GPU feature discovery, GKE, Karpenter, AMD, Neuron)."""
    tolerations: Tolerations = ()
    """Taints that pods on this type tolerate, beside those of the Model and one named like its resource. Unset: none
    beside those."""
    memory: _Memory | None = None
    """Memory of one GPU in bytes as CUDA reports it: an "80 GB" H100 has `79.2Gi`. Where the label `<resource>.memory`
    of its nodes says less, that counts. Unset: the built-in figure."""
    memory_bandwidth: _Bandwidth | None = None
    """Memory bandwidth of one GPU in bytes per second, such as `3350G`. Unset: the built-in figure."""
    flops: Flops | None = None
    """Dense peak FLOP/s of one GPU by precision. Unset: the built-in figures."""
    gpus_per_node: Int | None = Field(default=None, ge=1, le=256)
    """GPUs of one node: the most that one replica can use; 1 for a MIG profile, since a process sees one instance.
    Unset: the built-in figure, 8 for a type of your own."""
    interconnect: Interconnect | None = None
    """What GPUs of one replica exchange their results over. Unset: the built-in figures; of a type of your own NVLink
    of 450 GB/s is assumed, unless its name is of a family that has PCIe only."""
    price_per_hour: Price | None = None
    """Price of one GPU for one hour, such as `"6.88"`. One currency for the whole cluster. Unset: the built-in list
    price, marked as an assumption; none known: ranked by GPU count."""
    spot_price_per_hour: Price | None = None
    """Price that counts instead of `pricePerHour` while every ready node of the type is a spot node by its labels
    (`karpenter.sh/capacity-type: spot`, `cloud.google.com/gke-spot`, `eks.amazonaws.com/capacityType: SPOT`,
    `kubernetes.azure.com/scalesetpriority: spot`). For spot and other nodes side by side write two types. Unset: the
    built-in spot price, unless `pricePerHour` is set."""
    purchase: Purchase | None = None
    """What the GPUs cost that you bought. It counts before any price per hour. Unset: they are rented."""
    tdp_watts: Int | None = Field(default=None, ge=1, le=10_000)
    """Power that one GPU draws at most, in watts. Unset: the built-in figure."""
    limit: Int | None = Field(default=None, ge=0, le=1_000_000)
    """GPUs of this type that node autoscaling may bring the cluster to. Unset: what is installed."""

    @property
    def memory_bytes(self) -> float | None:
        return None if self.memory is None else float(parse_quantity(self.memory))

    @property
    def memory_bandwidth_bytes_per_second(self) -> float | None:
        return None if self.memory_bandwidth is None else float(parse_quantity(self.memory_bandwidth))

    @property
    def scale_up_bytes_per_second(self) -> float | None:
        return None if self.interconnect is None else float(parse_quantity(self.interconnect.scale_up))

    @property
    def price(self) -> float | None:
        """Currency units per GPU and hour."""
        return None if self.price_per_hour is None else parse_price(self.price_per_hour)

    @property
    def spot_price(self) -> float | None:
        """Currency units per GPU and hour on spot nodes."""
        return None if self.spot_price_per_hour is None else parse_price(self.spot_price_per_hour)

    @property
    def bought(self) -> domain.Purchase | None:
        """The purchase in numbers."""
        if self.purchase is None:
            return None
        power = self.purchase.power_price_per_kwh
        return domain.Purchase(
            price=parse_price(self.purchase.price),
            amortisation_seconds=parse_period_seconds(self.purchase.amortisation),
            power_price_per_kwh=None if power is None else parse_price(power),
        )


class GPUTypeStatus(ApiModel):
    """What Goodput found; written by the operator only."""

    observed_generation: Int | None = Field(default=None, ge=0)
    """Generation of the spec that this status speaks of."""
    nodes: Int | None = Field(default=None, ge=0)
    """Ready, schedulable nodes that carry this type."""
    installed: Int | None = Field(default=None, ge=0)
    """GPUs of this type on those nodes."""
    used: Int | None = Field(default=None, ge=0)
    """GPUs requested by any pod on those nodes, of Goodput or not."""
    free: Int | None = Field(default=None, ge=0)
    """GPUs that no pod has requested, up to `limit` where that is higher."""
    conditions: Conditions = ()
    """`Ready`: the type is completely described and nodes carry it."""


class GPUType(ApiObject):
    """A kind of GPU that the cluster has: how nodes carry it, what it can do, what it costs. Common types are built in;
    a GPUType of the same name overrides the fields it sets."""

    spec: GPUTypeSpec = Field(default_factory=GPUTypeSpec)
    """What the type is."""
    status: GPUTypeStatus | None = None
    """What Goodput found; written by the operator only."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"size(self.metadata.name) <= {MAX_GPUTYPE_NAME}",
            message=f"the name of a GPUType is at most {MAX_GPUTYPE_NAME} characters",
            holds=lambda obj: len(obj.metadata.name) <= MAX_GPUTYPE_NAME,
            path=".metadata.name",
        ),
    )
