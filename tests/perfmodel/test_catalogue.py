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


@pytest.mark.parametrize("name", ["nobody/nothing", "", "/", "a/b/c", "nobody/Llama-3.1-8B", "nobody/nothing-FP8"])
def test_what_is_not_built_in_is_none_never_a_neighbour(name):
    """An unknown id is not read as the model that its name resembles."""
    assert architecture(name) is None


@pytest.mark.parametrize(
    ("name", "base", "precision", "size"),
    [
        ("meta-llama/Llama-3.1-8B-AWQ", "meta-llama/Llama-3.1-8B", "int4", 0.5 + 2.5 / 128),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", "meta-llama/Llama-3.1-8B", "fp8", 1.0),
        ("RedHatAI/Meta-Llama-3.1-70B-Instruct-quantized.w4a16", "meta-llama/Llama-3.1-70B", "int4", 0.5 + 2.5 / 128),
        ("RedHatAI/Meta-Llama-3.1-70B-Instruct-quantized.w8a8", "meta-llama/Llama-3.1-70B", "int8", 1.0),
        ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int8", "Qwen/Qwen2.5-72B-Instruct", "int8", 1.0),
        ("Qwen/Qwen2.5-72B-Instruct-AWQ", "Qwen/Qwen2.5-72B-Instruct", "int4", 0.5 + 2.5 / 128),
        ("nvidia/Llama-3.3-70B-Instruct-NVFP4", "meta-llama/Llama-3.3-70B-Instruct", "nvfp4", 0.5625),
    ],
)
def test_a_quantised_checkpoint_has_its_bases_structure_and_the_precision_that_its_name_says(
    name, base, precision, size
):
    """Whoever published it: only the bytes of what is quantised differ."""
    found, plain = architecture(name), architecture(base)
    assert found is not None
    assert plain is not None
    assert (found.precision, found.quantised_bytes) == (precision, size)
    assert (found.parameters, found.kv_layers) == (plain.parameters, plain.kv_layers)
    ends = plain.embedding_parameters + plain.head_parameters
    assert found.weight_bytes == pytest.approx(ends * 2.0 + (plain.parameters - ends) * size)


def test_a_checkpoint_that_is_built_in_is_not_derived_from_its_name():
    """NVIDIA's NVFP4 checkpoint of DeepSeek-V3.1 leaves attention in bf16, all but its output, as no name says."""
    found = architecture("nvidia/DeepSeek-V3.1-NVFP4")
    assert found is not None
    assert (found.precision, found.stored_dense_bytes) == ("nvfp4", 0.5625)
    outputs = 61 * 7168 * 128 * 128
    assert found.stored_attention_bytes == pytest.approx(2.0 - 1.4375 * outputs / found.attention_parameters)


def test_every_built_in_architecture_can_be_read():
    """No entry of the data fails, and none is empty."""
    for name in model_ids():
        found = architecture(name)
        assert found is not None
        assert found.parameters >= found.active_parameters > 0
        assert sum(group.bytes_per_token() for group in found.kv_layers) > 0


GIB = 1024.0**3
PUBLISHED = [
    # id, billions of parameters in all, of one token; KV bytes of a token in bf16
    ("meta-llama/Llama-2-7b-hf", 6.74, 6.74, 524_288),
    ("meta-llama/Llama-2-13b-hf", 13.02, 13.02, 819_200),
    ("meta-llama/Llama-2-70b-hf", 68.98, 68.98, 327_680),
    ("meta-llama/Llama-3.1-8B", 8.03, 8.03, 131_072),
    ("meta-llama/Llama-3.1-70B", 70.55, 70.55, 327_680),
    ("meta-llama/Llama-3.1-405B", 405.85, 405.85, 516_096),
    ("meta-llama/Llama-4-Maverick-17B-128E-Instruct", 400, 17.17, 49_152),
    ("mistralai/Mistral-7B-v0.3", 7.25, 7.25, 131_072),
    ("mistralai/Mixtral-8x7B-v0.1", 46.7, 12.9, 131_072),
    ("mistralai/Mixtral-8x22B-v0.1", 140.6, 39.1, 229_376),
    ("Qwen/Qwen2.5-7B-Instruct", 7.62, 7.62, 57_344),
    ("Qwen/Qwen2.5-32B-Instruct", 32.8, 32.8, 262_144),
    ("Qwen/Qwen2.5-72B-Instruct", 72.7, 72.7, 327_680),
    ("Qwen/Qwen3-8B", 8.19, 8.19, 147_456),
    ("Qwen/Qwen3-14B", 14.8, 14.8, 163_840),
    ("Qwen/Qwen3-32B", 32.8, 32.8, 262_144),
    ("Qwen/Qwen3-30B-A3B", 30.5, 3.35, 98_304),
    ("Qwen/Qwen3-235B-A22B", 235, 22.2, 192_512),
    ("Qwen/Qwen3-Coder-480B-A35B-Instruct", 480, 35.4, 253_952),
    ("Qwen/Qwen3.5-397B-A17B", 397, 17.3, 30_720),
    ("deepseek-ai/DeepSeek-V3", 671.0, 37.5, 70_272),
    ("openai/gpt-oss-20b", 20.9, 4.19, 24_576),
    ("openai/gpt-oss-120b", 116.8, 5.7, 36_864),
    ("google/gemma-2-27b-it", 27.2, 27.2, 188_416),
    ("google/gemma-3-27b-it", 27.0, 27.0, 81_920),
    ("google/gemma-4-26B-A4B", 25.2, 3.8, 20_480),
    ("microsoft/phi-4", 14.66, 14.66, 204_800),
    ("zai-org/GLM-4.5", 355, 33.6, 376_832),
    ("zai-org/GLM-5", 744, 41.5, 78 * (576 * 2 + 132)),
    ("moonshotai/Kimi-K2-Instruct", 1026, 32.8, 70_272),
    ("XiaomiMiMo/MiMo-V2-Flash", 309, 15.4, 9 * 4 * 320 * 2),
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 31.6, 3.6, 6_144),
    ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8", 120.6, 12.7, 8_192),
    ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", 49.9, 49.9, 200_704),
    ("facebook/opt-13b", 12.85, 12.85, 819_200),
    ("facebook/opt-66b", 65.72, 65.72, 2_359_296),
]


@pytest.mark.parametrize(
    ("name", "billions", "active_billions", "kv_bytes"), PUBLISHED, ids=[row[0] for row in PUBLISHED]
)
def test_parameters_and_kv_bytes_match_what_is_published(name, billions, active_billions, kv_bytes):
    """Counts from config.json are within 1 % of the published ones; KV bytes are those of layers that keep all tokens.

    Vision towers are left out. Active counts include embedding and head, which some publish without (gpt-oss: 5.1 for
    5.7, GLM-4.5: 32 for 33.6).
    """
    found = architecture(name)
    assert found is not None
    assert found.parameters / 1e9 == pytest.approx(billions, rel=0.01)
    assert found.active_parameters / 1e9 == pytest.approx(active_billions, rel=0.01)
    assert found.kv_bytes_per_token == kv_bytes


@pytest.mark.parametrize(
    ("name", "gib"),
    [("openai/gpt-oss-20b", 12.8), ("openai/gpt-oss-120b", 60.8), ("moonshotai/Kimi-K2.5", 595e9 / GIB)],
)
def test_bytes_of_a_checkpoint_match_what_is_published(name, gib):
    """Experts in four bits with their scales, all else in bf16."""
    found = architecture(name)
    assert found is not None
    assert found.weight_bytes / GIB == pytest.approx(gib, rel=0.01)
