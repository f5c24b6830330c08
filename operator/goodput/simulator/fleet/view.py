"""What a scaling policy may look at: the pods as the API server has them, and scrapes; never the simulation itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal, TypeAlias

from goodput.domain.intent import Objective
from goodput.domain.observed import PodState
from goodput.simulator.fleet.counters import Scrape
from goodput.simulator.fleet.settings import Edges
from goodput.simulator.fleet.telemetry import RouterScrape
from goodput.simulator.rivals.view import Histogram
from goodput.simulator.sequences import EngineConfig

Latency: TypeAlias = Literal["ttft", "tpot", "e2e", "predicted_ttft", "predicted_tpot"]


@dataclass(frozen=True, slots=True)
class PodSight:
    """One pod as the API server tells it. Times are seconds of the run; `ready_at` is None while it is not ready.

    `node_lost`: its node is not ready, or cordoned.
    """

    name: str
    state: PodState
    created_at: float
    ready_at: float | None
    restarts: int
    node: int | None
    node_lost: bool = False


@dataclass(frozen=True, kw_only=True)
class FleetView:
    """One look at `now` (seconds of the run). `scrapes` are those of the last while by pod, oldest first, of pods that
    are gone too; `pods` are those that exist, by name. Of pods and routers in `missed` the last scrape failed."""

    now: float
    began_at: float  # since when there is a fleet
    objective: Objective
    edges: Edges
    desired: int
    min_replicas: int
    max_replicas: int | None
    pods: tuple[PodSight, ...]
    scrapes: Mapping[str, Sequence[Scrape]]
    routers: Mapping[str, Sequence[RouterScrape]]
    missed: frozenset[str]
    gpus_installed: int
    gpus_used: int
    gpus_per_replica: int
    nodes: int
    engine: EngineConfig  # engines tell their flags and the size of their KV pool

    @property
    def ready(self) -> int:
        """Replicas that serve and are to stay."""
        return sum(1 for pod in self.pods if pod.state is PodState.READY)

    @property
    def provisioned(self) -> int:
        """Replicas that exist and are to stay, whether they serve or not."""
        return sum(1 for pod in self.pods if pod.state is not PodState.TERMINATING)

    @cached_property
    def latest(self) -> dict[str, Scrape]:
        """The newest scrape of each pod that exists and was scraped last time."""
        found = {pod.name: self.scrapes.get(pod.name, ()) for pod in self.pods if pod.name not in self.missed}
        return {name: scrapes[-1] for name, scrapes in found.items() if scrapes}

    @property
    def serving(self) -> list[Scrape]:
        """The newest scrapes of pods that are ready."""
        ready = [pod.name for pod in self.pods if pod.state is PodState.READY]
        return [self.latest[name] for name in ready if name in self.latest]

    def _spans(self, scrapes: Sequence[Scrape], since: float) -> Iterator[tuple[Scrape | None, Scrape]]:
        """(before, after) of each stretch since a time without a restart; None: it began at 0."""
        recent = [each for each in scrapes if each.at >= since]
        if len(recent) < 2:
            return
        begin: Scrape | None = recent[0]
        for before, after in pairwise(recent):
            if after.first_tokens < before.first_tokens or after.generation_tokens < before.generation_tokens:
                yield begin, before
                begin = None
        yield begin, recent[-1]

    def rate(self, what: Callable[[Scrape], float], seconds: float) -> float:
        """Growth of a counter a second over the last `seconds`, all pods together (each over its own scrapes)."""
        total = 0.0
        for scrapes in self.scrapes.values():
            recent = [each for each in scrapes if each.at >= self.now - seconds]
            if len(recent) > 1:
                spans = self._spans(scrapes, self.now - seconds)
                grown = sum(what(after) - (what(before) if before is not None else 0.0) for before, after in spans)
                total += grown / (recent[-1].at - recent[0].at)
        return total

    def increase(self, what: Callable[[Scrape], float], seconds: float) -> float:
        """Growth of a counter between the scrapes of the last `seconds`, all pods together."""
        return sum(
            what(after) - (what(before) if before is not None else 0.0)
            for scrapes in self.scrapes.values()
            for before, after in self._spans(scrapes, self.now - seconds)
        )

    def histogram(self, latency: Latency, seconds: float, pod: str | None = None) -> Histogram:
        """Requests that were counted in the last `seconds`, of one pod or of all."""
        edges: tuple[float, ...] = getattr(self.edges, latency.removeprefix("predicted_"))
        counts = [0] * (len(edges) + 1)
        for name, scrapes in self.scrapes.items():
            if pod is not None and name != pod:
                continue
            for before, after in self._spans(scrapes, self.now - seconds):
                ended: tuple[int, ...] = getattr(after, latency)
                if not ended:
                    continue
                began = (getattr(before, latency) if before is not None else ()) or (0,) * len(ended)
                counts = [count + new - old for count, new, old in zip(counts, ended, began, strict=True)]
        return Histogram(edges, tuple(map(float, counts)))

    def quantile(self, latency: Latency, share: float, seconds: float) -> float | None:
        """A quantile over the last `seconds` as PromQL gives it; None: nothing was counted."""
        return self.histogram(latency, seconds).quantile(share)

    def offered_rps(self, seconds: float) -> float:
        """Requests of users a second that reached the routers in the last `seconds`."""
        total = 0.0
        for scrapes in self.routers.values():
            recent = [each for each in scrapes if each.at >= self.now - seconds]
            if len(recent) > 1:
                total += (recent[-1].requests - recent[0].requests) / (recent[-1].at - recent[0].at)
        return total
