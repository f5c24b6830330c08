"""What a simulated fleet is made of. Everything that is drawn follows from `seed`."""

from __future__ import annotations

from dataclasses import dataclass, field

from goodput.domain.intent import Objective
from goodput.simulator.fleet.faults import Fault
from goodput.simulator.plant import Plant
from goodput.simulator.sequences import EngineConfig

# vLLM's own edges; what engines are told to export may be finer.
_TTFT = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
_TPOT = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
_E2E = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Edges:
    """Upper bounds of the latency histograms in seconds; the bounds of the objective are added to them."""

    ttft: tuple[float, ...] = _TTFT
    tpot: tuple[float, ...] = _TPOT
    e2e: tuple[float, ...] = _E2E

    def with_bounds(self, objective: Objective) -> Edges:
        """These and the bounds of the objective, so that what is good is exact."""
        return Edges(
            _with(self.ttft, objective.ttft_seconds),
            _with(self.tpot, objective.tpot_seconds),
            _with(self.e2e, objective.e2e_seconds),
        )


def _with(edges: tuple[float, ...], bound: float | None) -> tuple[float, ...]:
    return tuple(sorted({*edges, bound})) if bound is not None else edges


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeSettings:
    """How Prometheus looks at pods: each at its own phase, `delay_seconds` until a query sees it, some are lost."""

    interval_seconds: float = 15.0
    delay_seconds: float = 0.0
    lost_share: float = 0.0
    keep_seconds: float = 900.0  # of scrapes, for rates and quantiles


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSettings:
    """The routers in front: the settings with which the operator renders vllm-router.

    `balance` is one of cache_aware, round_robin, least_in_flight. A retry waits `backoff_seconds`, half as long again
    each time.
    """

    balance: str = "cache_aware"
    replicas: int = 2
    attempts: int = 3
    backoff_seconds: float = 0.05
    discovery_seconds: float = 1.0  # until a new pod is used, or one that is to go is left out
    health_interval_seconds: float = 2.0
    health_failures: int = 2
    circuit_failures: int = 30
    circuit_open_seconds: float = 1.0
    abs_threshold: int = 2
    rel_threshold: float = 1.2
    cache_threshold: float = 0.3
    tree_tokens: int = 8_388_608  # of one engine in one router's tree: 2^25 characters


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    """One Model's pool on nodes with GPUs.

    Start-up times are drawn evenly within `startup_spread` of `startup_seconds`. The fleet of `replicas` is ready when
    the run begins; policies look at it from `settle_seconds` before that, so that they do not begin with a load.
    Requests and costs count within `seconds`; after that no policy acts, and what is under way may end within
    `tail_seconds`. With a `predictor` engines also tell what requests would take when they came.
    """

    plant: Plant
    engine: EngineConfig
    objective: Objective
    seconds: float
    replicas: int = 1
    min_replicas: int = 1
    max_replicas: int | None = None
    gpu_type: str = "l40s"
    gpus_per_node: tuple[int, ...] = (8,) * 8
    startup_seconds: float = 100.0
    startup_spread: float = 0.1
    scheduling_seconds: float = 1.0
    pre_stop_seconds: float = 10.0
    grace_seconds: float = 340.0
    node_grace_seconds: float = 50.0  # until a node that does not answer is NotReady
    eviction_seconds: float = 300.0  # from then on until its pods are deleted
    settle_seconds: float = 120.0
    tail_seconds: float = 600.0
    edges: Edges = field(default_factory=Edges)
    scrape: ScrapeSettings = field(default_factory=ScrapeSettings)
    router: RouterSettings = field(default_factory=RouterSettings)
    faults: tuple[Fault, ...] = ()
    predictor: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise `ValueError` for a fleet that cannot be."""
        if self.seconds <= 0.0:
            raise ValueError(f"seconds: {self.seconds} must be greater than 0")
        if self.min_replicas < 0 or (self.max_replicas is not None and self.max_replicas < self.min_replicas):
            raise ValueError("min_replicas must be at least 0 and at most max_replicas")
        if not 0.0 <= self.startup_spread < 1.0:
            raise ValueError(f"startup_spread: {self.startup_spread} must be within 0..1")
        if max(self.gpus_per_node, default=0) < self.plant.gpus:
            raise ValueError(f"gpus_per_node: no node has the {self.plant.gpus} GPUs of one replica")
        if self.pre_stop_seconds > self.grace_seconds:
            raise ValueError("pre_stop_seconds must not exceed grace_seconds")

    def bounded(self, replicas: int) -> int:
        """`replicas` within the bounds of the Model."""
        most = replicas if self.max_replicas is None else min(replicas, self.max_replicas)
        return max(self.min_replicas, most)
