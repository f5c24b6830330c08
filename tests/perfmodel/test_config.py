"""config.json -> architecture: what is wrong is named, what is not modelled is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput.domain.conditions import ConditionReason
from goodput.domain.errors import InvalidObject
from goodput.perfmodel import architecture_from_config

LLAMA: dict[str, Any] = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}


def test_plain_fields_are_enough():
    """Seven fields of config.json give Llama-3.1-8B."""
    found = architecture_from_config("mine", LLAMA)
    assert found.head_dim == 128
    assert found.kv_bytes_per_token == 131_072
    assert found.weight_bytes_per_parameter == 2.0


def test_the_text_part_of_a_multimodal_config_counts():
    """`text_config` holds the decoder of a vision model."""
    assert architecture_from_config("mine", {"text_config": LLAMA}).layers == 32


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"hidden_size": "4096"}, "hidden_size"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"hidden_size": -1}, "hidden_size"),
        ({"vocab_size": 1.5}, "vocab_size"),
        ({"vocab_size": float("nan")}, "vocab_size"),
        ({"vocab_size": True}, "vocab_size"),
        ({"num_key_value_heads": 64}, "num_key_value_heads"),
        ({"num_key_value_heads": 5}, "num_key_value_heads"),
        ({"intermediate_size": None}, "intermediate_size"),
        ({"max_position_embeddings": None}, "max_position_embeddings"),
        ({"mamba_num_heads": 64}, "mamba_num_heads"),
        ({"index_topk": 2048}, "index_topk"),
        ({"num_experts": 8}, "num_experts_per_tok"),
        ({"num_experts": 8, "num_experts_per_tok": 9}, "num_experts_per_tok"),
        ({"quantization_config": {"quant_method": "magic"}}, "quantization_config.quant_method"),
    ],
)
def test_a_wrong_field_is_named(change, field):
    """The error carries the path of the field and the reason of the condition."""
    with pytest.raises(InvalidObject) as caught:
        architecture_from_config("mine", {**LLAMA, **change})
    assert caught.value.field == f"spec.architecture.{field}"
    assert caught.value.reason is ConditionReason.ARCHITECTURE_INVALID


@pytest.mark.parametrize(
    ("config", "precision", "size"),
    [
        ({"quant_method": "fp8"}, "fp8", 1.0),
        ({"quant_method": "fbgemm_fp8"}, "fp8", 1.0),
        ({"quant_method": "awq"}, "int4", 0.5 + 2.5 / 128),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, "int4", 0.5 + 2.5 / 64),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, "int8", 1.0),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8", 1.0),
        ({"quant_method": "mxfp4"}, "mxfp4", 0.53125),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8", 1.0),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", 0.5625),
    ],
)
def test_quantised_weights_are_smaller_and_embeddings_are_not(config, precision, size):
    """The stored bytes of a weight follow the quantisation, scales included; embedding and head stay in bf16."""
    plain = architecture_from_config("mine", LLAMA)
    found = architecture_from_config("mine", {**LLAMA, "quantization_config": config})
    ends = 2 * 128256 * 4096
    assert found.precision == precision
    assert found.weight_bytes == pytest.approx(ends * 2.0 + (plain.parameters - ends) * size)


@pytest.mark.parametrize(
    ("weights", "precision", "size"),
    [
        ({"num_bits": 8, "type": "float"}, "fp8", 1.0),
        ({"num_bits": 8, "type": "int"}, "int8", 1.0),
        ({"num_bits": 4, "type": "int", "group_size": 128, "symmetric": True}, "int4", 0.5 + 2 / 128),
        ({"num_bits": 4, "type": "int", "group_size": 128, "symmetric": False}, "int4", 0.5 + 2.5 / 128),
        ({"num_bits": 4, "type": "float", "group_size": 16}, "nvfp4", 0.5625),
        ({"num_bits": 4, "type": "float", "group_size": 32}, "mxfp4", 0.53125),
    ],
)
def test_compressed_tensors_say_their_format_in_their_groups(weights, precision, size):
    """fp8, w8a8, w4a16 and fp4 checkpoints name one method, and differ in their weights."""
    config = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}
    found = architecture_from_config("mine", {**LLAMA, "quantization_config": config})
    assert (found.precision, found.quantised_bytes) == (precision, size)


def test_layers_with_a_window_are_told_from_those_without():
    """Gemma 3 27B: one layer in six has full attention, 52 of 62 see 1,024 tokens."""
    gemma = {
        "model_type": "gemma3_text",
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "num_hidden_layers": 62,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": True,
        "sliding_window": 1024,
        "sliding_window_pattern": 6,
    }
    found = architecture_from_config("gemma", gemma)
    assert found.kv_bytes_per_token == 10 * 16 * 256 * 2
    assert found.kv_window_bytes_per_token == 52 * 16 * 256 * 2
    assert found.kv_window_tokens == 1024


@given(st.dictionaries(st.sampled_from(sorted(LLAMA)), st.one_of(st.none(), st.integers(), st.floats(), st.text())))
def test_any_mapping_gives_an_architecture_or_names_a_field(changes):
    """Hostile values never escape as another error."""
    field = ""
    parameters = 0.0
    try:
        parameters = architecture_from_config("mine", {**LLAMA, **changes}).parameters
    except InvalidObject as error:
        field = error.field
    assert parameters > 0 or field.startswith("spec.architecture.")
