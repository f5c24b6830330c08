"""Pieces of a Kubernetes pod spec that users may write, typed so that a mistake is refused when it is applied."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from goodput.api.base import SUBDOMAIN, ApiModel, DataKey, Int, LabelName, ObjectName
from goodput.api.rules import ListOf, Rule, keys_match, matches

# The part of a qualified name that stands behind the slash.
PLAIN_NAME = "[A-Za-z0-9](?:[-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?"
_QUALIFIED_NAME = f"(?:{SUBDOMAIN}/)?{PLAIN_NAME}"

LabelKey = Annotated[
    str,
    Field(min_length=1, max_length=317),
    matches(
        _QUALIFIED_NAME,
        "a label key is a name of up to 63 characters such as tier, or with a prefix such as example.com/tier",
    ),
]
LABEL_KEYS = keys_match(
    _QUALIFIED_NAME, "a key is a name of up to 63 characters such as tier, or with a prefix such as example.com/tier"
)
LabelValue = Annotated[
    str,
    Field(max_length=63),
    matches(
        "(?:[A-Za-z0-9](?:[-_.A-Za-z0-9]*[A-Za-z0-9])?)?",
        "a label value is at most 63 letters, digits, -, _ and ., beginning and ending with a letter or digit",
    ),
]
LabelMap = Annotated[dict[str, LabelValue], Field(min_length=1, max_length=16), LABEL_KEYS]


class SecretKeyRef(ApiModel):
    """One key of a Secret in the namespace of the Model."""

    name: ObjectName
    """Name of the Secret."""
    key: DataKey
    """Key in its data."""


class LocalObjectRef(ApiModel):
    """An object of the Model's namespace, by name."""

    name: ObjectName
    """Name of the object."""


class Toleration(ApiModel):
    """A taint that pods tolerate."""

    key: LabelKey | None = None
    """Key of the taint. Unset: any key (with operator Exists)."""
    operator: Literal["Exists", "Equal"] | None = None
    """Exists or Equal. Unset: Equal."""
    value: LabelValue | None = None
    """Value of the taint, for Equal. Unset: empty."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint. Unset: any."""
    toleration_seconds: Int | None = Field(default=None, ge=0, le=2_592_000)
    """Seconds for which a NoExecute taint is tolerated. Unset: for ever."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.key) || (has(self.operator) && self.operator == 'Exists')",
            message="a toleration without a key needs operator Exists",
            holds=lambda toleration: bool(toleration.key) or toleration.operator == "Exists",
        ),
        Rule(
            cel="!has(self.value) || self.value == '' || !has(self.operator) || self.operator == 'Equal'",
            message="a toleration with operator Exists has no value",
            holds=lambda toleration: not toleration.value or toleration.operator != "Exists",
            path=".value",
        ),
        Rule(
            cel="!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            message="tolerationSeconds is for effect NoExecute only",
            holds=lambda toleration: toleration.toleration_seconds is None or toleration.effect == "NoExecute",
            path=".tolerationSeconds",
        ),
    )


Tolerations = Annotated[tuple[Toleration, ...], Field(max_length=32), ListOf()]


def _need_values(operators: str) -> Rule:
    return Rule(
        cel="(self.operator in ['Exists', 'DoesNotExist']) == (!has(self.values) || size(self.values) == 0)",
        message=f"{operators} need values, Exists and DoesNotExist have none",
        holds=lambda requirement: (requirement.operator in ("Exists", "DoesNotExist")) == (not requirement.values),
        path=".values",
    )


class PodRequirement(ApiModel):
    """A condition on one label of pods."""

    key: LabelKey
    """Label key."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How the values are compared."""
    values: Annotated[tuple[LabelValue, ...], Field(max_length=32)] = ()
    """Values for In and NotIn (at least one). Unset: none, for the others."""

    RULES: ClassVar[tuple[Rule, ...]] = (_need_values("In and NotIn"),)


_WHOLE_NUMBER = "[0-9]{1,18}"


class NodeRequirement(ApiModel):
    """A condition on one label of nodes."""

    key: LabelKey
    """Label key."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    """How the values are compared; Gt and Lt are for labels that hold a whole number."""
    values: Annotated[tuple[LabelValue, ...], Field(max_length=32)] = ()
    """Values for In and NotIn (at least one), Gt and Lt (exactly one). Unset: none, for the others."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        _need_values("In, NotIn, Gt and Lt"),
        Rule(
            cel=(
                "!(self.operator in ['Gt', 'Lt']) || !has(self.values) || size(self.values) == 0"
                f" || (size(self.values) == 1 && self.values[0].matches('^{_WHOLE_NUMBER}$'))"
            ),
            message="Gt and Lt compare with exactly one value, a whole number",
            holds=lambda requirement: (
                requirement.operator not in ("Gt", "Lt")
                or not requirement.values
                or (len(requirement.values) == 1 and re.fullmatch(_WHOLE_NUMBER, requirement.values[0]) is not None)
            ),
            path=".values",
        ),
    )


class NodeSelectorTerm(ApiModel):
    """Conditions on one node, all of which must hold."""

    match_expressions: Annotated[tuple[NodeRequirement, ...], Field(min_length=1, max_length=16)]
    """Conditions on labels of the node."""


class NodeSelector(ApiModel):
    """Alternatives, one of which must hold."""

    node_selector_terms: Annotated[tuple[NodeSelectorTerm, ...], Field(min_length=1, max_length=8)]
    """Alternatives."""


class PreferredNodeTerm(ApiModel):
    """A preference for nodes."""

    weight: Int = Field(ge=1, le=100)
    """Weight of the preference, 1 to 100."""
    preference: NodeSelectorTerm
    """What is preferred."""


class NodeAffinity(ApiModel):
    """Which nodes pods go to."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    """What a node must fulfil. Unset: nothing beyond the GPU type."""
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[PreferredNodeTerm, ...], Field(max_length=8)
    ] = ()
    """What nodes should fulfil. Unset: nothing."""


class LabelSelector(ApiModel):
    """Pods by their labels."""

    match_labels: Annotated[dict[str, LabelValue], Field(max_length=16), LABEL_KEYS] | None = None
    """Labels that must have these values. Unset: none."""
    match_expressions: Annotated[tuple[PodRequirement, ...], Field(max_length=16)] = ()
    """Further conditions on labels. Unset: none."""


class PodAffinityTerm(ApiModel):
    """Pods to be near to, or far from."""

    label_selector: LabelSelector
    """Which pods."""
    topology_key: LabelKey
    """Node label whose equal values count as near, such as `kubernetes.io/hostname`."""
    namespaces: Annotated[tuple[LabelName, ...], Field(max_length=16)] = ()
    """Namespaces of those pods. Unset: the Model's own."""


class PreferredPodTerm(ApiModel):
    """A preference for being near to, or far from, pods."""

    weight: Int = Field(ge=1, le=100)
    """Weight of the preference, 1 to 100."""
    pod_affinity_term: PodAffinityTerm
    """What is preferred."""


class PodAffinity(ApiModel):
    """Which pods to be near to, or far from."""

    required_during_scheduling_ignored_during_execution: Annotated[
        tuple[PodAffinityTerm, ...], Field(max_length=8)
    ] = ()
    """What must hold. Unset: nothing."""
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[PreferredPodTerm, ...], Field(max_length=8)
    ] = ()
    """What should hold. Unset: nothing."""


class Affinity(ApiModel):
    """Where pods go, beyond the GPU type that Goodput chooses."""

    node_affinity: NodeAffinity | None = None
    """Nodes to go to. Unset: any node of the GPU type."""
    pod_affinity: PodAffinity | None = None
    """Pods to be near to. Unset: none."""
    pod_anti_affinity: PodAffinity | None = None
    """Pods to keep away from. Unset: none; replicas are spread over nodes anyway."""
