"""GPU types of one's own: complete, or left out with the field that is missing."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from goodput.api import GPUType
from goodput.domain.intent import GpuType
from goodput.perfmodel import architecture, built_in_gpu_types
from goodput.perfmodel.gpus import gpu_type
from goodput.perfmodel.roofline import step_times
from goodput.runtime.entries import Kept
from goodput.runtime.supply import fault_of, gpu_types_of, incomplete

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


def test_the_speed_of_links_is_its_authors() -> None:
    """An l40s on a board of its own with NVLink: all-reduces of two take less; one GPU alone exchanges nothing."""
    base, linked = _types()["l40s"], _types(("l40s", {"interconnect": {"scaleUp": "450G"}}))["l40s"]
    assert base.scale_up_bytes_per_second == 31.5e9
    assert linked.scale_up_bytes_per_second == 450e9
    arch = architecture("meta-llama/Llama-3.1-8B-Instruct")
    assert arch is not None
    assert step_times(arch, linked, 1) == step_times(arch, base, 1)

    def seconds(gpu: GpuType) -> float:
        return step_times(arch, gpu, 2).decode(8.0, 1000.0)

    assert seconds(linked) < 0.9 * seconds(base)
    slower = _types(("h100-sxm", {"interconnect": {"scaleUp": "64G"}}))["h100-sxm"]
    assert seconds(slower) > 1.1 * seconds(_types()["h100-sxm"])


def test_what_an_object_does_not_say_of_links_is_built_in() -> None:
    """A price leaves the links as they are; of a type of one's own nothing is known."""
    types = _types(("h100-sxm", {"pricePerHour": "2"}), ("mine", COMPLETE))
    assert types["h100-sxm"].scale_up_bytes_per_second == 450e9
    assert types["mine"].scale_up_bytes_per_second is None
    own = _types(("mine", {**COMPLETE, "interconnect": {"scaleUp": "200G"}}))["mine"]
    assert own.scale_up_bytes_per_second == 200e9


def _types(*objects: tuple[str, dict[str, Any]]) -> dict[str, GpuType]:
    kept = Kept(GPUType)
    for name, spec in objects:
        kept.put(_object(name, spec))
    return {gpu.name: gpu for gpu in gpu_types_of(built_in_gpu_types(), kept.entries())}


BOUGHT = {"price": "35040", "amortisation": "4y"}


def test_a_purchase_counts_before_any_price() -> None:
    """$35,040 over four years is $1 an hour, with 700 W at $0.20 a kWh $1.14; nothing of it is assumed."""
    spec = {"purchase": {**BOUGHT, "powerPricePerKWh": "0.20"}, "pricePerHour": "9", "spotPricePerHour": "5"}
    found = _types(("h100-sxm", spec))["h100-sxm"]
    assert found.price_per_hour == pytest.approx(1.14)
    assert not found.price_assumed
    assert _types(("h100-sxm", {"purchase": BOUGHT}))["h100-sxm"].price_per_hour == pytest.approx(1.0)
    assert _types(("h100-sxm", {"purchase": BOUGHT, "tdpWatts": 500}))["h100-sxm"].tdp_watts == 500


def test_a_type_of_spot_nodes_is_written_as_a_type_of_its_own() -> None:
    """Its labels ask for spot nodes, so its spot price counts, also while no such node is there."""
    spec = {**COMPLETE, "nodeSelector": {"gpu": "mine", "karpenter.sh/capacity-type": "spot"}}
    prices = {"pricePerHour": "4", "spotPricePerHour": "1.5"}
    assert _types(("mine-spot", spec | prices))["mine-spot"].price_per_hour == 1.5
    assert _types(("mine", COMPLETE | prices))["mine"].price_per_hour == 4


def test_a_price_of_ones_own_leaves_no_assumed_spot_price() -> None:
    """Who says what an hour costs is not told an old list price of somebody else because nodes are spot."""
    assert _types()["h100-sxm"].spot_price_per_hour == 6.326
    assert _types(("h100-sxm", {"pricePerHour": "2.10"}))["h100-sxm"].spot_price_per_hour is None


def test_mig_profiles_cost_their_share_of_their_card() -> None:
    """Half of an H100 at $2 is $1, unless the profile has a price of its own."""
    found = _types(("h100-sxm", {"pricePerHour": "2"}), ("h100-sxm-1g.10gb", {"pricePerHour": "0.5"}))
    assert found["h100-sxm-3g.40gb"].price_per_hour == pytest.approx(1.0)
    assert not found["h100-sxm-3g.40gb"].price_assumed
    assert found["h100-sxm-1g.10gb"].price_per_hour == 0.5
    assert found["h200-sxm-3g.71gb"].price_assumed
    bought = _types(("h100-sxm", {"purchase": {**BOUGHT, "powerPricePerKWh": "0.20"}}))
    assert bought["h100-sxm-3g.40gb"].price_per_hour == pytest.approx(0.57)


@pytest.mark.parametrize(
    ("name", "spec", "want"),
    [
        ("mine", COMPLETE, "spec.tdpWatts: needed where spec.purchase.powerPricePerKWh is set"),
        ("tpu-v6e", {}, "spec.tdpWatts: needed where spec.purchase.powerPricePerKWh is set"),
        ("mine", {**COMPLETE, "memory": None}, "spec.memory, spec.tdpWatts: needed for a type that is not built in"),
        ("h100-sxm", {}, ""),
        ("mine", {**COMPLETE, "tdpWatts": 300}, ""),
    ],
)
def test_energy_needs_a_tdp(name: str, spec: dict[str, Any], want: str) -> None:
    """Power whose price is known and whose watts are not would be counted as nothing."""
    kept = Kept(GPUType)
    kept.put(_object(name, {**spec, "purchase": {**BOUGHT, "powerPricePerKWh": "0.20"}}))
    entry = next(iter(kept.entries()))
    fault = fault_of(entry, gpu_type(name) is not None)
    assert fault.startswith(want)
    assert bool(fault) is bool(want)


def test_labels_of_ones_own_replace_the_built_in_ones() -> None:
    """Who names labels means those nodes and no others; a resource alone keeps the labels."""
    mine = _types(("h100-sxm", {"nodeSelector": {"gpu": "mine"}}))["h100-sxm"]
    assert [dict(way.node_selector) for way in mine.carriers] == [{"gpu": "mine"}]
    renamed = _types(("h100-sxm", {"resourceName": "example.com/gpu"}))["h100-sxm"]
    assert {way.resource_name for way in renamed.carriers} == {"example.com/gpu"}
    assert len(renamed.carriers) == 4
