"""What should be: the output of `decide`, input of rendering and writing."""

from __future__ import annotations

from enum import StrEnum

from goodput.domain.conditions import Condition
from goodput.domain.decision import Decision, Rejected
from goodput.domain.identity import Key
from goodput.domain.memory import LoopMemory
from goodput.domain.usage import Usage
from goodput.domain.values import Value


class Placement(Value, frozen=True, kw_only=True):
    """GPU type and shape of one replica, with the engine settings that were sized for it."""

    gpu_type: str
    resource_name: str
    node_selector: tuple[tuple[str, str], ...]
    tolerations: tuple[str, ...] = ()
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    speculative_tokens: int = 0  # drafted at a time; 0: no speculation
    max_num_queued_requests: int | None  # None: admission off
    max_num_queued_tokens: int | None
    sized_for: str = ""  # fingerprint of the SLO and the lengths of requests that settings of the engine follow
    capacity_rps: float  # believed when it was placed
    price_per_hour: float | None
    price_assumed: bool = False
    rejected: tuple[Rejected, ...] = ()

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.tensor_parallel * self.pipeline_parallel


class PoolPlan(Value, frozen=True, kw_only=True):
    """One pool as it should be; `victims` are pods to go first when replicas fall (name -> pod-deletion-cost)."""

    name: str
    replicas: int
    placement: Placement
    victims: tuple[tuple[str, int], ...] = ()


class CheckRun(StrEnum):
    """What is to become of the Job of a change."""

    RUN = "Run"  # it is to exist
    KEEP = "Keep"  # it stays if it exists: its pods' logs say what it found


class ChangePlan(Value, frozen=True, kw_only=True):
    """A change of checkpoint, precision or speculation that users do not get, or not yet.

    `held`: pods that serve keep their template whatever the author wrote since. `canary` is what one replica that no
    user reaches is made from (None: there is to be none).
    """

    id: str
    held: bool
    canary: Placement | None = None
    check: CheckRun


class Figures(Value, frozen=True, kw_only=True):
    """Live figures of a Model for status and metrics; None: unknown. Rates are requests per second."""

    demand_rps: float | None = None
    forecast_rps: float | None = None
    horizon_seconds: float | None = None  # of the forecast
    capacity_rps_per_replica: float | None = None
    goodput_lower_rps: float | None = None
    goodput_upper_rps: float | None = None
    attainment_lower: float | None = None
    attainment_upper: float | None = None
    attainment_requests: int = 0  # requests in the attainment window
    replicas_desired: int = 0
    replicas_ready: int = 0
    replicas_pending: int = 0
    cost_per_hour: float | None = None
    input_tokens_mean: float | None = None
    output_tokens_mean: float | None = None
    utilisation: float | None = None  # demand over capacity of the ready replicas
    startup_seconds: float | None = None
    # Requests counted since the last tick: offered, and how many were good at least and at most.
    offered_delta: float = 0.0
    good_lower_delta: float = 0.0
    good_upper_delta: float = 0.0
    delta_seconds: float = 0.0  # the longest time that one of the pods that counted them had not been looked at
    # What engines made of their GPUs since the last tick, and what keeps a replica from carrying more ('': unknown).
    usage: Usage = Usage()
    bottleneck: str = ""

    @property
    def wall_seconds(self) -> float:
        """Seconds of replicas that were watched since the last tick."""
        return self.usage.wall_seconds

    @property
    def busy_seconds(self) -> float:
        """Of these, those of steps."""
        return self.usage.busy_seconds

    @property
    def compute_seconds(self) -> float:
        """Seconds of a replica that the model's FLOP take at peak."""
        return self.usage.compute_seconds

    @property
    def memory_seconds(self) -> float:
        """Seconds of a replica that the bytes it moves take at full bandwidth."""
        return self.usage.memory_seconds


class ModelPlan(Value, frozen=True, kw_only=True):
    """Everything decided for one Model. `pool` is None while it cannot be placed: what runs stays as it is."""

    key: Key
    pool: PoolPlan | None
    decision: Decision
    conditions: tuple[Condition, ...]
    figures: Figures
    memory: LoopMemory
    change: ChangePlan | None = None
    # The step that the change took in this tick, if any.
    step: Decision | None = None


class Plan(Value, frozen=True, kw_only=True):
    """Plans of all Models, sorted by key."""

    models: tuple[ModelPlan, ...]
