"""Model: one model, served under one SLO. Only `model` and `slo` are needed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationError, WithJsonSchema

from goodput.api.architecture import ArchitectureConfig
from goodput.api.base import MAX_NAME, SUBDOMAIN, ApiModel, ApiObject, Bool, DataKey, Int, LabelName, ObjectName
from goodput.api.engine import Engine
from goodput.api.gputype import GPUTypeName
from goodput.api.modelstatus import ModelStatus
from goodput.api.podspec import LocalObjectRef
from goodput.api.precision import Precision
from goodput.api.qualitycheck import QualityCheck
from goodput.api.quantities import Price, parse_price
from goodput.api.rules import ListOf, Rule, cel_string, matches
from goodput.api.speculative import Speculative
from goodput.api.template import PodTemplate
from goodput.api.workload import Workload

PVC_SCHEME = "pvc://"
# Pods of a Deployment `<model>-prefill` are `<model>-prefill-<10 characters>-<5 characters>`; the whole is a host name.
MAX_MODEL_NAME = 63 - len("-prefill-") - 10 - 1 - 5
_NAME = "[a-z](?:[-a-z0-9]*[a-z0-9])?"

# The hub refuses `--`, `..`, and a dot or hyphen at an end.
_HUB_NAME = "[A-Za-z0-9][A-Za-z0-9_]*(?:(?:-|[.]|-[.]|[.]-)[A-Za-z0-9_]+)*"
_HUB_ID = f"{_HUB_NAME}/{_HUB_NAME}"
_PVC = f"pvc://{SUBDOMAIN}(?:/[-A-Za-z0-9_][-A-Za-z0-9._]*)*"


class SLORef(ApiModel):
    """An SLO by name, in the Model's namespace or another one."""

    name: ObjectName
    """Name of the SLO."""
    namespace: LabelName | None = None
    """Its namespace. Unset: the Model's own."""


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


_OBJECT_NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"

# A string or an object: no type, since a structural schema has no union. What is left after these bounds is exactly a
# name, {name} and {name, namespace}: numbers, lists and booleans meet a bound that nothing meets. docs/decisions/0002.
_SLO_SCHEMA: dict[str, Any] = {
    "x-kubernetes-preserve-unknown-fields": True,
    "minLength": 1,
    "maxLength": 253,
    "pattern": _OBJECT_NAME_PATTERN,
    "required": ["name"],
    "maxProperties": 2,
    "properties": {
        "name": {
            "type": "string",
            "minLength": 1,
            "maxLength": 253,
            "description": "Name of the SLO.",
            "pattern": _OBJECT_NAME_PATTERN,
        },
        "namespace": {
            "type": "string",
            "minLength": 1,
            "maxLength": 63,
            "description": "Its namespace. Unset: the Model's own.",
            "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        },
    },
    "anyOf": [{"maxProperties": 1}, {"required": ["namespace"]}],
    "minimum": 1,
    "maximum": 0,
    "minItems": 1,
    "maxItems": 0,
    "not": {"enum": [True, False]},
}
SLOReference = Annotated[SLORef, BeforeValidator(_named), WithJsonSchema(_SLO_SCHEMA)]


def slo_in(spec: Mapping[str, Any]) -> SLORef | None:
    """The SLO that the spec of a Model names, whatever else is wrong with it; None: it names none."""
    try:
        return SLORef.model_validate(_named(spec.get("slo")))
    except ValidationError:
        return None


def _off(value: Any) -> Any:
    return "Off" if value is False else value


class TokenRef(ApiModel):
    """A Secret of the Model's namespace that holds a token."""

    name: ObjectName
    """Name of the Secret."""
    key: DataKey = "HF_TOKEN"
    """Key in its data that holds the token. Default HF_TOKEN."""


class Credentials(ApiModel):
    """How gated and private models are downloaded."""

    secret_ref: TokenRef
    """Secret with a Hugging Face token."""


class Parallelism(ApiModel):
    """GPUs of one replica. Unset fields are chosen by Goodput."""

    tensor: Int | None = Field(default=None, ge=1, le=64)
    """GPUs that share each layer (`--tensor-parallel-size`). Unset: the fewest that hold the model and meet the SLO."""
    pipeline: Int | None = Field(default=None, ge=1, le=64)
    """Groups of layers on GPUs of their own (`--pipeline-parallel-size`). Unset: 1 unless the model needs more."""


class Scaling(ApiModel):
    """Bounds of the fleet. Between them Goodput chooses the fewest replicas that meet the SLO."""

    mode: Literal["Auto", "Advise"] | None = None
    """`Auto` scales; `Advise` publishes every decision and changes nothing. Unset: the operator's default (Auto)."""
    min_replicas: Int = Field(default=1, ge=1, le=10_000)
    """Replicas at least. Default 1. Beats every cap but the operator's limits of a namespace, which stop growth, and of
    what serves take nothing."""
    max_replicas: Int | None = Field(default=None, ge=1, le=10_000)
    """Replicas at most; beats the SLO. Beside it run, for a while, the new pod of a roll-out and what stands in for
    pods on lost nodes. Unset: bounded by free GPUs and the operator's limits only."""
    max_cost_per_hour: Price | None = None
    """Cost of all replicas per hour at most, such as `"40"`, in the currency of the GPU prices; beats the SLO, not
    minReplicas. Pods on a cordoned node count; those on a dead node serve nobody and do not. Unset: no bound."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            message="minReplicas is at most maxReplicas",
            holds=lambda scaling: scaling.max_replicas is None or scaling.min_replicas <= scaling.max_replicas,
            path=".minReplicas",
        ),
    )

    @property
    def max_cost(self) -> float | None:
        """Currency units per hour."""
        return None if self.max_cost_per_hour is None else parse_price(self.max_cost_per_hour)


class Routing(ApiModel):
    """How requests reach replicas."""

    mode: Literal["Router", "None"] = "Router"
    """`Router`: a router of the Model's own with prefix affinity, behind the Service of the Model's name. `None`: that
    Service selects the replicas directly. Default Router."""
    admission: Annotated[
        Literal["Auto", "Off"],
        BeforeValidator(_off),
        # YAML reads a bare Off as false, so false is Off.
        WithJsonSchema({"x-kubernetes-preserve-unknown-fields": True, "enum": ["Auto", "Off", False]}),
    ] = "Auto"
    """`Auto`: a replica refuses (503) what it could not begin within the time-to-first-token objective. `Off`: requests
    wait as long as it takes. Default Auto."""


def _names_hub(spec: ModelSpec) -> bool:
    return not spec.model.startswith(PVC_SCHEME)


class ModelSpec(ApiModel):
    """What to serve, under which SLO, within which bounds."""

    model: Annotated[
        str,
        Field(min_length=3, max_length=512),
        matches(
            f"{_HUB_ID}|{_PVC}",
            "a model is a Hugging Face id (organisation/name without -- and ..) or pvc://claim/path (no . or .. in it)",
        ),
        Rule(
            cel=f"!self.startsWith({cel_string(PVC_SCHEME)}) || size(self.split('/')[2]) <= {MAX_NAME}",
            message=f"the name of a PersistentVolumeClaim has at most {MAX_NAME} characters",
            holds=lambda model: not model.startswith(PVC_SCHEME) or len(model.split("/")[2]) <= MAX_NAME,
        ),
    ]
    """What to serve: a Hugging Face id such as `meta-llama/Llama-3.1-8B-Instruct`, or `pvc://claim/path` for a
    directory on a PersistentVolumeClaim of this namespace."""
    slo: SLOReference
    """The SLO to meet: a name such as `chat`, or `{name, namespace}` for one of another namespace that allows this."""
    revision: (
        Annotated[
            str,
            Field(min_length=1, max_length=128),
            matches("[A-Za-z0-9][-A-Za-z0-9._/]*", "a revision is a branch, a tag or a commit"),
        ]
        | None
    ) = None
    """Branch, tag or commit of a Hugging Face model. Unset: its main branch."""
    served_name: (
        Annotated[
            str,
            Field(min_length=1, max_length=253),
            matches("[A-Za-z0-9][-A-Za-z0-9._:/]*", "a served name is letters, digits and - . _ : /"),
        ]
        | None
    ) = None
    """Name that requests give in their `model` field; unique in the namespace. Unset: `model` for a Hugging Face id,
    the name of this Model for pvc://."""
    credentials: Credentials | None = None
    """Token for gated and private models. Unset: the operator's default for models of the hub, or none."""
    image_pull_secrets: Annotated[
        tuple[LocalObjectRef, ...],
        Field(max_length=8),
        ListOf("name"),
    ] = ()
    """Secrets to pull the images of engine and router with. Unset: the operator's default, or none."""
    architecture: ArchitectureConfig | None = None
    """Structure of the model in config.json field names. Unset: looked up in the built-in catalogue."""
    precision: Precision | None = None
    """Precision of weights and KV cache. Unset: as the checkpoint stores them."""
    workload: Workload | None = None
    """Expected load, believed until metrics speak. Unset: lengths of a public conversation trace, no expected rate."""
    speculative: Speculative | None = None
    """Speculative decoding. Unset: none."""
    gpu_types: Annotated[
        tuple[GPUTypeName, ...],
        Field(max_length=16),
        ListOf(""),
    ] = ()
    """GPU types that may be used, such as `l40s`. Unset: any that the cluster has."""
    parallelism: Parallelism | None = None
    """GPUs of one replica. Unset: chosen by Goodput."""
    scaling: Scaling = Field(default_factory=Scaling)
    """Bounds of the fleet. Unset: at least one replica, as many as the SLO needs."""
    routing: Routing = Field(default_factory=Routing)
    """How requests reach replicas. Unset: through a router of the Model's own."""
    engine: Engine = Field(default_factory=Engine)
    """The vLLM that serves the model. Unset: the operator's default image, no further arguments."""
    template: PodTemplate | None = None
    """Further settings of the engine pods. Unset: none."""
    quality_check: QualityCheck | None = None
    """What must succeed before users meet another checkpoint, precision or speculation. Unset: such a change rolls out
    as soon as a canary of it is ready, and Goodput says that nobody checked."""
    paused: Bool = False
    """Leave everything as it is: no scaling, no roll-out. Default false."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"!has(self.revision) || !self.model.startsWith({cel_string(PVC_SCHEME)})",
            message="revision is for Hugging Face ids; a pvc:// path has none",
            holds=lambda spec: spec.revision is None or _names_hub(spec),
            path=".revision",
        ),
        Rule(
            cel=f"!has(self.credentials) || !self.model.startsWith({cel_string(PVC_SCHEME)})",
            message="credentials are for Hugging Face ids; a pvc:// path needs none",
            holds=lambda spec: spec.credentials is None or _names_hub(spec),
            path=".credentials",
        ),
    )


class Model(ApiObject):
    """A model served on vLLM under an SLO. Goodput chooses GPU type, parallelism and replicas, and keeps the SLO met at
    the least cost."""

    spec: ModelSpec
    """What to serve, under which SLO, within which bounds."""
    status: ModelStatus | None = None
    """What Goodput found and decided; written by the operator only."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=(
                f"size(self.metadata.name) <= {MAX_MODEL_NAME}"
                f" && self.metadata.name.matches({cel_string(f'^{_NAME}$')})"
            ),
            message=(
                f"the name of a Model is at most {MAX_MODEL_NAME} characters (names of Services and pods are made from "
                "it), of lower-case letters, digits and -, and begins with a letter"
            ),
            holds=lambda model: (
                len(model.metadata.name) <= MAX_MODEL_NAME and re.fullmatch(_NAME, model.metadata.name) is not None
            ),
            path=".metadata.name",
        ),
    )

    @property
    def served_name(self) -> str:
        """What requests give in their `model` field."""
        if self.spec.served_name is not None:
            return self.spec.served_name
        return self.metadata.name if self.spec.model.startswith(PVC_SCHEME) else self.spec.model

    @property
    def slo_namespace(self) -> str:
        """Where the SLO is looked up."""
        return self.spec.slo.namespace or self.metadata.namespace

    @property
    def claim_and_path(self) -> tuple[str, str] | None:
        """Claim and path (without leading slash) of a pvc:// model, else None."""
        if not self.spec.model.startswith(PVC_SCHEME):
            return None
        claim, _, path = self.spec.model.removeprefix(PVC_SCHEME).partition("/")
        return claim, path
