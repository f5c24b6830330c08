"""The objects of the demo: the files of `examples/` it applies, and what it needs to read out of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from goodput.api.gputype import GPUType
from goodput.api.model import Model
from goodput.api.slo import SLOSpec
from goodput_world.replay.records import Objectives

SLO_FILE, GPU_TYPE_FILE, MODEL_FILE = "slo-chat.yaml", "gputype-l40s.yaml", "model-llama-8b-l40s.yaml"


class ExampleError(ValueError):
    """The example files do not hold what the demo needs; the message says which is missing."""


@dataclass(frozen=True, slots=True)
class DemoObjects:
    """An SLO, a Model that uses it on one GPU type, and that type's price per GPU and hour (None: nobody set one)."""

    documents: Sequence[dict[str, Any]]
    model: Model
    objectives: Objectives
    attainment: float
    gpu_type: str
    price_per_gpu_hour: float | None

    @property
    def names(self) -> str:
        """Kinds and names, for the screen."""
        return ", ".join(f"{each['kind']} {each['metadata']['name']}" for each in self.documents)


def read_objects(folder: Path, namespace: str, *, with_gpu_type: bool = True) -> DemoObjects:
    """Read the demo's files from `examples/`; the GPUType is cluster-scoped, so on a shared cluster it is left out.

    Raises ExampleError, OSError, or pydantic's error for an invalid object.
    """
    files = (SLO_FILE, GPU_TYPE_FILE, MODEL_FILE) if with_gpu_type else (SLO_FILE, MODEL_FILE)
    documents = [
        each for name in files for each in yaml.safe_load_all((folder / name).read_text(encoding="utf-8")) if each
    ]
    by_kind = {document["kind"]: document for document in documents}
    missing = {"SLO", "Model"} - set(by_kind)
    if missing:
        raise ExampleError(f"{folder}: no {' and no '.join(sorted(missing))} in {', '.join(files)}")
    model = Model.model_validate(_placed(by_kind["Model"], namespace))
    slo = SLOSpec.model_validate(by_kind["SLO"]["spec"])
    if len(model.spec.gpu_types) != 1:
        raise ExampleError(f"{MODEL_FILE}: spec.gpuTypes must name the one type that the demo's nodes have")
    gpu_type = GPUType.model_validate(by_kind["GPUType"]) if "GPUType" in by_kind else None
    return DemoObjects(
        documents=documents,
        model=model,
        objectives=Objectives(slo.ttft_seconds, slo.tpot_seconds, slo.e2e_seconds),
        attainment=slo.attainment_share,
        gpu_type=model.spec.gpu_types[0],
        price_per_gpu_hour=None if gpu_type is None else gpu_type.spec.price,
    )


def _placed(document: dict[str, Any], namespace: str) -> dict[str, Any]:
    return {**document, "metadata": {"namespace": namespace, **document["metadata"]}}
