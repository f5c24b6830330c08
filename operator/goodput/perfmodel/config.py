"""Hugging Face `config.json` -> `Architecture`: parameter counts and KV bytes from field names that users know.

Norms, biases and position tables are left out (under 0.1 %). What is not modelled is refused by name, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from goodput.domain.architecture import Architecture, KvLayers, LayerKind
from goodput.domain.conditions import ConditionReason
from goodput.domain.errors import InvalidObject
from goodput.domain.values import Value

# Bytes of one weight as stored, scales included, by quantisation method.
_WEIGHT_BYTES = {
    "fp8": 1.0,
    "fbgemm_fp8": 1.0,
    "compressed-tensors": 1.0,
    "int8": 1.0,
    "awq": 0.56,
    "gptq": 0.56,
    "mxfp4": 0.54,
    "nvfp4": 0.57,
}
_DTYPE_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}
# Layers of another kind than attention hold state that this model does not count yet.
_UNSUPPORTED = (
    "mamba_num_heads",
    "ssm_state_size",
    "hybrid_override_pattern",
    "linear_num_key_heads",
    "linear_attn_config",
    "full_attention_interval",
    "block_configs",
    "index_topk",
    "compress_ratios",
    "swa_num_attention_heads",
    "global_head_dim",
    "num_kv_shared_layers",
)
_UNGATED = frozenset({"opt", "gpt2", "gpt_neox", "falcon", "bloom", "phi", "mpt", "starcoder2"})
_KV_BYTES = 2.0  # bf16, the engine's default


class _Fields(Value, frozen=True):
    """Typed access to the mapping; every complaint names its field."""

    values: Mapping[str, Any]

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.values.get(name)
        if value is None:
            if default is None:
                raise _invalid(name, "is missing: give it as in the model's config.json")
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            raise _invalid(name, f"must be a whole number, not {value!r}")
        if value != int(value) or not 0 < value <= 10**9:
            raise _invalid(name, f"must be a whole number above 0 and at most 1,000,000,000, not {value!r}")
        return int(value)

    def optional(self, *names: str) -> int:
        """First of the names that is set; 0 where none is."""
        for name in names:
            if self.values.get(name):
                return self.integer(name)
        return 0

    def sequence(self, name: str) -> tuple[Any, ...]:
        value = self.values.get(name)
        return tuple(value) if isinstance(value, list | tuple) else ()


def _invalid(name: str, message: str) -> InvalidObject:
    return InvalidObject(f"spec.architecture.{name}", message, ConditionReason.ARCHITECTURE_INVALID)


def architecture_from_config(name: str, mapping: Mapping[str, Any]) -> Architecture:
    """Architecture of the decoder that `mapping` (config.json fields) describes.

    Raises `InvalidObject` (reason `ArchitectureInvalid`) that names the field.
    """
    text = mapping.get("text_config")
    fields = _Fields({**mapping, **text} if isinstance(text, Mapping) else mapping)
    for unsupported in _UNSUPPORTED:
        if fields.values.get(unsupported):
            raise _invalid(unsupported, "describes layers that Goodput cannot size yet (no plain attention)")
    layers = fields.integer("num_hidden_layers")
    hidden = fields.integer("hidden_size")
    heads = fields.integer("num_attention_heads")
    kv_heads = fields.integer("num_key_value_heads", heads)
    head_dim = fields.integer("head_dim", max(1, hidden // heads))
    if kv_heads > heads or heads % kv_heads:
        raise _invalid("num_key_value_heads", f"must divide num_attention_heads ({heads}), {kv_heads} does not")
    vocabulary = fields.integer("vocab_size")
    attention, kv_elements, attention_flops, kv_heads = _attention(fields, hidden, heads, kv_heads, head_dim)
    feed_forward, active_feed_forward, experts, experts_per_token = _feed_forward(fields, hidden, layers)
    share = experts_per_token / experts if experts else 0.0
    all_experts = (feed_forward - active_feed_forward) / (1.0 - share) if share < 1.0 else 0.0
    tied = bool(fields.values.get("tie_word_embeddings", False))
    embedding = float(vocabulary * hidden)
    window, full_layers = _windows(fields, layers)
    kept: dict[str, Any] = {
        "heads": kv_heads,
        "elements_per_head": int(kv_elements) // kv_heads,
        "attention_flops": attention_flops,
    }
    kept["latent"] = fields.optional("kv_lora_rank") > 0
    groups = [KvLayers(kind=LayerKind.FULL, layers=full_layers, **kept)] if full_layers else []
    if window:
        padded = _padded_window_layers(layers, full_layers)
        groups.append(KvLayers(kind=LayerKind.WINDOW, layers=padded, window_tokens=window, **kept))
    return Architecture(
        name=name,
        layers=layers,
        hidden_size=hidden,
        attention_heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocabulary=vocabulary,
        max_model_len=fields.integer("max_position_embeddings"),
        embedding_parameters=0.0 if tied else embedding,
        head_parameters=embedding,
        attention_parameters=layers * attention,
        dense_parameters=feed_forward - all_experts,
        expert_parameters=all_experts,
        experts=experts,
        experts_per_token=experts_per_token,
        kv_layers=tuple(groups),
        quantised_bytes=_weight_bytes(fields),
        plain_bytes=_weight_bytes(fields),
    )


def _attention(
    fields: _Fields, hidden: int, heads: int, kv_heads: int, head_dim: int
) -> tuple[float, float, float, int]:
    """Per layer: parameters, KV elements a token, FLOP per (token, context token), heads that shard the KV."""
    rank = fields.optional("kv_lora_rank")
    if not rank:
        parameters = hidden * head_dim * (2 * heads + 2 * kv_heads)
        return parameters, 2.0 * kv_heads * head_dim, 4.0 * heads * head_dim, kv_heads
    # Multi-head latent attention: one latent vector a token, the same on every rank, so it shards over nothing.
    rope = fields.integer("qk_rope_head_dim")
    nope = fields.integer("qk_nope_head_dim")
    value_dim = fields.integer("v_head_dim", head_dim)
    query_rank = fields.optional("q_lora_rank")
    queries = heads * (nope + rope)
    parameters = (hidden * query_rank + query_rank * queries) if query_rank else hidden * queries
    parameters += hidden * (rank + rope) + rank * heads * (nope + value_dim) + heads * value_dim * hidden
    return parameters, float(rank + rope), 2.0 * heads * (nope + rope + value_dim), 1


def _feed_forward(fields: _Fields, hidden: int, layers: int) -> tuple[float, float, int, int]:
    """All layers: parameters, those active for one token, experts of a layer, experts a token visits."""
    matrices = 2 if fields.values.get("model_type") in _UNGATED else 3
    dense_size = fields.optional("intermediate_size_mlp", "intermediate_size", "ffn_dim")
    experts = fields.optional("n_routed_experts", "num_local_experts", "num_experts")
    if experts <= 1:
        if not dense_size:
            raise _invalid("intermediate_size", "is missing: give it as in the model's config.json")
        total = float(layers * matrices * hidden * dense_size)
        return total, total, 0, 0
    visited = fields.integer("num_experts_per_tok")
    if visited > experts:
        raise _invalid("num_experts_per_tok", f"is {visited}, more than the {experts} experts there are")
    size = fields.optional("moe_intermediate_size", "intermediate_size")
    if not size:
        raise _invalid("moe_intermediate_size", "is missing: give it as in the model's config.json")
    # Llama 4 has one shared expert that its config does not name.
    shared = fields.optional("n_shared_experts") or int(fields.values.get("model_type") in ("llama4", "llama4_text"))
    shared_size = fields.optional("shared_expert_intermediate_size") or shared * size
    sparse = _sparse_layers(fields, layers)
    dense = float((layers - sparse) * matrices * hidden * (dense_size or size))
    common = sparse * (matrices * hidden * shared_size + hidden * experts)
    one = float(matrices * hidden * size)
    return dense + common + sparse * experts * one, dense + common + sparse * visited * one, experts, visited


def _sparse_layers(fields: _Fields, layers: int) -> int:
    """Number of layers that have experts."""
    pattern = fields.sequence("moe_layer_freq")
    if len(pattern) == layers:
        return sum(1 for kind in pattern if kind)
    step = fields.optional("interleave_moe_layer_step", "decoder_sparse_step") or 1
    return max(1, (layers - min(layers - 1, fields.optional("first_k_dense_replace"))) // step)


def _windows(fields: _Fields, layers: int) -> tuple[int, int]:
    """Tokens that a windowed layer sees (0: none is), and the number of layers that see everything."""
    chunk = fields.optional("attention_chunk_size")
    if chunk and fields.optional("no_rope_layer_interval"):
        return chunk, layers // fields.integer("no_rope_layer_interval")
    window = fields.optional("sliding_window")
    if not window or fields.values.get("use_sliding_window") is False:
        return 0, layers
    kinds = fields.sequence("layer_types")
    pattern = fields.sequence("layer_types_pattern")
    if len(kinds) != layers and pattern:
        kinds = tuple(pattern[index % len(pattern)] for index in range(layers))
    if len(kinds) == layers:
        full = sum(1 for kind in kinds if kind == "full_attention")
    elif fields.optional("sliding_window_pattern"):
        full = layers // fields.integer("sliding_window_pattern")
    elif fields.values.get("model_type") in ("mistral", "mixtral", "phi3"):
        full = 0
    else:
        # Qwen and others carry a window that their code does not use.
        return 0, layers
    return (window, full) if full < layers else (0, layers)


def _padded_window_layers(layers: int, full: int) -> int:
    """Windowed layers as the engine counts them: it pads them to whole groups of the size of the full ones."""
    windowed = layers - full
    if not windowed or not full:
        return windowed
    small, large = sorted((windowed, full))
    group = large if large < 1.5 * small else small
    return -(-windowed // group) * group


def _weight_bytes(fields: _Fields) -> float:
    quantisation = fields.values.get("quantization_config")
    if isinstance(quantisation, Mapping) and quantisation:
        method = str(quantisation.get("quant_method") or "").lower()
        algorithm = str(quantisation.get("quant_algo") or "").lower()
        for key in (algorithm, method):
            if key in _WEIGHT_BYTES:
                return _WEIGHT_BYTES[key]
        if algorithm == "mixed_precision":
            return _WEIGHT_BYTES["nvfp4"]
        raise _invalid("quantization_config.quant_method", f"{method or algorithm!r} is not known")
    dtype = str(fields.values.get("torch_dtype") or fields.values.get("dtype") or "bfloat16")
    return _DTYPE_BYTES.get(dtype.removeprefix("torch."), 2.0)
