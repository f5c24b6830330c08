"""Attention layers: parameters, what they keep of a token, and the arithmetic of one pair of tokens."""

from __future__ import annotations

from goodput.domain.architecture import KvLayers, LayerKind
from goodput.perfmodel import config_states as states
from goodput.perfmodel.config_fields import Fields
from goodput.perfmodel.config_layers import Layer, Mixer
from goodput.perfmodel.config_states import Part

# One scale (float32) for so many elements of an indexer's key, which is stored in 8 bits.
_INDEX_SCALE_ELEMENTS = 128
_INDEX_SCALE_BYTES = 4
_BF16_BYTES = 2.0
# Families whose attention multiplies its output by a gate that is as wide as the queries, unless the config denies it.
_GATED = ("qwen3_next", "qwen3_5")
# Families with latent vectors that the engine does not keep as such.
_EXPANDED = frozenset({"minicpm3"})


def read_part(fields: Fields, layer: Layer, hidden: int, index: int) -> Part:
    """What layer number `index` mixes tokens with. Raises `InvalidObject` that names the field."""
    if layer.mixer is Mixer.NONE:
        return Part(parameters=0.0)
    if layer.mixer is Mixer.LINEAR:
        return Part(parameters=float(hidden * hidden))
    readers = {
        Mixer.MAMBA2: states.mamba2,
        Mixer.MAMBA1: states.mamba1,
        Mixer.DELTA: states.delta,
        Mixer.KIMI_DELTA: states.kimi_delta,
        Mixer.LIGHTNING: states.lightning,
        Mixer.CONVOLUTION: states.convolution,
    }
    if layer.mixer in readers:
        return readers[layer.mixer](fields, hidden)
    if layer.mixer is Mixer.PARALLEL:
        attention, state = _grouped(fields, layer, hidden), states.mamba2(fields, hidden)
        return Part(
            parameters=attention.parameters + state.parameters,
            kv_projection=attention.kv_projection,
            kept=attention.kept + state.kept,
        )
    if fields.count("kv_lora_rank"):
        return _latent(fields, hidden, index)
    if fields.count("index_topk"):
        raise fields.invalid("index_topk", "is sparse attention over latent vectors, but kv_lora_rank is missing")
    return _with_block_index(fields, _grouped(fields, layer, hidden), hidden, index)


def _grouped(fields: Fields, layer: Layer, hidden: int) -> Part:
    """Multi-head, grouped-query and multi-query attention; layers with a window may have heads of their own."""
    heads, kv_heads, key_dim, value_dim = _heads(fields, layer, hidden)
    shared = layer.mixer is Mixer.FULL and fields.flag("attention_k_eq_v")  # one projection gives K and V
    keys, values = kv_heads * key_dim, 0 if shared else kv_heads * value_dim
    family = fields.text("model_type")
    gate = heads * value_dim if fields.flag("attn_output_gate", family.startswith(_GATED)) else 0
    queries, outputs = heads * key_dim, heads * value_dim
    shared_rank = fields.count("share_q_dim")  # queries of all heads are made from one vector (Step 3)
    asking = shared_rank * (hidden + queries) if shared_rank else hidden * queries
    kind, window = LayerKind.FULL, 0
    if layer.mixer is Mixer.WINDOW:
        kind, window = LayerKind.WINDOW, fields.integer("sliding_window")
    elif layer.mixer is Mixer.CHUNK:
        kind, window = LayerKind.CHUNK, fields.integer("attention_chunk_size")
    if window >= fields.longest_context():
        kind, window = LayerKind.FULL, 0  # no request ever leaves it (Phi-4-mini)
    kept = KvLayers(
        kind=kind,
        layers=1,
        heads=kv_heads,
        elements_per_head=key_dim + value_dim,
        window_tokens=window,
        attention_flops=2.0 * heads * (key_dim + value_dim),
    )
    return Part(
        parameters=float(asking + hidden * (gate + keys + values + outputs)),
        kv_projection=float(hidden * (keys + values)),
        output=float(hidden * outputs),
        kept=(kept,),
    )


def _heads(fields: Fields, layer: Layer, hidden: int) -> tuple[int, int, int, int]:
    """Query heads, KV heads, and the widths of a key and a value head."""
    heads = fields.integer("num_attention_heads")
    if layer.mixer is Mixer.WINDOW and fields.count("swa_num_attention_heads"):
        heads = fields.integer("swa_num_attention_heads")
        kv_heads = fields.integer("swa_num_key_value_heads", heads)
        key_dim = fields.integer("swa_head_dim", fields.integer("head_dim", max(1, hidden // heads)))
        value_dim = fields.integer("swa_v_head_dim", key_dim)
        return heads, _dividing(fields, "swa_num_key_value_heads", kv_heads, heads), key_dim, value_dim
    if fields.raw("head_dim") is None and hidden % heads:
        raise fields.invalid(
            "num_attention_heads", f"must divide hidden_size ({hidden}), {heads} does not: or give head_dim"
        )
    head_dim = fields.integer("head_dim", max(1, hidden // heads))
    name, kv_heads = "num_key_value_heads", layer.kv_heads or default_kv_heads(fields, heads)
    if layer.mixer is Mixer.FULL and fields.count("global_head_dim"):
        head_dim = fields.integer("global_head_dim")
        if fields.count("num_global_key_value_heads") and fields.flag("attention_k_eq_v"):
            name, kv_heads = "num_global_key_value_heads", fields.integer("num_global_key_value_heads")
    return heads, _dividing(fields, name, kv_heads, heads), head_dim, fields.integer("v_head_dim", head_dim)


def default_kv_heads(fields: Fields, heads: int) -> int:
    """KV heads of the model: as many as query heads where nothing says otherwise, one if `multi_query` says so."""
    one = fields.flag("multi_query") and not fields.flag("new_decoder_architecture")
    return 1 if one else fields.integer("num_key_value_heads", heads)


def _dividing(fields: Fields, name: str, kv_heads: int, heads: int) -> int:
    if kv_heads > heads or heads % kv_heads:
        raise fields.invalid(name, f"must divide num_attention_heads ({heads}), {kv_heads} does not")
    return kv_heads


def _latent(fields: Fields, hidden: int, index: int) -> Part:
    """Multi-head latent attention: one latent vector a token, the same on every rank, so it shards over nothing."""
    heads = fields.integer("num_attention_heads")
    rank, rope = fields.integer("kv_lora_rank"), fields.integer("qk_rope_head_dim")
    nope = fields.integer("qk_nope_head_dim")
    value_dim = fields.integer("v_head_dim", nope)
    query_rank = fields.count("q_lora_rank")
    queries, outputs = heads * (nope + rope), heads * value_dim
    replicated = hidden * (rank + rope + query_rank)
    absorbed = rank * heads * (nope + value_dim)
    parameters = replicated + (query_rank or hidden) * queries + absorbed + outputs * hidden
    if fields.flag("mla_use_output_gate"):
        parameters += hidden * outputs
    if fields.text("model_type") in _EXPANDED:
        # Each head has its own keys and values, made from the latent vector and kept, values as wide as keys.
        kept = KvLayers(
            kind=LayerKind.FULL,
            layers=1,
            heads=heads,
            elements_per_head=2 * (nope + rope),
            attention_flops=4.0 * heads * (nope + rope),
        )
        return Part(
            parameters=float(parameters), replicated=float(replicated), output=float(outputs * hidden), kept=(kept,)
        )
    kept = KvLayers(
        kind=LayerKind.FULL,
        layers=1,
        elements_per_head=rank + rope,
        latent=True,
        attention_flops=2.0 * heads * (nope + rope + value_dim),
        attended_tokens=fields.count("index_topk"),
    )
    if not fields.count("index_topk") or not _has_indexer(fields, index):
        return Part(
            parameters=float(parameters),
            replicated=float(replicated),
            absorbed=float(absorbed),
            output=float(outputs * hidden),
            kept=(kept,),
        )
    index_heads, index_dim = fields.integer("index_n_heads"), fields.integer("index_head_dim")
    indexer = (query_rank or hidden) * index_heads * index_dim + hidden * (index_dim + index_heads)
    keys = KvLayers(
        kind=LayerKind.FULL,
        layers=1,
        fixed_bytes=float(index_key_bytes(index_dim)),
        latent=True,
        attention_flops=2.0 * index_heads * index_dim,
    )
    return Part(
        parameters=float(parameters + indexer),
        replicated=float(replicated + indexer),
        absorbed=float(absorbed),
        output=float(outputs * hidden),
        kept=(kept, keys),
    )


def index_key_bytes(index_dim: int) -> int:
    """Bytes of an indexer's key of one token: 8 bits an element, and scales."""
    return index_dim + -(-index_dim // _INDEX_SCALE_ELEMENTS) * _INDEX_SCALE_BYTES


def _has_indexer(fields: Fields, index: int) -> bool:
    """Whether this layer chooses the tokens itself, or takes the choice of a layer before it (GLM-5.2)."""
    kinds = fields.sequence("indexer_types")
    if len(kinds) > index:
        return bool(kinds[index] != "shared")
    period = fields.count("index_topk_freq") or 1
    first = fields.count("index_skip_topk_offset")
    return index < first or (index - first + 1) % period == 0


def _with_block_index(fields: Fields, part: Part, hidden: int, index: int) -> Part:
    """Adds the indexer of block-sparse attention (MiniMax M3), whose one key head is kept like KV."""
    sparse = fields.mapping("sparse_attention_config")
    if sparse is None or not sparse.flag("use_sparse_attention", True):
        return part
    layers = sparse.counts("sparse_attention_freq")
    if layers and (index >= len(layers) or not layers[index]):
        return part
    index_heads, index_dim = sparse.integer("sparse_num_index_heads"), sparse.integer("sparse_index_dim")
    attended = sparse.integer("sparse_topk_blocks") * sparse.integer("sparse_block_size")
    (kept,) = part.kept
    keys = KvLayers(
        kind=LayerKind.FULL,
        layers=1,
        fixed_bytes=_BF16_BYTES * index_dim,
        latent=True,
        attention_flops=2.0 * index_heads * index_dim,
    )
    indexer = float(hidden * index_dim * (index_heads + 1))
    attending = KvLayers(
        kind=kept.kind,
        layers=1,
        heads=kept.heads,
        elements_per_head=kept.elements_per_head,
        attention_flops=kept.attention_flops,
        attended_tokens=attended,
    )
    return Part(
        parameters=part.parameters + indexer,
        kv_projection=part.kv_projection,
        replicated=part.replicated + indexer,
        output=part.output,
        kept=(attending, keys),
    )
