"""Who drafts, as an `Architecture`: what a draft costs in time, and what it takes of the GPU's memory."""

from __future__ import annotations

from functools import lru_cache

from msgspec.structs import replace

from goodput.domain.architecture import Architecture, KvLayers, LayerKind
from goodput.domain.remembered import for_each_model
from goodput.domain.speculation import DraftMethod, Speculation

# EAGLE-3 heads answer in the most frequent tokens only; published heads have this many.
EAGLE3_VOCABULARY = 32_000
# Hidden states of the target that enter a head, in copies of the hidden size, the token's own embedding included.
_ENTERING = {DraftMethod.EAGLE: 2, DraftMethod.EAGLE3: 3, DraftMethod.MTP: 2}
_BF16_BYTES = 2.0


def _one_layer(layers: tuple[KvLayers, ...]) -> tuple[KvLayers, ...]:
    """KV of one layer that keeps every token, like those of the target; of its only kind where it has no such layer."""
    for group in layers:
        if group.kind is LayerKind.FULL:
            return (replace(group, layers=1, sharing_layers=0),)
    return tuple(replace(group, layers=1, sharing_layers=0) for group in layers[:1])


@lru_cache(maxsize=for_each_model(1))
def drafter(arch: Architecture, speculation: Speculation) -> Architecture | None:
    """The draft model, or the head of one decoder layer as wide as the target's; None for a lookup.

    A head multiplies the target's own output matrix (EAGLE, MTP: shared, read again) or a smaller one (EAGLE-3).
    """
    method = speculation.method
    if method is DraftMethod.NGRAM:
        return None
    if method is DraftMethod.DRAFT:
        return speculation.draft
    hidden = float(arch.hidden_size)
    vocabulary = float(min(EAGLE3_VOCABULARY, arch.vocabulary) if method is DraftMethod.EAGLE3 else arch.vocabulary)
    sparse = method is DraftMethod.MTP and arch.experts > 0
    # A head for a mixture of experts is dense, as wide as what a token visits in one of its layers.
    visited = arch.expert_parameters * arch.expert_share
    per_layer = (arch.dense_parameters + (0.0 if sparse else visited)) / arch.layers
    return replace(
        arch,
        name=f"{method.value} head of {arch.name}",
        layers=1,
        embedding_parameters=0.0,
        head_parameters=vocabulary * hidden,
        attention_parameters=arch.attention_parameters / arch.layers + _ENTERING[method] * hidden * hidden,
        kv_projection_parameters=arch.kv_projection_parameters / arch.layers,
        replicated_attention_parameters=arch.replicated_attention_parameters / arch.layers,
        replicated_dense_parameters=arch.replicated_dense_parameters / (arch.sparse_layers or 1) if sparse else 0.0,
        absorbed_parameters=arch.absorbed_parameters / arch.layers,
        dense_parameters=per_layer,
        expert_parameters=arch.expert_parameters / arch.sparse_layers if sparse else 0.0,
        experts=arch.experts if sparse else 0,
        experts_per_token=arch.experts_per_token if sparse else 0,
        sparse_layers=1 if sparse else 0,
        kv_layers=_one_layer(arch.kv_layers),
        # Published heads are stored in bf16; the layers of a checkpoint are stored as it is.
        precision=arch.precision if method is DraftMethod.MTP else "bf16",
        quantised_bytes=arch.quantised_bytes if method is DraftMethod.MTP else _BF16_BYTES,
        plain_bytes=arch.plain_bytes if method is DraftMethod.MTP else _BF16_BYTES,
        experts_only=arch.experts_only and method is DraftMethod.MTP,
        attention_bytes=arch.attention_bytes if method is DraftMethod.MTP else None,
        dense_bytes=arch.dense_bytes if method is DraftMethod.MTP else None,
        mtp_layers=0,
    )


def added_weight_bytes(arch: Architecture, speculation: Speculation) -> float:
    """Bytes of weights beside the target's own. Heads use its embedding, EAGLE and MTP its output matrix too."""
    found = drafter(arch, speculation)
    if found is None:
        return 0.0
    shared = 0.0
    if speculation.method in (DraftMethod.EAGLE, DraftMethod.MTP):
        shared = found.head_parameters * found.plain_bytes
    return found.weight_bytes - shared


@lru_cache(maxsize=for_each_model(1))
def with_drafter(arch: Architecture, speculation: Speculation | None) -> Architecture:
    """The target as the KV pool sees it: layers of its drafter draw from the same one. Their weights are not in it."""
    found = None if speculation is None else drafter(arch, speculation)
    return arch if found is None else replace(arch, kv_layers=_together(arch.kv_layers, found.kv_layers))


def _together(target: tuple[KvLayers, ...], own: tuple[KvLayers, ...]) -> tuple[KvLayers, ...]:
    """Layers that keep the same of a token are one kind to the engine, whoever's they are."""
    groups = {_kept(group): group for group in target}
    for group in own:
        same = groups.get(_kept(group))
        groups[_kept(group)] = group if same is None else replace(same, layers=same.layers + group.layers)
    return tuple(groups.values())


def _kept(group: KvLayers) -> KvLayers:
    return replace(group, layers=0, attention_flops=0.0, sharing_layers=0, attended_tokens=0)
