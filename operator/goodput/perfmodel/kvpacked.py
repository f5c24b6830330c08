"""Packed blocks: the layout for models whose caches have pages of unlike size (DeepSeek-V4), as the engine makes it.

Caches that keep every token make one group. Those with a window make sets by block and window, each set with its pages
padded to the next size that the first group has. A set of n layers of one page size is n wide; sets are split into
groups of about equal width, so that padding is least. A block of the pool has, of every page size, as many pages as the
group with most of them.
"""

from __future__ import annotations

from math import ceil

from goodput.domain.architecture import LayerKind
from goodput.perfmodel.kvlayout import Bucket, KvGroup, KvPlan

_ALIGNMENT_BYTES = 576
# Of a cache that has no block of its own, such as a draft model's.
_BLOCK_TOKENS = 256

# Layers by size of their page.
_Pages = dict[int, int]


def packed(buckets: tuple[Bucket, ...], in_flight_tokens: int) -> KvPlan:
    """Layout of caches that all have blocks of their own."""
    everything: _Pages = {}
    sets: dict[tuple[int, int], _Pages] = {}
    for bucket in buckets:
        if bucket.kind is LayerKind.FULL:
            _add(everything, _page(bucket), bucket.layers)
    for bucket in buckets:
        if bucket.kind is not LayerKind.FULL:
            page = _page(bucket)
            padded = min((size for size in everything if size >= page), default=page)
            _add(sets.setdefault((bucket.block_tokens, bucket.window_tokens), {}), padded, bucket.layers)
    least = max(everything.values(), default=1)
    width = _width([max(pages.values()) for pages in ([everything] if everything else []) + list(sets.values())], least)
    slots = dict(everything)
    blocks = [bucket.block_tokens or _BLOCK_TOKENS for bucket in buckets if bucket.kind is LayerKind.FULL]
    groups = [KvGroup(kind=LayerKind.FULL, block_tokens=max(blocks))] if blocks else []
    for (block_tokens, window), pages in sets.items():
        parts = -(-max(pages.values()) // width)
        for size, layers in pages.items():
            slots[size] = max(slots.get(size, 0), -(-layers // parts))
        groups += [KvGroup(kind=LayerKind.WINDOW, block_tokens=block_tokens, window_tokens=window)] * parts
    return KvPlan(
        block_bytes=sum(size * count for size, count in slots.items()),
        block_tokens=max(blocks, default=groups[0].block_tokens),
        groups=tuple(groups),
        in_flight_tokens=in_flight_tokens,
    )


def _page(bucket: Bucket) -> int:
    tokens = bucket.block_tokens or _BLOCK_TOKENS
    return ceil(bucket.token_bytes * tokens / _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


def _add(pages: _Pages, size: int, layers: int) -> None:
    pages[size] = pages.get(size, 0) + layers


def _width(widths: list[int], least: int) -> int:
    """The width of groups, at least `least`, that pads all sets least."""

    def padding(width: int) -> int:
        return sum(-(-each // width) * width - each for each in widths)

    return min(range(least, max(*widths, least) + 1), key=padding)
