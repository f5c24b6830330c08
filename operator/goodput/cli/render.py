"""`render`: the objects of the Models in files, offline, with the built-in catalogue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

from goodput.api import SLO, GPUType, Model
from goodput.decide import Policy, decide
from goodput.domain.errors import InvalidObject
from goodput.domain.identity import ROUTER_POOL, SERVE_POOL, Key
from goodput.domain.intent import GpuType, ModelIntent
from goodput.domain.observed import GpuSupply, ModelView, PoolView, Snapshot
from goodput.perfmodel.catalogue import built_in_gpu_types
from goodput.resources.inputs import KubeObject
from goodput.resources.render import render_model
from goodput.runtime.entries import Kept
from goodput.runtime.intents import Surroundings, intent_of
from goodput.runtime.rendering import render_input, render_settings
from goodput.runtime.settings import Settings
from goodput.runtime.supply import fault_of, gpu_types_of

OFFLINE_UID = "00000000-0000-0000-0000-000000000000"
# Offline every type is there in plenty: what fits best is shown, not what is free.
PLENTY_OF_NODES = 1000


def rendered(
    documents: Iterable[dict[str, Any]], namespace: str, settings: Settings, replicas: int | None
) -> list[KubeObject]:
    """Objects of every Model in `documents`, in the order of applying them.

    Raises:
        click.ClickException: an object is wrong, or a Model cannot be placed.
    """
    kinds: dict[str, Kept[Any]] = {"Model": Kept(Model), "SLO": Kept(SLO), "GPUType": Kept(GPUType)}
    config_maps: dict[Key, Mapping[str, str]] = {}
    for document in documents:
        # A file may come from a cluster: what the API server wrote there is not taken over.
        ours = {"uid": OFFLINE_UID, "generation": 1, "resourceVersion": "1", "creationTimestamp": ""}
        ours |= {"namespace": document["metadata"].get("namespace") or namespace, "deletionTimestamp": ""}
        metadata: dict[str, Any] = {**document["metadata"], **ours}
        if document["kind"] == "GPUType":
            metadata.pop("namespace")
        if document["kind"] == "ConfigMap":
            config_maps[Key(metadata["namespace"], metadata["name"])] = document.get("data") or {}
        elif document["kind"] in kinds:
            kinds[document["kind"]].put({**document, "metadata": metadata})
    models = list(kinds["Model"].entries())
    if not models:
        raise click.ClickException("the files hold no Model: give one with -f")

    def text(space: str, name: str, entry: str) -> str | None:
        found = config_maps.get(Key(space, name))
        return None if found is None else found.get(entry, "")

    built_in = built_in_gpu_types()
    built_in_names = {gpu.name for gpu in built_in}
    for entry in kinds["SLO"].entries():
        if entry.error is not None:
            raise click.ClickException(f"SLO {entry.key.name}: {entry.error}")
    for entry in kinds["GPUType"].entries():
        if fault := fault_of(entry, entry.key.name in built_in_names):
            raise click.ClickException(f"GPUType {entry.key.name}: {fault}")
    types = gpu_types_of(built_in, kinds["GPUType"].entries())
    objects: list[KubeObject] = []
    for entry in models:
        if entry.value is None:
            raise click.ClickException(f"Model {entry.key.name}: {entry.error}")
        around = Surroundings(
            settings=settings,
            slo=kinds["SLO"].get(Key(entry.value.slo_namespace, entry.value.spec.slo.name)),
            gpu_types=frozenset(gpu.name for gpu in types),
            gpu_type_faults={},
            served_names={},
            config_map_text=text,
        )
        intent = intent_of(entry, around)
        if intent is None:
            raise click.ClickException(f"Model {entry.key.name} cannot be read")
        fatal = [problem for problem in intent.problems if problem.fatal]
        if fatal:
            raise click.ClickException(f"Model {entry.key.name}: {'; '.join(problem.message for problem in fatal)}")
        objects += _objects(entry.value, intent, types, settings, replicas)
    return objects


def _objects(
    model: Model, intent: ModelIntent, types: tuple[GpuType, ...], settings: Settings, replicas: int | None
) -> list[KubeObject]:
    supply = tuple(
        GpuSupply(type=gpu.name, nodes=PLENTY_OF_NODES, installed=PLENTY_OF_NODES * gpu.gpus_per_node, used=0)
        for gpu in types
    )
    view = ModelView(
        intent=intent,
        pool=PoolView(name=SERVE_POOL, exists=False),
        router=PoolView(name=ROUTER_POOL, exists=False),
        telemetry=None,
    )
    try:
        plan = decide(Snapshot(models=(view,), gpu_types=types, supply=supply), {}, Policy(), 1.0).models[0]
    except InvalidObject as error:
        raise click.ClickException(f"Model {intent.key.name}: {error}") from error
    if plan.pool is None:
        why = next((c.message for c in plan.conditions if c.type == "Placed"), "it cannot be placed")
        raise click.ClickException(f"Model {intent.key.name}: {why}")
    render = render_input(
        model,
        intent,
        plan.pool.placement,
        replicas=replicas if replicas is not None else plan.pool.replicas,
        settings=render_settings(settings, pod_monitor=False),
    )
    return list(render_model(render, {}).objects)
