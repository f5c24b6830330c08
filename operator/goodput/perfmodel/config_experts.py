"""Feed-forward layers: dense ones, experts, and what every token visits beside them."""

from __future__ import annotations

from goodput.domain.values import Value
from goodput.perfmodel.config_fields import Fields
from goodput.perfmodel.config_layers import Feed, Layer

# Families (and activations) without a gate: two matrices, not three.
_UNGATED = frozenset(
    {
        "apertus",
        "bloom",
        "falcon",
        "gpt2",
        "gpt_bigcode",
        "gpt_neox",
        "gptj",
        "mpt",
        "nemotron",
        "opt",
        "phi",
        "RefinedWeb",
        "RefinedWebModel",
        "starcoder2",
    }
)
_UNGATED_ACTIVATIONS = frozenset({"relu2"})
# Families that leave out the width where it is four times the residual stream.
_FOURFOLD = frozenset({"gpt2", "gptj", "gpt_bigcode", "bloom", "falcon", "mpt", "RefinedWeb", "RefinedWebModel"})


class FeedForward(Value, frozen=True, kw_only=True):
    """Parameters of all feed-forward layers."""

    dense: float  # of every token: dense layers, shared experts, routers, projections to a latent width
    experts_total: float
    experts: int  # of one sparse layer
    experts_per_token: int
    sparse_layers: int
    replicated: float  # of `dense`, whole on every tensor rank: routers, projections to a latent width
    layers_dense: tuple[float, ...]  # of `dense` in each layer, without what is `replicated`
    matrices: int  # of one feed-forward layer: up and down projection, and a gate
    widths: tuple[int, ...]  # of dense layers and of shared experts
    width: int  # of one expert


def read_feed_forward(fields: Fields, layers: tuple[Layer, ...], hidden: int) -> FeedForward:
    """All feed-forward layers. Raises `InvalidObject` that names the field."""
    family = fields.text("model_type")
    activation = fields.text("mlp_hidden_act") or fields.text("hidden_act")
    # A family says it where it is known; Nemotron-H says it by its activation.
    ungated = family in _UNGATED or activation in _UNGATED_ACTIVATIONS or family == "nemotron_h"
    matrices = 2 if ungated else 3
    sparse = sum(1 for layer in layers if layer.feed in (Feed.SPARSE, Feed.BOTH))
    alone = [
        _alone(fields, layer, index, hidden, matrices, some_sparse=sparse > 0) for index, layer in enumerate(layers)
    ]
    dense = sum(alone)
    wide = [of // (matrices * hidden) for of, layer in zip(alone, layers, strict=True) if layer.feed is not Feed.LINEAR]
    widths = {width for width in wide if width}
    experts = fields.count("n_routed_experts")
    if not sparse:
        return FeedForward(
            dense=float(dense),
            experts_total=0.0,
            experts=0,
            experts_per_token=0,
            sparse_layers=0,
            replicated=0.0,
            layers_dense=tuple(map(float, alone)),
            matrices=matrices,
            widths=tuple(sorted(widths)),
            width=0,
        )
    if experts <= 1:
        raise fields.invalid("n_routed_experts", "is missing: some layers have experts")
    visited = fields.integer("num_experts_per_tok")
    if visited > experts:
        raise fields.invalid("num_experts_per_tok", f"is {visited}, more than the {experts} experts there are")
    # Some choices are of experts that do nothing (LongCat).
    visited = max(1, round(visited * experts / (experts + fields.count("zero_expert_num"))))
    width = fields.count("moe_intermediate_size") or fields.count("intermediate_size")
    if not width:
        raise fields.invalid("moe_intermediate_size", "is missing: give it as in the model's config.json")
    latent = fields.count("moe_latent_size")
    through = hidden * experts + (2 * hidden * latent if latent else 0)
    shared_width = _shared_width(fields, family, width)
    shared = matrices * hidden * shared_width
    one = matrices * (latent or hidden) * width
    return FeedForward(
        dense=float(dense + sparse * (shared + through)),
        experts_total=float(sparse * experts * one),
        experts=experts,
        experts_per_token=visited,
        sparse_layers=sparse,
        replicated=float(sparse * through),
        layers_dense=tuple(
            float(own + shared * (layer.feed in (Feed.SPARSE, Feed.BOTH)))
            for own, layer in zip(alone, layers, strict=True)
        ),
        matrices=matrices,
        widths=tuple(sorted(widths | ({shared_width} if shared_width else set()))),
        width=width,
    )


def _alone(fields: Fields, layer: Layer, index: int, hidden: int, matrices: int, *, some_sparse: bool) -> int:
    """Parameters of a layer's feed-forward that is no expert."""
    if layer.feed in (Feed.DENSE, Feed.BOTH):
        return matrices * hidden * (layer.width or _dense_width(fields, index, hidden, some_sparse))
    return hidden * hidden if layer.feed is Feed.LINEAR else 0


def _dense_width(fields: Fields, index: int, hidden: int, some_sparse: bool) -> int:
    widths = fields.counts("intermediate_size")
    if widths:  # one for each layer (Gemma 3n)
        if index >= len(widths) or not widths[index]:
            raise fields.invalid("intermediate_size", f"has no width for layer {index}")
        return widths[index]
    family = fields.text("model_type")
    if family == "qwen":  # its field counts gate and up projection together
        return max(1, fields.integer("intermediate_size") // 2)
    if fields.flag("block_auto_adjust_ff_dim"):  # LFM2: two thirds, up to a whole multiple
        whole = fields.integer("block_multiple_of", 256)
        return -(-(2 * fields.integer("intermediate_size") // 3) // whole) * whole
    if family == "arctic":
        return hidden
    names = ("intermediate_size_mlp", "dense_intermediate_size", "intermediate_size")
    for name in names:
        if fields.count(name):
            return fields.integer(name)
    if family in _FOURFOLD:
        return 4 * hidden
    if some_sparse and fields.count("moe_intermediate_size"):
        return fields.integer("moe_intermediate_size")
    return fields.integer("intermediate_size")


def _shared_width(fields: Fields, family: str, width: int) -> int:
    """Width of all shared experts of a layer together."""
    own = fields.count("shared_expert_intermediate_size")
    if own:
        return own * (fields.count("n_shared_experts") or 1)
    # Llama 4 has one shared expert that its config does not name.
    return width * (fields.count("n_shared_experts") or int(family in ("llama4", "llama4_text")))
