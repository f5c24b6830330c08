"""Built-in GPU types: figures of data sheets as CUDA and the scheduler see them, and MIG profiles of their own."""

from __future__ import annotations

from datetime import date

import pytest

from goodput.domain.intent import GpuType
from goodput.perfmodel import built_in_gpu_types
from goodput.perfmodel.gpus import gpu_type, whole_cards

GIB = 1024.0**3
MIB = 1024.0**2
TYPES = built_in_gpu_types()
WHOLE = whole_cards(TYPES)
SLICES = tuple(gpu for gpu in TYPES if gpu.slice_of)


def _named(name: str) -> GpuType:
    found = gpu_type(name)
    assert found is not None, name
    return found


def test_there_are_34_accelerators_and_their_mig_profiles():
    """Every name is its own; six profiles of each card that can be partitioned."""
    names = [gpu.name for gpu in TYPES]
    assert names == sorted(set(names))
    assert len(WHOLE) == 34
    parents = {gpu.slice_of for gpu in SLICES}
    assert {"a100-40g-sxm", "a100-80g-sxm", "h100-sxm", "h100-nvl", "h200-sxm", "b200"} <= parents <= set(names)
    assert len(SLICES) == 6 * len(parents)


def test_names_that_users_wrote_stay():
    """A Model names its types: a name that once was built in stays so."""
    stay = """t4 l4 a10g a10 a30 a100-40g-sxm a100-80g-sxm a100-80g-pcie l40 l40s rtx-6000-ada rtx-pro-6000 h100-pcie
    h100-sxm h100-nvl h200-sxm gh200-96g b200 b300 gb200 gb300 mi210 mi250x mi300x mi325x mi350x mi355x"""
    assert set(stay.split()) <= {gpu.name for gpu in TYPES}


def test_no_two_types_are_carried_by_the_same_resource_and_labels():
    """Else one GPU would be counted twice, and pods of either would take it."""
    seen: dict[object, str] = {}
    for gpu in TYPES:
        for carrier in gpu.carriers:
            if carrier.node_selector:
                assert seen.setdefault(carrier, gpu.name) == gpu.name


@pytest.mark.parametrize(
    ("name", "precision", "tera"),
    [
        ("h100-sxm", "bf16", 989),
        ("h100-sxm", "fp8", 1979),
        ("h100-sxm", "int8", 1979),
        ("h200-sxm", "bf16", 989),
        ("a100-80g-sxm", "bf16", 312),
        ("a100-80g-sxm", "int8", 624),
        ("l40s", "fp8", 733),
        ("b200", "fp8", 4500),
        ("b200", "fp4", 9000),
        ("b300", "int8", 153.5),
        ("mi300x", "fp8", 2614.9),
    ],
)
def test_flops_are_dense(name, precision, tera):
    """Vendors quote sparse figures, twice as high: an H100 has 1,979 TFLOP/s in fp8, not 3,958."""
    assert dict(_named(name).flops)[precision] == pytest.approx(tera * 1e12, rel=1e-3)


@pytest.mark.parametrize(("name", "precision"), [("a100-80g-sxm", "fp8"), ("h100-sxm", "fp4"), ("t4", "fp8")])
def test_a_precision_that_a_part_lacks_is_absent_not_zero(name, precision):
    """Whoever asks for it finds no figure, and must say so."""
    assert precision not in dict(_named(name).flops)


@pytest.mark.parametrize(
    ("name", "reported_gib", "marketing_gb", "bandwidth"),
    [
        ("h100-sxm", 79.2, 80, 3.35e12),
        ("a100-80g-sxm", 79.15, 80, 2.039e12),
        ("h200-sxm", 139.8, 141, 4.8e12),
        ("b200", 178.4, 180, 7.7e12),
        ("l4", 21.96, 24, 300e9),
    ],
)
def test_memory_is_what_cuda_reports_beside_the_marketing_figure(name, reported_gib, marketing_gb, bandwidth):
    """An engine that plans with 80 GiB of an "80 GB" H100 does not start: there are 79.2."""
    gpu = _named(name)
    assert gpu.memory_bytes / GIB == pytest.approx(reported_gib, abs=0.06)
    assert gpu.marketing_memory_bytes == marketing_gb * 1e9
    assert gpu.memory_bandwidth_bytes_per_second == bandwidth


def test_every_type_has_bf16_power_of_its_links_and_doubts_in_words():
    """What laws start from is there; a power that nobody published is None."""
    for gpu in TYPES:
        assert dict(gpu.flops)["bf16"] > 0
        assert gpu.tdp_watts is None or gpu.tdp_watts > 0
        assert all(gpu.unconfirmed)
    assert all(gpu.scale_up_bytes_per_second for gpu in WHOLE)
    assert [gpu.name for gpu in TYPES if gpu.tdp_watts is None] == ["inferentia2", "tpu-v5e", "tpu-v6e", "trainium2"]
    assert _named("h100-sxm").scale_up_bytes_per_second == 450e9  # NVLink 4: 900 GB/s in both directions together
    assert _named("l40s").scale_up_bytes_per_second == 31.5e9  # PCIe 4.0 x16
    assert _named("b100").unconfirmed
    assert not _named("h100-sxm").unconfirmed


def test_a_built_in_price_is_an_assumption_with_its_day_and_no_price_is_none():
    """A price that nobody set is marked; an unknown one is None, not 0; spot is cheaper than on demand."""
    for gpu in TYPES:
        assert gpu.price_assumed == (gpu.price_per_hour is not None) == bool(gpu.price_source)
        assert gpu.spot_price_assumed == (gpu.spot_price_per_hour is not None) == bool(gpu.spot_price_source)
        assert gpu.price_per_hour is None or gpu.price_per_hour > (gpu.spot_price_per_hour or 0) > -1
    dated = [gpu.price_source for gpu in TYPES if "list" in gpu.price_source]
    assert dated
    for source in dated:
        assert date.fromisoformat(source[source.index("(20") + 1 :][:10]) > date(2026, 1, 1)


@pytest.mark.parametrize("gpu", SLICES, ids=lambda gpu: gpu.name)
def test_a_mig_profile_is_a_share_of_its_card(gpu):
    """Bandwidth by slices of memory, compute by multiprocessors; a process sees one instance, without links."""
    card = _named(gpu.slice_of)
    profile = gpu.name.removeprefix(f"{card.name}-")
    compute, slices = (
        int(profile[0]),
        round(8 * gpu.memory_bandwidth_bytes_per_second / card.memory_bandwidth_bytes_per_second),
    )
    assert gpu.resource_name == f"nvidia.com/mig-{profile}"
    assert slices in (1, 2, 4, 8)
    assert gpu.memory_bytes <= card.memory_bytes * slices / 8
    assert gpu.memory_bytes >= 0.9 * card.memory_bytes * slices / 8
    share = dict(gpu.flops)["bf16"] / dict(card.flops)["bf16"]
    assert 0.8 * compute / 7 <= share <= 1.4 * compute / 7
    assert gpu.gpus_per_node == 1
    assert gpu.scale_up_bytes_per_second is None
    assert gpu.tdp_watts == pytest.approx(card.tdp_watts * max(compute / 7, slices / 8), abs=0.06)
    if card.price_per_hour is not None:
        assert gpu.price_per_hour == pytest.approx(card.price_per_hour * max(compute / 7, slices / 8), rel=1e-3)


def test_a_card_is_not_sold_for_more_in_slices_than_it_costs():
    """Seven instances of a seventh, or two of a half, are the card."""
    card = _named("h100-sxm").price_per_hour
    assert card is not None
    assert 7 * (_named("h100-sxm-1g.10gb").price_per_hour or 0) == pytest.approx(card, rel=1e-3)
    assert 2 * (_named("h100-sxm-3g.40gb").price_per_hour or 0) == pytest.approx(card, rel=1e-3)
    assert 4 * (_named("h100-sxm-1g.20gb").price_per_hour or 0) == pytest.approx(card, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "mib"),
    [
        ("a100-40g-sxm-1g.5gb", 4864),
        ("a100-40g-sxm-3g.20gb", 20096),
        ("h100-sxm-1g.10gb", 9984),
        ("h200-sxm-1g.18gb", 16384),
    ],
)
def test_memory_of_a_known_profile_is_what_the_driver_lists(name, mib):
    """An H200 keeps 1.5 GiB of its smallest instance for itself: an eighth of the card would not be there."""
    assert _named(name).memory_bytes == mib * MIB


def test_a_type_without_known_labels_says_so():
    """Gaudi nodes carry no label that tells the generations apart: a GPUType must name one."""
    blind = [gpu for gpu in TYPES if not gpu.node_selector]
    assert [gpu.name for gpu in blind] == ["gaudi2", "gaudi3"]
    assert all(any("spec.nodeSelector" in doubt for doubt in gpu.unconfirmed) for gpu in blind)


def test_labels_of_every_vocabulary_lead_to_the_type():
    """GFD, GKE, Karpenter; both strategies of MIG, and GKE's partitions."""
    selectors = {tuple(carrier.node_selector): carrier.resource_name for carrier in _named("h100-sxm").carriers}
    assert selectors == {
        (("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"),): "nvidia.com/gpu",
        (("cloud.google.com/gke-accelerator", "nvidia-h100-80gb"),): "nvidia.com/gpu",
        (("cloud.google.com/gke-accelerator", "nvidia-h100-mega-80gb"),): "nvidia.com/gpu",
        (("karpenter.k8s.aws/instance-gpu-name", "h100"),): "nvidia.com/gpu",
    }
    carriers = {
        carrier.resource_name: dict(carrier.node_selector) for carrier in _named("a100-80g-sxm-1g.10gb").carriers[:2]
    }
    assert carriers == {
        "nvidia.com/mig-1g.10gb": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"},
        "nvidia.com/gpu": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"},
    }
    assert dict(_named("a100-40g-sxm-1g.5gb").carriers[2].node_selector) == {
        "cloud.google.com/gke-accelerator": "nvidia-tesla-a100",
        "cloud.google.com/gke-gpu-partition-size": "1g.5gb",
    }
