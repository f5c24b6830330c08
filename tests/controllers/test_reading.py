"""Reading objects: intents with every problem named, GPU types, supply, second scalers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from goodput.adapters.kinds import AUTOSCALERS, DEPLOYMENTS, GPU_TYPES, MODELS, NODES, PODS, SLOS
from goodput.adapters.records import node_record, unix_seconds
from goodput.api import GPUType
from goodput.domain.identity import Key
from goodput.domain.intent import Problem
from goodput.perfmodel.gpus import built_in_gpu_types
from goodput.runtime.carriers import carried
from goodput.runtime.entries import Kept
from goodput.runtime.supply import gpu_types_of, supply_of


def found(bench: Any, name: str = "llama") -> dict[str, Problem]:
    view = next(v for v in bench.law.snapshots[-1].models if v.intent.key.name == name)
    return {problem.reason.value: problem for problem in view.intent.problems}


@pytest.mark.parametrize(
    ("spec", "reason", "words", "fatal"),
    [
        pytest.param({"slo": "none"}, "SLONotFound", "spec.slo", True, id="no such SLO"),
        pytest.param({"slo": {"name": "chat", "namespace": "b"}}, "SLONotFound", "namespace b", True, id="elsewhere"),
        pytest.param({"gpuTypes": ["nope"]}, "GPUTypeNotFound", "spec.gpuTypes: nope", True, id="no such type"),
        pytest.param({"gpuTypes": ["nope", "l40s"]}, "GPUTypeNotFound", "nope", False, id="one of two types"),
        pytest.param({"model": "who/knows"}, "ArchitectureUnknown", "spec.architecture", True, id="unknown model"),
        pytest.param({"engine": {"image": "evil:1"}}, "ImageNotAllowed", "spec.engine.image", True, id="image"),
        pytest.param(
            {"architecture": {"configMapRef": {"name": "gone"}}}, "ConfigMapNotFound", "gone", True, id="no ConfigMap"
        ),
    ],
)
async def test_problems_name_the_field(bench: Any, spec: dict[str, Any], reason: str, words: str, fatal: bool) -> None:
    """Whatever the schema cannot refuse becomes a problem that names the field."""
    settings = bench.operator.loop.observer.settings
    bench.operator.loop.observer.settings = replace_settings(settings, allowed_images=("good/*",))
    bench.apply(bench.model(**spec))
    await bench.tick()
    problem = found(bench)[reason]
    assert words in problem.message
    assert problem.fatal is fatal


def replace_settings(settings: Any, **changes: Any) -> Any:
    values = {name: getattr(settings, name) for name in settings.__slots__}
    return type(settings)(**{**values, **changes})


async def test_an_slo_of_another_namespace_must_allow_it(bench: Any) -> None:
    """allowedNamespaces of the SLO decides, and opens without a change of the Model."""
    shared = {"metadata": {"name": "gold", "namespace": "b"}, "spec": {"ttft": "1s"}}
    bench.api.put(SLOS, shared)
    bench.apply(bench.model(slo={"name": "gold", "namespace": "b"}))
    await bench.tick()
    assert "SLONotAllowed" in found(bench)
    bench.api.put(SLOS, {**shared, "spec": {"ttft": "1s", "allowedNamespaces": ["a"]}})
    await bench.tick()
    assert found(bench) == {}


async def test_of_two_models_with_one_served_name_the_later_stands_back(bench: Any) -> None:
    """The Model that was there first keeps the name; the other is told who has it."""
    first, second = bench.model("one", servedName="x"), bench.model("two", servedName="x")
    first["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    second["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    bench.apply(first, second)
    await bench.tick()
    assert found(bench, "one") == {}
    assert "Model one" in found(bench, "two")["ServedNameConflict"].message


async def test_an_older_model_takes_no_name_that_a_younger_one_serves(bench: Any) -> None:
    """Who serves it keeps it, or an edit of one Model would freeze another. Once that one is gone the name is free."""
    older, younger = bench.model("older"), bench.model("younger", servedName="x")
    older["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    younger["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    bench.apply(older, younger)
    await bench.tick(2)
    older["spec"]["servedName"] = "x"
    bench.apply(older)
    await bench.tick(2)
    assert found(bench, "younger") == {}
    assert "Model younger" in found(bench, "older")["ServedNameConflict"].message
    engines = {key.name: item for key, item in bench.api.objects[DEPLOYMENTS.plural].items()}
    assert "x" not in engines["older-serve"]["spec"]["template"]["spec"]["containers"][0]["args"]

    younger["spec"]["servedName"] = "y"
    bench.apply(younger)
    await bench.tick(2)
    assert found(bench, "older") == {}


async def test_engines_of_a_model_before_hold_no_name(bench: Any) -> None:
    """What a deleted Model left behind speaks for nobody, also not for its namesake."""
    older, younger = bench.model("older", servedName="x"), bench.model("younger", servedName="x")
    older["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    younger["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    bench.apply(younger)
    await bench.tick(2)
    bench.api.remove(MODELS, Key("a", "younger"))
    bench.apply(older, younger)
    await bench.tick()
    assert "Model older" in found(bench, "younger")["ServedNameConflict"].message


async def test_a_missing_secret_is_named(bench: Any) -> None:
    """The kubelet's word that a Secret is missing becomes the Model's problem."""
    bench.apply(bench.model())
    await bench.tick()
    bench.play_kubelet(ready=False)
    key = Key("a", "llama-serve-0")
    pod = dict(bench.api.objects[PODS.plural][key])
    reason = {"reason": "CreateContainerConfigError", "message": 'secret "token" not found'}
    pod["status"] = {"containerStatuses": [{"name": "vllm", "state": {"waiting": reason}}]}
    bench.api.put(PODS, pod)
    await bench.tick()
    assert 'secret "token" not found' in found(bench)["SecretNotFound"].message


async def test_a_second_scaler_is_seen(bench: Any) -> None:
    """An autoscaler that targets our Deployment is named, and gone once it is gone."""
    bench.apply(bench.model())
    await bench.tick()
    hpa = {"metadata": {"name": "h", "namespace": "a"}, "spec": {"scaleTargetRef": {"name": "llama-serve"}}}
    bench.api.put(AUTOSCALERS, hpa)
    await bench.tick()
    assert bench.law.snapshots[-1].models[0].pool.foreign_scaler == "HorizontalPodAutoscaler h"
    bench.api.remove(AUTOSCALERS, Key("a", "h"))
    await bench.tick()
    assert bench.law.snapshots[-1].models[0].pool.foreign_scaler is None


async def test_a_person_who_scaled_once_is_no_scaler_for_ever(bench: Any) -> None:
    """`kubectl scale` is a conflict for ten minutes; server-side apply by GitOps is one for good."""
    bench.apply(bench.model())
    await bench.tick()

    async def scaler(operation: str, seconds_ago: float) -> str | None:
        deployment = dict(bench.api.objects[DEPLOYMENTS.plural][Key("a", "llama-serve")])
        entry = {
            "manager": "someone",
            "operation": operation,
            "time": "2001-09-09T01:46:40Z",  # Unix time 1,000,000,000
            "fieldsV1": {"f:spec": {"f:replicas": {}}},
        }
        deployment["metadata"] = {**deployment["metadata"], "managedFields": [entry]}
        bench.api.put(DEPLOYMENTS, deployment)
        bench.now = 1_000_000_000.0 + seconds_ago
        await bench.tick()
        seen: str | None = bench.law.snapshots[-1].models[0].pool.foreign_scaler
        return seen

    assert await scaler("Update", 300.0) == "field manager someone"
    assert await scaler("Update", 700.0) is None
    assert await scaler("Apply", 700.0) == "field manager someone"


async def test_a_deleted_gpu_type_in_use_serves_on(bench: Any) -> None:
    """A type of one's own that was deleted stays for what runs on it, and the Model says so."""
    own = {
        "metadata": {"name": "l40s"},
        "spec": {"nodeSelector": {"gpu": "mine"}, "memory": "44Gi", "pricePerHour": "1.0"},
    }
    bench.api.put(GPU_TYPES, own)
    bench.apply(bench.model())
    await bench.tick()
    bench.api.remove(GPU_TYPES, Key("", "l40s"))
    await bench.tick()
    assert "was deleted" in found(bench)["GPUTypeNotFound"].message
    gpu = next(gpu for gpu in bench.law.snapshots[-1].gpu_types if gpu.name == "l40s")
    assert dict(gpu.node_selector) == {"gpu": "mine"}


def gpu_types(*manifests: dict[str, Any]) -> Kept[GPUType]:
    kept: Kept[GPUType] = Kept(GPUType)
    for manifest in manifests:
        metadata = {"uid": "1", "resourceVersion": "1", **manifest["metadata"]}
        kept.put({**manifest, "metadata": metadata})
    return kept


def test_gpu_types_override_and_complete_the_catalogue() -> None:
    """An object overrides what it sets of a built-in type; a type of one's own needs everything."""
    kept = gpu_types(
        {"metadata": {"name": "l40s"}, "spec": {"pricePerHour": "0.90", "limit": 64}},
        {"metadata": {"name": "mine"}, "spec": {"nodeSelector": {"a": "b"}, "memory": "80Gi"}},
    )
    types = {gpu.name: gpu for gpu in gpu_types_of(built_in_gpu_types(), kept.entries())}
    base = next(gpu for gpu in built_in_gpu_types() if gpu.name == "l40s")
    assert types["l40s"].price_per_hour == 0.90
    assert not types["l40s"].price_assumed
    assert (types["l40s"].limit, types["l40s"].memory_bytes) == (64, base.memory_bytes)
    assert "mine" not in types


def node(
    name: str, product: str, gpus: int, *, ready: bool = True, cordoned: bool = False, taints: tuple[str, ...] = ()
) -> Any:
    return node_record(
        {
            "metadata": {"name": name, "resourceVersion": "1", "labels": {"nvidia.com/gpu.product": product}},
            "spec": {
                "unschedulable": cordoned,
                "taints": [{"key": key, "value": "x", "effect": "NoSchedule"} for key in taints],
            },
            "status": {
                "allocatable": {"nvidia.com/gpu": str(gpus)},
                "conditions": [{"type": "Ready", "status": str(ready)}],
            },
        }
    )


def test_supply_counts_nodes_that_can_take_pods() -> None:
    """Installed and used are of ready, schedulable nodes; a GPU that anybody holds is used."""
    nodes = [
        node("one", "NVIDIA-L40S", 8),
        node("two", "NVIDIA-L40S", 8),
        node("down", "NVIDIA-L40S", 8, ready=False),
        node("cordoned", "NVIDIA-L40S", 8, cordoned=True),
        node("other", "NVIDIA-H100-80GB-HBM3", 8),
    ]
    used = {"one": {"nvidia.com/gpu": 3}, "down": {"nvidia.com/gpu": 8}}
    supply = {item.type: item for item in supply_of(carried(built_in_gpu_types(), nodes), used)}
    l40s = supply["l40s"]
    assert (l40s.nodes, l40s.installed, l40s.used, l40s.free) == (2, 16, 3, 13)
    assert supply["h100-sxm"].installed == 8
    assert set(supply) == {"l40s", "h100-sxm"}


def test_supply_tells_apart_nodes_that_not_every_model_tolerates() -> None:
    """By taints that pods of the type do not tolerate anyway: not its resource, nor what its GPUType says."""
    nodes = [
        node("one", "NVIDIA-L40S", 8),
        node("usual", "NVIDIA-L40S", 8, taints=("nvidia.com/gpu",)),
        node("listed", "NVIDIA-L40S", 4, taints=("listed",)),
        node("others", "NVIDIA-L40S", 8, taints=("nvidia.com/gpu", "listed", "team")),
        node("others-2", "NVIDIA-L40S", 2, taints=("team",)),
        node("cordoned", "NVIDIA-L40S", 8, cordoned=True, taints=("team",)),
    ]
    spec = {"metadata": {"name": "l40s"}, "spec": {"tolerations": [{"key": "listed", "operator": "Exists"}]}}
    types = gpu_types_of(built_in_gpu_types(), gpu_types(spec).entries())
    (l40s,) = supply_of(carried(types, nodes), {"usual": {"nvidia.com/gpu": 1}, "others": {"nvidia.com/gpu": 3}})
    assert (l40s.nodes, l40s.installed, l40s.used, l40s.free) == (5, 30, 4, 26)
    (row,) = l40s.tainted
    assert ([str(taint) for taint in row.taints], row.nodes, row.installed, row.used) == (
        ["team=x:NoSchedule"],
        2,
        10,
        3,
    )


async def test_a_taint_that_comes_is_seen(bench: Any, make_node: Callable[..., dict[str, Any]]) -> None:
    """GPUs of its node are out of reach for a Model that does not tolerate it, and are counted all the same."""
    bench.apply(bench.model(template={"tolerations": [{"key": "team", "operator": "Exists"}]}))
    await bench.tick()
    tainted = make_node("n1", 8)
    tainted["spec"] = {"taints": [{"key": "team", "value": "x", "effect": "NoSchedule"}]}
    bench.api.put(NODES, tainted)
    await bench.tick()
    snapshot = bench.law.snapshots[-1]
    assert [(s.installed, [row.installed for row in s.tainted]) for s in snapshot.supply] == [(8, [8])]
    assert snapshot.models[0].intent.tolerations == ('{"key":"team","operator":"Exists"}',)


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"memory": "48GB"}, "spec.memory: "),
        ({"memory": "48Gi"}, "spec.nodeSelector, spec.memoryBandwidth, spec.flops.bf16: needed"),
    ],
    ids=["invalid", "incomplete"],
)
async def test_a_gpu_type_that_is_wrong_is_not_told_to_be_absent(bench: Any, spec: dict[str, Any], fault: str) -> None:
    """The Model that names it says what is wrong with it, until it is mended."""
    whole = {"nodeSelector": {"a": "b"}, "memory": "48Gi", "memoryBandwidth": "800G", "flops": {"bf16": "300T"}}
    bench.apply(bench.model(gpuTypes=["ours", "nope"]))
    for told in (spec, whole):
        bench.api.put(GPU_TYPES, {"metadata": {"name": "ours"}, "spec": told})
        await bench.tick()
        problem = found(bench)["GPUTypeNotFound"]
        assert "spec.gpuTypes: nope is neither built in" in problem.message
        assert (f"GPUType ours is wrong, mend it or name another: {fault}" in problem.message) is (told is spec)
        assert ("ours" in problem.message, problem.fatal) == (told is spec, told is spec)


async def test_foreign_pods_take_gpus(bench: Any, make_node: Callable[..., dict[str, Any]]) -> None:
    """GPUs that a pod of somebody else holds are not free, and are again when it goes."""
    bench.apply(bench.model())
    bench.api.put(NODES, make_node("n2", 4))
    foreign = {
        "metadata": {"name": "train", "namespace": "z"},
        "spec": {"nodeName": "n2", "containers": [{"resources": {"requests": {"nvidia.com/gpu": "3"}}}]},
        "status": {"phase": "Running"},
    }
    bench.api.put(PODS, foreign)
    await bench.tick()
    assert [(s.installed, s.used) for s in bench.law.snapshots[-1].supply] == [(12, 3)]
    bench.api.remove(PODS, Key("z", "train"))
    await bench.tick()
    assert [(s.installed, s.used) for s in bench.law.snapshots[-1].supply] == [(12, 0)]


async def test_pods_that_have_ended_count_for_nothing(bench: Any) -> None:
    """Two were evicted long ago and their objects were never collected: the Model is as if they were gone."""
    bench.apply(bench.model(scaling={"minReplicas": 2}))
    await bench.tick()
    bench.play_kubelet()
    await bench.tick()
    before = bench.law.snapshots[-1]
    bench.now = unix_seconds("2026-01-08T00:00:00Z") or 0.0
    for index, phase in enumerate(("Failed", "Succeeded")):
        bench.api.put(PODS, ended(bench, f"llama-serve-old-{index}", phase=phase, created="2026-01-01T00:00:00Z"))
    await bench.tick()
    now = bench.law.snapshots[-1]
    assert [pod.name for pod in now.models[0].pool.pods] == ["llama-serve-0", "llama-serve-1"]
    assert now.models[0].pool == before.models[0].pool
    assert now.supply == before.supply


@pytest.mark.parametrize(
    ("created", "ready", "told"),
    [
        pytest.param("2026-01-07T23:59:00Z", False, True, id="again and again"),
        pytest.param("2026-01-07T23:59:00Z", True, False, id="but enough others are ready"),
        pytest.param("2026-01-07T00:00:00Z", False, False, id="evicted long ago, others are starting"),
    ],
)
async def test_pods_that_nodes_reject_again_and_again_are_told(
    bench: Any, created: str, ready: bool, told: bool
) -> None:
    """Pods that end within minutes of being made, so that too few are ready, are refused pods; nothing else is."""
    bench.apply(bench.model())
    await bench.tick()
    bench.play_kubelet(ready=ready)
    bench.now = unix_seconds("2026-01-08T00:00:00Z") or 0.0
    for index in range(2):
        bench.api.put(PODS, ended(bench, f"llama-serve-new-{index}", phase="Failed", created=created))
        await bench.tick()
        # A single one is no loop.
        refused = bench.law.snapshots[-1].models[0].pool.pods_refused
        assert bool(refused) is (told and index == 1)
    if told:
        assert refused == "2 ended within minutes, llama-serve-new-1: UnexpectedAdmissionError (no healthy devices)"


def ended(bench: Any, name: str, *, phase: str, created: str) -> dict[str, Any]:
    """An engine pod of llama of which nothing runs any more."""
    deployment = bench.api.objects[DEPLOYMENTS.plural][Key("a", "llama-serve")]
    metadata = {"name": name, "namespace": "a", "creationTimestamp": created, "owner": "nobody that looks for it"}
    return {
        "metadata": {**metadata, "labels": deployment["spec"]["template"]["metadata"]["labels"]},
        "spec": {"nodeName": "n1", "containers": [{"resources": {"requests": {"nvidia.com/gpu": "1"}}}]},
        "status": {"phase": phase, "reason": "UnexpectedAdmissionError", "message": "no healthy devices"},
    }
