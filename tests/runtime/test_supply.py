"""GPU types of one's own: complete, or left out with the field that is missing."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from goodput.api import GPUType
from goodput.perfmodel import architecture, built_in_gpu_types
from goodput.perfmodel.roofline import step_times
from goodput.runtime.entries import Kept
from goodput.runtime.supply import gpu_types_of, incomplete

COMPLETE: dict[str, Any] = {
    "nodeSelector": {"gpu": "mine"},
    "memory": "79.2Gi",
    "memoryBandwidth": "3350G",
    "flops": {"bf16": "989T"},
}


def _object(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name, "generation": 1, "resourceVersion": "1"}, "spec": spec}


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({}, "", id="complete"),
        pytest.param({"flops": None}, "spec.flops.bf16", id="no figures"),
        pytest.param({"flops": {}}, "spec.flops.bf16", id="empty figures"),
        pytest.param({"flops": {"fp8": "1979T"}}, "spec.flops.bf16", id="fp8 alone"),
        pytest.param({"memory": None, "nodeSelector": None}, "spec.nodeSelector, spec.memory", id="two fields"),
    ],
)
def test_a_type_of_ones_own_is_complete_or_names_what_it_lacks(changes: dict[str, Any], want: str) -> None:
    """Without bf16 there is no law for it: it is not used, rather than with the figure of another precision."""
    raw = _object("mine", {**COMPLETE, **changes})
    assert incomplete(GPUType.parse(raw), built_in=False) == want
    kept = Kept(GPUType)
    kept.put(raw)
    names = {gpu.name for gpu in gpu_types_of(built_in_gpu_types(), kept.entries())}
    assert ("mine" in names) is (want == "")


def test_a_built_in_type_keeps_its_bf16() -> None:
    """An object that sets fp8 alone leaves the other built-in figures where they are."""
    kept = Kept(GPUType)
    kept.put(_object("l40s", {"flops": {"fp8": "700T"}}))
    found = {gpu.name: gpu for gpu in gpu_types_of(built_in_gpu_types(), kept.entries())}["l40s"]
    base = {gpu.name: gpu for gpu in built_in_gpu_types()}["l40s"]
    assert dict(found.flops) == {**dict(base.flops), "fp8": 700e12}


def test_compute_follows_bf16_whatever_else_a_type_can_do() -> None:
    """A model in bf16 runs at the bf16 rate of a GPU, also where fp4 is six times as fast."""
    arch = architecture("meta-llama/Llama-3.1-8B-Instruct")
    assert arch is not None
    b300 = next(gpu for gpu in built_in_gpu_types() if gpu.name == "b300")
    assert "fp4" in dict(b300.flops)
    plain = replace(b300, flops=(("bf16", dict(b300.flops)["bf16"]),))
    assert step_times(arch, b300) == step_times(arch, plain)
