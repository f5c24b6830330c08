"""What a quantised checkpoint leaves as it was: counted module by module, not part by part."""

from typing import Any

import pytest

from goodput.domain.errors import InvalidObject
from goodput.perfmodel import architecture_from_config

LLAMA_70B: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "intermediate_size": 28672,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
QWEN_235B: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "hidden_size": 4096,
    "num_hidden_layers": 94,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "moe_intermediate_size": 1536,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
}
Q, KV, OUT = 8192 * 8192, 8192 * 1024, 8192 * 8192
ATTENTION = Q + 2 * KV + OUT
MATRIX = 8192 * 28672
ENDS = 2 * 128256 * 8192
EXPERT = 3 * 4096 * 1536


def w4a16(ignore: tuple[str, ...] = ("lm_head",), targets: tuple[str, ...] = ("Linear",)) -> dict[str, Any]:
    weights = {"num_bits": 4, "type": "int", "group_size": 128, "symmetric": True}
    groups = {"group_0": {"targets": list(targets), "weights": weights}}
    return {"quant_method": "compressed-tensors", "config_groups": groups, "ignore": list(ignore)}


INT4 = 0.5 + 2 / 128
GPTQ = 0.5 + 2.5 / 128
NF4 = 0.5 + 2.5 / 64


@pytest.mark.parametrize(
    ("quantisation", "size", "plain"),
    [
        (w4a16(("lm_head", "model.layers.0.self_attn.q_proj")), INT4, Q),
        (w4a16(("lm_head", "model.layers.0.self_attn")), INT4, ATTENTION),
        (w4a16(("re:.*layers\\.7\\.mlp\\.down_proj",)), INT4, MATRIX),
        (w4a16(("lm_head", "re:.*down_proj")), INT4, 80 * MATRIX),
        (w4a16(targets=("re:.*self_attn.*",)), INT4, 80 * 3 * MATRIX),
        (w4a16(("re:vision_tower.*", "vision_tower.transformer.layers.3.attention.q_proj")), INT4, 0),
        (w4a16(("model.layers.80.self_attn.q_proj", "mtp.layers.0.self_attn.q_proj")), INT4, 0),
        ({"quant_method": "fp8", "ignored_layers": ["model.layers.0.self_attn.qkv_proj"]}, 1.0, Q + 2 * KV),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["model.layers.0.self_attn*"]},
            0.5625,
            ATTENTION,
        ),
        (
            {
                "quant_method": "bitsandbytes",
                "load_in_4bit": True,
                "llm_int8_skip_modules": ["lm_head", *(f"model.layers.{layer}.self_attn" for layer in range(80))],
            },
            NF4,
            80 * ATTENTION,
        ),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {"-:.*attn.*": {}}}, GPTQ, 80 * ATTENTION),
        (
            {
                "quant_method": "gptq",
                "bits": 4,
                "modules_in_block_to_quantize": [["mlp.up_proj"], ["mlp.gate_proj", "mlp.down_proj"]],
            },
            GPTQ,
            80 * ATTENTION,
        ),
        (
            {"quant_method": "auto-round", "extra_config": {"model.layers.5.mlp.up_proj": {"bits": 16}}},
            GPTQ,
            MATRIX,
        ),
    ],
)
def test_modules_that_are_left_as_they_were_count_one_by_one(quantisation, size, plain):
    """All of Llama 70B but the modules named takes the bytes of the format; those take two."""
    found = architecture_from_config("mine", {**LLAMA_70B, "quantization_config": quantisation})
    rest = 80 * (ATTENTION + 3 * MATRIX) - plain
    assert found.weight_bytes == pytest.approx(2.0 * (ENDS + plain) + size * rest)


def test_single_modules_may_have_more_bits():
    """GPTQ's `dynamic` gives the down projections of the first ten layers eight bits: the first rule holds."""
    rules = {"+:.*layers\\.[0-9]\\.mlp\\.down_proj": {"bits": 8}, ".*mlp.down_proj": {"bits": 4, "group_size": 32}}
    found = architecture_from_config(
        "mine", {**LLAMA_70B, "quantization_config": {"quant_method": "gptq", "bits": 4, "dynamic": rules}}
    )
    others = 80 * (ATTENTION + 2 * MATRIX)
    expected = 2.0 * ENDS + GPTQ * others + 10 * MATRIX * 1.0 + 70 * MATRIX * (0.5 + 2.5 / 32)
    assert found.weight_bytes == pytest.approx(expected)


@pytest.mark.parametrize(
    ("names", "share"),
    [
        (("model.layers.0.mlp.experts",), 1 / 94),
        (("model.layers.0.mlp",), 1 / 94),
        (tuple(f"model.layers.0.mlp.experts.{expert}.down_proj" for expert in range(64)), 1 / 94 / 6),
        (("mtp.layers.0.mlp.experts",), 0.0),
        ((f"model.layers.{'9' * 5000}.mlp.experts", f"model.layers.0.mlp.experts.{'9' * 5000}.up_proj"), 0.0),
        (("model.layers.*.mlp.gate",), 0.0),
    ],
)
def test_experts_of_single_layers_may_be_left_as_they_were(names, share):
    """One layer of 94, or some of its experts: the mean of all experts says it."""
    quantisation = w4a16(("lm_head", *names))
    found = architecture_from_config("mine", {**QWEN_235B, "quantization_config": quantisation})
    assert found.quantised_bytes == pytest.approx(INT4 + share * (2.0 - INT4))
    assert found.stored_attention_bytes == INT4
    assert found.expert_parameters == 94 * 128 * EXPERT


def test_groups_of_unlike_formats_are_told_apart_by_their_targets():
    """fp8 attention beside int4 feed-forward, each named by its group."""
    quantisation = w4a16(targets=("re:.*mlp.*",))
    quantisation["config_groups"]["group_1"] = {
        "targets": ["re:.*self_attn.*"],
        "weights": {"num_bits": 8, "type": "float"},
    }
    found = architecture_from_config("mine", {**LLAMA_70B, "quantization_config": quantisation})
    assert found.precision == "int4"
    assert (found.stored_attention_bytes, found.stored_dense_bytes) == (1.0, INT4)


def test_layers_that_are_listed_with_their_formats_count_one_by_one():
    """MIXED_PRECISION: fp8 in attention of 40 layers of 80, nvfp4 in all down projections, the rest as it was."""
    listed = {f"model.layers.{layer}.self_attn": {"quant_algo": "FP8"} for layer in range(40)}
    listed |= {f"model.layers.{layer}.mlp.down_proj": {"quant_algo": "NVFP4"} for layer in range(80)}
    listed |= {"mtp.layers.0.mlp.up_proj": {"quant_algo": "NVFP4"}, "lm_head": {"quant_algo": "NVFP4"}}
    quantisation = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": listed}
    found = architecture_from_config("mine", {**LLAMA_70B, "quantization_config": quantisation})
    assert found.precision == "nvfp4"
    assert found.stored_attention_bytes == pytest.approx(1.5)
    assert found.stored_dense_bytes == pytest.approx((2 * 2.0 + 0.5625) / 3)


@pytest.mark.parametrize(
    ("names", "field"),
    [
        (("re:(.*)*attn",), "ignore"),
        (("re:.*[",), "ignore"),
        (("re:.*.*.*.*.*.*.*x1",), "ignore"),
        (("re:" + ".?" * 30 + "ZZ",), "ignore"),
        (("re:" + "(?:.|\\w)" * 30,), "ignore"),
        (("re:.*experts\\.(0|1)\\..*",), "ignore"),
        (("model.layers.*.mlp.experts",), "ignore"),
    ],
)
def test_a_list_that_stays_open_is_refused_by_its_field(names, field):
    """Expressions that may take for ever, that name some experts only, or leave all experts as they were."""
    with pytest.raises(InvalidObject) as caught:
        architecture_from_config("mine", {**QWEN_235B, "quantization_config": w4a16(names)})
    assert caught.value.field == f"spec.architecture.quantization_config.{field}"


@pytest.mark.parametrize("method", ["gguf", "hqq"])
def test_a_format_that_is_not_known_says_what_to_do(method):
    """Those that are known are named."""
    with pytest.raises(
        InvalidObject, match=r"serve a checkpoint in another format, known are .*awq.*fp8.*gptq"
    ) as caught:
        architecture_from_config("mine", {**LLAMA_70B, "quantization_config": {"quant_method": method}})
    assert caught.value.field == "spec.architecture.quantization_config.quant_method"


def test_sizes_by_modality_are_refused_in_words():
    """ERNIE-VL has experts of two widths, for text and for images."""
    with pytest.raises(InvalidObject, match=r"has several values, \[1536, 512\]: one for all is sized") as caught:
        architecture_from_config("mine", {**QWEN_235B, "moe_intermediate_size": [1536, 512]})
    assert caught.value.field == "spec.architecture.moe_intermediate_size"
