"""Structure of a model in Hugging Face `config.json` field names, for models that the built-in catalogue lacks."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from goodput.api.architecture_parts import (
    Block,
    Count,
    Indices,
    LinearAttention,
    Name,
    Quantization,
    SparseAttention,
    Width,
)
from goodput.api.base import ApiModel, Bool, DataKey, Int, ObjectName
from goodput.api.rules import Rule

REQUIRED = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "max_position_embeddings")
# One of these says how wide the feed-forward layers are.
WIDTHS = ("intermediate_size", "moe_intermediate_size", "block_configs")


def _all_set(names: tuple[str, ...]) -> str:
    return " && ".join(f"has(self.{name})" for name in names)


def _any_set(names: tuple[str, ...]) -> str:
    return " || ".join(f"has(self.{name})" for name in names)


class ConfigMapKeyRef(ApiModel):
    """One key of a ConfigMap in the namespace of the Model."""

    name: ObjectName
    """Name of the ConfigMap."""
    key: DataKey = "config.json"
    """Key in its data; its text is a whole Hugging Face config.json. Default config.json."""


_Kinds = Annotated[tuple[Annotated[str, Field(max_length=64)], ...], Field(max_length=1024)]
_Natural = Annotated[Int, Field(ge=0, le=10_000)]
_Recurrence = Literal["float32", "bfloat16", "float16"]


class ArchitectureConfig(ApiModel):
    """Either `configMapRef`, or the fields of config.json that memory and speed depend on, under their own names."""

    model_config = ConfigDict(alias_generator=None)

    config_map_ref: ConfigMapKeyRef | None = Field(default=None, alias="configMapRef")
    """ConfigMap that holds the whole config.json. Unset: the fields below say it."""
    model_type: Name | None = None
    """Family, such as `llama`. Unset: a plain decoder."""
    num_hidden_layers: Count | None = None
    """Layers. Unset: `configMapRef` says it."""
    hidden_size: Width | None = None
    """Width of the residual stream. Unset: `configMapRef` says it."""
    num_attention_heads: Count | None = None
    """Query heads. Unset: `configMapRef` says it."""
    intermediate_size: Width | None = None
    """Width of the dense feed-forward layer. Unset: `configMapRef` says it, or all layers have experts."""
    intermediate_size_mlp: Width | None = None
    """Width of the dense feed-forward layer where `intermediate_size` is an expert's (Llama 4). Unset: the same."""
    vocab_size: Annotated[Int, Field(ge=1, le=10_000_000)] | None = None
    """Tokens of the vocabulary. Unset: `configMapRef` says it."""
    num_key_value_heads: Count | None = None
    """Key-value heads. Unset: as many as query heads."""
    head_dim: Width | None = None
    """Width of one head. Unset: hidden_size / num_attention_heads."""
    max_position_embeddings: Annotated[Int, Field(ge=1, le=100_000_000)] | None = None
    """Longest context in tokens. Unset: `configMapRef` says it."""
    tie_word_embeddings: Bool | None = None
    """Whether input and output embeddings are one matrix. Unset: false."""
    torch_dtype: Literal["bfloat16", "float16", "float32"] | None = None
    """Type of the weights. Unset: `dtype`, else bfloat16."""
    dtype: Literal["bfloat16", "float16", "float32"] | None = None
    """Type of the weights, as newer configurations name it. Unset: bfloat16."""
    sliding_window: Annotated[Int, Field(ge=1, le=100_000_000)] | None = None
    """Tokens of the attention window. Unset: full attention."""
    use_sliding_window: Bool | None = None
    """Whether `sliding_window` is in use (Qwen). Unset: as the family does."""
    sliding_window_pattern: Count | None = None
    """One layer of so many has full attention (Gemma). Unset: `layer_types` says it."""
    attention_chunk_size: Annotated[Int, Field(ge=1, le=100_000_000)] | None = None
    """Tokens of a chunk of local attention (Llama 4). Unset: full attention."""
    no_rope_layer_interval: Count | None = None
    """One layer of so many has full attention beside chunks (Llama 4). Unset: none."""
    layer_types: _Kinds | None = None
    """Kind of each layer, such as `full_attention`, `sliding_attention` or `mamba`. Unset: all alike."""
    max_window_layers: _Natural | None = None
    """First layer with the window, where `use_sliding_window` is true (Qwen). Unset: every layer."""
    no_rope_layers: Indices | None = None
    """1 for each layer with chunks, 0 for full attention (Llama 4). Unset: `no_rope_layer_interval` says it."""
    hybrid_layer_pattern: Indices | None = None
    """1 for each layer with the window, 0 for full attention (MiMo). Unset: `layer_types` says it."""
    swa_num_attention_heads: Count | None = None
    """Query heads of layers with the window (MiMo). Unset: as the others."""
    swa_num_key_value_heads: Count | None = None
    """Key-value heads of layers with the window (MiMo). Unset: as many as `swa_num_attention_heads`."""
    swa_head_dim: Width | None = None
    """Width of a key head in layers with the window (MiMo). Unset: `head_dim`."""
    swa_v_head_dim: Width | None = None
    """Width of a value head in layers with the window (MiMo). Unset: `swa_head_dim`."""
    global_head_dim: Width | None = None
    """Width of a head in layers with full attention (Gemma 4). Unset: `head_dim`."""
    num_global_key_value_heads: Count | None = None
    """Key-value heads of layers with full attention, with `attention_k_eq_v` (Gemma 4). Unset: as the others."""
    attention_k_eq_v: Bool | None = None
    """Whether one projection gives keys and values in layers with full attention (Gemma 4). Unset: false."""
    num_kv_shared_layers: _Natural | None = None
    """Last layers that use the keys and values of layers before them (Gemma 3n). Unset: none."""
    multi_query: Bool | None = None
    """Whether there is one key-value head (Falcon). Unset: false."""
    attn_output_gate: Bool | None = None
    """Whether attention has an output gate (Qwen3-Next). Unset: as the family does."""
    hybrid_override_pattern: Annotated[str, Field(max_length=1024)] | None = None
    """One letter for each block, M, *, - or E (Nemotron-H). Unset: `layer_types` says it."""
    layers_block_type: _Kinds | None = None
    """Kind of each block, mamba, attention, mlp or moe (Nemotron-H). Unset: `hybrid_override_pattern` says it."""
    block_configs: Annotated[tuple[Block, ...], Field(max_length=1024)] | None = None
    """Every block of an architecture search (Nemotron NAS). Unset: all layers are alike."""
    attn_layer_indices: Indices | None = None
    """Layers with attention, all others being Mamba (Bamba). Unset: `layer_types` says it."""
    attn_layer_period: Count | None = None
    """One layer of so many has attention, all others are Mamba (Jamba). Unset: every layer."""
    attn_layer_offset: _Natural | None = None
    """The first of them. Unset: 0."""
    attn_type_list: Indices | None = None
    """1 for each layer with full attention, 0 for lightning attention (MiniMax). Unset: full attention."""
    full_attention_interval: Count | None = None
    """One layer of so many has full attention, all others a gated delta net (Qwen3-Next). Unset: `layer_types`."""
    mamba_num_heads: Count | None = None
    """Heads of a Mamba-2 layer (Nemotron-H). Unset: `mamba_n_heads`."""
    mamba_head_dim: Width | None = None
    """Width of one of them. Unset: `mamba_d_head`."""
    ssm_state_size: Width | None = None
    """Elements of state for each channel. Unset: `mamba_d_state`."""
    n_groups: Count | None = None
    """Groups that share the projections of the state. Unset: `mamba_n_groups`, else 1."""
    conv_kernel: Count | None = None
    """Inputs that the convolution sees. Unset: `mamba_d_conv`, else 4."""
    mamba_n_heads: Count | None = None
    """Heads of a Mamba-2 layer (Bamba, Granite 4, Falcon-H1). Unset: `mamba_num_heads`."""
    mamba_d_head: Width | None = None
    """Width of one of them. Unset: `mamba_head_dim`."""
    mamba_d_state: Width | None = None
    """Elements of state for each channel. Unset: `ssm_state_size`."""
    mamba_n_groups: Count | None = None
    """Groups that share the projections of the state. Unset: `n_groups`, else 1."""
    mamba_d_conv: Count | None = None
    """Inputs that the convolution sees. Unset: `conv_kernel`, else 4."""
    mamba_d_ssm: Width | None = None
    """Width of the Mamba-2 part that stands beside attention in every layer (Falcon-H1). Unset: none does."""
    mamba_expand: Count | None = None
    """Width of a Mamba-1 layer in hidden sizes (Jamba). Unset: 2."""
    mamba_dt_rank: Width | None = None
    """Rank of the step size of a Mamba-1 layer (Jamba). Unset: hidden_size / 16."""
    mamba_ssm_cache_dtype: _Recurrence | None = None
    """Type of the state. Unset: `mamba_ssm_dtype`, else bfloat16, of a gated delta net float32."""
    mamba_ssm_dtype: _Recurrence | None = None
    """Type of the state, as Qwen3.5 names it. Unset: bfloat16, of a gated delta net float32."""
    linear_num_key_heads: Count | None = None
    """Key heads of a gated delta net. Unset: there is none."""
    linear_num_value_heads: Count | None = None
    """Value heads of a gated delta net. Unset: there is none."""
    linear_key_head_dim: Width | None = None
    """Width of a key head of a gated delta net. Unset: there is none."""
    linear_value_head_dim: Width | None = None
    """Width of a value head of a gated delta net. Unset: there is none."""
    linear_conv_kernel_dim: Count | None = None
    """Inputs that the convolution of a gated delta net sees. Unset: 4."""
    linear_attn_config: LinearAttention | None = None
    """Layers of Kimi delta attention. Unset: none."""
    num_local_experts: Count | None = None
    """Experts of a mixture-of-experts layer (Mixtral, gpt-oss). Unset: dense."""
    num_experts: Count | None = None
    """Experts of a mixture-of-experts layer (Qwen). Unset: dense."""
    n_routed_experts: Count | None = None
    """Routed experts of a mixture-of-experts layer (DeepSeek). Unset: dense."""
    num_experts_per_tok: Count | None = None
    """Experts that one token uses. Unset: dense."""
    moe_intermediate_size: Width | None = None
    """Width of one expert. Unset: intermediate_size."""
    n_shared_experts: Annotated[Int, Field(ge=0, le=10_000)] | None = None
    """Experts that every token uses. Unset: none."""
    shared_expert_intermediate_size: Width | None = None
    """Width of the shared expert (Qwen). Unset: none."""
    first_k_dense_replace: Annotated[Int, Field(ge=0, le=10_000)] | None = None
    """Leading layers that are dense in a mixture of experts. Unset: none."""
    decoder_sparse_step: Count | None = None
    """One layer of so many has experts (Qwen). Unset: every layer."""
    interleave_moe_layer_step: Count | None = None
    """One layer of so many has experts (Llama 4). Unset: every layer."""
    num_experts_per_token: Count | None = None
    """Experts that one token uses (Kimi Linear). Unset: `num_experts_per_tok`."""
    top_k_experts: Count | None = None
    """Experts that one token uses (Gemma 4). Unset: `num_experts_per_tok`."""
    enable_moe_block: Bool | None = None
    """Whether layers have experts beside a dense feed-forward (Gemma 4). Unset: false."""
    dense_intermediate_size: Width | None = None
    """Width of the dense feed-forward layer where `intermediate_size` is an expert's (MiniMax M3). Unset: the same."""
    moe_latent_size: Width | None = None
    """Width that experts work in (Nemotron 3). Unset: hidden_size."""
    routed_expert_hidden_size: Width | None = None
    """Width that experts work in (Kimi K3). Unset: hidden_size."""
    num_shared_experts: _Natural | None = None
    """Experts that every token uses (Kimi Linear). Unset: `n_shared_experts`."""
    moe_shared_expert_intermediate_size: Width | None = None
    """Width of one shared expert (Nemotron 3). Unset: as the others."""
    shared_intermediate_size: Width | None = None
    """Width of one shared expert (Granite 4, MiniMax M3). Unset: as the others."""
    mlp_only_layers: Indices | None = None
    """Layers without experts (Qwen). Unset: none."""
    mlp_layer_types: _Kinds | None = None
    """`sparse` for each layer with experts, `dense` for the others (GLM). Unset: `first_k_dense_replace` says it."""
    moe_layer_freq: Indices | None = None
    """1 for each layer with experts, 0 for the others (MiMo). Unset: `first_k_dense_replace` says it."""
    expert_layer_period: Count | None = None
    """One layer of so many has experts (Jamba). Unset: every layer."""
    expert_layer_offset: _Natural | None = None
    """The first of them. Unset: 0."""
    hidden_act: Name | None = None
    """Activation; `relu2` has no gate. Unset: one with a gate."""
    mlp_hidden_act: Name | None = None
    """Activation, as Nemotron-H names it. Unset: `hidden_act`."""
    hidden_size_per_layer_input: Width | None = None
    """Width of the embedding that each layer adds (Gemma 3n). Unset: none."""
    vocab_size_per_layer_input: Annotated[Int, Field(ge=1, le=10_000_000)] | None = None
    """Tokens of that embedding. Unset: `vocab_size`."""
    num_nextn_predict_layers: _Natural | None = None
    """Layers that predict further tokens. Unset: none."""
    kv_lora_rank: Width | None = None
    """Latent width of multi-head latent attention (DeepSeek). Unset: no latent attention."""
    q_lora_rank: Width | None = None
    """Latent width of queries in multi-head latent attention. Unset: queries are not compressed."""
    qk_nope_head_dim: Width | None = None
    """Width of a head without rotary embedding in latent attention. Unset: no latent attention."""
    qk_rope_head_dim: Width | None = None
    """Width of a head with rotary embedding in latent attention. Unset: no latent attention."""
    v_head_dim: Width | None = None
    """Width of a value head in latent attention. Unset: `head_dim`."""
    mla_use_output_gate: Bool | None = None
    """Whether latent attention has an output gate (Kimi K3). Unset: false."""
    index_topk: Count | None = None
    """Tokens that sparse attention over latent vectors sees. Unset: all."""
    index_n_heads: Count | None = None
    """Query heads of its indexer. Unset: there is none."""
    index_head_dim: Width | None = None
    """Width of the indexer's key. Unset: there is none."""
    index_topk_freq: Count | None = None
    """One layer of so many has an indexer of its own (GLM). Unset: every layer."""
    index_skip_topk_offset: _Natural | None = None
    """Leading layers that all have one (GLM). Unset: none."""
    indexer_types: _Kinds | None = None
    """`full` for each layer with an indexer, `shared` for the others (GLM). Unset: `index_topk_freq` says it."""
    sparse_attention_config: SparseAttention | None = None
    """Block-sparse attention (MiniMax M3). Unset: none."""
    compress_ratios: Indices | None = None
    """Tokens that one compressed entry stands for in each layer, 0 for a window alone (DeepSeek-V4). Unset: none."""
    o_lora_rank: Width | None = None
    """Latent width of the output projection (DeepSeek-V4). Unset: it is not compressed."""
    o_groups: Count | None = None
    """Groups of the output projection (DeepSeek-V4). Unset: it is not compressed."""
    expert_dtype: Literal["fp4", "fp8"] | None = None
    """Format of the experts of an fp8 checkpoint (DeepSeek-V4). Unset: as the rest."""
    quantization_config: Quantization | None = None
    """Quantisation of the checkpoint. Unset: none."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.configMapRef) || (" + _all_set(REQUIRED) + f" && ({_any_set(WIDTHS)}))",
            message=f"set configMapRef, or at least {', '.join(REQUIRED)} and {' or '.join(WIDTHS)}",
            holds=lambda config: (
                config.config_map_ref is not None or (config.has_all(REQUIRED) and config.has_any(WIDTHS))
            ),
        ),
        Rule(
            cel=f"!has(self.configMapRef) || !({_any_set(REQUIRED + WIDTHS)})",
            message="set configMapRef or the fields of config.json, not both",
            holds=lambda config: config.config_map_ref is None or not config.has_any(REQUIRED + WIDTHS),
        ),
        Rule(
            cel="!has(self.num_key_value_heads) || !has(self.num_attention_heads)"
            " || self.num_attention_heads % self.num_key_value_heads == 0",
            message="num_attention_heads is a multiple of num_key_value_heads",
            holds=lambda config: (
                not config.num_key_value_heads
                or not config.num_attention_heads
                or config.num_attention_heads % config.num_key_value_heads == 0
            ),
            path=".num_key_value_heads",
        ),
    )

    def has_all(self, names: tuple[str, ...]) -> bool:
        """Whether all of these fields are set."""
        return all(getattr(self, name) is not None for name in names)

    def has_any(self, names: tuple[str, ...]) -> bool:
        """Whether one of these fields is set."""
        return any(getattr(self, name) is not None for name in names)

    def to_config(self) -> dict[str, Any]:
        """The inline fields as a config.json would hold them."""
        config = self.to_dict()
        config.pop("configMapRef", None)
        return config
