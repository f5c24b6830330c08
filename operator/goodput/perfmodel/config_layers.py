"""Which kind each layer of a config.json is: what it mixes tokens with, and what feed-forward it has."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from goodput.domain.values import Value
from goodput.perfmodel.config_fields import Fields


class Mixer(StrEnum):
    """What lets a token see those before it."""

    FULL = "full attention"
    WINDOW = "attention to a sliding window"
    CHUNK = "attention within a chunk"
    MAMBA2 = "Mamba-2"
    MAMBA1 = "Mamba-1"
    DELTA = "gated delta net"
    KIMI_DELTA = "Kimi delta attention"
    LIGHTNING = "lightning attention"
    CONVOLUTION = "short convolution"
    PARALLEL = "full attention beside Mamba-2"
    LINEAR = "one matrix"
    NONE = "nothing"


class Feed(StrEnum):
    """What a layer does with each token alone."""

    DENSE = "dense"
    SPARSE = "experts"
    BOTH = "experts beside a dense layer"
    LINEAR = "one matrix"
    NONE = "nothing"


class Layer(Value, frozen=True, kw_only=True):
    """One layer. `kv_heads` and `width` are 0 where the model's own hold."""

    mixer: Mixer
    feed: Feed
    kv_heads: int = 0
    width: int = 0


_BLOCK_KINDS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_ATTENTION_NAMES = {
    "full_attention": Mixer.FULL,
    "attention": Mixer.FULL,
    "deepseek_sparse_attention": Mixer.FULL,
    "sliding_attention": Mixer.WINDOW,
    "chunked_attention": Mixer.CHUNK,
    "conv": Mixer.CONVOLUTION,
}
# Families whose every layer has the window that the config names.
_ALL_WINDOWED = frozenset({"mistral", "mixtral", "phi3", "phimoe", "starcoder2", "ministral"})
# Families that alternate, and the period of their full layer where the config does not say it.
_PERIODS = {"gemma2": 2, "gpt_oss": 2, "gemma3": 6, "gemma3_text": 6, "cohere2": 4, "gemma3n": 5, "gemma3n_text": 5}
# Fields of hybrids and of mixed windows that say of layers what is not read here.
_UNREAD = (
    *("block_types", "lru_width", "group_norm_size", "global_attn_every_n_layers", "hybrid_layer_ids", "ssm_cfg"),
    *("layer_group_size", "use_kda_lora", "use_kda_safe_gate", "mamba_expand", "mamba_headdim"),
)
_AFMOE_PERIOD = ("global_attn_every_n_layers", "afmoe")  # the one family of which it is read
_STATE_FIELDS = ("mamba_num_heads", "ssm_state_size", "mamba_n_heads", "mamba_d_state", "linear_num_key_heads")


def read_layers(fields: Fields) -> tuple[Layer, ...]:
    """Every layer of the decoder, in order. Raises `InvalidObject` that names the field."""
    blocks = fields.sequence("block_configs")
    if blocks:
        return tuple(_searched(Fields({"block": block}, "block_configs."), fields) for block in blocks)
    if fields.raw("block_configs") is not None:
        raise fields.invalid("block_configs", "must be a list with one entry for each layer")
    kinds = fields.text("hybrid_override_pattern") or fields.sequence("layers_block_type")
    if kinds and fields.text("model_type") in ("", "nemotron_h"):
        return tuple(_block(kind, fields) for kind in kinds)
    count = fields.integer("num_hidden_layers")
    if count > 10_000:
        raise fields.invalid("num_hidden_layers", f"must be at most 10,000, not {count}")
    if fields.text("model_type") == "longcat_flash":
        # Each layer is two, with experts beside the first of them.
        return tuple(Layer(mixer=Mixer.FULL, feed=feed) for feed in (Feed.BOTH, Feed.DENSE) * count)
    return tuple(
        Layer(mixer=mixer, feed=feed) for mixer, feed in zip(_mixers(fields, count), _feeds(fields, count), strict=True)
    )


def _block(kind: object, fields: Fields) -> Layer:
    """A block of Nemotron-H: either a mixer or a feed-forward."""
    name = _BLOCK_KINDS.get(kind, kind) if isinstance(kind, str) else kind
    if name == "mamba":
        return Layer(mixer=Mixer.MAMBA2, feed=Feed.NONE)
    if name == "attention":
        return Layer(mixer=Mixer.FULL, feed=Feed.NONE)
    if name in ("mlp", "moe"):
        return Layer(mixer=Mixer.NONE, feed=Feed.DENSE if name == "mlp" else Feed.SPARSE)
    where = "hybrid_override_pattern" if fields.text("hybrid_override_pattern") else "layers_block_type"
    raise fields.invalid(where, f"has a block {kind!r}; known are M or mamba, * or attention, - or mlp, E or moe")


def _searched(holder: Fields, model: Fields) -> Layer:
    """A block of an architecture search (Nemotron NAS): parts may be cut, or replaced by one matrix."""
    block = holder.mapping("block")
    attention = block.mapping("attention") if block else None
    feed = block.mapping("ffn") if block else None
    if attention is None or feed is None:
        raise model.invalid("block_configs", "each entry needs attention and ffn")
    mixer, kv_heads, width, kind = Mixer.FULL, 0, 0, Feed.DENSE
    if attention.flag("no_op"):
        mixer = Mixer.NONE
    elif attention.flag("replace_with_linear"):
        mixer = Mixer.LINEAR
    elif attention.count("window_length"):
        raise attention.invalid("window_length", "is a window that only some layers have, which cannot be sized")
    else:
        heads, group = model.integer("num_attention_heads"), attention.integer("n_heads_in_group")
        if heads % group:
            raise attention.invalid("n_heads_in_group", f"must divide num_attention_heads ({heads}), {group} does not")
        kv_heads = heads // group
    if feed.flag("no_op"):
        kind = Feed.NONE
    elif feed.flag("replace_with_linear"):
        kind = Feed.LINEAR
    elif feed.raw("intermediate_size") is not None:
        width = feed.integer("intermediate_size")
    else:
        # Two thirds of the multiple, as a gated layer has three matrices for two; up to a multiple of 256.
        exact = int(2.0 * feed.number("ffn_mult") * model.integer("hidden_size") / 3.0)
        width = -(-exact // 256) * 256
    return Layer(mixer=mixer, feed=kind, kv_heads=kv_heads, width=width)


def _mixers(fields: Fields, count: int) -> tuple[Mixer, ...]:
    if fields.count("mamba_d_ssm"):
        return (Mixer.PARALLEL,) * count
    if fields.raw("compress_ratios") is not None:
        return (Mixer.FULL,) * count  # each kind of compression has its own size: see config_compressed
    for reader in (_by_names, _by_indices, _by_interval):
        found = reader(fields, count)
        if found:
            return found
    for name in _STATE_FIELDS:
        if fields.count(name):
            raise fields.invalid(
                name, "says that some layers keep a state, but not which: give layer_types or hybrid_override_pattern"
            )
    for name in _UNREAD:
        if fields.raw(name) not in (None, 0, 1, False) and (name, fields.text("model_type")) != _AFMOE_PERIOD:
            raise fields.invalid(name, "says that layers differ in a way that cannot be sized")
    return _windows(fields, count)


def _by_names(fields: Fields, count: int) -> tuple[Mixer, ...]:
    """`layer_types` and its like: one name for each layer."""
    where = "layer_types" if fields.sequence("layer_types") else "layers_block_type"
    names = fields.sequence(where)
    if not names:
        return ()
    if len(names) < count:
        raise fields.invalid(where, f"names {len(names)} layers, not {count} (num_hidden_layers)")
    named = {
        **_ATTENTION_NAMES,
        "mamba": Mixer.MAMBA1 if fields.text("model_type") == "jamba" else Mixer.MAMBA2,
        "linear_attention": Mixer.DELTA if fields.count("linear_num_key_heads") else Mixer.LIGHTNING,
    }
    unknown = sorted({str(name) for name in names[:count] if not isinstance(name, str) or name not in named})
    if unknown:
        raise fields.invalid(where, f"has kinds that cannot be sized: {', '.join(unknown)}")
    mixers = tuple(named[name] for name in names[:count])
    if not fields.flag("use_sliding_window", True):
        mixers = tuple(Mixer.FULL if mixer is Mixer.WINDOW else mixer for mixer in mixers)
    return mixers


def _by_indices(fields: Fields, count: int) -> tuple[Mixer, ...]:
    """Lists of numbers: which layers have attention, or of which kind each is."""
    linear = fields.mapping("linear_attn_config")
    if linear is not None:  # counted from 1
        full = set(linear.counts("full_attn_layers"))
        if not full and not linear.counts("kda_layers"):
            raise linear.invalid("full_attn_layers", "is missing: give it as in the model's config.json")
        return _chosen(count, (index - 1 for index in full), Mixer.FULL, Mixer.KIMI_DELTA)
    if fields.sequence("attn_layer_indices"):
        return _chosen(count, fields.counts("attn_layer_indices"), Mixer.FULL, Mixer.MAMBA2)
    if fields.sequence("full_attn_idxs"):
        return _chosen(count, fields.counts("full_attn_idxs"), Mixer.FULL, Mixer.CONVOLUTION)
    for name, zero, one in (
        ("attn_type_list", Mixer.LIGHTNING, Mixer.FULL),
        ("hybrid_layer_pattern", Mixer.FULL, Mixer.WINDOW),
    ):
        kinds = fields.counts(name)
        if kinds:
            if len(kinds) < count:
                raise fields.invalid(name, f"has {len(kinds)} entries, not {count} (num_hidden_layers)")
            return tuple(one if kind else zero for kind in kinds[:count])
    if fields.count("swa_num_attention_heads"):
        raise fields.invalid("hybrid_layer_pattern", "is missing: it says which layers have the window")
    return ()


def _by_interval(fields: Fields, count: int) -> tuple[Mixer, ...]:
    """One layer of so many has full attention."""
    if fields.count("full_attention_interval"):
        period = fields.integer("full_attention_interval")
        fields.integer("linear_num_key_heads")
        return tuple(Mixer.DELTA if (index + 1) % period else Mixer.FULL for index in range(count))
    if fields.count("attn_layer_period"):
        period, offset = fields.integer("attn_layer_period"), fields.count("attn_layer_offset")
        return tuple(Mixer.FULL if index % period == offset else Mixer.MAMBA1 for index in range(count))
    if fields.count("layer_group_size") > 1 and fields.text("model_type").startswith("bailing"):
        return _bailing(fields, count)
    return ()


def _bailing(fields: Fields, count: int) -> tuple[Mixer, ...]:
    """Ring and Ling: the last layer of each group has full (latent) attention, all others lightning attention."""
    period = fields.integer("layer_group_size")
    if count % period:
        raise fields.invalid("layer_group_size", f"must divide the {count} layers (num_hidden_layers)")
    for name in ("linear_conv_kernel_dim", "use_kda_lora", "use_kda_safe_gate"):
        if fields.raw(name):
            raise fields.invalid(name, "says that layers keep a state in a way that cannot be sized")
    return tuple(Mixer.LIGHTNING if (index + 1) % period else Mixer.FULL for index in range(count))


def _windows(fields: Fields, count: int) -> tuple[Mixer, ...]:
    """Layers of a model that has attention everywhere: in full, in a window or in chunks."""
    family = fields.text("model_type")
    roped = fields.sequence("no_rope_layers")
    if fields.count("attention_chunk_size") and (
        roped or fields.count("no_rope_layer_interval") or family.startswith("llama4")
    ):
        if len(roped) >= count:
            return tuple(Mixer.CHUNK if each else Mixer.FULL for each in roped[:count])
        period = fields.integer("no_rope_layer_interval", 4)
        return tuple(Mixer.CHUNK if (index + 1) % period else Mixer.FULL for index in range(count))
    if not fields.count("sliding_window") or not fields.flag("use_sliding_window", True):
        return (Mixer.FULL,) * count
    pattern = fields.raw("sliding_window_pattern")
    if isinstance(pattern, str) and pattern and set(pattern) <= {"L", "G"}:  # L: local, G: global
        return tuple(Mixer.WINDOW if pattern[index % len(pattern)] == "L" else Mixer.FULL for index in range(count))
    period = fields.count(_AFMOE_PERIOD[0] if family == _AFMOE_PERIOD[1] else "sliding_window_pattern") or _PERIODS.get(
        family, 0
    )
    if period:
        return tuple(Mixer.WINDOW if (index + 1) % period else Mixer.FULL for index in range(count))
    if fields.flag("use_sliding_window") and fields.raw("max_window_layers") is not None:
        first = fields.count("max_window_layers")  # Qwen: the layers from this one on
        return tuple(Mixer.WINDOW if index >= first else Mixer.FULL for index in range(count))
    if family in _ALL_WINDOWED or fields.flag("use_sliding_window"):
        return (Mixer.WINDOW,) * count
    # Others carry a window that their code does not use. Full attention is never too small.
    return (Mixer.FULL,) * count


def _feeds(fields: Fields, count: int) -> tuple[Feed, ...]:
    """Which layers have experts."""
    if fields.count("n_routed_experts") <= 1:
        return (Feed.DENSE,) * count
    beside = any(fields.flag(name) for name in ("enable_moe_block", "residual_moe", "use_residual"))
    sparse = _sparse(fields, count)
    experts = Feed.BOTH if beside else Feed.SPARSE
    return tuple(experts if index in sparse else Feed.DENSE for index in range(count))


def _sparse(fields: Fields, count: int) -> frozenset[int]:
    every = range(count)
    kinds = fields.sequence("mlp_layer_types")
    if len(kinds) >= count:
        return frozenset(index for index in every if kinds[index] == "sparse")
    flags = fields.counts("moe_layer_freq")
    if flags:
        if len(flags) < count:
            raise fields.invalid("moe_layer_freq", f"has {len(flags)} entries, not {count} (num_hidden_layers)")
        return frozenset(index for index in every if flags[index])
    listed = fields.raw("moe_layers_enum")  # 3,4,5 (Step)
    if isinstance(listed, str):
        numbers = [each.strip() for each in listed.split(",") if each.strip()]
        if not all(each.isdecimal() for each in numbers):
            raise fields.invalid("moe_layers_enum", "must be numbers of layers between commas")
        return frozenset(map(int, numbers)) & frozenset(every)
    if fields.sequence("moe_layers"):
        return frozenset(fields.counts("moe_layers")) & frozenset(every)
    if fields.count("expert_layer_period"):
        period, offset = fields.integer("expert_layer_period"), fields.count("expert_layer_offset")
        return frozenset(index for index in every if index % period == offset)
    step = fields.count("interleave_moe_layer_step") or fields.count("decoder_sparse_step")
    dense = set(fields.counts("mlp_only_layers"))
    if step:
        return frozenset(index for index in every if (index + 1) % step == 0 and index not in dense)
    first = fields.count("first_k_dense_replace") or fields.count("moe_layer_start_index")
    step = fields.count("moe_layer_freq") or fields.count("moe_layer_interval") or 1
    return frozenset(index for index in every if index >= first and index % step == 0 and index not in dense)


def _chosen(count: int, indices: Iterable[int], chosen: Mixer, others: Mixer) -> tuple[Mixer, ...]:
    picked = frozenset(indices)
    return tuple(chosen if index in picked else others for index in range(count))
