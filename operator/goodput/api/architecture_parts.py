"""Nested parts of a config.json that `architecture` takes inline, under their own names."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, Strict

from goodput.api.base import ApiModel, Bool, Int

Width = Annotated[Int, Field(ge=1, le=1_000_000)]
Count = Annotated[Int, Field(ge=1, le=10_000)]
Name = Annotated[str, Field(min_length=1, max_length=64)]
Module = Annotated[str, Field(min_length=1, max_length=256)]
Indices = Annotated[tuple[Annotated[Int, Field(ge=0, le=1_000_000)], ...], Field(max_length=1024)]


class QuantizedWeights(ApiModel):
    """How one group stores its weights (compressed-tensors)."""

    model_config = ConfigDict(alias_generator=None)

    num_bits: Annotated[Int, Field(ge=1, le=16)]
    """Bits of one weight."""
    type: Literal["int", "float"] = "int"
    """Kind of number. Default int."""
    group_size: Annotated[Int, Field(ge=1, le=1_000_000)] | None = None
    """Weights that share a scale. Unset: a whole channel or tensor."""
    symmetric: Bool = True
    """Whether no zero point is stored. Default true."""


class QuantizationGroup(ApiModel):
    """One group of modules that are stored alike."""

    model_config = ConfigDict(alias_generator=None)

    weights: QuantizedWeights
    """Their weights."""


class QuantizedLayer(ApiModel):
    """How one module is stored, where modules differ (modelopt)."""

    model_config = ConfigDict(alias_generator=None)

    quant_algo: Name
    """Algorithm, such as `FP8` or `NVFP4`."""


class Quantization(ApiModel):
    """Quantisation of the checkpoint."""

    model_config = ConfigDict(alias_generator=None)

    quant_method: Name
    """Method, such as `fp8`, `awq`, `gptq`, `compressed-tensors` or `mxfp4`."""
    quant_algo: Name | None = None
    """Algorithm, such as `FP8` or `NVFP4`, where the method leaves it open (modelopt). Unset: the method says it."""
    moe_quant_algo: Name | None = None
    """Algorithm of the experts where it differs. Unset: as the rest."""
    bits: Annotated[Int, Field(ge=1, le=16)] | None = None
    """Bits of one weight (awq, gptq). Unset: 4."""
    group_size: Annotated[Int, Field(ge=1, le=1_000_000)] | None = None
    """Weights that share a scale (awq, gptq). Unset: 128."""
    weight_block_size: Annotated[tuple[Width, ...], Field(min_length=2, max_length=2)] | None = None
    """Sides of a block of weights that shares a scale (fp8), such as `[128, 128]`. Unset: none do."""
    load_in_8bit: Bool | None = None
    """Whether weights have 8 bits (bitsandbytes). Unset: 4."""
    config_groups: Annotated[dict[Name, QuantizationGroup], Field(max_length=8)] | None = None
    """Groups of modules and their formats (compressed-tensors needs them). Unset: the method says it."""
    modules_to_not_convert: Annotated[tuple[Module, ...], Field(max_length=512)] = ()
    """Modules that are stored as they were. Unset: embedding and output head alone."""
    ignore: Annotated[tuple[Module, ...], Field(max_length=512)] = ()
    """The same, as compressed-tensors names it. Unset: embedding and output head alone."""
    exclude_modules: Annotated[tuple[Module, ...], Field(max_length=512)] = ()
    """The same, as modelopt names it. Unset: embedding and output head alone."""
    quantized_layers: Annotated[dict[Module, QuantizedLayer], Field(max_length=512)] | None = None
    """Format of each module, where modules differ (`MIXED_PRECISION`). Unset: one format holds for all."""


class BlockAttention(ApiModel):
    """Attention of one block of an architecture search."""

    model_config = ConfigDict(alias_generator=None)

    n_heads_in_group: Count | None = None
    """Query heads of one key-value head. Unset: the block has no attention of its own."""
    no_op: Bool = False
    """Whether there is none. Default false."""
    replace_with_linear: Bool = False
    """Whether one matrix takes its place. Default false."""


class BlockFeedForward(ApiModel):
    """Feed-forward of one block of an architecture search."""

    model_config = ConfigDict(alias_generator=None)

    ffn_mult: Annotated[float, Strict(), Field(gt=0, le=1000)] | None = None
    """Width as a multiple of two thirds of hidden_size, such as `2.625`. Unset: `intermediate_size` says it."""
    intermediate_size: Width | None = None
    """Width. Unset: `ffn_mult` says it."""
    no_op: Bool = False
    """Whether there is none. Default false."""
    replace_with_linear: Bool = False
    """Whether one matrix takes its place. Default false."""


class Block(ApiModel):
    """One block of an architecture search (Nemotron NAS)."""

    model_config = ConfigDict(alias_generator=None)

    attention: BlockAttention
    """Its attention."""
    ffn: BlockFeedForward
    """Its feed-forward."""


class LinearAttention(ApiModel):
    """Layers of Kimi delta attention, and those of full attention, counted from 1."""

    model_config = ConfigDict(alias_generator=None)

    num_heads: Count
    """Heads of a delta layer."""
    head_dim: Width
    """Width of one of them."""
    short_conv_kernel_size: Count = 4
    """Inputs that its convolution sees. Default 4."""
    use_full_rank_gate: Bool = False
    """Whether its output gate is a whole matrix. Default false."""
    full_attn_layers: Indices = ()
    """Numbers of the layers with full attention. Unset: none."""
    kda_layers: Indices = ()
    """Numbers of the delta layers. Unset: all others."""


class SparseAttention(ApiModel):
    """Block-sparse attention (MiniMax M3)."""

    model_config = ConfigDict(alias_generator=None)

    sparse_num_index_heads: Count
    """Query heads of the indexer."""
    sparse_index_dim: Width
    """Width of its key."""
    sparse_topk_blocks: Count
    """Blocks that a token attends to."""
    sparse_block_size: Count
    """Tokens of a block."""
    sparse_attention_freq: Indices = ()
    """1 for each layer that has it. Unset: all."""
