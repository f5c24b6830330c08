"""SLO: what "good" means. A platform team writes one, many Models use it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from goodput.api.base import ApiModel, ApiObject, Int
from goodput.api.conditions import Conditions
from goodput.api.quantities import Duration, Percent, parse_duration_seconds, parse_percent
from goodput.api.rules import ListOf, Rule, matches

ANY_NAMESPACE = "*"
_BATCH = "(has(self.class) && self.class == 'Batch')"

_AllowedNamespace = Annotated[
    str,
    Field(min_length=1, max_length=63),
    matches(r"[*]|[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", 'the name of a namespace, or "*" for all'),
]


class SLOSpec(ApiModel):
    """A request is good if it meets every objective that is set, or is done before its deadline; `attainment` is the
    share of requests to be good."""

    ttft: Duration | None = None
    """Time to first token, from the arrival of the request, such as `500ms`. Unset: no bound."""
    tpot: Duration | None = None
    """Mean time per output token of one request after its first token, such as `50ms`. Unset: no bound."""
    e2e: Duration | None = Field(default=None, alias="e2e")
    """Time from the arrival of a request to its last token, such as `30s`. Unset: no bound."""
    attainment: Percent = "95%"
    """Share of all offered requests that must meet every objective, such as `95%` or `99.9%`. Refused, failed and
    aborted requests count against it. Default 95%."""
    min_requests: Int = Field(default=20, ge=1, le=1_000_000)
    """Fewer requests than this in the last 10 minutes say nothing: attainment is then Unknown. Default 20."""
    class_: Literal["Online", "Batch"] = Field(default="Online", alias="class")
    """`Online`: somebody waits for each token, and latency is bounded. `Batch`: nobody does, and each request has a
    `deadline`; replicas are loaded as far as they go, and their number follows from what waits and when it is due.
    Default Online."""
    deadline: Duration | None = None
    """Of a Batch SLO: time from the arrival of a request by which it is to be done, such as `4h`. Unset: the SLO
    is of class `Online`."""
    priority: Int = Field(default=0, ge=-1000, le=1000)
    """Who wins when GPUs are short, or what a namespace may have of them: Models of the SLO with the higher number.
    Those of lower ones then scale down by a normal drain, none below its minReplicas. The operator may allow the SLOs
    of a namespace a highest number; what is above counts as that. Default 0."""
    allowed_namespaces: Annotated[
        tuple[_AllowedNamespace, ...],
        Field(max_length=256),
        ListOf(""),
    ] = ()
    """Namespaces whose Models may use this SLO beside its own; `"*"` is all. Unset: only its own namespace."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"{_BATCH} || has(self.ttft) || has(self.tpot) || has(self.e2e)",
            message="an SLO needs at least one of ttft, tpot and e2e, or class Batch and a deadline",
            holds=lambda spec: spec.batch or bool(spec.ttft or spec.tpot or spec.e2e),
        ),
        Rule(
            cel=f"!{_BATCH} || has(self.deadline)",
            message="an SLO of class Batch needs a deadline, such as 4h",
            holds=lambda spec: not spec.batch or bool(spec.deadline),
        ),
        Rule(
            cel=f"{_BATCH} || !has(self.deadline)",
            message="only an SLO of class Batch has a deadline: set that class, or bound e2e instead",
            path=".deadline",
            holds=lambda spec: spec.batch or not spec.deadline,
        ),
        Rule(
            cel=f"!{_BATCH} || !(has(self.ttft) || has(self.tpot) || has(self.e2e))",
            message="an SLO of class Batch has a deadline alone: no ttft, tpot or e2e",
            holds=lambda spec: not spec.batch or not (spec.ttft or spec.tpot or spec.e2e),
        ),
    )

    @property
    def batch(self) -> bool:
        return self.class_ == "Batch"

    @property
    def deadline_seconds(self) -> float | None:
        return None if self.deadline is None else parse_duration_seconds(self.deadline)

    @property
    def ttft_seconds(self) -> float | None:
        return None if self.ttft is None else parse_duration_seconds(self.ttft)

    @property
    def tpot_seconds(self) -> float | None:
        return None if self.tpot is None else parse_duration_seconds(self.tpot)

    @property
    def e2e_seconds(self) -> float | None:
        return None if self.e2e is None else parse_duration_seconds(self.e2e)

    @property
    def attainment_share(self) -> float:
        """0..1."""
        return parse_percent(self.attainment)


class SLOStatus(ApiModel):
    """What Goodput found; written by the operator only."""

    observed_generation: Int | None = Field(default=None, ge=0)
    """Generation of the spec that this status speaks of."""
    users: Int | None = Field(default=None, ge=0)
    """Number of Models that use this SLO."""
    attainment: Annotated[str, Field(max_length=32)] | None = None
    """Share of requests that met the SLO over the last 10 minutes, all users together. Absent: too few requests."""
    conditions: Conditions = ()
    """`Ready`: the SLO is valid and can be used."""


class SLO(ApiObject):
    """What "good" means for requests: bounds on time to first token, time per token and end-to-end time, and the share
    of requests that must meet them. Models name it in `spec.slo`."""

    spec: SLOSpec
    """What a good request is."""
    status: SLOStatus | None = None
    """What Goodput found; written by the operator only."""

    def allows(self, namespace: str) -> bool:
        """Whether Models of `namespace` may use this SLO."""
        allowed: tuple[Any, ...] = self.spec.allowed_namespaces
        return namespace == self.metadata.namespace or namespace in allowed or ANY_NAMESPACE in allowed
