"""The KV cache as the engine's own planner counts it (vLLM 0.33): pages, groups, blocks and what they hold.

Layers that keep the same make a bucket. Buckets are split into groups of equally many layers, and every group draws
blocks from one pool: a block of the pool is one page of each layer of a group. Pages are made equal: smaller ones get
more tokens a block, and attention beside states gets blocks as large as a state. One rank is counted; the largest
pipeline stage binds.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil

from goodput.domain.architecture import Architecture, KvLayers, LayerKind
from goodput.domain.values import Value
from goodput.perfmodel.kvlayout import Bucket, KvGroup, KvPlan
from goodput.perfmodel.kvpacked import packed
from goodput.perfmodel.precision import KvFormat, kv_format

BLOCK_TOKENS = 16
LATENT_BLOCK_TOKENS = 64  # of kernels for latent attention with packed or sparse entries
# Below this ratio of the largest to the smallest bucket, the engine makes groups of the largest, and pads the others.
_CLOSE_BUCKETS = 1.5


class KvSettings(Value, frozen=True, kw_only=True):
    """What the planner counts with, beside the architecture."""

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    context_parallel: int = 1  # decode context parallel: tokens of a sequence are spread over so many ranks
    kv_dtype: str = "auto"
    block_tokens: int = BLOCK_TOKENS
    max_num_batched_tokens: int = 8192
    # Steps in flight: pipeline stages, and one more with asynchronous scheduling.
    max_concurrent_batches: int = 1
    prefix_caching: bool = True
    speculative_tokens: int = 0


def rank_token_bytes(kept: KvLayers, form: KvFormat, tensor_parallel: int) -> float:
    """Bytes of one token in one layer on one tensor rank: whole heads, repeated beyond their number."""
    if kept.latent:
        if not kept.elements_per_head:
            return kept.fixed_bytes
        packed = form.latent_bytes
        return kept.fixed_bytes + (kept.elements_per_head * form.element_bytes if packed is None else packed)
    heads = max(1, kept.heads // tensor_parallel)
    return heads * (kept.elements_per_head * form.element_bytes + 2.0 * form.head_bytes) + kept.fixed_bytes


@lru_cache(maxsize=4096)
def plan_kv(arch: Architecture, settings: KvSettings) -> KvPlan:
    """The planner's layout of the pool of one rank of the largest pipeline stage.

    Raises `InvalidObject` for a KV dtype that is not known.
    """
    form = kv_format(settings.kv_dtype)
    buckets = _buckets(arch, settings, form)
    in_flight = settings.max_concurrent_batches * settings.max_num_batched_tokens
    if not buckets:
        return KvPlan(block_bytes=0, block_tokens=settings.block_tokens, groups=(), in_flight_tokens=in_flight)
    if any(bucket.block_tokens for bucket in buckets):
        return packed(buckets, in_flight)
    if all(bucket.kind is LayerKind.FULL for bucket in buckets):
        # One table of blocks for all: pages may differ, and a block has one of each layer.
        page = sum(bucket.layers * _page(bucket.token_bytes, settings.block_tokens) for bucket in buckets)
        group = KvGroup(kind=LayerKind.FULL, block_tokens=settings.block_tokens)
        return KvPlan(
            block_bytes=page,
            block_tokens=settings.block_tokens,
            groups=(group,),
            in_flight_tokens=in_flight,
            context_parallel=settings.context_parallel,
        )
    page, tokens = _equal_pages(buckets, settings.block_tokens)
    size = _group_size(buckets)
    groups = tuple(
        KvGroup(
            kind=bucket.kind,
            block_tokens=block_tokens,
            window_tokens=bucket.window_tokens,
            state_blocks=_state_blocks(settings) if bucket.kind is LayerKind.STATE else 0,
        )
        for bucket, block_tokens in zip(buckets, tokens, strict=True)
        for _ in range(-(-bucket.layers // size))
    )
    full = [each for bucket, each in zip(buckets, tokens, strict=True) if bucket.kind is LayerKind.FULL]
    return KvPlan(
        block_bytes=page * size,
        block_tokens=min(full, default=min(tokens)),
        groups=groups,
        in_flight_tokens=in_flight,
        context_parallel=settings.context_parallel,
    )


def _buckets(arch: Architecture, settings: KvSettings, form: KvFormat) -> tuple[Bucket, ...]:
    """Layers that keep the same on a rank, of the largest stage: stages take an equal share, rounded up."""
    found: dict[Bucket, int] = {}
    for kept in arch.kv_layers:
        state = 0
        if kept.kind is LayerKind.STATE:
            state = ceil(kept.fixed_bytes / settings.tensor_parallel)
        bucket = Bucket(
            kind=kept.kind,
            layers=0,
            token_bytes=0.0 if state else rank_token_bytes(kept, form, settings.tensor_parallel),
            window_tokens=kept.window_tokens,
            state_bytes=state,
            block_tokens=kept.block_tokens,
        )
        if bucket.token_bytes > 0 or state:
            found[bucket] = found.get(bucket, 0) + kept.layers
    return tuple(
        Bucket(
            kind=bucket.kind,
            layers=-(-layers // settings.pipeline_parallel),
            token_bytes=bucket.token_bytes,
            window_tokens=bucket.window_tokens,
            state_bytes=bucket.state_bytes,
            block_tokens=bucket.block_tokens,
        )
        for bucket, layers in found.items()
    )


def _page(token_bytes: float, block_tokens: int) -> int:
    return ceil(token_bytes * block_tokens)


def _equal_pages(buckets: tuple[Bucket, ...], block_tokens: int) -> tuple[int, tuple[int, ...]]:
    """Bytes of the page that all layers get, and tokens of a block in each bucket (0: a state)."""
    states = [bucket.state_bytes for bucket in buckets if bucket.kind is LayerKind.STATE]
    attention = [bucket for bucket in buckets if bucket.kind is not LayerKind.STATE]
    if states and attention:
        # Blocks grow, by whole kernel blocks, until the page of the widest attention layer holds a state.
        widest = max(bucket.token_bytes for bucket in attention)
        needed = ceil(max(states) / (block_tokens * widest))
        block_tokens *= max(1, needed)
    page = max([_page(bucket.token_bytes, block_tokens) for bucket in attention] + states)
    tokens = tuple(
        0 if bucket.kind is LayerKind.STATE else block_tokens * (page // _page(bucket.token_bytes, block_tokens))
        for bucket in buckets
    )
    return page, tokens


def _group_size(buckets: tuple[Bucket, ...]) -> int:
    """Layers of a group: those of the smallest bucket, or of the largest where that pads little."""
    counts = [bucket.layers for bucket in buckets]
    return max(counts) if max(counts) < _CLOSE_BUCKETS * min(counts) else min(counts)


def _state_blocks(settings: KvSettings) -> int:
    """State blocks of a sequence: the current one, those of drafts, and one more at the edge of a cached prefix."""
    return (2 if settings.prefix_caching else 1) + settings.speculative_tokens
