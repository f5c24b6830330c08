"""Compressed attention (DeepSeek-V4): a window of raw KV in every layer, and one compressed entry for so many tokens.

Every layer keeps the last `sliding_window` tokens. A layer of ratio r > 0 keeps one more entry for every r tokens, and
the raw inputs of the entry in the making, in float32; of ratio 4, an indexer picks among the entries, with a key each.
An entry is 448 elements in 8 bits, 64 of the rotary part in bf16 and 8 bytes of scales: 584 bytes for a head of 512.
"""

from __future__ import annotations

from goodput.domain.architecture import KvLayers, LayerKind
from goodput.perfmodel.config_attention import index_key_bytes
from goodput.perfmodel.config_fields import Fields
from goodput.perfmodel.config_states import Part

_INDEXED_RATIO = 4
_RATIOS = (0, 4, 128)
_SCALE_BYTES = 8
_FLOAT32_BYTES = 4


def compressed(fields: Fields, hidden: int, index: int) -> Part:
    """What layer number `index` mixes tokens with. Raises `InvalidObject` that names the field."""
    ratios = fields.counts("compress_ratios")
    if len(ratios) <= index:
        raise fields.invalid("compress_ratios", f"has {len(ratios)} entries, fewer than there are layers")
    ratio = ratios[index]
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
    kept = [
        KvLayers(
            kind=LayerKind.WINDOW,
            layers=1,
            fixed_bytes=float(entry_bytes),
            latent=True,
            window_tokens=fields.integer("sliding_window"),
            attention_flops=flops,
        )
    ]
    if ratio:
        indexed = ratio == _INDEXED_RATIO
        overlap = 2 if indexed else 1
        compressor = 2 * hidden * overlap * head_dim
        key_bytes = index_dim = index_heads = 0
        if indexed:
            index_heads, index_dim = fields.integer("index_n_heads"), fields.integer("index_head_dim")
            key_bytes = index_key_bytes(index_dim)
            compressor += query_rank * index_heads * index_dim + hidden * index_heads
            compressor += 2 * hidden * overlap * index_dim
        parameters, replicated = parameters + compressor, replicated + compressor
        # Of one raw token: what comes before an entry can be closed, of the layer and of its indexer.
        raw_bytes = 2 * overlap * (head_dim + index_dim) * _FLOAT32_BYTES
        kept += [
            KvLayers(
                kind=LayerKind.FULL,
                layers=1,
                fixed_bytes=(entry_bytes + key_bytes) / ratio,
                latent=True,
                attention_flops=2.0 * index_heads * index_dim / ratio if indexed else flops / ratio,
            ),
            KvLayers(
                kind=LayerKind.WINDOW,
                layers=1,
                fixed_bytes=float(raw_bytes),
                latent=True,
                window_tokens=overlap * ratio,
            ),
        ]
    return Part(parameters=float(parameters), replicated=float(replicated), kept=tuple(kept))
