"""What a user wants, in SI units: the part of Model and SLO that decisions read."""

from __future__ import annotations

from enum import StrEnum

from goodput.domain.architecture import Architecture
from goodput.domain.conditions import ConditionReason, ConditionType
from goodput.domain.identity import Key
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
    """

    ttft_seconds: float | None
    tpot_seconds: float | None
    e2e_seconds: float | None
    attainment: float = 0.95
    min_requests: int = 20


class Problem(Value, frozen=True, kw_only=True):
    """Something about a Model that a user must mend (or know), found while reading objects, not while deciding."""

    type: ConditionType
    reason: ConditionReason
    message: str
    # A fatal problem leaves what runs as it is and plans nothing new.
    fatal: bool = True


class GpuType(Value, frozen=True, kw_only=True):
    """One kind of accelerator. `memory_bytes` is what CUDA reports; `flops` are dense FLOP/s by precision.

    `price_per_hour` is None if nobody knows it; `price_assumed` marks a built-in, dated price.
    """

    name: str
    resource_name: str
    node_selector: tuple[tuple[str, str], ...]
    tolerations: tuple[str, ...] = ()  # each a JSON object, as Kubernetes writes it
    memory_bytes: float
    memory_bandwidth_bytes_per_second: float
    flops: tuple[tuple[str, float], ...]
    gpus_per_node: int
    price_per_hour: float | None
    price_assumed: bool = False
    limit: int | None = None
    builtin: bool = False


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
    gpu_types: tuple[str, ...] = ()  # allowed; empty: any that exists
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    min_replicas: int = 1
    max_replicas: int | None = None
    max_cost_per_hour: float | None = None
    mode: ScalingMode = ScalingMode.AUTO
    routing: RoutingMode = RoutingMode.ROUTER
    admission: bool = True
    paused: bool = False
    problems: tuple[Problem, ...] = ()
