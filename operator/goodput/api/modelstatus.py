"""Status of a Model: what people and GitOps tools read. Figures are text, rounded, and rewritten rarely."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from goodput.api.base import ApiModel, Int
from goodput.api.conditions import Conditions
from goodput.api.rules import ListOf

_Short = Annotated[str, Field(max_length=128)]
_Text = Annotated[str, Field(max_length=1024)]
_Count = Annotated[Int, Field(ge=0)]


class PoolStatus(ApiModel):
    """A group of equal replicas."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of the pool."""
    role: _Short
    """What its replicas do: `Aggregated` (prefill and decode), or `Canary` (of a change, without users)."""
    gpu_type: _Short | None = None
    """GPU type of its replicas."""
    tensor_parallel: _Count | None = None
    """GPUs that share each layer of one replica."""
    pipeline_parallel: _Count | None = None
    """Groups of layers of one replica."""
    desired: _Count
    """Replicas that Goodput decided on."""
    ready: _Count
    """Replicas that serve."""


class DemandStatus(ApiModel):
    """Load that users offer, served or not."""

    requests_per_second: _Short | None = None
    """Requests per second, mean of the last 10 minutes."""
    source: _Short | None = None
    """Where it was counted: `router`, or `engines` (a lower bound)."""
    input_tokens: _Short | None = None
    """Mean tokens of a prompt."""
    output_tokens: _Short | None = None
    """Mean tokens of an answer."""


class BoundedFigure(ApiModel):
    """A figure known between two bounds."""

    lower: _Short
    """At least this."""
    upper: _Short
    """At most this."""


class GoodputStatus(ApiModel):
    """Requests per second that meet every objective of the SLO."""

    requests_per_second: _Short
    """Middle of the bounds."""
    lower: _Short
    """At least this."""
    upper: _Short
    """At most this."""


class GpuUseStatus(ApiModel):
    """What engines make of their GPUs: means of the last 10 minutes over the replicas that serve. Arithmetic and bytes
    are those that the model needs by its structure, peaks are dense ones."""

    mfu: _Short | None = None
    """Arithmetic over its peak, of all time: what is paid for."""
    mbu: _Short | None = None
    """Bytes moved over memory bandwidth, of all time."""
    busy_mfu: _Short | None = Field(default=None, alias="busyMFU")
    """Arithmetic over its peak, of the time of engine steps alone: how close to its limit."""
    busy_mbu: _Short | None = Field(default=None, alias="busyMBU")
    """Bytes moved over memory bandwidth, of the time of engine steps alone."""
    bottleneck: _Short | None = None
    """What keeps a replica from carrying more: compute, bandwidth, launches, communication, KV capacity or queue."""


class DecisionInput(ApiModel):
    """A number that went into a decision."""

    name: _Short
    """What it is."""
    value: _Short
    """The number."""
    unit: _Short = ""
    """Its unit; empty for counts and ratios."""


class RejectedOption(ApiModel):
    """An option that was not taken."""

    option: _Short
    """The option."""
    reason: _Text
    """Why not."""


class DecisionStatus(ApiModel):
    """The last decision and what it rests on."""

    id: _Short
    """Identity of the decision; the same in status, event and log."""
    time: Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]
    """When it was made, RFC 3339."""
    action: _Short
    """What was decided: Place, ScaleUp, ScaleDown, Hold, AdviseUp, AdviseDown or Replace; of a change of
    checkpoint, precision or speculation StartCanary, CheckQuality, Promote, Refuse or Drop."""
    reason: _Short
    """One word for why: the rule that decided, or the clamp that bounds it."""
    rule: _Short
    """The rule that decided."""
    message: _Text = ""
    """The decision in a sentence."""
    from_: _Count | None = Field(default=None, alias="from")
    """Replicas before."""
    to: _Count | None = None
    """Replicas after."""
    wanted: _Count | None = None
    """Replicas that the rule, or minReplicas, asked for before the clamp."""
    clamp: _Short | None = None
    """Bound that changed the outcome: None, MinReplicas, MaxReplicas, MaxCostPerHour, FreeGPUs, Priority (a Model of
    higher priority lacks GPUs), GPUsPerNamespace or CostPerHourPerNamespace (the operator's limits)."""
    inputs: Annotated[tuple[DecisionInput, ...], Field(max_length=32), ListOf()] = ()
    """Numbers that the decision rests on."""
    rejected: Annotated[tuple[RejectedOption, ...], Field(max_length=32), ListOf()] = ()
    """Options that were not taken, and why."""


class PinnedStatus(ApiModel):
    """What the running pods are made from, whatever the operator's defaults are now."""

    image: _Text | None = None
    """Image of the engine."""
    revision: _Short | None = None
    """Hash of the pod template."""


class ModelStatus(ApiModel):
    """What Goodput found and decided."""

    observed_generation: _Count | None = None
    """Generation of the spec that this status speaks of."""
    conditions: Conditions = ()
    """State of the Model: Ready (it serves), Reconciling, Stalled, SLOMet, MetricsFresh, Placed, UpdateAvailable."""
    slo: Annotated[str, Field(max_length=320)] | None = None
    """The SLO in force: a name, or namespace/name where it is another namespace's."""
    pools: Annotated[
        tuple[PoolStatus, ...],
        Field(max_length=8),
        ListOf("name"),
    ] = ()
    """Groups of equal replicas."""
    pool_summary: _Text | None = None
    """The pools in a few words, such as `2x l40s`."""
    replicas: _Short | None = None
    """Replicas of all pools, ready/desired."""
    demand: DemandStatus | None = None
    """Load that users offer."""
    goodput: GoodputStatus | None = None
    """Requests per second that meet the SLO."""
    attainment: _Short | None = None
    """Share of requests that met the SLO over the last 10 minutes: `97%`, or its bounds where they differ."""
    attainment_bounds: BoundedFigure | None = None
    """Bounds of the attainment, as percentages."""
    gpu_use: GpuUseStatus | None = None
    """What engines make of their GPUs."""
    cost_per_hour: _Short | None = None
    """Cost of all replicas per hour, in the currency of the GPU prices; `~` marks a built-in price."""
    service_url: _Text | None = Field(default=None, alias="serviceURL")
    """Where requests go inside the cluster."""
    pinned: PinnedStatus | None = None
    """What the running pods are made from."""
    last_decision: DecisionStatus | None = None
    """The last decision and what it rests on."""
