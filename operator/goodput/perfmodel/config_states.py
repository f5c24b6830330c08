"""Layers that keep a state of fixed size: parameters, and the bytes that the engine keeps of a sequence.

A state has two parts: the last inputs of a short convolution, in the model's type, and the recurrence itself, often in
float32. The engine shards both over tensor ranks.
"""

from __future__ import annotations

from goodput.domain.architecture import KvLayers, LayerKind
from goodput.domain.values import Value
from goodput.perfmodel.config_fields import Fields

_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}
_MODEL_BYTES = 2.0
# Decay, update and read-out of one element of the recurrence, a multiplication and an addition each.
_FLOPS_PER_ELEMENT = 6.0


class Part(Value, frozen=True, kw_only=True):
    """What one layer mixes tokens with: parameters, and what it keeps (each entry for this one layer)."""

    parameters: float
    kv_projection: float = 0.0  # of these, K and V projections
    replicated: float = 0.0  # of these, whole on every tensor rank
    absorbed: float = 0.0  # of these, up-projections of latent attention
    output: float = 0.0  # of these, the output projection of attention
    kept: tuple[KvLayers, ...] = ()


def _state(convolution_elements: float, recurrence_elements: float, recurrence_bytes: float) -> KvLayers:
    return KvLayers(
        kind=LayerKind.STATE,
        layers=1,
        fixed_bytes=convolution_elements * _MODEL_BYTES + recurrence_elements * recurrence_bytes,
        attention_flops=_FLOPS_PER_ELEMENT * recurrence_elements,
    )


def _recurrence_bytes(fields: Fields, default: str) -> float:
    for name in ("mamba_ssm_cache_dtype", "mamba_ssm_dtype"):
        dtype = fields.text(name)
        if dtype:
            if dtype not in _BYTES:
                raise fields.invalid(name, f"must be one of {', '.join(sorted(_BYTES))}, not {dtype!r}")
            return _BYTES[dtype]
    return _BYTES[default]


def mamba2(fields: Fields, hidden: int) -> Part:
    """Mamba-2 (Nemotron-H, Bamba, Granite 4, Falcon-H1)."""
    heads = fields.integer("mamba_num_heads" if fields.raw("mamba_num_heads") is not None else "mamba_n_heads")
    head_dim = fields.integer("mamba_head_dim" if fields.raw("mamba_head_dim") is not None else "mamba_d_head")
    state = fields.integer("ssm_state_size" if fields.raw("ssm_state_size") is not None else "mamba_d_state")
    groups = fields.count("n_groups") or fields.count("mamba_n_groups") or 1
    kernel = fields.count("conv_kernel") or fields.count("mamba_d_conv") or 4
    inner = heads * head_dim
    mixed = inner + 2 * groups * state
    parameters = hidden * (inner + mixed + heads) + inner * hidden + mixed * kernel
    kept = _state(mixed * (kernel - 1), inner * state, _recurrence_bytes(fields, "bfloat16"))
    return Part(parameters=float(parameters), kept=(kept,))


def mamba1(fields: Fields, hidden: int) -> Part:
    """Mamba-1 (Jamba)."""
    inner = fields.integer("mamba_expand", 2) * hidden
    state = fields.integer("mamba_d_state")
    kernel = fields.integer("mamba_d_conv", 4)
    rank = fields.integer("mamba_dt_rank", -(-hidden // 16))
    parameters = 2 * hidden * inner + inner * (rank + 2 * state) + rank * inner + inner * hidden
    parameters += inner * (kernel + state)
    kept = _state(inner * (kernel - 1), inner * state, _recurrence_bytes(fields, "bfloat16"))
    return Part(parameters=float(parameters), kept=(kept,))


def delta(fields: Fields, hidden: int) -> Part:
    """Gated delta net (Qwen3-Next, Qwen3.5): a k x v matrix for each value head."""
    key_heads, value_heads = fields.integer("linear_num_key_heads"), fields.integer("linear_num_value_heads")
    key_dim, value_dim = fields.integer("linear_key_head_dim"), fields.integer("linear_value_head_dim")
    kernel = fields.integer("linear_conv_kernel_dim", 4)
    if value_heads % key_heads:
        raise fields.invalid(
            "linear_num_value_heads", f"must be a multiple of linear_num_key_heads ({key_heads}), not {value_heads}"
        )
    keys, values = key_heads * key_dim, value_heads * value_dim
    mixed = 2 * keys + values
    parameters = hidden * (2 * keys + 2 * values + 2 * value_heads) + values * hidden + mixed * kernel
    kept = _state(mixed * (kernel - 1), value_heads * value_dim * key_dim, _recurrence_bytes(fields, "float32"))
    return Part(parameters=float(parameters), kept=(kept,))


def kimi_delta(fields: Fields, hidden: int) -> Part:
    """Kimi delta attention: a gate for each channel, through a bottleneck of one head."""
    config = fields.mapping("linear_attn_config")
    if config is None:
        raise fields.invalid("linear_attn_config", "is missing: give it as in the model's config.json")
    heads, head_dim = config.integer("num_heads"), config.integer("head_dim")
    kernel = config.integer("short_conv_kernel_size", 4)
    inner = heads * head_dim
    bottleneck = head_dim * (hidden + inner)
    output_gate = hidden * inner if config.flag("use_full_rank_gate") else bottleneck
    parameters = 4 * hidden * inner + bottleneck + output_gate + hidden * heads + 3 * inner * kernel
    kept = _state(3 * inner * (kernel - 1), inner * head_dim, _BYTES["float32"])
    return Part(parameters=float(parameters), kept=(kept,))


def lightning(fields: Fields, hidden: int) -> Part:
    """Lightning attention (MiniMax-Text, Ring): Q, K, V, an output gate, and one head x head matrix for each head.

    The engine keeps it in the model's type, whatever the arithmetic.
    """
    heads = fields.integer("num_attention_heads")
    head_dim = fields.integer("head_dim", max(1, hidden // heads))
    inner = heads * head_dim
    return Part(parameters=5.0 * hidden * inner, kept=(_state(0, inner * head_dim, _MODEL_BYTES),))


def convolution(fields: Fields, hidden: int) -> Part:
    """Gated short convolution (LFM2)."""
    kernel = fields.integer("conv_L_cache")
    return Part(
        parameters=float(4 * hidden * hidden + hidden * kernel),
        kept=(_state(hidden * (kernel - 1), 0, _MODEL_BYTES),),
    )
