"""What is built in: architectures by hub id."""

import pytest

from goodput.perfmodel import architecture, model_ids


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
