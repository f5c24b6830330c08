"""What families of GPUs reach of their peaks."""

import pytest

from goodput.perfmodel import built_in_gpu_types
from goodput.perfmodel.efficiency import constants, efficiency, family, from_constants, share_of


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("a100-80g-sxm", "ampere"),
        ("a10g", "ampere"),
        ("h100-sxm-1g.10gb", "hopper"),
        ("gh200-96g", "hopper"),
        ("gb300", "blackwell"),
        ("l40s", "ada"),
        ("l4", "ada"),
        ("rtx-6000-ada", "ada"),
        ("rtx-pro-6000", "blackwell-rtx"),
        ("t4", "turing"),
        ("mi300x", "other"),
        ("somebody-elses-part", "other"),
    ],
)
def test_a_type_belongs_to_the_family_of_its_kernels(name: str, want: str) -> None:
    assert family(name) == want


def test_every_built_in_type_has_shares_between_nothing_and_its_peak() -> None:
    for gpu in built_in_gpu_types():
        reached = efficiency(gpu.name, gpu.scale_up_bytes_per_second)
        shares = [reached.kv_bandwidth, reached.kv_bandwidth_fp8, reached.attention_flops, reached.expert_bandwidth]
        shares += [share for name, share in reached.weight_bandwidth + reached.flops]
        assert all(0.0 < share <= 1.0 for share in shares), (gpu.name, reached)


def test_a_family_without_points_keeps_of_its_kernels_what_the_others_do() -> None:
    data = constants()
    fitted = {name: entry["value"] for name, entry in data["fitted"].items()}
    families = data["kernels"]["families"]
    kept = [fitted[f"flops.{name}"] / families[name]["flops"] for name in ("hopper", "blackwell")]
    reached = from_constants("a100-80g-sxm", None, data["kernels"], fitted)
    assert share_of(reached.flops, "bf16") == pytest.approx(families["ampere"]["flops"] * (kept[0] * kept[1]) ** 0.5)


def test_shares_are_of_the_peaks_in_the_catalogue() -> None:
    """Kernels on RTX PRO 6000 read 1.43 TB/s and multiply at 393 TFLOP/s, whatever the data sheet is thought to say."""
    kernels = constants()["kernels"]["families"]["blackwell-rtx"]
    gpu = next(each for each in built_in_gpu_types() if each.name == "rtx-pro-6000")
    assert kernels["weight_bandwidth"] * gpu.memory_bandwidth_bytes_per_second == pytest.approx(1.43e12, rel=0.02)
    assert kernels["flops"] * dict(gpu.flops)["bf16"] == pytest.approx(393e12, rel=0.02)


def test_ranks_joined_by_pcie_wait_longer_for_each_other() -> None:
    linked, alone = efficiency("h100-sxm", 450e9), efficiency("l40s", 31.5e9)
    assert alone.all_reduce_seconds > 2.0 * linked.all_reduce_seconds
    assert alone.all_reduce_bytes_per_second < 0.1 * linked.all_reduce_bytes_per_second


def test_a_format_that_is_not_known_is_an_error() -> None:
    with pytest.raises(KeyError):
        share_of(efficiency("h100-sxm").flops, "fp3")
