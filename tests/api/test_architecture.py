"""Inline architectures: no field is inert."""

from __future__ import annotations

from typing import Any

import pytest

from goodput.api.architecture import ArchitectureConfig
from goodput.perfmodel.config import architecture_from_config

_DENSE: dict[str, Any] = {
    "num_hidden_layers": 8,
    "hidden_size": 512,
    "num_attention_heads": 8,
    "intermediate_size": 2048,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
}
_EXPERTS = {**_DENSE, "num_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 256}
_ROUTED = {**_DENSE, "n_routed_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 256}
_LATENT = {**_DENSE, "kv_lora_rank": 64, "qk_rope_head_dim": 16, "qk_nope_head_dim": 32, "v_head_dim": 32}
_KINDS = ["full_attention", "sliding_attention"] * 4

# (field, value, configuration that it is added to)
_EFFECTS: list[tuple[str, Any, dict[str, Any]]] = [
    ("model_type", "mistral", {**_DENSE, "sliding_window": 128}),
    ("num_hidden_layers", 16, _DENSE),
    ("hidden_size", 1024, _DENSE),
    ("num_attention_heads", 16, {**_DENSE, "head_dim": 64}),
    ("intermediate_size", 1024, _DENSE),
    ("intermediate_size_mlp", 1024, _DENSE),
    ("vocab_size", 2000, _DENSE),
    ("max_position_embeddings", 8192, _DENSE),
    ("num_key_value_heads", 2, _DENSE),
    ("head_dim", 32, _DENSE),
    ("tie_word_embeddings", True, _DENSE),
    ("torch_dtype", "float32", _DENSE),
    ("dtype", "float32", _DENSE),
    ("sliding_window", 128, {**_DENSE, "model_type": "mistral"}),
    ("use_sliding_window", False, {**_DENSE, "layer_types": _KINDS, "sliding_window": 128}),
    ("sliding_window_pattern", 4, {**_DENSE, "sliding_window": 128}),
    ("attention_chunk_size", 128, {**_DENSE, "no_rope_layer_interval": 4}),
    ("no_rope_layer_interval", 4, {**_DENSE, "attention_chunk_size": 128}),
    ("layer_types", _KINDS, {**_DENSE, "sliding_window": 128}),
    ("num_local_experts", 16, {**_DENSE, "num_experts_per_tok": 2}),
    ("num_experts", 16, {**_DENSE, "num_experts_per_tok": 2}),
    ("n_routed_experts", 16, {**_DENSE, "num_experts_per_tok": 2}),
    ("num_experts_per_tok", 4, _EXPERTS),
    ("moe_intermediate_size", 512, _EXPERTS),
    ("n_shared_experts", 2, _ROUTED),
    ("shared_expert_intermediate_size", 512, _EXPERTS),
    ("first_k_dense_replace", 3, _ROUTED),
    ("decoder_sparse_step", 2, _EXPERTS),
    ("interleave_moe_layer_step", 2, _EXPERTS),
    ("kv_lora_rank", 32, _LATENT),
    ("q_lora_rank", 32, _LATENT),
    ("qk_nope_head_dim", 64, _LATENT),
    ("qk_rope_head_dim", 32, _LATENT),
    ("v_head_dim", 64, _LATENT),
    ("quantization_config", {"quant_method": "fp8"}, _DENSE),
]


@pytest.mark.parametrize(("field", "value", "base"), _EFFECTS, ids=[effect[0] for effect in _EFFECTS])
def test_every_inline_field_changes_what_goodput_believes(field: str, value: Any, base: dict[str, Any]) -> None:
    """Memory, speed or longest context differ with it."""
    without = architecture_from_config("x", ArchitectureConfig.model_validate(base).to_config())
    having = architecture_from_config("x", ArchitectureConfig.model_validate({**base, field: value}).to_config())
    assert having != without


def test_the_table_above_has_every_field() -> None:
    """A new field needs a row."""
    assert {effect[0] for effect in _EFFECTS} == set(ArchitectureConfig.model_fields) - {"config_map_ref"}


def test_the_algorithm_decides_where_the_method_does_not() -> None:
    """modelopt checkpoints name their algorithm."""
    configs = [
        {**_DENSE, "quantization_config": {"quant_method": "modelopt", "quant_algo": a}} for a in ("FP8", "NVFP4")
    ]
    found = [architecture_from_config("x", ArchitectureConfig.model_validate(c).to_config()) for c in configs]
    assert found[0].weight_bytes_per_parameter != found[1].weight_bytes_per_parameter


def test_an_inline_architecture_that_the_schema_takes_can_be_sized() -> None:
    """The fields that the rule asks for are all that sizing needs."""
    assert architecture_from_config("x", ArchitectureConfig.model_validate(_DENSE).to_config()).layers == 8
