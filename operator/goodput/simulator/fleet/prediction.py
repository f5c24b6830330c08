"""A perfect latency predictor: what a request that arrives will take, found by serving it on a copy of its engine.

The copy is in the very state of the engine, knows its step times and how long every answer will be. What it cannot
know is what is still to come: it takes the requests of the last minute to come again. That hardly moves the time to
the first token (engines serve first come, first served), but the time per token after it.
"""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from goodput.domain.intent import Objective
from goodput.simulator.engine import Engine
from goodput.simulator.kvcache import BlockPool, Eviction
from goodput.simulator.sequences import EngineRequest, RequestError
from goodput.simulator.sequences import Sequence as EngineSequence
from goodput.simulator.serving import serve_next

_MEMORY_SECONDS = 60.0
# A first token so many times later than its bound is late enough: nobody looks at how late.
_LATE = 10.0


class Predictor:
    """Predicts for one engine; it is told of every request that the engine took."""

    def __init__(self, objective: Objective) -> None:
        bound = objective.ttft_seconds if objective.ttft_seconds is not None else objective.e2e_seconds
        self._most_seconds = _MEMORY_SECONDS if bound is None else _LATE * bound
        self._taken: deque[EngineSequence] = deque()

    def took(self, sequence: EngineSequence) -> None:
        """The engine took a request."""
        self._taken.append(sequence)
        while self._taken[0].arrived_at < sequence.arrived_at - _MEMORY_SECONDS:
            self._taken.popleft()

    def predict(
        self, engine: Engine, begins_at: float, request: EngineRequest, now: float
    ) -> tuple[float, float | None] | None:
        """(seconds to the first token, seconds per token after it) of a request that comes `now`, if the engine had no
        queue limit; its next step begins at `begins_at`. None if the engine can never serve it.

        Of a first token that is far too late the time counts at which that is certain, and nothing per token.
        """
        twin = EngineCopy(engine)
        try:
            mine = twin.submit(request, now)
        except RequestError:
            return None
        coming = self._again(now, engine.config.block_size)
        following = next(coming, None)
        clock = max(begins_at, now)
        while not mine.finished:
            if mine.first_token_at is None and clock - now > self._most_seconds:
                return clock - now, None
            # The engine must see the next one coming, to stop skipping steps when it is there.
            while following is not None and twin.last_arrival <= clock:
                twin.submit(following[1], following[0])
                following = next(coming, None)
            clock = serve_next(twin, clock)
        first, last = mine.first_token_at, mine.last_token_at
        assert first is not None
        assert last is not None
        return first - now, (last - first) / (mine.generated - 1) if mine.generated > 1 else 0.0

    def _again(self, now: float, block_size: int) -> Iterator[tuple[float, EngineRequest]]:
        """The requests of the last minute, minute after minute; caches supply of them what they supplied."""
        taken = [each for each in self._taken if each.arrived_at > now - _MEMORY_SECONDS]
        minute = 0
        while taken:
            minute += 1
            for each in taken:
                asked = each.request
                hashes = asked.block_hashes[: each.cached_tokens // block_size]
                request = EngineRequest(f"{asked.request_id}/{minute}", asked.prompt_tokens, each.target, hashes)
                yield each.arrived_at + minute * _MEMORY_SECONDS, request


class EngineCopy(Engine):
    """An engine that goes on from the state of another one, which stays as it is; without queue limits."""

    __slots__ = ()

    def __init__(self, engine: Engine) -> None:
        self.config = replace(engine.config, max_num_queued_reqs=None, max_num_queued_tokens=None)
        self.times = engine.times
        self.request_overhead_seconds = engine.request_overhead_seconds
        self.pool = ForkedPool(engine.pool)
        copies = {key: _copied(sequence) for key, sequence in engine._unfinished.items()}
        self._unfinished = copies
        self._arriving = deque(copies[each.request.request_id] for each in engine._arriving)
        self._waiting = deque(copies[each.request.request_id] for each in engine._waiting)
        self._prefilling = [copies[each.request.request_id] for each in engine._prefilling]
        self._decoding = [copies[each.request.request_id] for each in engine._decoding]
        self._prefill_backlog = engine._prefill_backlog
        self._serial = engine._serial
        self._stuck = engine._stuck
        self.prefix_queries_tokens = engine.prefix_queries_tokens
        self.prefix_hits_tokens = engine.prefix_hits_tokens
        self.preemptions = engine.preemptions

    @property
    def last_arrival(self) -> float:
        """When the last of the requests that are not looked at yet becomes visible."""
        return self._arriving[-1].eligible_at if self._arriving else -math.inf


def _copied(sequence: EngineSequence) -> EngineSequence:
    twin = copy.copy(sequence)
    twin.blocks = list(sequence.blocks)
    return twin


class ForkedPool(BlockPool):
    """The blocks of a pool as they would be given out from now on; the pool itself stays as it is.

    What its prefix cache holds it goes on to hold: a prediction is too short for evictions to matter.
    """

    def __init__(self, base: BlockPool) -> None:
        self.size = base.size
        self.evictions = []
        self._base = base
        self._left = base.free_blocks
        self._serial = base.size  # new blocks are numbered beyond those of the pool
        self._holders: dict[int, int] = {}
        self._found: dict[int, int] = {}

    @property
    def free_blocks(self) -> int:
        """Blocks that no sequence holds."""
        return self._left

    @property
    def used_blocks(self) -> int:
        """Blocks held by sequences."""
        return self.size - self._left

    def _held(self, block: int) -> int:
        held = self._holders.get(block)
        return self._base._references[block] if held is None else held

    def lookup(self, hashes: Sequence[int], limit: int) -> list[int]:
        """The blocks that hold the longest cached prefix."""
        found = self._base.lookup(hashes, limit)
        for value in hashes[len(found) : limit]:
            if value not in self._found:
                break
            found.append(self._found[value])
        return found

    def idle_among(self, blocks: Iterable[int]) -> int:
        """How many of `blocks` no sequence holds."""
        return sum(1 for block in blocks if self._held(block) == 0)

    def take_cached(self, blocks: Iterable[int], now: float) -> None:
        """Hold cached blocks for one more sequence."""
        for block in blocks:
            held = self._held(block)
            self._left -= held == 0
            self._holders[block] = held + 1

    def allocate(self, count: int, now: float) -> list[int] | None:
        """`count` new blocks; None if there are too few."""
        if count > self._left:
            return None
        self._left -= count
        taken = list(range(self._serial, self._serial + count))
        self._serial += count
        self._holders.update(dict.fromkeys(taken, 1))
        return taken

    def release(self, blocks: Sequence[int]) -> None:
        """Give a sequence's blocks back."""
        for block in blocks:
            held = self._held(block) - 1
            self._left += held == 0
            self._holders[block] = held

    def remember(self, block: int, value: int) -> None:
        """Make a computed block findable under its hash."""
        self._found.setdefault(value, block)

    def drain_evictions(self) -> list[Eviction]:
        """Nothing is watched."""
        return []
