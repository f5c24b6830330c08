"""A decision as a value: what, why, from which numbers, under which clamp, and what was rejected.

One `Decision` is shown four ways: condition (current state), event (changes only), metric (enums as labels) and log
line (everything).
"""

from __future__ import annotations

from enum import StrEnum

from goodput.domain.identity import Key
from goodput.domain.values import Value


class Action(StrEnum):
    PLACE = "Place"  # a GPU type and parallelism were chosen
    SCALE_UP = "ScaleUp"
    SCALE_DOWN = "ScaleDown"
    HOLD = "Hold"
    ADVISE_UP = "AdviseUp"  # what Auto would have done
    ADVISE_DOWN = "AdviseDown"
    REPLACE = "Replace"  # pods on lost or failing nodes are being replaced


class Rule(StrEnum):
    """Which rule of the law decided. The comment is what `explain` says."""

    INITIAL = "Initial"  # a new Model gets its minimum
    DEMAND = "Demand"  # the forecast needs this many replicas
    CERTAIN_MISSES = "CertainMisses"  # even the upper bound of attainment is below the objective
    TRIM = "Trim"  # the lower bound says so, one replica at most
    SCALE_DOWN_ALLOWED = "ScaleDownAllowed"  # load left room for a whole cool-down
    SCALE_DOWN_WAITING = "ScaleDownWaiting"  # load leaves room, but not yet for long enough
    ENOUGH = "Enough"  # what runs is what the forecast needs
    HOLD_METRICS = "HoldMetrics"  # metrics are missing, stale or contradictory
    HOLD_STARTING = "HoldStarting"  # capacity is already on its way
    HOLD_ROLLOUT = "HoldRollout"  # no scale-down during a roll-out
    HOLD_PAUSED = "HoldPaused"
    HOLD_CONFLICT = "HoldConflict"  # something else scales this Deployment
    HOLD_PROBLEM = "HoldProblem"  # the Model has a problem that its author must mend
    HOLD_MEMORY = "HoldMemory"  # memory was lost: no scale-down for a full window
    BOUNDS = "Bounds"  # minReplicas or maxReplicas changed


class Clamp(StrEnum):
    NONE = "None"
    MIN_REPLICAS = "MinReplicas"
    MAX_REPLICAS = "MaxReplicas"
    MAX_COST = "MaxCostPerHour"
    GPUS = "FreeGPUs"


class Quantity(Value, frozen=True):
    """A number that went into a decision, with its unit ('' for a ratio or a count)."""

    name: str
    value: float
    unit: str = ""


class Rejected(Value, frozen=True):
    """An option that was not taken, and why."""

    option: str
    reason: str


class Decision(Value, frozen=True, kw_only=True):
    """What was decided for one pool of one Model at `at` (Unix seconds)."""

    model: Key
    pool: str
    at: float
    action: Action
    rule: Rule
    clamp: Clamp = Clamp.NONE
    from_replicas: int
    to_replicas: int
    # What the law wanted before the clamp.
    wanted_replicas: int
    message: str
    inputs: tuple[Quantity, ...] = ()
    rejected: tuple[Rejected, ...] = ()

    @property
    def id(self) -> str:
        """Stable within one Model: the instant and what changed."""
        return f"{int(self.at)}-{self.pool}-{self.from_replicas}-{self.to_replicas}"

    @property
    def changes(self) -> bool:
        """Whether this decision alters what runs."""
        return self.action in (Action.SCALE_UP, Action.SCALE_DOWN, Action.PLACE, Action.REPLACE)
