"""What is to be placed: a model, what "good" means, the expected load, and what its author allows."""

from __future__ import annotations

from math import ceil, inf, sqrt

from goodput.domain.architecture import Architecture
from goodput.domain.intent import AS_STORED, GpuType, Objective, Precision
from goodput.domain.speculation import Speculation
from goodput.domain.values import Value
from goodput.perfmodel.capacity import Shape
from goodput.perfmodel.cost import price_per_hour
from goodput.perfmodel.lengths import Lengths

# Share of the load that a fleet keeps free, and the seconds over which arrivals are counted when it is sized: the noise
# of such a count (one standard deviation, Poisson) is kept free where it is more.
HEADROOM = 0.10
COUNTING_SECONDS = 60.0
# A deadline of so many seconds for whole requests, and no bound on tokens, leaves time to wait: throughput counts.
BATCH_E2E_SECONDS = 600.0


def provided_rps(rps: float, headroom: float = HEADROOM) -> float:
    """Load to provide for where `rps` requests/s are expected: with what is kept free for growth and noise."""
    return rps + max(headroom * rps, sqrt(rps / COUNTING_SECONDS))


class Requirements(Value, frozen=True, kw_only=True):
    """What is to be placed. `rps` is the expected demand in requests/s; 0: unknown, the least fleet is priced.

    `arch` has its weights in the precision that is asked for already; `precision` says which part of it its author
    asked for. `speculation` None: plain decoding.
    """

    arch: Architecture
    objective: Objective
    lengths: Lengths
    rps: float = 0.0
    headroom: float = HEADROOM
    tensor_parallel: int | None = None  # None: every degree
    pipeline_parallel: int | None = None
    precision: Precision = AS_STORED
    speculation: Speculation | None = None
    min_replicas: int = 1
    max_replicas: int | None = None
    max_cost_per_hour: float | None = None

    @property
    def patient(self) -> bool:
        """Whether latency does not matter: nothing bounds first or later tokens, and requests may take minutes."""
        wanted = self.objective
        return wanted.batch or (
            wanted.ttft_seconds is None
            and wanted.tpot_seconds is None
            and (wanted.e2e_seconds or 0.0) >= BATCH_E2E_SECONDS
        )

    @property
    def load_rps(self) -> float:
        """Demand with what is kept free for growth and noise."""
        return provided_rps(self.rps, self.headroom)

    @property
    def kv_dtype(self) -> str:
        """Precision of the KV cache as the engine names it."""
        return self.precision.kv_cache or "auto"

    def plain(self, tensor_parallel: int, pipeline_parallel: int = 1) -> Shape:
        """A replica that does not speculate."""
        return Shape(tensor_parallel=tensor_parallel, pipeline_parallel=pipeline_parallel, kv_dtype=self.kv_dtype)

    def replicas(self, capacity_rps: float) -> int:
        """Replicas of this capacity that the load needs, at least the minimum."""
        return max(1, self.min_replicas, ceil(self.load_rps / capacity_rps - 1e-9))

    def most_replicas(self, gpu: GpuType, gpus: int) -> tuple[float, str]:
        """(replicas of so many GPUs that the author's caps allow, the field that caps them); (inf, '') without one.

        A price that nobody knows caps nothing.
        """
        most, field = inf, ""
        if self.max_replicas is not None:
            most, field = float(self.max_replicas), "spec.scaling.maxReplicas"
        price = price_per_hour(gpu)
        if self.max_cost_per_hour is not None and price:
            affordable = float(int(self.max_cost_per_hour / (price * gpus) + 1e-9))
            if affordable < most:
                most, field = affordable, "spec.scaling.maxCostPerHour"
        return most, field

    def check(self) -> None:
        """Raises `ValueError` where tensor or pipeline parallelism is below 1, or the demand is no finite number."""
        for name in ("tensor_parallel", "pipeline_parallel"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        if not 0.0 <= self.rps < inf:
            raise ValueError(f"the expected demand must be a number of requests/s, not {self.rps}")
