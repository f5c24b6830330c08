"""The three kinds as the API server knows them: names, columns and schemas."""

from __future__ import annotations

from functools import cache

from goodput.api import GROUP, SLO, VERSION, GPUType, Model
from goodput.api.schema import Column, Kind, object_schema
from goodput.api.schema import schema_hash as hash_of

_READY = Column("Ready", '.status.conditions[?(@.type=="Ready")].status', description="Whether it serves.")
_READY_REASON = Column("Reason", '.status.conditions[?(@.type=="Ready")].reason', description="Why.", wide=True)
_READY_MESSAGE = Column(
    "Message", '.status.conditions[?(@.type=="Ready")].message', description="Why, in words.", wide=True
)
_AGE = Column("Age", ".metadata.creationTimestamp", type="date")

MODEL = Kind(
    model=Model,
    kind="Model",
    plural="models",
    short_names=("mdl",),
    group=GROUP,
    version=VERSION,
    categories=("goodput",),
    columns=(
        Column("SLO", ".status.slo", description="The SLO in force."),
        Column("Pools", ".status.poolSummary", description="GPUs of one replica, by pool."),
        Column("Replicas", ".status.replicas", description="Replicas ready/desired."),
        Column("Goodput", ".status.goodput.requestsPerSecond", description="Requests per second that meet the SLO."),
        Column("Attainment", ".status.attainment", description="Share of requests that met the SLO, last 10 minutes."),
        Column("Cost/h", ".status.costPerHour", description="Cost of all replicas per hour."),
        _READY,
        _AGE,
        Column("GPU", ".status.pools[0].gpuType", description="GPU type of the first pool.", wide=True),
        Column(
            "SLOMet", '.status.conditions[?(@.type=="SLOMet")].status', description="Whether the SLO is met.", wide=True
        ),
        Column(
            "Stalled", '.status.conditions[?(@.type=="Stalled")].reason', description="What needs mending.", wide=True
        ),
        _READY_REASON,
        _READY_MESSAGE,
    ),
)

SLO_KIND = Kind(
    model=SLO,
    kind="SLO",
    plural="slos",
    short_names=("slo",),
    group=GROUP,
    version=VERSION,
    categories=("goodput",),
    columns=(
        Column("TTFT", ".spec.ttft", description="Bound on the time to first token."),
        Column("TPOT", ".spec.tpot", description="Bound on the mean time per output token."),
        Column("E2E", ".spec.e2e", description="Bound on the time of a whole request."),
        Column("Deadline", ".spec.deadline", description="Of a Batch SLO: when a request is to be done.", wide=True),
        Column("Priority", ".spec.priority", type="integer", description="Who wins when GPUs are short.", wide=True),
        Column("Objective", ".spec.attainment", description="Share of requests that must meet all bounds."),
        Column("Users", ".status.users", type="integer", description="Models that use it."),
        Column("Attainment", ".status.attainment", description="Share of requests that met it, last 10 minutes."),
        _READY,
        _AGE,
        _READY_REASON,
        _READY_MESSAGE,
    ),
)

GPUTYPE = Kind(
    model=GPUType,
    kind="GPUType",
    plural="gputypes",
    short_names=("gput",),
    group=GROUP,
    version=VERSION,
    namespaced=False,
    categories=("goodput",),
    columns=(
        Column("Memory", ".spec.memory", description="Memory of one GPU."),
        Column("Price/h", ".spec.pricePerHour", description="Price of one GPU for one hour."),
        Column("Nodes", ".status.nodes", type="integer", description="Nodes that carry it."),
        Column("Installed", ".status.installed", type="integer", description="GPUs on those nodes."),
        Column("Used", ".status.used", type="integer", description="GPUs requested by any pod."),
        Column("Free", ".status.free", type="integer", description="GPUs that no pod has requested."),
        _READY,
        _AGE,
        _READY_REASON,
        _READY_MESSAGE,
    ),
)

KINDS: tuple[Kind, ...] = (SLO_KIND, MODEL, GPUTYPE)


@cache
def schema_hash(kind: Kind) -> str:
    """What the annotation `goodput.dev/schema-hash` of the installed CRD must say for this operator to write to it."""
    return hash_of(object_schema(kind))
