"""Models whose layers differ, in fields of their own: read where it is known how, else refused by the field."""

from typing import Any

import pytest

from goodput.domain.errors import InvalidObject
from goodput.perfmodel import architecture_from_config

MIXED: dict[str, Any] = {
    "hidden_size": 2048,
    "num_hidden_layers": 20,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 5120,
    "vocab_size": 157184,
    "max_position_embeddings": 131072,
}
RING_1T: dict[str, Any] = {
    **MIXED,
    "model_type": "bailing_hybrid",
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "num_shared_experts": 1,
    "first_k_dense_replace": 4,
    "layer_group_size": 8,
    "group_norm_size": 8,
}


def test_the_last_layer_of_each_group_of_ring_has_full_attention():
    """Ring-2.5-1T: ten layers of 80 keep a latent vector of each token, 70 a matrix a head in the model's type."""
    found = architecture_from_config("ring", RING_1T)
    assert found.kv_bytes_per_token == 10 * 576 * 2
    assert found.state_bytes == 70 * 64 * 128 * 128 * 2
    assert found.parameters == pytest.approx(1.0e12, rel=0.02)


def test_ring_linear_has_grouped_heads_in_its_full_layers():
    """One layer of five keeps keys and values of four heads."""
    found = architecture_from_config(
        "ring", {**MIXED, "model_type": "bailing_moe_linear", "layer_group_size": 5, "group_norm_size": 4}
    )
    assert found.kv_bytes_per_token == 4 * 4 * 256 * 2
    assert found.state_bytes == 16 * 16 * 128 * 128 * 2


def test_trinity_has_a_window_in_three_layers_of_four():
    """AFMoE says the period by `global_attn_every_n_layers`."""
    changes = {"model_type": "afmoe", "sliding_window": 2048, "global_attn_every_n_layers": 4}
    found = architecture_from_config("trinity", {**MIXED, **changes})
    assert found.kv_bytes_per_token == 5 * 4 * 256 * 2
    assert sum(group.layers for group in found.kv_layers if group.window_tokens == 2048) == 15


@pytest.mark.parametrize("name", ["num_dense_layers", "first_k_dense_replace", "moe_layer_num_skipped"])
def test_first_layers_without_experts_have_three_names(name):
    """LFM2-8B-A1B has 8.34 billion parameters, its first two layers no experts."""
    config = {
        "model_type": "lfm2_moe",
        "hidden_size": 2048,
        "num_hidden_layers": 24,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 7168,
        "moe_intermediate_size": 1792,
        "num_experts": 32,
        "num_experts_per_tok": 4,
        "conv_L_cache": 3,
        "layer_types": ["full_attention" if layer in (2, 6, 10, 14, 18, 21) else "conv" for layer in range(24)],
        "vocab_size": 65536,
        "max_position_embeddings": 128000,
        "tie_word_embeddings": True,
        name: 2,
    }
    found = architecture_from_config("lfm2", config)
    assert found.sparse_layers == 22
    assert found.parameters / 1e9 == pytest.approx(8.34, rel=0.005)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (
            {"model_type": "recurrent_gemma", "block_types": ["recurrent", "attention"], "lru_width": 2560},
            "block_types",
        ),
        ({"lru_width": 2560}, "lru_width"),
        ({"group_norm_size": 4}, "group_norm_size"),
        ({"global_attn_every_n_layers": 3}, "global_attn_every_n_layers"),
        ({"layer_group_size": 5}, "layer_group_size"),
        ({"model_type": "bailing_hybrid", "layer_group_size": 6}, "layer_group_size"),
        ({"model_type": "bailing_hybrid", "layer_group_size": 4, "use_kda_lora": True}, "use_kda_lora"),
    ],
)
def test_layers_that_differ_in_a_way_that_is_not_read_are_refused(change, field):
    """Nothing that keeps a state is sized as plain attention."""
    with pytest.raises(InvalidObject) as caught:
        architecture_from_config("mine", {**MIXED, **change})
    assert caught.value.field == f"spec.architecture.{field}"
