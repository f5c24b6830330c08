"""Compressed attention (DeepSeek-V4): a window of raw KV in every layer, and one compressed entry for so many tokens.

Every layer keeps the last `sliding_window` tokens. A layer of ratio r > 0 keeps one more entry for every r tokens, and
the raw inputs of the entry in the making, in float32; of ratio 4, an indexer picks among the entries, with a key each.
An entry is 448 elements in 8 bits, 64 of the rotary part in bf16 and 8 bytes of scales: 584 bytes for a head of 512.
"""

from __future__ import annotations

from msgspec.structs import replace

from goodput.domain.architecture import KvLayers, LayerKind
from goodput.perfmodel.config_attention import index_key_bytes
from goodput.perfmodel.config_fields import Fields
from goodput.perfmodel.config_states import Part

_INDEXED_RATIO = 4
_RATIOS = (0, 4, 128)
_SCALE_BYTES = 8
_FLOAT32_BYTES = 4
# Tokens of a block of each cache, as the engine fixes them.
_WINDOW_BLOCK = 64
_ENTRY_BLOCK = 256
_RAW_BLOCKS = {4: 4, 128: 8}


def compressed(fields: Fields, hidden: int, ratio: int) -> Part:
    """What a layer of this compression mixes tokens with. Raises `InvalidObject` that names the field."""
    if ratio not in _RATIOS:
        raise fields.invalid("compress_ratios", f"has {ratio}; known are {', '.join(map(str, _RATIOS))}")
    heads, head_dim = fields.integer("num_attention_heads"), fields.integer("head_dim")
    rope, query_rank = fields.integer("qk_rope_head_dim"), fields.integer("q_lora_rank")
    output_rank, output_groups = fields.integer("o_lora_rank"), fields.integer("o_groups")
    if head_dim <= rope:
        raise fields.invalid("qk_rope_head_dim", f"must be below head_dim ({head_dim}), not {rope}")
    entry_bytes = head_dim - rope + 2 * rope + _SCALE_BYTES
    flops = 4.0 * heads * head_dim
    replicated = hidden * (query_rank + head_dim)
    parameters = replicated + query_rank * heads * head_dim
    parameters += heads * head_dim * output_rank + output_groups * output_rank * hidden
    window = fields.integer("sliding_window")
    kept = [_cache(LayerKind.WINDOW, entry_bytes, _WINDOW_BLOCK, window_tokens=window, attention_flops=flops)]
    if ratio:
        overlap = 2 if ratio == _INDEXED_RATIO else 1
        raw = {"block_tokens": _RAW_BLOCKS[ratio], "window_tokens": overlap * ratio}
        compressor = 2 * hidden * overlap * head_dim
        kept += [
            _cache(LayerKind.FULL, entry_bytes / ratio, _ENTRY_BLOCK, attention_flops=flops / ratio),
            _cache(LayerKind.WINDOW, 2 * overlap * head_dim * _FLOAT32_BYTES, **raw),
        ]
        if ratio == _INDEXED_RATIO:
            index_heads, index_dim = fields.integer("index_n_heads"), fields.integer("index_head_dim")
            compressor += query_rank * index_heads * index_dim + hidden * index_heads + 2 * hidden * overlap * index_dim
            # The indexer picks so many entries; its own keys it compares with all of them.
            picked = fields.integer("index_topk") * ratio
            kept[1] = replace(kept[1], attended_tokens=picked)
            index_flops = 2.0 * index_heads * index_dim / ratio
            kept += [
                _cache(LayerKind.FULL, index_key_bytes(index_dim) / ratio, _ENTRY_BLOCK, attention_flops=index_flops),
                _cache(LayerKind.WINDOW, 2 * overlap * index_dim * _FLOAT32_BYTES, **raw),
            ]
        parameters, replicated = parameters + compressor, replicated + compressor
    return Part(parameters=float(parameters), replicated=float(replicated), kept=tuple(kept))


def _cache(
    kind: LayerKind, token_bytes: float, block_tokens: int, *, window_tokens: int = 0, attention_flops: float = 0.0
) -> KvLayers:
    return KvLayers(
        kind=kind,
        layers=1,
        fixed_bytes=float(token_bytes),
        latent=True,
        block_tokens=block_tokens,
        window_tokens=window_tokens,
        attention_flops=attention_flops,
    )
