"""The paged KV pool with its prefix cache: blocks, reference counts, LRU order and the residency of blocks.

Freed blocks keep their content until somebody needs the space, least recently used first; a sequence gives its
blocks back in reverse order, so that a prefix outlives what was built upon it.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# vLLM keeps the last four touches of a sampled block: at most three gaps are known when the block is evicted.
TOUCHES_KEPT = 4


@dataclass(frozen=True, slots=True)
class Eviction:
    """What is known of a sampled block when its space is given to another: seconds, and the gaps between touches."""

    lifetime_seconds: float
    idle_seconds: float
    reuse_gaps_seconds: tuple[float, ...]


class _Residency:
    """Birth and touches of one sampled block."""

    __slots__ = ("birth", "last", "touches")

    def __init__(self, now: float) -> None:
        self.birth = now
        self.last = now
        self.touches: deque[float] = deque(maxlen=TOUCHES_KEPT)


def _sampled(serial: int, share: float) -> bool:
    """A deterministic draw for the n-th allocation: a Weyl sequence by the golden ratio, equidistributed in 0..1."""
    return (serial * 0.6180339887498949) % 1.0 < share


class BlockPool:
    """`blocks` KV blocks; one of them is the null block that vLLM keeps aside, so `blocks - 1` can be used."""

    __slots__ = (
        "_cached",
        "_duplicates",
        "_free",
        "_hash_of",
        "_references",
        "_residency",
        "_sample",
        "_serial",
        "evictions",
        "size",
    )

    def __init__(self, blocks: int, residency_sample: float = 0.0) -> None:
        """Raise `ValueError` for fewer than 2 blocks. `residency_sample` is the share (0..1) of blocks watched."""
        if blocks < 2:
            raise ValueError(f"blocks: {blocks} leaves nothing beside the null block")
        self.size = blocks - 1
        self._free: OrderedDict[int, None] = OrderedDict((index, None) for index in range(self.size))
        self._references = [0] * self.size
        self._hash_of: dict[int, int] = {}
        self._cached: dict[int, int] = {}
        # Two sequences that compute the same prefix at once leave two blocks of one hash; hash -> the later ones.
        self._duplicates: dict[int, list[int]] = {}
        self._sample = residency_sample
        self._serial = 0
        self._residency: dict[int, _Residency] = {}
        self.evictions: list[Eviction] = []

    @property
    def free_blocks(self) -> int:
        """Blocks that no sequence holds; cached content counts as free."""
        return len(self._free)

    @property
    def used_blocks(self) -> int:
        """Blocks held by sequences."""
        return self.size - len(self._free)

    def lookup(self, hashes: Sequence[int], limit: int) -> list[int]:
        """The blocks that hold the longest cached prefix of `hashes`, at most `limit` of them."""
        found: list[int] = []
        cached = self._cached
        for value in hashes[:limit]:
            block = cached.get(value)
            if block is None:
                break
            found.append(block)
        return found

    def idle_among(self, blocks: Iterable[int]) -> int:
        """How many of `blocks` are not held by any sequence: to take these uses up free ones."""
        references = self._references
        return sum(1 for block in blocks if references[block] == 0)

    def take_cached(self, blocks: Iterable[int], now: float) -> None:
        """Hold cached blocks for one more sequence."""
        for block in blocks:
            if self._references[block] == 0:
                del self._free[block]
            self._references[block] += 1
            watched = self._residency.get(block)
            if watched is not None:
                watched.last = now
                watched.touches.append(now)

    def allocate(self, count: int, now: float) -> list[int] | None:
        """`count` fresh blocks, evicting the least recently used; None (and no change) if there are too few."""
        free = self._free
        if count > len(free):
            return None
        taken = []
        for _ in range(count):
            block, _unused = free.popitem(last=False)
            self._references[block] = 1
            if self._residency or self._sample:
                self._watch(block, now)
            if block in self._hash_of:
                self._forget(block)
            taken.append(block)
        return taken

    def release(self, blocks: Sequence[int]) -> None:
        """Give a sequence's blocks back, last one first."""
        references = self._references
        free = self._free
        for block in reversed(blocks):
            references[block] -= 1
            if references[block] == 0:
                free[block] = None

    def remember(self, block: int, value: int) -> None:
        """Make a computed block findable under its hash."""
        if block in self._hash_of:
            return
        self._hash_of[block] = value
        if value in self._cached:
            self._duplicates.setdefault(value, []).append(block)
        else:
            self._cached[value] = block

    def drain_evictions(self) -> list[Eviction]:
        """What was evicted since the last call, of the sampled blocks."""
        if not self.evictions:
            return []
        drained, self.evictions = self.evictions, []
        return drained

    def _forget(self, block: int) -> None:
        value = self._hash_of.pop(block)
        others = self._duplicates.get(value)
        if self._cached.get(value) != block:
            if others is not None:
                others.remove(block)
        elif others:
            self._cached[value] = others.pop(0)
        else:
            del self._cached[value]
        if others is not None and not others:
            del self._duplicates[value]

    def _watch(self, block: int, now: float) -> None:
        """Report the old content of `block` if it was watched, and perhaps watch the new."""
        old = self._residency.pop(block, None)
        if old is not None:
            touches = list(old.touches)
            gaps = tuple(later - earlier for earlier, later in itertools.pairwise(touches))
            self.evictions.append(Eviction(now - old.birth, now - old.last, gaps))
        if self._sample:
            self._serial += 1
            if self._sample >= 1.0 or _sampled(self._serial, self._sample):
                self._residency[block] = _Residency(now)
