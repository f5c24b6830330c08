"""The status of a pod as a kubelet writes it, built from what its containers do. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any


def timestamp(moment: datetime | None = None) -> str:
    """A moment (None: now) as the API writes it, to the second."""
    return (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    """The state of a container that does not run yet."""
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


@dataclass(slots=True)
class ContainerView:
    """What the status says about one container. `started` None: there is nothing to wait for yet."""

    name: str
    image: str
    init: bool = False
    sidecar: bool = False
    state: dict[str, Any] = field(default_factory=lambda: waiting("ContainerCreating"))
    last_state: dict[str, Any] = field(default_factory=dict)
    ready: bool = False
    started: bool = False
    restart_count: int = 0
    container_id: str = ""

    def as_status(self) -> dict[str, Any]:
        """The ContainerStatus object."""
        return {
            "name": self.name,
            "image": self.image,
            "imageID": f"sim://{self.image}" if self.container_id else "",
            "containerID": self.container_id,
            "state": self.state,
            "lastState": self.last_state,
            "ready": self.ready,
            "started": self.started,
            "restartCount": self.restart_count,
        }

    @property
    def exit_code(self) -> int | None:
        """The exit code of a container that has ended for good, else None."""
        ended = self.state.get("terminated")
        return None if ended is None else int(ended["exitCode"])


def pod_phase(containers: Sequence[ContainerView], inits: Sequence[ContainerView], restart_policy: str) -> str:
    """Pending, Running, Succeeded or Failed, by the kubelet's rules."""
    for init in inits:
        if init.sidecar:
            continue
        if init.exit_code not in {0, None} and restart_policy == "Never":
            return "Failed"
    codes = [container.exit_code for container in containers]
    if codes and all(code is not None for code in codes):
        if restart_policy == "Always":
            return "Running"
        return "Succeeded" if all(code == 0 for code in codes) else "Failed"
    begun = any("waiting" not in c.state or c.restart_count or c.last_state for c in containers)
    return "Running" if begun else "Pending"


@dataclass(slots=True)
class Conditions:
    """The conditions of a pod; the transition time of one moves only when its status does."""

    generation: int = 0
    _known: dict[str, dict[str, Any]] = field(default_factory=dict)

    def adopt(self, conditions: Iterable[Mapping[str, Any]]) -> None:
        """Start from the conditions that the pod has already."""
        for condition in conditions:
            self._known.setdefault(condition["type"], dict(condition))

    def set(self, kind: str, holds: bool, reason: str = "", message: str = "", *, now: str) -> None:
        """Set one condition."""
        status = "True" if holds else "False"
        before = self._known.get(kind)
        moved = now if before is None or before["status"] != status else before.get("lastTransitionTime", now)
        condition: dict[str, Any] = {"type": kind, "status": status, "lastTransitionTime": moved}
        # Empty strings, not absent keys: a strategic merge would keep the old reason of a condition.
        condition.update(reason=reason, message=message)
        if self.generation:
            condition["observedGeneration"] = self.generation
        self._known[kind] = condition

    def holds(self, kind: str) -> bool:
        """Whether a condition is known and True."""
        return self._known.get(kind, {}).get("status") == "True"

    def listed(self, kinds: Iterable[str]) -> list[dict[str, Any]]:
        """These conditions, in this order."""
        return [self._known[kind] for kind in kinds if kind in self._known]


KUBELET_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")


def build_status(
    pod: Mapping[str, Any],
    containers: Sequence[ContainerView],
    inits: Sequence[ContainerView],
    conditions: Conditions,
    *,
    host_ip: str,
    pod_ip: str,
    start_time: str,
    sandbox_ready: bool,
    force_not_ready: bool,
    final_phase: str | None,
    reason: str = "",
    message: str = "",
) -> dict[str, Any]:
    """The whole `status` that the kubelet owns, ready for a strategic merge patch."""
    now = timestamp()
    policy = pod["spec"].get("restartPolicy", "Always")
    phase = final_phase or pod_phase(containers, inits, policy)
    conditions.generation = int(pod["metadata"].get("generation") or 0)
    unfinished = [i.name for i in inits if (not i.started if i.sidecar else i.exit_code != 0)]
    unready = [c.name for c in containers if not c.ready] + [i.name for i in inits if i.sidecar and not i.ready]
    done = phase in {"Succeeded", "Failed"}
    conditions.set("PodReadyToStartContainers", sandbox_ready and not done, now=now)
    if unfinished and not done:
        text = f"containers with incomplete status: [{' '.join(unfinished)}]"
        conditions.set("Initialized", False, "ContainersNotInitialized", text, now=now)
    else:
        conditions.set("Initialized", True, "PodCompleted" if phase == "Succeeded" else "", now=now)
    why, text = "", ""
    if done:
        why = "PodCompleted" if phase == "Succeeded" else "PodFailed"
    elif unready:
        why, text = "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    containers_ready = not why
    conditions.set("ContainersReady", containers_ready, why, text, now=now)
    gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates") or ()]
    closed = [gate for gate in gates if not _true_in(pod, gate)]
    if containers_ready and closed:
        why, text = "ReadinessGatesNotReady", f"conditions not True: [{' '.join(closed)}]"
    if containers_ready and force_not_ready:
        why, text = "PodTerminating", "the pod is being deleted"
    conditions.set("Ready", not why, why, text, now=now)
    if not conditions.holds("PodScheduled"):
        conditions.set("PodScheduled", True, now=now)
    status: dict[str, Any] = {
        "phase": phase,
        "conditions": conditions.listed(KUBELET_CONDITIONS),
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "startTime": start_time,
        "containerStatuses": [container.as_status() for container in containers],
    }
    if sandbox_ready or done:
        status["podIP"] = pod_ip
        status["podIPs"] = [{"ip": pod_ip}]
    if inits:
        status["initContainerStatuses"] = [init.as_status() for init in inits]
    if conditions.generation:
        status["observedGeneration"] = conditions.generation
    if reason:
        status["reason"] = reason
    if message:
        status["message"] = message
    return status


def _true_in(pod: Mapping[str, Any], kind: str) -> bool:
    conditions: Sequence[Mapping[str, Any]] = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == kind and c["status"] == "True" for c in conditions)
