"""A Model that runs on a GPUType of which an operator that is new knows nothing is not moved to another for that."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from goodput.adapters.kinds import DEPLOYMENTS, GPU_TYPES, MODELS
from goodput.decide import decide
from goodput.domain.identity import Key

OURS: dict[str, Any] = {
    "metadata": {"name": "ours"},
    "spec": {
        "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L40S"},
        "memory": "44Gi",
        "memoryBandwidth": "864G",
        "flops": {"bf16": "362T", "fp8": "733T"},
        "pricePerHour": "0.01",
    },
}
SPOILT = {**OURS, "spec": {**OURS["spec"], "resourceName": "nvidia.com/gpu.shared"}}
ENGINE = Key("a", "llama-serve")


@pytest.fixture
async def restart(bench: Any, new_bench: Callable[..., Any]) -> AsyncIterator[Callable[..., Any]]:
    """`await restart(manifest)`: a Model serves on `ours`, which is this (None: gone) when another operator begins."""
    benches = []

    async def build(manifest: dict[str, Any] | None, gpu_types: list[str]) -> Any:
        bench.operator.loop.decide = decide
        bench.api.put(GPU_TYPES, OURS)
        bench.apply(bench.model(gpuTypes=gpu_types))
        await bench.tick()
        bench.play_kubelet()
        await bench.tick(3)
        assert bench.condition("Ready") == ("True", "Serving")
        assert bench.status()["pools"][0]["gpuType"] == "ours"
        await bench.stop()
        if manifest is None:
            bench.api.remove(GPU_TYPES, Key("", "ours"))
        else:
            bench.api.put(GPU_TYPES, manifest)
        made = new_bench(bench.api)
        made.operator.loop.decide = decide
        made.now = bench.now
        await made.start()
        benches.append(made)
        return made

    yield build
    for made in benches:
        await made.stop()


@pytest.mark.parametrize("gpu_types", [[], ["ours"], ["ours", "l40s"]], ids=str)
@pytest.mark.parametrize(
    ("manifest", "told"),
    [(SPOILT, "is wrong, mend it (spec.resourceName: time-sliced GPUs"), (None, "is gone, create it again")],
    ids=["spoilt", "gone"],
)
async def test_its_pods_go_on_as_they_are(
    restart: Callable[..., Any], manifest: dict[str, Any] | None, told: str, gpu_types: list[str]
) -> None:
    """Until the type is mended."""
    bench = await restart(manifest, gpu_types)
    before = copy.deepcopy(bench.api.objects[DEPLOYMENTS.plural][ENGINE])
    await bench.tick(3)
    assert bench.api.objects[DEPLOYMENTS.plural][ENGINE] == before
    assert bench.condition("Placed") == ("False", "GPUTypeNotFound")
    assert bench.condition("Ready") == ("True", "Serving")
    message = next(c["message"] for c in bench.status()["conditions"] if c["type"] == "Placed")
    assert f"GPUType ours {told}" in message
    bench.api.put(GPU_TYPES, OURS)
    await bench.tick(2)
    assert bench.condition("Placed")[0] == "True"
    assert bench.api.objects[DEPLOYMENTS.plural][ENGINE] == before


async def test_its_author_may_name_another(restart: Callable[..., Any]) -> None:
    """Then it moves there."""
    bench = await restart(None, [])
    await bench.tick()
    found = bench.api.objects[MODELS.plural][Key("a", "llama")]
    bench.api.put(MODELS, {**found, "spec": {**found["spec"], "gpuTypes": ["l40s"]}})
    await bench.tick(2)
    assert bench.status()["pools"][0]["gpuType"] == "l40s"
