"""Models, SLOs and GPUTypes in files, read as the operator reads those of a cluster, with the built-in catalogue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from goodput.api import SLO, GPUType, Model
from goodput.domain.conditions import ConditionReason
from goodput.domain.identity import Key
from goodput.domain.intent import GpuType, ModelIntent
from goodput.perfmodel.gpus import built_in_gpu_types
from goodput.runtime.entries import Entry, Kept
from goodput.runtime.intents import Surroundings, intent_of
from goodput.runtime.settings import Settings
from goodput.runtime.supply import fault_of, gpu_types_of

OFFLINE_UID = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class Offline:
    """What the files say: every Model with what it wants, and all GPU types, built-in ones included."""

    models: tuple[tuple[Model, ModelIntent], ...]
    gpu_types: tuple[GpuType, ...]


def read_offline(
    documents: Iterable[dict[str, Any]], namespace: str, settings: Settings, *, slo_needed: bool = True
) -> Offline:
    """What `documents` say; with `slo_needed` the SLOs that Models name are among them.

    Raises:
        click.ClickException: an object is wrong or missing; names the object and the field.
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
    for entry in kinds["SLO"].entries():
        if entry.error is not None:
            raise click.ClickException(f"SLO {entry.key.name}: {entry.error}")
    types = _gpu_types(kinds["GPUType"])
    how: dict[str, Any] = {"settings": settings, "slo_needed": slo_needed}
    read = (_model(entry, kinds["SLO"], types, config_maps, **how) for entry in models)
    return Offline(tuple(read), types)


def _gpu_types(kept: Kept[GPUType]) -> tuple[GpuType, ...]:
    built_in = built_in_gpu_types()
    names = {gpu.name for gpu in built_in}
    for entry in kept.entries():
        if fault := fault_of(entry, entry.key.name in names):
            raise click.ClickException(f"GPUType {entry.key.name}: {fault}")
    return gpu_types_of(built_in, kept.entries())


def _model(
    entry: Entry[Model],
    slos: Kept[SLO],
    types: tuple[GpuType, ...],
    config_maps: Mapping[Key, Mapping[str, str]],
    *,
    settings: Settings,
    slo_needed: bool,
) -> tuple[Model, ModelIntent]:
    def text(space: str, name: str, part: str) -> str | None:
        found = config_maps.get(Key(space, name))
        return None if found is None else found.get(part, "")

    if entry.value is None:
        raise click.ClickException(f"Model {entry.key.name}: {entry.error}")
    around = Surroundings(
        settings=settings,
        slo=slos.get(Key(entry.value.slo_namespace, entry.value.spec.slo.name)),
        gpu_types=frozenset(gpu.name for gpu in types),
        gpu_type_faults={},
        served_names={},
        config_map_text=text,
    )
    intent = intent_of(entry, around)
    if intent is None:
        raise click.ClickException(f"Model {entry.key.name} cannot be read")
    fatal = [problem for problem in intent.problems if problem.fatal]
    if not slo_needed:
        fatal = [problem for problem in fatal if problem.reason is not ConditionReason.SLO_NOT_FOUND]
    if fatal:
        raise click.ClickException(f"Model {entry.key.name}: {'; '.join(problem.message for problem in fatal)}")
    return entry.value, intent
