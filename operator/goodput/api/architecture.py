"""Structure of a model in Hugging Face `config.json` field names, for models that the built-in catalogue lacks."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from goodput.api.base import ApiModel, Bool, DataKey, Int, ObjectName
from goodput.api.rules import Rule

REQUIRED = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "max_position_embeddings")
# One of these says how wide the feed-forward layers are.
WIDTHS = ("intermediate_size", "moe_intermediate_size")


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


_Width = Annotated[Int, Field(ge=1, le=1_000_000)]
_Count = Annotated[Int, Field(ge=1, le=10_000)]


class Quantization(ApiModel):
    """Quantisation of the checkpoint."""

    model_config = ConfigDict(alias_generator=None)

    quant_method: Annotated[str, Field(min_length=1, max_length=64)]
    """Method, such as `fp8`, `awq`, `gptq`, `compressed-tensors` or `mxfp4`."""
    quant_algo: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Algorithm, such as `FP8` or `NVFP4`, where the method leaves it open (modelopt). Unset: the method says it."""


class ArchitectureConfig(ApiModel):
    """Either `configMapRef`, or the fields of config.json that memory and speed depend on, under their own names."""

    model_config = ConfigDict(alias_generator=None)

    config_map_ref: ConfigMapKeyRef | None = Field(default=None, alias="configMapRef")
    """ConfigMap that holds the whole config.json. Unset: the fields below say it."""
    model_type: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Family, such as `llama`. Unset: a plain decoder."""
    num_hidden_layers: _Count | None = None
    """Layers. Unset: `configMapRef` says it."""
    hidden_size: _Width | None = None
    """Width of the residual stream. Unset: `configMapRef` says it."""
    num_attention_heads: _Count | None = None
    """Query heads. Unset: `configMapRef` says it."""
    intermediate_size: _Width | None = None
    """Width of the dense feed-forward layer. Unset: `configMapRef` says it, or all layers have experts."""
    intermediate_size_mlp: _Width | None = None
    """Width of the dense feed-forward layer where `intermediate_size` is an expert's (Llama 4). Unset: the same."""
    vocab_size: Annotated[Int, Field(ge=1, le=10_000_000)] | None = None
    """Tokens of the vocabulary. Unset: `configMapRef` says it."""
    num_key_value_heads: _Count | None = None
    """Key-value heads. Unset: as many as query heads."""
    head_dim: _Width | None = None
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
    sliding_window_pattern: _Count | None = None
    """One layer of so many has full attention (Gemma). Unset: `layer_types` says it."""
    attention_chunk_size: Annotated[Int, Field(ge=1, le=100_000_000)] | None = None
    """Tokens of a chunk of local attention (Llama 4). Unset: full attention."""
    no_rope_layer_interval: _Count | None = None
    """One layer of so many has full attention beside chunks (Llama 4). Unset: none."""
    layer_types: Annotated[tuple[Annotated[str, Field(max_length=64)], ...], Field(max_length=1024)] | None = None
    """Kind of each layer, such as `full_attention` or `sliding_attention`. Unset: all alike."""
    num_local_experts: _Count | None = None
    """Experts of a mixture-of-experts layer (Mixtral, gpt-oss). Unset: dense."""
    num_experts: _Count | None = None
    """Experts of a mixture-of-experts layer (Qwen). Unset: dense."""
    n_routed_experts: _Count | None = None
    """Routed experts of a mixture-of-experts layer (DeepSeek). Unset: dense."""
    num_experts_per_tok: _Count | None = None
    """Experts that one token uses. Unset: dense."""
    moe_intermediate_size: _Width | None = None
    """Width of one expert. Unset: intermediate_size."""
    n_shared_experts: Annotated[Int, Field(ge=0, le=10_000)] | None = None
    """Experts that every token uses. Unset: none."""
    shared_expert_intermediate_size: _Width | None = None
    """Width of the shared expert (Qwen). Unset: none."""
    first_k_dense_replace: Annotated[Int, Field(ge=0, le=10_000)] | None = None
    """Leading layers that are dense in a mixture of experts. Unset: none."""
    decoder_sparse_step: _Count | None = None
    """One layer of so many has experts (Qwen). Unset: every layer."""
    interleave_moe_layer_step: _Count | None = None
    """One layer of so many has experts (Llama 4). Unset: every layer."""
    kv_lora_rank: _Width | None = None
    """Latent width of multi-head latent attention (DeepSeek). Unset: no latent attention."""
    q_lora_rank: _Width | None = None
    """Latent width of queries in multi-head latent attention. Unset: queries are not compressed."""
    qk_nope_head_dim: _Width | None = None
    """Width of a head without rotary embedding in latent attention. Unset: no latent attention."""
    qk_rope_head_dim: _Width | None = None
    """Width of a head with rotary embedding in latent attention. Unset: no latent attention."""
    v_head_dim: _Width | None = None
    """Width of a value head in latent attention. Unset: `head_dim`."""
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
