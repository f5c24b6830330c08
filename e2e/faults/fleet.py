"""Models of the tests, and the state of a namespace in a form that two runs can be compared by."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from faults.person import Person
from faults.prometheus import MODEL, OUTPUT_TOKENS, PROMPT_TOKENS
from goodput.domain.intent import Objective
from goodput.perfmodel import Lengths, Shape, architecture, capacity
from goodput.perfmodel.gpus import gpu_type

ENGINE = f"{MODEL}-serve"
# What differs between two runs of the same thing: identity, time, and what other controllers allocate.
_UNEQUAL = frozenset({"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"})
_ALLOCATED = frozenset({"clusterIP", "clusterIPs"})
# SLOMet speaks of the requests of the last 10 minutes, of which a disturbed run has seen others.
_COMPARED_CONDITIONS = frozenset({"Ready", "Reconciling", "Stalled", "MetricsFresh", "Placed", "UpdateAvailable"})

Object = dict[str, Any]
HUB_ID, GPU = "meta-llama/Llama-3.1-8B-Instruct", "l40s"


def believed_rps() -> float:
    """Requests/s that the operator believes one replica of these tests to serve within their SLO."""
    arch, gpu = architecture(HUB_ID), gpu_type(GPU)
    assert arch is not None, HUB_ID
    assert gpu is not None, GPU
    objective = Objective(ttft_seconds=0.5, tpot_seconds=0.05, e2e_seconds=None)
    return capacity(arch, gpu, Shape(), Lengths(PROMPT_TOKENS, OUTPUT_TOKENS), objective).rps


LOW, HIGH = 0.28 * believed_rps(), 2.45 * believed_rps()
"""Requests/s that one replica serves, and three."""


def slo(**spec: Any) -> Object:
    """The SLO `chat` of the examples."""
    return {
        "apiVersion": "goodput.dev/v1alpha1",
        "kind": "SLO",
        "metadata": {"name": "chat"},
        "spec": {"ttft": "500ms", "tpot": "50ms", "attainment": "95%", **spec},
    }


def model(**spec: Any) -> Object:
    """The smallest Model, on the GPU type of these tests' nodes."""
    return {
        "apiVersion": "goodput.dev/v1alpha1",
        "kind": "Model",
        "metadata": {"name": MODEL},
        "spec": {"model": HUB_ID, "slo": "chat", "gpuTypes": [GPU], **spec},
    }


async def create_fleet(person: Person, namespace: str, **spec: Any) -> None:
    """A namespace with an SLO and a Model."""
    await create_namespace(person, namespace)
    await person.create(slo(), namespace)
    await person.create(model(**spec), namespace)


async def create_namespace(person: Person, name: str) -> None:
    """One that enforces restricted Pod Security."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await person.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})


def condition(found: Mapping[str, Any], kind: str) -> tuple[str, str, str]:
    """(status, reason, message) of a condition of a Model; empty when there is none."""
    for each in found.get("status", {}).get("conditions", ()):
        if each["type"] == kind:
            return each["status"], each["reason"], each.get("message", "")
    return "", "", ""


def settled(objects: list[Object], replicas: int) -> bool:
    """Whether the Model runs so many replicas and says that it is done."""
    found = next((item for item in objects if item["kind"] == "Model"), None)
    engine = next((item for item in objects if item["kind"] == "Deployment" and item["metadata"]["name"] == ENGINE), {})
    if found is None or not engine:
        return False
    state = engine.get("status", {})
    return (
        found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]
        and condition(found, "Ready")[0] == "True"
        and condition(found, "Reconciling")[0] == "False"
        and engine["spec"]["replicas"] == replicas
        and state.get("observedGeneration") == engine["metadata"]["generation"]
        and all(state.get(name) == replicas for name in ("replicas", "readyReplicas", "updatedReplicas"))
    )


def normalised(objects: list[Object], namespace: str) -> dict[str, Any]:
    """Objects by kind and name, less what differs between any two runs; the namespace's name is a placeholder."""
    found = {}
    for item in objects:
        slim = _slim(item)
        kind, name = item["kind"], item["metadata"]["name"]
        if kind == "ConfigMap":
            # Learned from the traffic of this very run: that it is whole is what can be compared.
            slim["data"] = {key: sorted(json.loads(text)) for key, text in (item.get("data") or {}).items()}
        elif kind == "Model":
            slim["status"] = _model_status(item.get("status") or {})
        elif kind == "SLO":
            slim["status"] = {"users": (item.get("status") or {}).get("users")}
        elif kind == "Job":
            # The Job controller writes its own uid into selector and labels; what its author wrote is compared.
            spec = slim["spec"]
            slim["spec"] = {"backoffLimit": spec["backoffLimit"], "pod": spec["template"]["spec"]}
            conditions = (item.get("status") or {}).get("conditions") or ()
            slim["status"] = sorted(each["type"] for each in conditions)
        elif kind in ("Deployment", "PodDisruptionBudget"):
            slim["status"] = _counts(item.get("status") or {})
        found[f"{kind}/{name}"] = slim
    text = re.sub(rf"(?<![\w-]){re.escape(namespace)}(?![\w-])", "NAMESPACE", json.dumps(found, sort_keys=True))
    # A revision is a hash of what is rendered, the namespace included.
    for index, revision in enumerate(sorted(_revisions(objects).items())):
        text = text.replace(revision[1], f"REVISION-{index}")
    result: dict[str, Any] = json.loads(text)
    return result


def _revisions(objects: list[Object]) -> dict[str, str]:
    return {
        item["metadata"]["name"]: item["spec"]["template"]["metadata"]["labels"]["goodput.dev/revision"]
        for item in objects
        if item["kind"] == "Deployment"
    }


def difference(expected: Any, seen: Any, path: str = "") -> list[str]:
    """Where two normalised states differ, as `path: expected != seen`."""
    if isinstance(expected, dict) and isinstance(seen, dict):
        return [
            line
            for key in sorted(expected.keys() | seen.keys())
            for line in difference(expected.get(key, "(none)"), seen.get(key, "(none)"), f"{path}/{key}")
        ]
    return [] if expected == seen else [f"{path}: {expected!r} != {seen!r}"]


def _slim(item: Any) -> Any:
    if isinstance(item, dict):
        return {key: _slim(value) for key, value in item.items() if key not in _UNEQUAL | _ALLOCATED}
    if isinstance(item, list):
        return [_slim(value) for value in item]
    return item


def _model_status(status: Mapping[str, Any]) -> dict[str, Any]:
    conditions = {
        each["type"]: (each["status"], each["reason"])
        for each in status.get("conditions", ())
        if each["type"] in _COMPARED_CONDITIONS
    }
    pools = [
        {key: pool.get(key) for key in ("role", "gpuType", "tensorParallel", "desired", "ready")}
        for pool in status.get("pools", ())
    ]
    return {"conditions": conditions, "pools": pools, "replicas": status.get("replicas")}


def _counts(status: Mapping[str, Any]) -> dict[str, Any]:
    names = ("replicas", "readyReplicas", "updatedReplicas", "currentHealthy", "desiredHealthy", "expectedPods")
    return {name: status.get(name) for name in names if name in status}
