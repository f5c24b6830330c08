"""What an engine exports: cumulative counters and latency histograms, and the gauges of the moment."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from goodput.simulator.engine import Engine, StepResult
from goodput.simulator.fleet.settings import Edges
from goodput.simulator.sequences import Sequence as EngineSequence


class Scrape(NamedTuple):
    """One look at one engine at `at` (seconds of the run): gauges, then counters since it started.

    Histograms count requests by bucket, not cumulatively; the last bucket is what lies beyond all edges.
    """

    at: float
    running: int
    waiting: int
    kv_usage: float  # share 0..1
    backlog_tokens: int  # prompt tokens of requests without a first token; no metric of vLLM, but routers count them
    first_tokens: int
    finished: int
    rejected: int
    prompt_tokens: int
    cached_tokens: int
    generation_tokens: int
    itl_sum: float
    itl_count: int
    prefill_sum: float
    prefill_count: int
    ttft: tuple[int, ...]
    tpot: tuple[int, ...]
    e2e: tuple[int, ...]
    # What a predictor said of the requests that came; empty where there is none.
    predicted_ttft: tuple[int, ...] = ()
    predicted_tpot: tuple[int, ...] = ()


class Counters:
    """The counters of one engine process; they begin at 0 with it."""

    def __init__(self, edges: Edges) -> None:
        self._edges = edges
        self.rejected = 0
        self._first_tokens = self._finished = 0
        self._prompt = self._cached = self._generation = 0
        self._itl_sum, self._itl_count = 0.0, 0
        self._prefill_sum = 0.0
        self._ttft = [0] * (len(edges.ttft) + 1)
        self._tpot = [0] * (len(edges.tpot) + 1)
        self._e2e = [0] * (len(edges.e2e) + 1)
        self._predicted_ttft: list[int] = []
        self._predicted_tpot: list[int] = []

    def step(self, result: StepResult) -> None:
        """A step ended: its tokens, and the time that each sequence waited for its next one."""
        self._generation += result.generated_tokens
        gaps = len(result.emitted) - len(result.first_tokens)
        if gaps:
            self._itl_sum += gaps * result.duration_seconds
            self._itl_count += gaps

    def decode(self, batch: int, steps: int, seconds: float) -> None:
        """So many steps of decoding took so long together."""
        self._generation += batch * steps
        self._itl_sum += batch * seconds
        self._itl_count += batch * steps

    def first_token(self, sequence: EngineSequence, seconds: float) -> None:
        """A request got its first token `seconds` after it reached the engine."""
        self._first_tokens += 1
        self._prompt += sequence.request.prompt_tokens
        self._cached += sequence.cached_tokens
        self._ttft[bisect_left(self._edges.ttft, seconds)] += 1

    def finish(self, sequence: EngineSequence) -> None:
        """A request got its last token; its own figures are counted only now, as in vLLM."""
        first, last, scheduled = sequence.first_token_at, sequence.last_token_at, sequence.scheduled_at
        assert first is not None
        assert last is not None
        assert scheduled is not None
        tpot = (last - first) / (sequence.generated - 1) if sequence.generated > 1 else 0.0
        whole = last - sequence.arrived_at
        self._finished += 1
        self._prefill_sum += first - scheduled
        self._tpot[bisect_left(self._edges.tpot, tpot)] += 1
        self._e2e[bisect_left(self._edges.e2e, whole)] += 1

    def predict(self, ttft: float, tpot: float | None) -> None:
        """A request came that would take so long."""
        if not self._predicted_ttft:
            self._predicted_ttft = [0] * (len(self._edges.ttft) + 1)
            self._predicted_tpot = [0] * (len(self._edges.tpot) + 1)
        self._predicted_ttft[bisect_left(self._edges.ttft, ttft)] += 1
        if tpot is not None:
            self._predicted_tpot[bisect_left(self._edges.tpot, tpot)] += 1

    def scrape(self, engine: Engine, at: float) -> Scrape:
        """All of it at `at`."""
        return Scrape(
            at=at,
            running=engine.running,
            waiting=engine.waiting,
            kv_usage=engine.kv_usage,
            backlog_tokens=engine.prefill_backlog_tokens,
            first_tokens=self._first_tokens,
            finished=self._finished,
            rejected=self.rejected,
            prompt_tokens=self._prompt,
            cached_tokens=self._cached,
            generation_tokens=self._generation,
            itl_sum=self._itl_sum,
            itl_count=self._itl_count,
            prefill_sum=self._prefill_sum,
            prefill_count=self._finished,
            ttft=tuple(self._ttft),
            tpot=tuple(self._tpot),
            e2e=tuple(self._e2e),
            predicted_ttft=tuple(self._predicted_ttft),
            predicted_tpot=tuple(self._predicted_tpot),
        )


def within(counts: Sequence[int], edges: Sequence[float], bound: float) -> int:
    """Requests at or under `bound`, which is one of the edges."""
    return sum(counts[: edges.index(bound) + 1])
