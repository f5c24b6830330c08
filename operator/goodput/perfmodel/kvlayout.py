"""Layout of the pool of KV blocks on one rank: groups of layers, blocks of a request, tokens of a pool."""

from __future__ import annotations

from goodput.domain.architecture import LayerKind
from goodput.domain.values import Value

# Blocks that the engine keeps for its own use: the null block.
_NULL_BLOCKS = 1


class KvGroup(Value, frozen=True, kw_only=True):
    """One group of layers: blocks that a sequence takes in it."""

    kind: LayerKind
    block_tokens: int
    window_tokens: int = 0
    state_blocks: int = 0

    def blocks(self, tokens: int, in_flight_tokens: int) -> int:
        """Blocks that the engine plans for a sequence of `tokens` of which `in_flight_tokens` may be in the making."""
        if self.kind is LayerKind.STATE:
            return self.state_blocks
        if self.kind is LayerKind.FULL:
            return -(-tokens // self.block_tokens)
        if self.kind is LayerKind.CHUNK:
            return -(-min(self.window_tokens + in_flight_tokens, tokens) // self.block_tokens)
        # A window need not start at the edge of a block: one more.
        return -(-min(self.window_tokens - 1 + in_flight_tokens, tokens) // self.block_tokens) + 1

    def held(self, tokens: float) -> float:
        """Blocks that a decoding sequence of `tokens` holds on average, its last block half full."""
        if self.kind is LayerKind.STATE:
            return float(self.state_blocks)
        if self.kind is LayerKind.FULL:
            return tokens / self.block_tokens + 0.5
        if self.kind is LayerKind.CHUNK:
            # Of a long sequence, the chunk that is being filled is half full.
            seen = min(tokens, 0.5 * self.window_tokens) if tokens > self.window_tokens else tokens
            return seen / self.block_tokens + 0.5
        return min(tokens, float(self.window_tokens)) / self.block_tokens + (
            1.0 if tokens > self.window_tokens else 0.5
        )


class KvPlan(Value, frozen=True, kw_only=True):
    """Blocks of the pool on one rank. `block_bytes` is 0 where nothing is kept."""

    block_bytes: int
    block_tokens: int  # of full attention, as the engine reports it
    groups: tuple[KvGroup, ...]
    in_flight_tokens: int
    # Tokens of a sequence that one block holds on all context-parallel ranks together, over those on one.
    context_parallel: int = 1

    def blocks(self, pool_bytes: float) -> int:
        """Blocks of a pool of so many bytes."""
        return int(pool_bytes // self.block_bytes) if self.block_bytes and pool_bytes > 0 else 0

    def blocks_per_request(self, tokens: int) -> int:
        """Blocks that the engine plans for one request of `tokens`."""
        local = -(-tokens // self.context_parallel)
        return sum(
            group.blocks(local if group.kind is LayerKind.FULL else tokens, self.in_flight_tokens)
            for group in self.groups
        )

    def max_concurrency(self, pool_bytes: float, max_model_len: int) -> float:
        """Requests of the full length that the pool holds at once, as the engine reports it."""
        needed = self.blocks_per_request(max_model_len)
        return self.blocks(pool_bytes) / needed if needed else float("inf")

    def size_tokens(self, pool_bytes: float, max_model_len: int) -> int:
        """`kv_cache_size_tokens` as the engine reports it: concurrency at the full length, times that length."""
        needed = self.blocks_per_request(max_model_len)
        return int(self.blocks(pool_bytes) / needed * max_model_len) if needed else 0

    def holds(self, pool_bytes: float, tokens: int) -> bool:
        """Whether the engine starts with `tokens` as its longest request."""
        return self.blocks_per_request(tokens) <= self.blocks(pool_bytes) - _NULL_BLOCKS or not self.block_bytes

    def longest(self, pool_bytes: float, limit: int) -> int:
        """Longest request, up to `limit` tokens, with which the engine starts; 0: none."""
        if self.holds(pool_bytes, limit):
            return limit
        low, high = 0, limit
        while high - low > 1:
            middle = (low + high) // 2
            if self.holds(pool_bytes, middle):
                low = middle
            else:
                high = middle
        return low

    def held_blocks(self, tokens: float) -> float:
        """Blocks that a decoding sequence of `tokens` holds on average."""
        local = tokens / self.context_parallel
        return sum(group.held(local if group.kind is LayerKind.FULL else tokens) for group in self.groups)


class Bucket(Value, frozen=True, kw_only=True):
    """Layers of one stage that keep the same, on one rank."""

    kind: LayerKind
    layers: int
    token_bytes: float
    window_tokens: int = 0
    state_bytes: int = 0
    block_tokens: int = 0  # where the engine fixes them
