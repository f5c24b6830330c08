"""Slim records of Kubernetes objects: what decisions need, in a few hundred bytes each.

The functions here run for every watch event of tens of thousands of objects, so they read dictionaries by hand.
"""

from __future__ import annotations

import sys
import zlib
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from typing import Any

import orjson

from goodput.adapters.kinds import DEPLOYMENTS, JOBS
from goodput.adapters.objects import Object, key_of
from goodput.domain.change import Serving
from goodput.domain.identity import FIELD_MANAGER, LABEL_MODEL, LABEL_POOL, LABEL_REVISION, Key
from goodput.domain.observed import PodState
from goodput.domain.plan import Placement
from goodput.domain.taints import KEEP_AWAY, Taint, Taints
from goodput.resources.engine.deployment import placement_of
from goodput.resources.names import ENGINE_CONTAINER
from goodput.resources.pinning import ANNOTATION_IMAGE, annotations_of
from goodput.resources.serving import ANNOTATION_CHANGE, serving_of

SERVED_NAME_FLAG = "--served-model-name"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
# Extended resources have a domain; those of Kubernetes itself do not count as accelerators.
_NO_ACCELERATORS = ("kubernetes.io/", "hugepages-", "attachable-volumes-")
# Taints of nodes that are not ready, or cordoned.
_KNOWN_OTHERWISE = frozenset(f"node.kubernetes.io/{name}" for name in ("not-ready", "unreachable", "unschedulable"))
# Parts of metadata that change without anybody's intent: left out, so that equal content means an unchanged object.
_UNINTENDED = frozenset({"managedFields", "resourceVersion", "generation"})
# Phases of pods of which nothing runs any more, nor will.
_ENDED = frozenset({"Succeeded", "Failed"})
# Waiting reasons that do not pass without somebody's help.
FAILED_REASONS = frozenset(
    {
        "CrashLoopBackOff",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)


@dataclass(frozen=True, slots=True)
class ForeignPod:
    """A pod of somebody else that holds accelerators."""

    version: int
    node: str
    gpus: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class OwnPod:
    """A pod of one of our Deployments. Times are Unix seconds."""

    version: int
    key: Key
    uid: str
    model: str
    pool: str
    revision: str
    # None: it has ended (evicted, rejected by its node...). Its ReplicaSet made another, and its object is all that is
    # left, until somebody collects it: it counts for nothing.
    state: PodState | None
    node: str
    gpus: tuple[tuple[str, int], ...]
    created_at: float
    ready_at: float | None
    restarts: int
    trouble: str
    trouble_message: str
    deletion_cost: int
    deletion_cost_set: bool


PodRecord = ForeignPod | OwnPod


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node: its labels, its accelerators, and whether pods can go there.

    `taints` are those that keep pods away, less what `ready` and `cordoned` say.
    """

    version: int
    name: str
    labels: dict[str, str]
    gpus: tuple[tuple[str, int], ...]
    ready: bool
    cordoned: bool
    taints: Taints = ()


@dataclass(frozen=True, slots=True)
class OwnedObject:
    """An object that carries our label, and who owns it; `content` is its compressed JSON, less what nobody intends."""

    version: int
    key: Key
    kind: str
    uid: str
    model: str
    owner_uid: str
    content: bytes
    deleting: bool

    def manifest(self) -> Object:
        """The object as the API server has it, less status and managedFields."""
        return orjson.loads(zlib.decompress(self.content))  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class ForeignScaler:
    """A field manager other than us that owns .spec.replicas; `applies` if it does so by server-side apply."""

    manager: str
    at: float
    applies: bool


@dataclass(frozen=True, slots=True)
class DeploymentRecord(OwnedObject):
    """A Deployment of ours, with what its controller reports."""

    pool: str = ""
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    total_replicas: int = 0
    generation: int = 0
    observed_generation: int = 0
    pods_refused: str = ""  # what the API server said when its pods were to be created (a quota, an admission)
    foreign_scaler: ForeignScaler | None = None
    revision: str = ""
    image: str = ""  # that its pods were rendered with
    served_name: str = ""  # under which its engines serve
    placement: Placement | None = None  # with which its pods were rendered
    serving: Serving | None = None  # what they serve
    change: str = ""  # id of the change that it is the canary of

    @property
    def rolling_out(self) -> bool:
        """Whether pods of an older template are still being replaced, or the controller has yet to look."""
        return self.observed_generation < self.generation or self.updated_replicas < self.total_replicas


@dataclass(frozen=True, slots=True)
class JobRecord(OwnedObject):
    """A Job of ours, which judges a change, with how it ended."""

    change: str = ""
    ended: bool = False
    succeeded: bool = False
    message: str = ""  # why it failed


@dataclass(frozen=True, slots=True)
class ScalerRecord:
    """An autoscaler (HPA or ScaledObject) and the Deployment that it scales."""

    version: int
    kind: str
    name: str
    target: Key


def unix_seconds(text: str | None) -> float | None:
    """Unix seconds of an RFC 3339 time."""
    return datetime.fromisoformat(text).timestamp() if text else None


def pod_record(manifest: Object) -> PodRecord | None:
    """Our own pod, or a foreign one that holds accelerators; None for all others."""
    metadata = manifest["metadata"]
    labels = metadata.get("labels") or {}
    model = labels.get(LABEL_MODEL)
    spec = manifest.get("spec") or {}
    status = manifest.get("status") or {}
    gpus = _pod_gpus(spec)
    version = int(metadata["resourceVersion"])
    node = sys.intern(spec.get("nodeName") or "")
    if not model or LABEL_POOL not in labels:
        if not gpus or status.get("phase") in _ENDED:
            return None
        return ForeignPod(version, node, gpus)
    state, ready_at, restarts, trouble, message = _pod_state(metadata, spec, status)
    cost = (metadata.get("annotations") or {}).get(DELETION_COST)
    return OwnPod(
        version=version,
        key=key_of(manifest),
        uid=metadata["uid"],
        model=sys.intern(model),
        pool=sys.intern(labels[LABEL_POOL]),
        revision=sys.intern(labels.get(LABEL_REVISION) or ""),
        state=state,
        node=node,
        gpus=gpus if state is not None else (),
        created_at=unix_seconds(metadata["creationTimestamp"]) or 0.0,
        ready_at=ready_at,
        restarts=restarts,
        trouble=sys.intern(trouble),
        trouble_message=message[:1000],
        deletion_cost=_integer(cost),
        deletion_cost_set=cost is not None,
    )


def node_record(manifest: Object) -> NodeRecord | None:
    """A node; None if it has neither accelerators nor labels worth keeping."""
    metadata = manifest["metadata"]
    status = manifest.get("status") or {}
    spec = manifest.get("spec") or {}
    allocatable = status.get("allocatable") or {}
    gpus = tuple((sys.intern(name), _integer(count)) for name, count in allocatable.items() if _is_accelerator(name))
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())
    return NodeRecord(
        version=int(metadata["resourceVersion"]),
        name=sys.intern(metadata["name"]),
        labels={sys.intern(k): sys.intern(v) for k, v in (metadata.get("labels") or {}).items()},
        gpus=gpus,
        ready=ready,
        cordoned=bool(spec.get("unschedulable")),
        taints=_taints(
            tuple(
                sorted(
                    (taint["key"], taint.get("value") or "", taint["effect"])
                    for taint in spec.get("taints") or ()
                    if taint["effect"] in KEEP_AWAY and taint["key"] not in _KNOWN_OTHERWISE
                )
            )
        ),
    )


@lru_cache(maxsize=256)
def _taints(each: tuple[tuple[str, str, str], ...]) -> Taints:
    """One value for all nodes that are tainted alike: they are many, and kinds of taints are few."""
    return tuple(Taint(*parts) for parts in each)


def owned_object(manifest: Object, kind: str) -> OwnedObject:
    """Any object of ours but a Deployment."""
    return OwnedObject(**_owned(manifest, kind))


def deployment_record(manifest: Object) -> DeploymentRecord:
    """A Deployment of ours."""
    metadata = manifest["metadata"]
    status = manifest.get("status") or {}
    conditions = status.get("conditions") or ()
    return DeploymentRecord(
        **_owned(manifest, DEPLOYMENTS.kind),
        pool=(metadata.get("labels") or {}).get(LABEL_POOL) or "",
        replicas=int((manifest.get("spec") or {}).get("replicas") or 0),
        updated_replicas=int(status.get("updatedReplicas") or 0),
        ready_replicas=int(status.get("readyReplicas") or 0),
        total_replicas=int(status.get("replicas") or 0),
        generation=int(metadata.get("generation") or 0),
        observed_generation=int(status.get("observedGeneration") or 0),
        pods_refused=next(
            (
                str(c.get("message") or c.get("reason") or "no reason given")
                for c in conditions
                if c["type"] == "ReplicaFailure" and c["status"] == "True"
            ),
            "",
        ),
        foreign_scaler=_foreign_scaler(metadata.get("managedFields") or ()),
        revision=_template_revision(manifest),
        image=annotations_of(manifest).get(ANNOTATION_IMAGE) or "",
        served_name=_served_name(manifest),
        placement=placement_of(manifest),
        serving=serving_of(manifest),
        change=annotations_of(manifest).get(ANNOTATION_CHANGE) or "",
    )


def job_record(manifest: Object) -> JobRecord:
    """A Job of ours. Only its own conditions say that it ended: a pod that failed may be tried again."""
    conditions = (manifest.get("status") or {}).get("conditions") or ()
    end = next((c for c in conditions if c["type"] in ("Complete", "Failed") and c["status"] == "True"), None)
    message = ""
    if end is not None and end["type"] == "Failed":
        message = ": ".join(part for part in (str(end.get("reason") or ""), str(end.get("message") or "")) if part)
    return JobRecord(
        **_owned(manifest, JOBS.kind),
        change=annotations_of(manifest).get(ANNOTATION_CHANGE) or "",
        ended=end is not None,
        succeeded=end is not None and end["type"] == "Complete",
        message=message or ("it failed" if end is not None and end["type"] == "Failed" else ""),
    )


def scaler_record(manifest: Object, kind: str) -> ScalerRecord | None:
    """An autoscaler of a Deployment; None if it scales something else."""
    metadata = manifest["metadata"]
    target = (manifest.get("spec") or {}).get("scaleTargetRef") or {}
    # A ScaledObject may leave out the kind: it means a Deployment.
    if target.get("kind", "Deployment") != "Deployment" or not target.get("name"):
        return None
    return ScalerRecord(
        version=int(metadata["resourceVersion"]),
        kind=kind,
        name=metadata["name"],
        target=Key(metadata["namespace"], target["name"]),
    )


def _owned(manifest: Object, kind: str) -> dict[str, Any]:
    metadata = manifest["metadata"]
    owner: dict[str, Any] = next((o for o in metadata.get("ownerReferences") or () if o.get("controller")), {})
    content = {key: value for key, value in manifest.items() if key != "status"}
    content["metadata"] = {key: value for key, value in metadata.items() if key not in _UNINTENDED}
    return {
        "version": int(metadata["resourceVersion"]),
        "key": key_of(manifest),
        "kind": kind,
        "uid": metadata["uid"],
        "model": (metadata.get("labels") or {}).get(LABEL_MODEL) or "",
        "owner_uid": str(owner.get("uid") or ""),
        # The fastest level makes a fifth of it, and thousands of these are kept.
        "content": zlib.compress(orjson.dumps(content), 1),
        "deleting": bool(metadata.get("deletionTimestamp")),
    }


def _template_revision(manifest: Object) -> str:
    template = (manifest.get("spec") or {}).get("template") or {}
    return str(((template.get("metadata") or {}).get("labels") or {}).get(LABEL_REVISION) or "")


def _served_name(manifest: Object) -> str:
    pod = ((manifest.get("spec") or {}).get("template") or {}).get("spec") or {}
    for container in pod.get("containers") or ():
        if container.get("name") == ENGINE_CONTAINER:
            args = container.get("args") or ()
            # The last one counts, as for the engine.
            return next((name for flag, name in reversed(list(pairwise(args))) if flag == SERVED_NAME_FLAG), "")
    return ""


def _foreign_scaler(managed_fields: Any) -> ForeignScaler | None:
    latest: ForeignScaler | None = None
    for entry in managed_fields:
        fields = entry.get("fieldsV1") or {}
        if entry.get("manager") == FIELD_MANAGER or "f:replicas" not in (fields.get("f:spec") or {}):
            continue
        at = unix_seconds(entry.get("time")) or 0.0
        if latest is None or at > latest.at:
            latest = ForeignScaler(str(entry.get("manager") or "unknown"), at, entry.get("operation") == "Apply")
    return latest


def _pod_gpus(spec: dict[str, Any]) -> tuple[tuple[str, int], ...]:
    totals: dict[str, int] = {}
    for container in spec.get("containers") or ():
        for name, count in ((container.get("resources") or {}).get("requests") or {}).items():
            if _is_accelerator(name):
                totals[name] = totals.get(name, 0) + _integer(count)
    if not totals:
        return ()
    return tuple((sys.intern(name), count) for name, count in sorted(totals.items()) if count)


def _is_accelerator(name: str) -> bool:
    return "/" in name and not name.startswith(_NO_ACCELERATORS)


def _integer(text: Any) -> int:
    try:
        return int(text)
    except (TypeError, ValueError):
        return 0


def _pod_state(
    metadata: dict[str, Any], spec: dict[str, Any], status: dict[str, Any]
) -> tuple[PodState | None, float | None, int, str, str]:
    """State (None: ended), when it became ready (last), restarts, and the trouble with its message."""
    ready = scheduled = False
    ready_changed: float | None = None
    trouble = message = ""
    for condition in status.get("conditions") or ():
        if condition["type"] == "Ready":
            ready = condition["status"] == "True"
            ready_changed = unix_seconds(condition.get("lastTransitionTime"))
        elif condition["type"] == "PodScheduled":
            scheduled = condition["status"] == "True"
            if not scheduled:
                trouble, message = str(condition.get("reason") or ""), str(condition.get("message") or "")
    restarts = 0
    failed = False
    for container in status.get("containerStatuses") or ():
        restarts += int(container.get("restartCount") or 0)
        waiting = (container.get("state") or {}).get("waiting") or {}
        ended = (container.get("state") or {}).get("terminated") or {}
        last = (container.get("lastState") or {}).get("terminated") or {}
        reason = str(waiting.get("reason") or ended.get("reason") or "")
        if reason in FAILED_REASONS:
            failed = True
            trouble, message = reason, str(waiting.get("message") or "")
        for end in (ended, last):
            if end.get("reason") == "OOMKilled":
                trouble, message = "OOMKilled", f"container {container.get('name')} ran out of memory"
        if not trouble and last:
            trouble = str(last.get("reason") or "")
            message = f"container {container.get('name')} exited with {last.get('exitCode')}"
    phase = status.get("phase")
    state: PodState | None
    if phase in _ENDED:
        state = None
        trouble, message = str(status.get("reason") or phase), str(status.get("message") or "")
    elif metadata.get("deletionTimestamp"):
        state = PodState.TERMINATING
    elif ready:
        state = PodState.READY
    elif failed:
        state = PodState.FAILED
    elif not spec.get("nodeName"):
        state = PodState.PENDING
    else:
        # Ready turned false after it had been true: only then is its transition later than the start of the pod.
        was_ready = _was_ready(status, ready_changed)
        state = PodState.UNREADY if was_ready else PodState.STARTING
    return state, (ready_changed if ready else None), restarts, trouble, message


def _was_ready(status: dict[str, Any], ready_changed: float | None) -> bool:
    started = any(c.get("started") for c in status.get("containerStatuses") or ())
    initialized = next((c for c in status.get("conditions") or () if c["type"] == "ContainersReady"), None)
    if not started or ready_changed is None or initialized is None:
        return False
    begun = unix_seconds(status.get("startTime")) or ready_changed
    # The kubelet sets Ready=False when it takes the pod in; a later change to False follows a time of being ready.
    return ready_changed - begun > 2.0
