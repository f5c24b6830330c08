"""What is built in: GPU types as CUDA sees them, architectures by hub id."""

import pytest

from goodput.perfmodel import architecture, built_in_gpu_types, model_ids

GIB = 1024.0**3


def test_names_are_unique_sorted_and_matched_by_node_label():
    """Every built-in type has a name of its own and one node label to find it by."""
    types = built_in_gpu_types()
    names = [gpu.name for gpu in types]
    assert names == sorted(set(names))
    assert {"l4", "l40s", "a100-40g-sxm", "a100-80g-sxm", "h100-sxm", "h200-sxm", "b200", "mi300x"} <= set(names)
    selectors = [gpu.node_selector for gpu in types]
    assert len(set(selectors)) == len(selectors)
    assert all(gpu.builtin and gpu.resource_name in ("nvidia.com/gpu", "amd.com/gpu") for gpu in types)


def test_figures_are_dense_and_memory_is_what_cuda_reports():
    """An 80 GB H100 has 79.2 GiB, 989 TFLOP/s bf16 and 1,979 fp8: the sparse figures are twice as high."""
    h100 = next(gpu for gpu in built_in_gpu_types() if gpu.name == "h100-sxm")
    assert h100.memory_bytes / GIB == pytest.approx(79.2, abs=0.05)
    assert dict(h100.flops)["bf16"] == pytest.approx(989e12, rel=1e-3)
    assert dict(h100.flops)["fp8"] == pytest.approx(1979e12, rel=1e-3)
    assert h100.memory_bandwidth_bytes_per_second == 3.35e12


def test_every_built_in_type_has_bf16():
    """The law of compute starts from it."""
    assert not [gpu.name for gpu in built_in_gpu_types() if "bf16" not in dict(gpu.flops)]


def test_a_built_in_price_is_an_assumption_and_no_price_is_none():
    """A price that nobody set is marked; an unknown one is None, not 0."""
    for gpu in built_in_gpu_types():
        assert gpu.price_assumed == (gpu.price_per_hour is not None)
        assert gpu.price_per_hour is None or gpu.price_per_hour > 0


def test_a_tuning_has_the_structure_of_its_base():
    """`-Instruct` and the `Meta-` prefix name the same structure; the letter case does not matter."""
    base = architecture("meta-llama/Llama-3.1-8B")
    assert base is not None
    for name in (
        "meta-llama/Llama-3.1-8B-Instruct",
        "meta-llama/Meta-Llama-3.1-8B-Instruct",
        "META-LLAMA/llama-3.1-8b",
    ):
        found = architecture(name)
        assert found is not None
        assert (found.layers, found.parameters) == (base.layers, base.parameters)


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-8B-AWQ", "nobody/nothing", "", "/", "a/b/c"])
def test_what_is_not_built_in_is_none_never_a_neighbour(name):
    """A quantised or unknown checkpoint is not read as the model that its name resembles."""
    assert architecture(name) is None


def test_every_built_in_architecture_can_be_read():
    """No entry of the data fails, and none is empty."""
    for name in model_ids():
        found = architecture(name)
        assert found is not None
        assert found.parameters >= found.active_parameters > 0
        assert found.kv_bytes_per_token + found.kv_window_bytes_per_token > 0


@pytest.mark.parametrize(
    ("name", "billions", "active_billions", "kv_bytes"),
    [
        ("meta-llama/Llama-3.1-8B", 8.03, 8.03, 131_072),
        ("meta-llama/Llama-2-13b-hf", 13.02, 13.02, 819_200),
        ("deepseek-ai/DeepSeek-V3", 671.0, 37.5, 70_272),
        ("Qwen/Qwen3-30B-A3B", 30.5, 3.35, 98_304),
        ("openai/gpt-oss-120b", 116.8, 5.7, 36_864),
        ("facebook/opt-13b", 12.84, 12.84, 819_200),
    ],
)
def test_parameters_and_kv_bytes_match_what_is_published(name, billions, active_billions, kv_bytes):
    """Counts from config.json agree with the published ones; KV bytes with the engine's own planner."""
    found = architecture(name)
    assert found is not None
    assert found.parameters / 1e9 == pytest.approx(billions, rel=0.01)
    assert found.active_parameters / 1e9 == pytest.approx(active_billions, rel=0.01)
    assert found.kv_bytes_per_token == kv_bytes
