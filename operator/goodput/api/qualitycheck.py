"""spec.qualityCheck: the Job that judges a change of checkpoint, precision or speculation before users meet it.

It is written as a Job template of Kubernetes is, of which only what is listed here can be set: the pod runs restricted,
without a token of the API server, and without GPUs.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from goodput.api.base import ApiModel, Int, LabelName
from goodput.api.engine import VALUE_OR_SOURCE, EnvSource, Image
from goodput.api.quantities import KubeQuantity
from goodput.api.rules import ListOf, Rule, cel_string, matches
from goodput.api.template import REQUESTS_WITHIN_LIMITS, only_resources

# Variables that Goodput sets in every container of a check begin so.
CHECK_ENV_PREFIX = "GOODPUT_"
DEFAULT_DEADLINE_SECONDS = 3600
_MOST_DEADLINE_SECONDS = 7 * 24 * 3600

_Word = Annotated[str, Field(max_length=4096)]
_CheckAmounts = Annotated[
    dict[str, KubeQuantity],
    Field(max_length=3),
    only_resources(": GPUs are the canary's, a check asks it over HTTP"),
]


class CheckResources(ApiModel):
    """CPU, memory and ephemeral storage of a container of the check."""

    requests: _CheckAmounts | None = None
    """Amounts reserved: cpu, memory, ephemeral-storage. Unset: the namespace's defaults."""
    limits: _CheckAmounts | None = None
    """Amounts at most: cpu, memory, ephemeral-storage. Unset: the namespace's defaults."""

    RULES: ClassVar[tuple[Rule, ...]] = (REQUESTS_WITHIN_LIMITS,)


class CheckEnvVar(ApiModel):
    """One environment variable of a check."""

    name: Annotated[
        str,
        Field(min_length=1, max_length=128),
        matches("[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable is letters, digits and _"),
        Rule(
            cel=f"!self.startsWith({cel_string(CHECK_ENV_PREFIX)})",
            message=f"variables that begin with {CHECK_ENV_PREFIX} are set by Goodput",
            holds=lambda name: not name.startswith(CHECK_ENV_PREFIX),
        ),
    ]
    """Name of the variable; names that begin with GOODPUT_ are refused."""
    value: _Word | None = None
    """Its value. Unset: it comes from `valueFrom`."""
    value_from: EnvSource | None = None
    """Where its value comes from. Unset: it is `value`."""

    RULES: ClassVar[tuple[Rule, ...]] = (VALUE_OR_SOURCE,)


class CheckContainer(ApiModel):
    """A container of the check. All of them must exit with 0."""

    name: LabelName
    """Name of the container."""
    image: Image
    """Image with the test, such as `registry.example.com/evals:7`; the operator's settings may restrict which are
    allowed. It runs as user 1000 with a read-only root file system; `/tmp` is writable."""
    command: Annotated[tuple[_Word, ...], Field(max_length=64), ListOf()] = ()
    """Command in place of the image's entrypoint. Unset: the entrypoint."""
    args: Annotated[tuple[_Word, ...], Field(max_length=64), ListOf()] = ()
    """Arguments of the command; `$(GOODPUT_CANARY_URL)` and the like are replaced. Unset: those of the image."""
    env: Annotated[tuple[CheckEnvVar, ...], Field(max_length=64), ListOf("name")] = ()
    """Further environment variables, beside GOODPUT_CANARY_URL, GOODPUT_CANARY_MODEL, GOODPUT_INCUMBENT_URL and
    GOODPUT_INCUMBENT_MODEL. Unset: none."""
    resources: CheckResources | None = None
    """CPU, memory and ephemeral storage. Unset: the namespace's defaults."""


class CheckPodSpec(ApiModel):
    """The pod of a check."""

    containers: Annotated[tuple[CheckContainer, ...], Field(min_length=1, max_length=4), ListOf("name")]
    """Containers that judge the canary."""


class CheckPodTemplate(ApiModel):
    """Template of the pod of a check."""

    spec: CheckPodSpec
    """The pod."""


class CheckJobSpec(ApiModel):
    """How often and for how long a check is tried."""

    backoff_limit: Int = Field(default=0, ge=0, le=20)
    """How often a failed pod is tried again before the check has failed; pods that were evicted do not count.
    Default 0: a failure is a verdict."""
    active_deadline_seconds: Int = Field(default=DEFAULT_DEADLINE_SECONDS, ge=1, le=_MOST_DEADLINE_SECONDS)
    """Seconds after which a check that has not ended has failed. Default 3600."""
    template: CheckPodTemplate
    """The pod."""


class CheckJobTemplate(ApiModel):
    """Template of a Job."""

    spec: CheckJobSpec
    """The Job."""


class QualityCheck(ApiModel):
    """What must succeed before users meet another checkpoint, precision or speculation."""

    job_template: CheckJobTemplate
    """Job that is run against a canary: one replica that no user reaches. It succeeds, and the fleet rolls out; it
    fails, and what serves serves on."""

    def as_kubernetes(self) -> dict[str, Any]:
        """`spec` of the Job in Kubernetes' own notation, defaults filled in."""
        return self.job_template.spec.to_dict()
