"""What a rival law sees of a fleet: the pods, what came and how long it took, as its own metrics would tell."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise


class PodPhase(Enum):
    """How far a pod is. Pods that are being deleted are no part of a view: no law counts them."""

    PENDING = "Pending"  # no container runs yet: no GPU, no image
    STARTING = "Starting"  # the container runs, loads weights and exports nothing
    READY = "Ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """One pod; all but `phase` are 0 until it is ready.

    `prefill_backlog_tokens` are prompt tokens routed to it that are neither cached nor computed yet.
    """

    phase: PodPhase
    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0  # share of its KV blocks in use, 0..1
    prefill_backlog_tokens: float = 0.0


@dataclass(frozen=True, slots=True)
class Histogram:
    """What a Prometheus histogram grew by in a window: `counts` has one entry for each edge and one for +Inf."""

    edges: tuple[float, ...] = ()
    counts: tuple[float, ...] = (0.0,)

    def __post_init__(self) -> None:
        """Raise `ValueError` for counts that do not fit the edges, or edges that do not rise."""
        if len(self.counts) != len(self.edges) + 1:
            raise ValueError(f"histogram: {len(self.counts)} counts for {len(self.edges)} edges; one more than edges")
        if any(upper <= lower for lower, upper in pairwise(self.edges)):
            raise ValueError("histogram: edges must rise")

    @classmethod
    def of(cls, values: Iterable[float], edges: Sequence[float]) -> Histogram:
        """The histogram of `values`; one on an edge counts below it, as in Prometheus."""
        counts = [0.0] * (len(edges) + 1)
        for value in values:
            counts[bisect_left(edges, value)] += 1.0
        return cls(tuple(edges), tuple(counts))

    @property
    def count(self) -> float:
        """Observations in the window."""
        return sum(self.counts)

    def quantile(self, share: float) -> float | None:
        """PromQL's `histogram_quantile`: linear within a bucket, the last edge beyond all. None without data."""
        if not self.edges or not self.count > 0:
            return None
        rank = share * self.count
        below = 0.0
        for index, upper in enumerate(self.edges):
            inside = self.counts[index]
            if below + inside >= rank:
                lower = self.edges[index - 1] if index else 0.0
                if inside <= 0.0 or upper <= 0.0:
                    return upper
                return lower + (upper - lower) * (rank - below) / inside
            below += inside
        return self.edges[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """A pool at one look, with what happened in the `window_seconds` before it.

    `pods` are the replicas that are asked for, ready or not. `held` requests wait at the router for a pod. Latencies
    are per request: time to first token, and mean time per output token after it. `predicted_*` are what a perfect
    predictor said of the requests that came in the window: their true latencies, known at arrival. Lengths are means
    of the window, None where nothing finished. `kv_pool_tokens`, `max_num_batched_tokens` and `max_num_seqs` are of
    each replica.
    """

    window_seconds: float
    pods: tuple[PodView, ...]
    min_replicas: int = 1
    max_replicas: int = 1000
    held: int = 0
    arrivals: int = 0
    ttft: Histogram = field(default_factory=Histogram)
    tpot: Histogram = field(default_factory=Histogram)
    predicted_ttft: Histogram = field(default_factory=Histogram)
    predicted_tpot: Histogram = field(default_factory=Histogram)
    mean_input_tokens: float | None = None
    mean_output_tokens: float | None = None
    prefix_hit_rate: float = 0.0
    kv_pool_tokens: int = 0
    max_num_batched_tokens: int = 2048
    max_num_seqs: int = 256

    @property
    def replicas(self) -> int:
        """Replicas that are asked for."""
        return len(self.pods)

    @property
    def ready(self) -> tuple[PodView, ...]:
        """The pods that serve and export metrics."""
        return tuple(pod for pod in self.pods if pod.phase is PodPhase.READY)

    def clamp(self, replicas: int) -> int:
        """`replicas` within the bounds of the pool."""
        return max(self.min_replicas, min(self.max_replicas, replicas))
