"""Inline architectures: no field is inert."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from goodput.api.architecture import ArchitectureConfig
from goodput.domain.errors import InvalidObject
from goodput.perfmodel.config import architecture_from_config
from goodput.perfmodel.weights import Parallel, cannot_split

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
_WINDOWED = {**_DENSE, "layer_types": _KINDS, "sliding_window": 128}
_OWN_HEADS = {
    **_DENSE,
    "hybrid_layer_pattern": [0, 1] * 4,
    "sliding_window": 128,
    "swa_num_attention_heads": 8,
    "swa_num_key_value_heads": 8,
}
_MAMBA = {
    **_DENSE,
    "layer_types": ["mamba", "attention"] * 4,
    "mamba_n_heads": 8,
    "mamba_d_head": 128,
    "mamba_d_state": 16,
}
_NEMOTRON = {
    **_DENSE,
    "model_type": "nemotron_h",
    "hybrid_override_pattern": "M*-M*-M-",
    "mamba_num_heads": 8,
    "mamba_head_dim": 128,
    "ssm_state_size": 16,
}
_LATENT_EXPERTS = {**_ROUTED, "n_shared_experts": 1}
_JAMBA = {**_DENSE, "attn_layer_period": 4, "attn_layer_offset": 1, "mamba_d_state": 16}
_DELTA = {
    **_DENSE,
    "full_attention_interval": 4,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
}
_INDEXED = {**_LATENT, "q_lora_rank": 32, "index_topk": 64, "index_n_heads": 4, "index_head_dim": 128}
_COMPRESSED = {
    **_ROUTED,
    "head_dim": 128,
    "qk_rope_head_dim": 32,
    "q_lora_rank": 64,
    "o_lora_rank": 64,
    "o_groups": 2,
    "index_n_heads": 4,
    "index_head_dim": 128,
    "index_topk": 64,
    "sliding_window": 128,
    "compress_ratios": [0, 4, 128, 4, 128, 4, 128, 4],
}
_BLOCKS = [{"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": 2.625}}] * 8
_MIXED = {"attention": {"no_op": True}, "ffn": {"replace_with_linear": True}}

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
    ("max_window_layers", 4, {**_DENSE, "use_sliding_window": True, "sliding_window": 128}),
    ("no_rope_layers", [1, 1, 0, 0] * 2, {**_DENSE, "attention_chunk_size": 128, "no_rope_layer_interval": 4}),
    ("hybrid_layer_pattern", [0, 1] * 4, {**_DENSE, "sliding_window": 128}),
    ("swa_num_attention_heads", 16, {**_OWN_HEADS, "head_dim": 64}),
    ("swa_num_key_value_heads", 2, _OWN_HEADS),
    ("swa_head_dim", 32, _OWN_HEADS),
    ("swa_v_head_dim", 32, _OWN_HEADS),
    ("global_head_dim", 128, _WINDOWED),
    ("num_global_key_value_heads", 2, {**_WINDOWED, "global_head_dim": 128, "attention_k_eq_v": True}),
    ("attention_k_eq_v", True, _WINDOWED),
    ("num_kv_shared_layers", 2, _DENSE),
    ("multi_query", True, _DENSE),
    ("attn_output_gate", True, _DENSE),
    ("hybrid_override_pattern", "M*-M*-MM", _NEMOTRON),
    ("layers_block_type", ["mamba", "attention"] * 4, {**_NEMOTRON, "hybrid_override_pattern": ""}),
    ("block_configs", [*_BLOCKS[1:], _MIXED], {**_DENSE, "block_configs": _BLOCKS}),
    ("attn_layer_indices", [1, 5], {key: _MAMBA[key] for key in _MAMBA if key != "layer_types"}),
    ("attn_layer_period", 2, _JAMBA),
    ("attn_layer_offset", 3, {**_JAMBA, "attn_layer_period": 3}),
    ("attn_type_list", [0, 1] * 4, _DENSE),
    ("full_attention_interval", 2, _DELTA),
    ("mamba_num_heads", 16, _NEMOTRON),
    ("mamba_head_dim", 64, _NEMOTRON),
    ("ssm_state_size", 32, _NEMOTRON),
    ("n_groups", 4, _NEMOTRON),
    ("conv_kernel", 8, _NEMOTRON),
    ("mamba_n_heads", 16, _MAMBA),
    ("mamba_d_head", 64, _MAMBA),
    ("mamba_d_state", 32, _MAMBA),
    ("mamba_n_groups", 4, _MAMBA),
    ("mamba_d_conv", 8, _MAMBA),
    ("mamba_d_ssm", 1024, {key: _MAMBA[key] for key in _MAMBA if key != "layer_types"}),
    ("mamba_expand", 4, _JAMBA),
    ("mamba_dt_rank", 8, _JAMBA),
    ("mamba_ssm_cache_dtype", "float32", _MAMBA),
    ("mamba_ssm_dtype", "bfloat16", _DELTA),
    ("linear_num_key_heads", 2, _DELTA),
    ("linear_num_value_heads", 4, _DELTA),
    ("linear_key_head_dim", 32, _DELTA),
    ("linear_value_head_dim", 32, _DELTA),
    ("linear_conv_kernel_dim", 8, _DELTA),
    ("linear_attn_config", {"num_heads": 4, "head_dim": 64, "full_attn_layers": [4, 8]}, _LATENT),
    ("num_experts_per_token", 4, {**_EXPERTS, "num_experts_per_tok": None}),
    ("top_k_experts", 4, {**_EXPERTS, "num_experts_per_tok": None}),
    ("enable_moe_block", True, _EXPERTS),
    ("dense_intermediate_size", 1024, {**_ROUTED, "first_k_dense_replace": 1}),
    ("moe_latent_size", 128, _ROUTED),
    ("routed_expert_hidden_size", 128, _ROUTED),
    ("num_shared_experts", 2, _ROUTED),
    ("moe_shared_expert_intermediate_size", 512, _LATENT_EXPERTS),
    ("shared_intermediate_size", 512, _LATENT_EXPERTS),
    ("mlp_only_layers", [0, 1], _EXPERTS),
    ("mlp_layer_types", ["dense"] * 4 + ["sparse"] * 4, _EXPERTS),
    ("moe_layer_freq", [0, 1] * 4, _EXPERTS),
    ("expert_layer_period", 2, _EXPERTS),
    ("expert_layer_offset", 2, {**_EXPERTS, "expert_layer_period": 3}),
    ("hidden_act", "relu2", _DENSE),
    ("mlp_hidden_act", "relu2", _DENSE),
    ("hidden_size_per_layer_input", 32, _DENSE),
    ("vocab_size_per_layer_input", 500, {**_DENSE, "hidden_size_per_layer_input": 32}),
    ("num_nextn_predict_layers", 1, _DENSE),
    ("mla_use_output_gate", True, _LATENT),
    ("index_topk", 64, {key: _INDEXED[key] for key in _INDEXED if key != "index_topk"}),
    ("index_n_heads", 8, _INDEXED),
    ("index_head_dim", 64, _INDEXED),
    ("index_topk_freq", 4, _INDEXED),
    ("index_skip_topk_offset", 3, {**_INDEXED, "index_topk_freq": 4}),
    ("indexer_types", ["full", "shared"] * 4, _INDEXED),
    (
        "sparse_attention_config",
        {"sparse_num_index_heads": 2, "sparse_index_dim": 64, "sparse_topk_blocks": 4, "sparse_block_size": 16},
        _DENSE,
    ),
    ("compress_ratios", [0, 4, 128, 4, 128, 4, 128, 0], _COMPRESSED),
    ("o_lora_rank", 32, _COMPRESSED),
    ("o_groups", 4, _COMPRESSED),
    ("expert_dtype", "fp4", {**_ROUTED, "quantization_config": {"quant_method": "fp8"}}),
    ("quantization_config", {"quant_method": "fp8"}, _DENSE),
]


@pytest.mark.parametrize(("field", "value", "base"), _EFFECTS, ids=[effect[0] for effect in _EFFECTS])
def test_every_inline_field_changes_what_goodput_believes(field: str, value: Any, base: dict[str, Any]) -> None:
    """Memory, speed or longest context differ with it, or without it there is no telling."""
    without = None
    with suppress(InvalidObject):
        without = architecture_from_config("x", ArchitectureConfig.model_validate(base).to_config())
    having = architecture_from_config("x", ArchitectureConfig.model_validate({**base, field: value}).to_config())
    assert having != without


def test_the_table_above_has_every_field() -> None:
    """A new field needs a row."""
    assert {effect[0] for effect in _EFFECTS} == set(ArchitectureConfig.model_fields) - {"config_map_ref"}


_GROUP = {"num_bits": 4, "group_size": 128}
_BY_GROUPS = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": _GROUP}}}
_LISTED = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}
_NESTED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"quant_method": "gptq"}, {"quant_method": "gptq", "bits": 8}),
    ({"quant_method": "awq"}, {"quant_method": "awq", "group_size": 32}),
    ({"quant_method": "bitsandbytes"}, {"quant_method": "bitsandbytes", "load_in_8bit": True}),
    ({"quant_method": "fp8"}, {"quant_method": "fp8", "moe_quant_algo": "NVFP4"}),
    ({"quant_method": "fp8"}, {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.*.self_attn"]}),
    ({"quant_method": "fp8"}, {"quant_method": "fp8", "ignore": ["re:.*self_attn.*"]}),
    ({"quant_method": "fp8"}, {"quant_method": "fp8", "exclude_modules": ["model.layers.*.self_attn*"]}),
    *(
        (_BY_GROUPS, {**_BY_GROUPS, "config_groups": {"group_0": {"weights": {**_GROUP, **change}}}})
        for change in ({"num_bits": 8}, {"type": "float"}, {"group_size": 32}, {"symmetric": False})
    ),
    (
        {**_LISTED, "quantized_layers": {"model.layers.*.mlp.experts": {"quant_algo": "NVFP4"}}},
        {**_LISTED, "quantized_layers": {"model.layers.*.mlp.experts": {"quant_algo": "FP8"}}},
    ),
]


@pytest.mark.parametrize(("one", "other"), _NESTED)
def test_every_field_of_a_quantisation_changes_what_goodput_believes(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    """Bits, groups, exceptions and kinds of numbers all tell in bytes."""
    found = [
        architecture_from_config(
            "x", ArchitectureConfig.model_validate({**_EXPERTS, "quantization_config": config}).to_config()
        )
        for config in (one, other)
    ]
    assert found[0].weight_bytes != found[1].weight_bytes


def test_the_blocks_that_share_a_scale_bound_tensor_parallelism() -> None:
    """1,536 elements are three blocks of 512 on one GPU, and one and a half on two."""
    config = {**_DENSE, "intermediate_size": 1536, "quantization_config": {"quant_method": "fp8"}}
    blocks = {"quant_method": "fp8", "weight_block_size": [512, 512]}
    found = [
        architecture_from_config("x", ArchitectureConfig.model_validate({**config, **change}).to_config())
        for change in ({}, {"quantization_config": blocks})
    ]
    assert cannot_split(found[0], Parallel(tensor=2)) is None
    refused = cannot_split(found[1], Parallel(tensor=2))
    assert refused is not None
    assert "no multiple of the 512" in refused[1]


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
