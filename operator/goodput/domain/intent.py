"""What a user wants, in SI units: the part of Model and SLO that decisions read."""

from __future__ import annotations

from enum import StrEnum

from goodput.domain.architecture import Architecture
from goodput.domain.change import Quality
from goodput.domain.conditions import ConditionReason, ConditionType
from goodput.domain.identity import Key
from goodput.domain.speculation import Speculation
from goodput.domain.values import Value


class ScalingMode(StrEnum):
    AUTO = "Auto"
    ADVISE = "Advise"


class RoutingMode(StrEnum):
    ROUTER = "Router"
    NONE = "None"


class Objective(Value, frozen=True, kw_only=True):
    """What "good" means: a request is good if it meets every bound that is set.

    `attainment` is the share of requests (0..1) that must be good; below `min_requests` in the window it is unknown.
    `batch`: nobody waits for a request, and `e2e_seconds` is its deadline.
    """

    ttft_seconds: float | None
    tpot_seconds: float | None
    e2e_seconds: float | None
    attainment: float = 0.95
    min_requests: int = 20
    batch: bool = False


class Problem(Value, frozen=True, kw_only=True):
    """Something about a Model that a user must mend (or know), found while reading objects, not while deciding."""

    type: ConditionType
    reason: ConditionReason
    message: str
    # A fatal problem leaves what runs as it is and plans nothing new.
    fatal: bool = True


class Carrier(Value, frozen=True):
    """How nodes carry a GPU type: the extended resource of their device plugin, and labels that all of them have."""

    resource_name: str
    node_selector: tuple[tuple[str, str], ...]


class Purchase(Value, frozen=True, kw_only=True):
    """A GPU that was bought: `price` is written off evenly; `power_price_per_kwh` None: energy is not counted."""

    price: float
    amortisation_seconds: float
    power_price_per_kwh: float | None = None


class GpuType(Value, frozen=True, kw_only=True):
    """One kind of accelerator, or one MIG profile of it.

    `memory_bytes` is what CUDA reports; `flops` are dense FLOP/s by precision (`bf16` is the rate of fp16 on parts that
    have no bf16). `resource_name` and `node_selector` are what pods are rendered with; `alternatives` are other labels
    by which nodes carry the same type. `price_per_hour` is None if nobody knows it; `price_assumed` marks a built-in,
    dated price. `scale_up_bytes_per_second` is what one GPU sends to its `scale_up_gpus` - 1 neighbours, in one
    direction (NVLink and its like, else PCIe).
    """

    name: str
    resource_name: str
    node_selector: tuple[tuple[str, str], ...]
    alternatives: tuple[Carrier, ...] = ()
    tolerations: tuple[str, ...] = ()  # each a JSON object, as Kubernetes writes it
    memory_bytes: float
    memory_bandwidth_bytes_per_second: float
    flops: tuple[tuple[str, float], ...]
    gpus_per_node: int
    scale_up_bytes_per_second: float | None = None
    scale_up_gpus: int = 1
    tdp_watts: float | None = None
    price_per_hour: float | None
    price_assumed: bool = False
    price_source: str = ""  # whose list it is, and of which day
    spot_price_per_hour: float | None = None
    spot_price_assumed: bool = False
    spot_price_source: str = ""
    purchase: Purchase | None = None
    limit: int | None = None
    builtin: bool = False
    slice_of: str = ""  # of a MIG profile: the type of the whole card
    slice_share: float = 1.0  # of the card's price and power
    marketing_memory_bytes: float | None = None  # "80 GB"
    unconfirmed: tuple[str, ...] = ()  # which of these figures nobody confirmed

    @property
    def linked_gpus(self) -> int:
        """GPUs that reach each other without a network: those of a node, or of the rack that their links join."""
        return max(self.gpus_per_node, self.scale_up_gpus)

    @property
    def carriers(self) -> tuple[Carrier, ...]:
        """Every way by which nodes carry it, that of rendered pods first."""
        return (Carrier(self.resource_name, self.node_selector), *self.alternatives)


class Precision(Value, frozen=True, kw_only=True):
    """Precision that a user asks for; None: as the checkpoint has it."""

    weights: str | None = None  # fp8
    kv_cache: str | None = None  # bf16, fp8


AS_STORED = Precision()


class Workload(Value, frozen=True, kw_only=True):
    """The load that a user expects; None: not said. Variations are standard deviations over means.

    `output_tokens` are all that are generated, `reasoning_tokens` those of them that come before anything visible.
    """

    requests_per_second: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    input_variation: float | None = None
    output_variation: float | None = None
    reasoning_tokens: float = 0.0


UNSAID = Workload()


class ModelIntent(Value, frozen=True, kw_only=True):
    """One Model as decisions see it; `objective` is None while its SLO was never seen."""

    key: Key
    uid: str
    generation: int
    model: str
    served_name: str
    slo: Key
    objective: Objective | None
    architecture: Architecture | None
    priority: int = 0  # of its SLO: the higher one wins when GPUs are short
    gpu_types: tuple[str, ...] = ()  # allowed; empty: any that exists
    tolerations: tuple[str, ...] = ()  # of its template, each a JSON object, as Kubernetes writes it
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    precision: Precision = AS_STORED
    workload: Workload = UNSAID
    speculation: Speculation | None = None
    min_replicas: int = 1
    max_replicas: int | None = None
    max_cost_per_hour: float | None = None
    mode: ScalingMode = ScalingMode.AUTO
    routing: RoutingMode = RoutingMode.ROUTER
    admission: bool = True
    paused: bool = False
    # Checkpoint, precision and speculation; fingerprints of all that a canary is made from, and of what judges it.
    quality: Quality = ()
    asked: str = ""
    judge: str = ""
    check_seconds: int | None = None  # a check may take so long; None: there is no spec.qualityCheck
    problems: tuple[Problem, ...] = ()
