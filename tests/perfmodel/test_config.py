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


@pytest.mark.parametrize(("method", "size"), [("fp8", 1.0), ("awq", 0.56), ("mxfp4", 0.54)])
def test_quantised_weights_are_smaller(method, size):
    """The stored bytes of a weight follow the quantisation method, scales included."""
    found = architecture_from_config("mine", {**LLAMA, "quantization_config": {"quant_method": method}})
    assert found.weight_bytes_per_parameter == size


def test_windowed_layers_are_padded_to_whole_groups_as_the_engine_does():
    """Gemma 3 27B: 10 full layers, 52 windowed ones that the engine counts as 6 groups of 10."""
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
    assert found.kv_bytes_per_token == 10 * 8192
    assert found.kv_window_bytes_per_token == 60 * 8192
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
