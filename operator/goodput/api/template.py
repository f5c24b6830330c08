"""The allow-list of pod settings that a Model's author may set on engine pods; everything else is refused."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from goodput.api.base import ApiModel, Bool, LabelName, ObjectName
from goodput.api.podspec import LABEL_KEYS, Affinity, LabelValue, Tolerations
from goodput.api.quantities import KubeQuantity, parse_quantity
from goodput.api.rules import ListOf, Rule, cel_string, keys_match, matches

# Prefixes of label and annotation keys by which Goodput and Kubernetes steer pods, with all their subdomains.
OWNED_DOMAINS = ("goodput.dev", "kubernetes.io", "k8s.io")
OWNED_KEYS = ("pod-template-hash", "controller-revision-hash")
# Volumes that Goodput adds to engine pods.
OWNED_VOLUMES = ("cache", "tmp", "shm", "models")
OWNED_VOLUME_PREFIX = "goodput-"
OWNED_MOUNTS = (
    *("/bin", "/cache", "/dev", "/etc", "/lib", "/lib64", "/models", "/proc"),
    *("/run", "/sbin", "/sys", "/tmp", "/usr", "/var/run"),
)
RESOURCES = ("cpu", "memory", "ephemeral-storage")

_OWNED_KEY = (
    r"(?:[^/]*[.])?(?:"
    + "|".join(domain.replace(".", "[.]") for domain in OWNED_DOMAINS)
    + r")/.*|"
    + "|".join(OWNED_KEYS)
)


_KEY_RULES = (
    LABEL_KEYS,
    keys_match(
        _OWNED_KEY,
        f"keys under {', '.join(OWNED_DOMAINS)} and {', '.join(OWNED_KEYS)} belong to Goodput or Kubernetes",
        match=False,
    ),
)


def only_resources(where_gpus: str) -> Rule:
    """That amounts are of CPU, memory and ephemeral storage; `where_gpus` says why GPUs are not set here."""
    return Rule(
        cel="self.all(k, k in [" + ", ".join(cel_string(name) for name in RESOURCES) + "])",
        message=f"only {', '.join(RESOURCES)} can be set{where_gpus}",
        holds=lambda amounts: all(name in RESOURCES for name in amounts),
    )


_Amounts = Annotated[
    dict[str, KubeQuantity],
    Field(max_length=3),
    only_resources("; GPUs follow from the GPU type and spec.parallelism"),
]


def _requests_within_limits(resources: Any) -> bool:
    requests, limits = resources.requests or {}, resources.limits or {}
    return all(parse_quantity(requests[name]) <= parse_quantity(limits[name]) for name in requests if name in limits)


REQUESTS_WITHIN_LIMITS = Rule(
    cel=(
        "!has(self.requests) || !has(self.limits) || self.requests.all(k, !(k in self.limits) ||"
        " quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0)"
    ),
    message="a request is at most its limit",
    holds=_requests_within_limits,
    path=".requests",
)


class Resources(ApiModel):
    """CPU, memory and ephemeral storage of an engine container; GPUs are Goodput's."""

    requests: _Amounts | None = None
    """Amounts reserved: cpu, memory, ephemeral-storage. Unset: a core and 4Gi, and a core and 6Gi more for each GPU."""
    limits: _Amounts | None = None
    """Amounts at most: cpu, memory, ephemeral-storage. Unset: none; no memory limit is set by default."""

    RULES: ClassVar[tuple[Rule, ...]] = (REQUESTS_WITHIN_LIMITS,)


class PersistentVolumeClaimSource(ApiModel):
    """A PersistentVolumeClaim of the Model's namespace."""

    claim_name: ObjectName
    """Name of the claim."""
    read_only: Bool = False
    """Mount it read-only. Default false."""


class EmptyDirSource(ApiModel):
    """A directory that lives as long as the pod."""

    medium: Literal["", "Memory"] = ""
    """`Memory` for a tmpfs, which counts against the memory limit. Default: the node's disk."""
    size_limit: KubeQuantity | None = None
    """Bytes at most, such as `10Gi`. Unset: unlimited."""


class SecretSource(ApiModel):
    """A Secret of the Model's namespace as files."""

    secret_name: ObjectName
    """Name of the Secret."""


_VOLUME_SOURCES = ("persistent_volume_claim", "empty_dir", "secret")


class Volume(ApiModel):
    """A volume of the engine pods: a claim, an empty directory or a Secret."""

    name: Annotated[
        LabelName,
        Rule(
            cel=(
                "!(self in ["
                + ", ".join(cel_string(name) for name in OWNED_VOLUMES)
                + f"]) && !self.startsWith({cel_string(OWNED_VOLUME_PREFIX)})"
            ),
            message=f"volumes named {', '.join(OWNED_VOLUMES)} or {OWNED_VOLUME_PREFIX}... are Goodput's: rename it",
            holds=lambda name: name not in OWNED_VOLUMES and not name.startswith(OWNED_VOLUME_PREFIX),
        ),
    ]
    """Name that `volumeMounts` refer to."""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    """A PersistentVolumeClaim. Unset: another kind of volume."""
    empty_dir: EmptyDirSource | None = None
    """An empty directory. Unset: another kind of volume."""
    secret: SecretSource | None = None
    """A Secret as files. Unset: another kind of volume."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="[has(self.persistentVolumeClaim), has(self.emptyDir), has(self.secret)].filter(x, x).size() == 1",
            message="a volume has exactly one of persistentVolumeClaim, emptyDir and secret",
            holds=lambda volume: sum(getattr(volume, source) is not None for source in _VOLUME_SOURCES) == 1,
        ),
    )


class VolumeMount(ApiModel):
    """Where the engine container sees a volume."""

    name: LabelName
    """Name of the volume in `volumes`."""
    mount_path: Annotated[
        str,
        Field(min_length=2, max_length=512),
        matches(r"(?:/[-A-Za-z0-9._]+)+", "a mount path is absolute, of letters, digits, -, _ and ."),
        Rule(
            cel="!self.split('/').exists(s, s == '..' || s == '.')",
            message="a mount path has no . or .. in it",
            holds=lambda path: not {"..", "."} & set(path.split("/")),
        ),
        Rule(
            cel="["
            + ", ".join(cel_string(path) for path in OWNED_MOUNTS)
            + "].all(p, self != p && !self.startsWith(p + '/'))",
            message=f"{', '.join(OWNED_MOUNTS)} are Goodput's or the system's",
            holds=lambda path: all(path != owned and not path.startswith(owned + "/") for owned in OWNED_MOUNTS),
        ),
    ]
    """Path in the container."""
    sub_path: (
        Annotated[
            str,
            Field(min_length=1, max_length=512),
            matches(r"[-A-Za-z0-9._]+(?:/[-A-Za-z0-9._]+)*", "a path inside the volume, not absolute"),
            Rule(
                cel="!self.split('/').exists(s, s == '..' || s == '.')",
                message="a path inside the volume has no . or .. in it",
                holds=lambda path: not {"..", "."} & set(path.split("/")),
            ),
        ]
        | None
    ) = None
    """Path inside the volume. Unset: its root."""
    read_only: Bool = False
    """Mount it read-only. Default false."""


def _mounts_named(template: PodTemplate) -> bool:
    names = {volume.name for volume in template.volumes}
    return all(mount.name in names for mount in template.volume_mounts)


_PriorityClass = Annotated[
    ObjectName,
    Rule(
        cel="!self.startsWith('system-')",
        message="priority classes that begin with system- are those of the cluster's own pods",
        holds=lambda name: not name.startswith("system-"),
    ),
]


class PodTemplate(ApiModel):
    """Settings of the engine pods. Everything that is not here is Goodput's."""

    labels: Annotated[dict[str, LabelValue], Field(max_length=32), *_KEY_RULES] | None = None
    """Further labels. Unset: none."""
    annotations: (
        Annotated[
            dict[str, Annotated[str, Field(max_length=4096)]],
            Field(max_length=32),
            *_KEY_RULES,
        ]
        | None
    ) = None
    """Further annotations. Unset: none."""
    resources: Resources | None = None
    """CPU, memory and ephemeral storage of the engine container. Unset: what Goodput computes for the model."""
    affinity: Affinity | None = None
    """Where pods go, beyond the GPU type. Unset: anywhere on the GPU type, spread over nodes."""
    tolerations: Tolerations = ()
    """Taints that pods tolerate, beside those of the GPU type and one named like its resource (`nvidia.com/gpu`). GPUs
    on nodes with any other taint are not there for this Model. Unset: none beside those."""
    priority_class_name: _PriorityClass | None = None
    """PriorityClass of the pods. Unset: the cluster's default."""
    volumes: Annotated[
        tuple[Volume, ...],
        Field(max_length=16),
        ListOf("name"),
    ] = ()
    """Further volumes. Unset: none."""
    volume_mounts: Annotated[
        tuple[VolumeMount, ...],
        Field(max_length=16),
        ListOf("mount_path"),
    ] = ()
    """Where the engine container sees them. Unset: nowhere."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=(
                "!has(self.volumeMounts) || self.volumeMounts.all(m, has(self.volumes)"
                " && self.volumes.exists(v, v.name == m.name))"
            ),
            message="every volumeMount names one of volumes",
            holds=_mounts_named,
            path=".volumeMounts",
        ),
    )


def as_kubernetes(template: PodTemplate | None) -> dict[str, Any]:
    """The template in Kubernetes' own notation, with what its author wrote and nothing else; {} if it is unset."""
    if template is None:
        return {}
    return template.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)
