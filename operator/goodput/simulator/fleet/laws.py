"""Rival laws as policies: what each of them reads, from the scrapes that ours reads too."""

from __future__ import annotations

from typing import Any

from goodput.domain.observed import PodState
from goodput.simulator.fleet.counters import Scrape
from goodput.simulator.fleet.view import FleetView, PodSight
from goodput.simulator.rivals.law import Law
from goodput.simulator.rivals.view import PodPhase, PodView, PoolView


class LawPolicy:
    """A law, stepped with what it remembers. Only a fleet with a predictor tells more than what was."""

    def __init__(self, law: Law[Any]) -> None:
        self._law = law
        self._state = law.start()

    @property
    def name(self) -> str:
        """The law's."""
        return self._law.name

    @property
    def interval_seconds(self) -> float:
        """The law's."""
        return self._law.interval_seconds

    def decide(self, view: FleetView, now: float) -> int:
        """One step of the law."""
        replicas, self._state = self._law.step(pool_view(view, self._law.window_seconds), self._state, now)
        return replicas


def pool_view(view: FleetView, window_seconds: float) -> PoolView:
    """What a law sees of a fleet, with what happened in the last `window_seconds`."""
    fits = view.gpus_installed // view.gpus_per_replica
    prompts = view.increase(lambda scrape: scrape.first_tokens, window_seconds)
    prompt_tokens = view.increase(lambda scrape: scrape.prompt_tokens, window_seconds)
    cached_tokens = view.increase(lambda scrape: scrape.cached_tokens, window_seconds)
    ended = view.increase(lambda scrape: scrape.finished, window_seconds)
    output_tokens = view.increase(lambda scrape: scrape.generation_tokens, window_seconds)
    engine = view.engine
    return PoolView(
        window_seconds=window_seconds,
        pods=tuple(_pod(pod, view.latest.get(pod.name)) for pod in view.pods if pod.state is not PodState.TERMINATING),
        min_replicas=view.min_replicas,
        max_replicas=fits if view.max_replicas is None else view.max_replicas,
        arrivals=round(view.offered_rps(window_seconds) * window_seconds),
        ttft=view.histogram("ttft", window_seconds),
        tpot=view.histogram("tpot", window_seconds),
        predicted_ttft=view.histogram("predicted_ttft", window_seconds),
        predicted_tpot=view.histogram("predicted_tpot", window_seconds),
        mean_input_tokens=prompt_tokens / prompts if prompts else None,
        mean_output_tokens=output_tokens / ended if ended else None,
        prefix_hit_rate=cached_tokens / prompt_tokens if prompt_tokens else 0.0,
        kv_pool_tokens=(engine.kv_blocks - 1) * engine.block_size,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_num_seqs=engine.max_num_seqs,
    )


def _pod(pod: PodSight, scrape: Scrape | None) -> PodView:
    if pod.state is not PodState.READY:
        return PodView(phase=PodPhase.PENDING if pod.node is None else PodPhase.STARTING)
    if scrape is None:
        return PodView(phase=PodPhase.READY)
    return PodView(
        phase=PodPhase.READY,
        running=scrape.running,
        waiting=scrape.waiting,
        kv_usage=scrape.kv_usage,
        prefill_backlog_tokens=scrape.backlog_tokens,
    )
