"""Hugging Face `config.json` -> `Architecture`: parameter counts and KV bytes from field names that users know.

Norms, biases, position tables (under 0.1 %) and what joins a tower to the decoder are left out. What is not modelled is
refused by name, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from goodput.domain.architecture import Architecture, KvLayers, LayerKind
from goodput.perfmodel.config_attention import default_kv_heads, read_part
from goodput.perfmodel.config_compressed import compressed
from goodput.perfmodel.config_experts import read_feed_forward
from goodput.perfmodel.config_fields import Fields
from goodput.perfmodel.config_layers import Layer, read_layers
from goodput.perfmodel.config_modules import decoder_modules
from goodput.perfmodel.config_parts import decoder_fields
from goodput.perfmodel.config_quantisation import Quantisation, file_bytes, read_quantisation
from goodput.perfmodel.config_refused import refuse_other_than_decoders
from goodput.perfmodel.config_states import Part
from goodput.perfmodel.config_towers import tower_parameters, unsized_towers

# Families whose input and output embeddings are one matrix unless the config denies it.
_TIED = ("gemma", "gpt2", "gpt_bigcode", "opt", "bloom", "falcon", "mpt", "starcoder2", "cohere", "RefinedWeb", "lfm2")


def architecture_from_config(name: str, mapping: Mapping[str, Any]) -> Architecture:
    """Architecture of the decoder that `mapping` (config.json fields) describes.

    Raises `InvalidObject` (reason `ArchitectureInvalid`) that names the field.
    """
    refuse_other_than_decoders(name, mapping)
    fields = decoder_fields(mapping)
    layers = read_layers(fields)
    hidden = fields.integer("hidden_size")
    heads = fields.integer("num_attention_heads")
    parts = _parts(fields, layers, hidden)
    feed = read_feed_forward(fields, layers, hidden)
    stored = read_quantisation(fields, decoder_modules(layers, parts, feed))
    vocabulary = fields.integer("vocab_size")
    embedding = float(vocabulary * hidden)
    tied = fields.flag("tie_word_embeddings", fields.text("model_type").startswith(_TIED))
    looked_up, projected = _layer_embeddings(fields, len(layers), hidden)
    main = next((kept for part in parts for kept in part.kept if kept.elements_per_head), None)
    kv_heads = main.heads if main is not None else default_kv_heads(fields, heads)
    return Architecture(
        name=name,
        layers=len(layers),
        hidden_size=hidden,
        attention_heads=heads,
        kv_heads=kv_heads,
        head_dim=fields.integer("head_dim", max(1, hidden // heads)),
        vocabulary=vocabulary,
        max_model_len=fields.longest_context(),
        embedding_parameters=(0.0 if tied else embedding) + looked_up,
        head_parameters=embedding,
        attention_parameters=sum(part.parameters for part in parts),
        dense_parameters=feed.dense + projected,
        expert_parameters=feed.experts_total,
        tower_parameters=tower_parameters(mapping),
        unsized_towers=unsized_towers(mapping),
        kv_projection_parameters=sum(part.kv_projection for part in parts),
        replicated_attention_parameters=sum(part.replicated for part in parts),
        replicated_dense_parameters=feed.replicated,
        absorbed_parameters=sum(part.absorbed for part in parts),
        experts=feed.experts,
        experts_per_token=feed.experts_per_token,
        sparse_layers=feed.sparse_layers,
        kv_layers=_groups(fields, parts),
        precision=stored.precision,
        quantised_bytes=stored.quantised_bytes,
        plain_bytes=stored.plain_bytes,
        file_bytes=file_bytes(fields),
        experts_only=stored.experts_only,
        attention_bytes=stored.attention_bytes,
        dense_bytes=stored.dense_bytes,
        block_scales=stored.block_scales,
        cuts=_cuts(stored, feed.widths, {int(part.output / hidden) for part in parts if part.output}),
        expert_cut=(feed.width, stored.expert_block) if feed.width else None,
        mtp_layers=fields.count("num_nextn_predict_layers"),
    )


def _cuts(stored: Quantisation, feed: Iterable[int], outputs: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Widths that tensor ranks cut, each with the elements that are scaled together."""
    rest = stored.plain_bytes if stored.experts_only else stored.quantised_bytes
    found = set()
    for widths, size in ((feed, stored.dense_bytes), (outputs, stored.attention_bytes)):
        together = stored.block if (rest if size is None else size) < stored.plain_bytes else 1
        found |= {(width, together) for width in widths}
    return tuple(sorted(found))


def _parts(fields: Fields, layers: tuple[Layer, ...], hidden: int) -> list[Part]:
    if fields.flag("use_cla"):
        raise fields.invalid("use_cla", "says that layers share keys and values in a way that is not modelled")
    if fields.raw("compress_ratios") is not None:
        ratios = fields.counts("compress_ratios")
        if len(ratios) < len(layers):
            raise fields.invalid("compress_ratios", f"has {len(ratios)} entries, not {len(layers)} (num_hidden_layers)")
        return [compressed(fields, hidden, ratio) for ratio in ratios[: len(layers)]]
    if fields.text("model_type") in ("deepseek_v4", "deepseek_ref"):
        raise fields.invalid("compress_ratios", "is missing: it says what each layer keeps")
    return [read_part(fields, layer, hidden, index) for index, layer in enumerate(layers)]


def _groups(fields: Fields, parts: list[Part]) -> tuple[KvLayers, ...]:
    """What all layers keep, like with like; the last layers may share what those before them keep (Gemma 3n)."""
    shared = fields.count("num_kv_shared_layers")
    keeping = len(parts) - shared
    if keeping < 1:
        raise fields.invalid("num_kv_shared_layers", f"must be below the {len(parts)} layers there are, not {shared}")
    own: dict[KvLayers, int] = {}
    for part in parts[:keeping]:
        for kept in part.kept:
            own[kept] = own.get(kept, 0) + 1
    sharing: dict[KvLayers, int] = {}
    for part in parts[keeping:]:
        for kept in part.kept:
            if kept not in own or kept.kind is LayerKind.STATE:
                raise fields.invalid("num_kv_shared_layers", "has layers that share with none of their kind")
            sharing[kept] = sharing.get(kept, 0) + 1
    return tuple(replace(kept, layers=count, sharing_layers=sharing.get(kept, 0)) for kept, count in own.items())


def _layer_embeddings(fields: Fields, layers: int, hidden: int) -> tuple[float, float]:
    """Embeddings that each layer adds (Gemma 3n): parameters that are looked up, and those that are multiplied."""
    width = fields.count("hidden_size_per_layer_input")
    if not width:
        return 0.0, 0.0
    vocabulary = fields.integer("vocab_size_per_layer_input", fields.integer("vocab_size"))
    return float(vocabulary * layers * width), float(layers * width * hidden * 3)
