"""Weights of one rank: what tensor, pipeline, data and expert parallelism divide, and what they repeat."""

from __future__ import annotations

from functools import lru_cache

from goodput.domain.architecture import Architecture
from goodput.domain.values import Value


class Parallel(Value, frozen=True, kw_only=True):
    """Parallelism of one replica.

    With `data` above 1 every data rank has attention of its own and all ranks share the experts. `expert`: whole
    experts on a rank, over all ranks (True) or in groups of that size; False: every expert is cut over all ranks.
    `context` spreads the tokens of a sequence over that many of the tensor ranks: it adds none.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: bool | int = False
    context: int = 1

    @property
    def gpus(self) -> int:
        """GPUs of the replica."""
        return self.tensor * self.pipeline * self.data


class RankWeights(Value, frozen=True, kw_only=True):
    """Weights in bytes of one rank of the largest pipeline stage, by part."""

    attention: float
    dense: float
    experts: float
    embeddings: float  # embedding, output head and towers

    @property
    def total(self) -> float:
        """All of them."""
        return self.attention + self.dense + self.experts + self.embeddings


def stage_layers(layers: int, stages: int) -> tuple[int, ...]:
    """Layers of each pipeline stage as the engine deals them: equally, the rest to the stages before the last."""
    dealt = [layers // stages] * stages
    for place in range(2, layers % stages + 2):
        dealt[-place] += 1
    return tuple(dealt)


def cannot_split(arch: Architecture, parallel: Parallel) -> tuple[str, str] | None:
    """(degree of `Parallel` that the engine refuses, why): heads over ranks, layers over stages, tokens over ranks."""
    tensor, context = parallel.tensor, parallel.context
    if arch.attention_heads % tensor:
        return "tensor", f"TP {tensor} does not divide the {arch.attention_heads} attention heads"
    heads = [kept.heads for kept in arch.kv_layers if not kept.latent and kept.elements_per_head]
    for each in heads:
        if each % tensor and tensor % each:
            return "tensor", f"TP {tensor} neither divides the {each} key-value heads nor is a multiple of them"
    narrow = _too_narrow(arch, parallel)
    if narrow:
        return "tensor", narrow
    if parallel.pipeline > arch.layers:
        return "pipeline", f"PP {parallel.pipeline} is more than the {arch.layers} layers"
    if tensor % context:
        return "context", f"context parallelism of {context} does not divide TP {tensor}"
    if context > 1 and any(kept.window_tokens for kept in arch.kv_layers):
        return "context", f"layers with a window cannot be spread over {context} context-parallel ranks"
    for each in heads:
        if context > max(1, tensor // each):
            why = f"context parallelism of {context} is more than the ranks that repeat one of {each} KV heads"
            return "context", why
    return None


def _too_narrow(arch: Architecture, parallel: Parallel) -> str:
    """Why the engine loads no such part of a width: it must be whole, and a multiple of what is scaled together."""
    if parallel.tensor == 1:
        return ""
    cuts = [("a layer", *cut) for cut in arch.cuts]
    if arch.expert_cut is not None and parallel.expert is False:
        cuts.append(("experts", *arch.expert_cut))
    for part, width, together in cuts:
        if width % parallel.tensor:
            return f"TP {parallel.tensor} does not divide the {width} elements of {part}"
        if width // parallel.tensor % together:
            return (
                f"TP {parallel.tensor} cuts the {width} elements of {part} into {width // parallel.tensor}, no multiple"
                f" of the {together} that share a scale of the {arch.precision} checkpoint: the engine refuses it"
            )
    return ""


def expert_rank_share(arch: Architecture, parallel: Parallel) -> float:
    """Share of a sparse layer's experts that one rank holds; 0 where there are none."""
    if not arch.experts:
        return 0.0
    ranks = parallel.tensor * parallel.data
    if parallel.expert is False:
        return 1.0 / ranks
    groups = min(ranks if parallel.expert is True else parallel.expert, ranks)
    whole = -(-arch.experts // groups)
    return whole / arch.experts / (ranks / groups)


@lru_cache(maxsize=4096)
def rank_weights(arch: Architecture, parallel: Parallel) -> RankWeights:
    """Weights of one rank of the stage that holds most. KV projections shard by whole heads, and repeat beyond."""
    tensor = parallel.tensor
    kv_share = max(1, arch.kv_heads // tensor) / arch.kv_heads
    whole = arch.replicated_attention_parameters
    cut = arch.attention_parameters - arch.kv_projection_parameters - whole
    attention = (cut / tensor + arch.kv_projection_parameters * kv_share + whole) * arch.stored_attention_bytes
    if arch.stored_attention_bytes < arch.plain_bytes:
        # Decoding multiplies by the up-projections in their plain type; prefill uses the stored ones.
        attention += arch.absorbed_parameters * arch.plain_bytes / tensor
    routed = arch.replicated_dense_parameters
    dense = ((arch.dense_parameters - routed) / tensor + routed) * arch.stored_dense_bytes
    experts = arch.expert_parameters * expert_rank_share(arch, parallel) * arch.quantised_bytes
    matrix = arch.plain_bytes / tensor
    embedding, head = arch.embedding_parameters * matrix, arch.head_parameters * matrix
    tower = arch.tower_parameters * matrix
    if parallel.pipeline == 1:
        return RankWeights(attention=attention, dense=dense, experts=experts, embeddings=embedding + head + tower)
    # A matrix that is both embedding and head stands on the first stage and on the last.
    ends = {0: (embedding or head) + tower, parallel.pipeline - 1: head}
    layer = (attention + dense + experts) / arch.layers
    stages = stage_layers(arch.layers, parallel.pipeline)
    largest = max(range(parallel.pipeline), key=lambda stage: stages[stage] * layer + ends.get(stage, 0.0))
    share = stages[largest] / arch.layers
    return RankWeights(
        attention=attention * share, dense=dense * share, experts=experts * share, embeddings=ends.get(largest, 0.0)
    )
