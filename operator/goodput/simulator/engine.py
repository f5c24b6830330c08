"""One vLLM V1 engine as a step model: continuous batching over a paged KV pool.

Each step schedules as vLLM's scheduler does: first what runs, in the order of admission (one token for a decoding
sequence, a chunk for a prompt under way), then waiting requests in order of arrival, all within one token budget; a
prompt larger than what is left is computed in chunks. When no block is free for a running sequence the youngest one is
preempted: its blocks go, it returns to the head of the queue and is computed again. The model has no clock and no
randomness; the caller owns time.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from goodput.simulator.drafts import accepted
from goodput.simulator.kvcache import BlockPool, Eviction
from goodput.simulator.plant import StepTimeModel
from goodput.simulator.sequences import AdmissionRejectedError, EngineConfig, EngineRequest, RequestError, Sequence
from goodput.simulator.stretch import Stretch

_by_order = attrgetter("order")


@dataclass(frozen=True, slots=True)
class StepResult:
    """One step that began at `started_at` (seconds) and takes `duration_seconds`; its tokens exist at the end of it.

    `emitted` lists the sequences that got output tokens (one each, without drafts), `first_tokens` those whose first it
    was, `finished` those that are done with it; `preempted` lost their blocks to older ones. `evictions` speaks of
    sampled KV blocks. `generated_tokens` counts output tokens, `accepted` the accepted tokens of each draft.
    """

    started_at: float
    duration_seconds: float
    prefill_tokens: int
    decode_seqs: int
    kv_tokens_read: int
    flops: float
    emitted: list[Sequence]
    first_tokens: list[Sequence]
    finished: list[Sequence]
    preempted: list[Sequence]
    evictions: list[Eviction]
    generated_tokens: int
    accepted: list[int]
    drafted_tokens: int = 0

    @property
    def ends_at(self) -> float:
        """When the step's tokens exist."""
        return self.started_at + self.duration_seconds

    @property
    def tokens(self) -> int:
        """Tokens computed in the step: prompt, decode and drafts."""
        return self.prefill_tokens + self.decode_seqs + self.drafted_tokens


class Engine:
    """The state of one engine. All times are seconds on the caller's clock and must not go backwards."""

    __slots__ = (
        "_arriving",
        "_decoding",
        "_prefill_backlog",
        "_prefilling",
        "_serial",
        "_stuck",
        "_unfinished",
        "_waiting",
        "config",
        "pool",
        "preemptions",
        "prefix_hits_tokens",
        "prefix_queries_tokens",
        "request_overhead_seconds",
        "times",
    )

    def __init__(self, config: EngineConfig, times: StepTimeModel, request_overhead_seconds: float = 0.0) -> None:
        self.config = config
        self.times = times
        self.request_overhead_seconds = request_overhead_seconds
        self.pool = BlockPool(config.kv_blocks, config.kv_metrics_sample)
        self._arriving: deque[Sequence] = deque()
        self._waiting: deque[Sequence] = deque()
        self._prefilling: list[Sequence] = []
        self._decoding: list[Sequence] = []
        self._unfinished: dict[str, Sequence] = {}
        self._prefill_backlog = 0
        self._serial = 0
        # The head of the queue found no room, and none was given back since.
        self._stuck = False
        self.prefix_queries_tokens = 0
        self.prefix_hits_tokens = 0
        self.preemptions = 0

    # ---------------------------------------------------------------- gauges
    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return len(self._decoding) + len(self._prefilling)

    @property
    def waiting(self) -> int:
        """Requests that wait for capacity, those that are just arriving included."""
        return len(self._waiting) + len(self._arriving)

    @property
    def unfinished(self) -> int:
        """Requests waiting or running (what `--max-num-queued-reqs` bounds)."""
        return len(self._unfinished)

    @property
    def prefill_backlog_tokens(self) -> int:
        """Prompt tokens of all requests that have no output token yet (what `--max-num-queued-tokens` bounds)."""
        return self._prefill_backlog

    @property
    def kv_usage(self) -> float:
        """Share 0..1 of blocks held by sequences; cached blocks that nobody holds count as free."""
        return self.pool.used_blocks / self.pool.size

    # ---------------------------------------------------------------- in and out
    def check_admission(self) -> None:
        """Raise `AdmissionRejectedError` at a queue limit; requests are checked before tokens, as in vLLM."""
        config = self.config
        if config.max_num_queued_reqs is not None and len(self._unfinished) >= config.max_num_queued_reqs:
            raise AdmissionRejectedError("max_num_queued_reqs")
        if config.max_num_queued_tokens is not None and self._prefill_backlog >= config.max_num_queued_tokens:
            raise AdmissionRejectedError("max_num_queued_tokens")

    def submit(self, request: EngineRequest, now: float, owner: Any = None) -> Sequence:
        """Queue a request that arrived at `now`; the scheduler sees it after the request overhead.

        Output is cut at the model length. Raises `RequestError` for a prompt that leaves no room for a token or an id
        in use, `AdmissionRejectedError` at a queue limit.
        """
        room = self.config.max_model_len - request.prompt_tokens
        if request.request_id in self._unfinished:
            raise RequestError(f"request_id: {request.request_id!r} is in use")
        if room < 1:
            raise RequestError(
                f"prompt_tokens: {request.prompt_tokens} leave no room in max_model_len {self.config.max_model_len}"
            )
        self.check_admission()
        self._serial += 1
        sequence = Sequence(
            request, min(request.output_tokens, room), now, now + self.request_overhead_seconds, owner, self._serial
        )
        self._unfinished[request.request_id] = sequence
        self._prefill_backlog += request.prompt_tokens
        self._arriving.append(sequence)
        return sequence

    def abort(self, request_id: str) -> bool:
        """Drop a request, wherever it is; False if it is unknown or already finished."""
        sequence = self._unfinished.pop(request_id, None)
        if sequence is None:
            return False
        if sequence.generated == 0:
            self._prefill_backlog -= sequence.request.prompt_tokens
        queues: tuple[Any, ...] = (self._decoding, self._prefilling, self._waiting, self._arriving)
        for queue in queues:
            if sequence in queue:
                queue.remove(sequence)
                break
        self.pool.release(sequence.blocks)
        sequence.blocks = []
        self._stuck = False
        return True

    def next_start(self, now: float) -> float | None:
        """When a step could begin: `now`, the time the next arrival becomes visible, or None if there is no work."""
        if self._decoding or self._prefilling or self._waiting:
            return now
        if self._arriving:
            return max(now, self._arriving[0].eligible_at)
        return None

    # ---------------------------------------------------------------- the step
    def step(self, now: float) -> StepResult | None:
        """Run one step that begins at `now`; None if there is nothing to do then.

        State is advanced to the end of the step at once: the caller must not step again before `ends_at`.
        """
        while self._arriving and self._arriving[0].eligible_at <= now:
            self._waiting.append(self._arriving.popleft())
        preempted: list[Sequence] = []
        chunks: list[tuple[Sequence, int]] = []
        budget = self.config.max_num_batched_tokens
        batch, drafting, budget = self._schedule_running(now, budget, chunks, preempted)
        self._stuck = False
        if not preempted and budget > 0:
            self._stuck = self._admit(now, budget, chunks)
        if not batch and not chunks:
            return None

        prefill_tokens = 0
        kv_tokens_read = sum([sequence.computed for sequence in batch])
        attention_pairs = 0.0
        for sequence, tokens in chunks:
            prefill_tokens += tokens
            kv_tokens_read += sequence.computed
            attention_pairs += tokens * (sequence.computed + tokens / 2)
        decode_seqs = len(batch)
        drafts, gained = self._take_drafts(drafting) if drafting else ([], 0)
        drafted = self.config.speculative_tokens * len(drafts)
        # Drafted tokens are computed like those of a prompt: their context is read with that of the token before them.
        duration = self.times.step_seconds(prefill_tokens + drafted, decode_seqs, kv_tokens_read, attention_pairs)
        emitted, first_tokens, finished = self._complete(now + duration, batch, chunks)
        return StepResult(
            now,
            duration,
            prefill_tokens,
            decode_seqs,
            kv_tokens_read,
            self.times.flops(prefill_tokens + decode_seqs + drafted, attention_pairs),
            emitted,
            first_tokens,
            finished,
            preempted,
            self.pool.drain_evictions(),
            len(emitted) + gained,
            drafts,
            drafted,
        )

    def _take_drafts(self, drafting: list[Sequence]) -> tuple[list[int], int]:
        """(accepted tokens of each draft, tokens that sequences gained by them, which end where their output does).

        The token that the model itself adds comes with the step, as without drafts.
        """
        config = self.config
        tokens, acceptance, coverage = config.speculative_tokens, config.draft_acceptance, config.draft_coverage
        drafts, gained = [], 0
        for sequence in drafting:
            draft = accepted(sequence.serial, sequence.generated, tokens, acceptance, coverage)
            if draft is not None:
                taken = min(draft, sequence.target - sequence.generated - 1)
                sequence.generated += taken
                sequence.computed += taken
                gained += taken
                drafts.append(draft)
        return drafts, gained

    def _schedule_running(
        self, now: float, budget: int, chunks: list[tuple[Sequence, int]], preempted: list[Sequence]
    ) -> tuple[list[Sequence], list[Sequence], int]:
        """Tokens and blocks for the batch, oldest first: one for each decoding sequence (and those of its draft, while
        the budget lasts), a chunk for each prompt.

        Returns the decoding sequences that take part, those of them that may have a draft, and the tokens left.
        """
        block_size, drafted = self.config.block_size, self.config.speculative_tokens
        drafting: list[Sequence] = []
        running = self._decoding + self._prefilling
        if self._prefilling:
            # A short prompt may have overtaken a long one that is computed in pieces.
            running.sort(key=_by_order)
        batch: list[Sequence] = []
        for index, sequence in enumerate(running):
            # Whoever is preempted meanwhile is the youngest, so it is the far end of the list that goes.
            if budget == 0 or index >= len(running) - len(preempted):
                break
            if sequence.decoding:
                if drafted and budget > drafted:
                    # Slots for all that a draft may add; of those that are rejected the next step makes use.
                    width = 1 + drafted
                    if not self._grow(sequence, min(width, sequence.target - sequence.generated), now, preempted):
                        break
                    drafting.append(sequence)
                    budget -= drafted
                elif sequence.computed % block_size == 0 and not self._grow(sequence, 1, now, preempted):
                    break
                batch.append(sequence)
                budget -= 1
            else:
                tokens = self._chunk(sequence.total_tokens - sequence.computed, budget)
                if not self._grow(sequence, tokens, now, preempted):
                    break
                chunks.append((sequence, tokens))
                budget -= tokens
        return batch, drafting, budget

    def _admit(self, now: float, budget: int, chunks: list[tuple[Sequence, int]]) -> bool:
        """Move waiting requests into the batch, first come first served, while tokens, slots and blocks last.

        Returns whether the next one wants a slot or blocks; one that wants tokens gets them in the next step.
        """
        config = self.config
        pool = self.pool
        reserve = int(config.watermark * config.kv_blocks)
        while self._waiting and budget > 0 and self.running < config.max_batch:
            sequence = self._waiting[0]
            hits = self._cached_prefix(sequence)
            computed = len(hits) * config.block_size
            remaining = sequence.total_tokens - computed
            if not config.enable_chunked_prefill and remaining > budget:
                return False
            tokens = self._chunk(remaining, budget)
            must_fit = computed + (remaining if config.scheduler_reserve_full_isl else tokens)
            if self._blocks(must_fit) - len(hits) > pool.free_blocks - pool.idle_among(hits) - reserve:
                return True
            self._waiting.popleft()
            pool.take_cached(hits, now)
            fresh = pool.allocate(self._blocks(computed + tokens) - len(hits), now)
            assert fresh is not None  # counted above
            sequence.blocks = hits + fresh
            sequence.computed = computed
            self._serial += 1
            sequence.order = self._serial
            if sequence.scheduled_at is None:
                sequence.scheduled_at = now
                sequence.cached_tokens = computed
                if config.enable_prefix_caching:
                    self.prefix_queries_tokens += sequence.total_tokens
                    self.prefix_hits_tokens += computed
            self._prefilling.append(sequence)
            chunks.append((sequence, tokens))
            budget -= tokens
        return bool(self._waiting) and budget > 0

    def _complete(
        self, ends_at: float, batch: list[Sequence], chunks: list[tuple[Sequence, int]]
    ) -> tuple[list[Sequence], list[Sequence], list[Sequence]]:
        """Account for what the step computed; returns the sequences with a token, a first token, the last token."""
        first_tokens: list[Sequence] = []
        finished: list[Sequence] = []
        emitted = batch
        for sequence in batch:
            sequence.computed += 1
            sequence.generated += 1
            sequence.last_token_at = ends_at
            if sequence.generated >= sequence.target:
                finished.append(sequence)
        if finished:
            self._decoding = [sequence for sequence in self._decoding if sequence.generated < sequence.target]
        for sequence, tokens in chunks:
            self._remember_prompt(sequence, sequence.computed, sequence.computed + tokens)
            sequence.computed += tokens
            if sequence.computed < sequence.total_tokens:
                continue
            self._prefilling.remove(sequence)
            if sequence.generated == 0:
                first_tokens.append(sequence)
                sequence.first_token_at = ends_at
                self._prefill_backlog -= sequence.request.prompt_tokens
            sequence.generated += 1
            sequence.last_token_at = ends_at
            emitted.append(sequence)
            if sequence.finished:
                finished.append(sequence)
            else:
                sequence.decoding = True
                insort(self._decoding, sequence, key=_by_order)
        self._forget(finished)
        return emitted, first_tokens, finished

    def _forget(self, finished: list[Sequence]) -> None:
        for sequence in finished:
            del self._unfinished[sequence.request.request_id]
            self.pool.release(sequence.blocks)
            sequence.blocks = []
            self._stuck = False

    # ---------------------------------------------------------------- many steps at once
    def plan_decode(self, now: float) -> Stretch | None:
        """The steps from `now` in which only decoding happens, at most until a sequence ends, if nothing new is
        submitted or aborted; None if the next step is more than that. Changes nothing."""
        config, batch = self.config, self._decoding
        if not batch or self._prefilling or config.speculative_tokens or len(batch) >= config.max_num_batched_tokens:
            return None
        if self._waiting and not self._stuck:
            return None
        kv_tokens = steps = 0
        for sequence in batch:
            left = sequence.target - sequence.generated
            steps = left if not steps or left < steps else steps
            kv_tokens += sequence.computed
        stretch = Stretch(now, steps, len(batch), kv_tokens, self.times)
        if not self._waiting and self._arriving:
            # The first step that begins when a request is visible looks at it.
            unseen = stretch.ended_by(self._arriving[0].eligible_at) + 1 if self._arriving[0].eligible_at > now else 0
            if unseen < steps:
                steps = unseen
                stretch = Stretch(now, steps, len(batch), kv_tokens, self.times)
        if steps < 2:
            return None
        missing = sum(self._blocks(sequence.computed + steps) - len(sequence.blocks) for sequence in batch)
        return stretch if missing <= self.pool.free_blocks else None

    def decode(self, stretch: Stretch, steps: int) -> list[Sequence]:
        """Take the first `steps` of a planned stretch; returns the sequences that are done with the last one."""
        ends_at = stretch.started_at + stretch.seconds(steps)
        finished = []
        for sequence in self._decoding:
            sequence.computed += steps
            missing = self._blocks(sequence.computed) - len(sequence.blocks)
            if missing > 0:
                fresh = self.pool.allocate(missing, ends_at)
                assert fresh is not None  # counted when it was planned
                sequence.blocks.extend(fresh)
            sequence.generated += steps
            sequence.last_token_at = ends_at
            if sequence.generated >= sequence.target:
                finished.append(sequence)
        if finished:
            self._decoding = [sequence for sequence in self._decoding if sequence.generated < sequence.target]
            self._forget(finished)
        return finished

    # ---------------------------------------------------------------- blocks
    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.config.block_size)

    def _chunk(self, remaining: int, budget: int) -> int:
        """Tokens of a prompt to compute now."""
        threshold = self.config.long_prefill_token_threshold
        if 0 < threshold < remaining:
            remaining = threshold
        return min(remaining, budget)

    def _grow(self, sequence: Sequence, tokens: int, now: float, preempted: list[Sequence]) -> bool:
        """Blocks for `tokens` more of a running sequence, at the cost of younger ones; False if it had to go itself."""
        missing = self._blocks(sequence.computed + tokens) - len(sequence.blocks)
        while missing > 0:
            fresh = self.pool.allocate(missing, now)
            if fresh is not None:
                sequence.blocks.extend(fresh)
                break
            if self._preempt_youngest(preempted) is sequence:
                return False
        return True

    def _preempt_youngest(self, preempted: list[Sequence]) -> Sequence:
        """Take the blocks of the running sequence that was admitted last and put it at the head of the queue."""
        decoding, prefilling = self._decoding, self._prefilling
        if not decoding or (prefilling and prefilling[-1].order > decoding[-1].order):
            victim = prefilling.pop()
        else:
            victim = decoding.pop()
            victim.decoding = False
        if self.config.enable_prefix_caching:
            # What it computed stays findable until evicted: coming back soon, it need not compute everything again.
            for index in range(victim.computed // self.config.block_size):
                self.pool.remember(victim.blocks[index], victim.hash_at(index))
        self.pool.release(victim.blocks)
        victim.blocks = []
        victim.computed = 0
        victim.preemptions += 1
        self.preemptions += 1
        self._waiting.appendleft(victim)
        preempted.append(victim)
        return victim

    def _cached_prefix(self, sequence: Sequence) -> list[int]:
        """Cached blocks of a sequence's start; its last token is always computed, for there is no output without."""
        if not self.config.enable_prefix_caching:
            return []
        limit = (sequence.total_tokens - 1) // self.config.block_size
        hashes = sequence.request.block_hashes
        if sequence.preemptions:
            return self.pool.lookup([sequence.hash_at(index) for index in range(limit)], limit)
        return self.pool.lookup(hashes, min(limit, len(hashes)))

    def _remember_prompt(self, sequence: Sequence, before: int, after: int) -> None:
        """Make the prompt blocks that a chunk filled findable. Output blocks are nobody else's prefix here."""
        if not self.config.enable_prefix_caching:
            return
        block_size = self.config.block_size
        hashes = sequence.request.block_hashes
        for index in range(before // block_size, min(after // block_size, len(hashes))):
            self.pool.remember(sequence.blocks[index], hashes[index])
