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
    # Of a change of checkpoint, precision or speculation.
    START_CANARY = "StartCanary"
    CHECK_QUALITY = "CheckQuality"
    PROMOTE = "Promote"  # users get it
    REFUSE = "Refuse"  # what serves serves on
    DROP = "Drop"  # its author asks for what runs


class Rule(StrEnum):
    """Which rule of the law decided. The comment is what `explain` says."""

    INITIAL = "Initial"  # a new Model gets its minimum
    EXPECTED = "Expected"  # a new Model gets what the load needs that its author expects
    DEMAND = "Demand"  # the forecast needs this many replicas
    DEADLINE = "Deadline"  # what waits for a Batch Model needs this many replicas to be done in time
    CERTAIN_MISSES = "CertainMisses"  # even the upper bound of attainment is below the objective
    TRIM = "Trim"  # the lower bound says so, one replica at most
    SCALE_DOWN_ALLOWED = "ScaleDownAllowed"  # load left room for a whole cool-down
    SCALE_DOWN_WAITING = "ScaleDownWaiting"  # load leaves room, but not yet for long enough
    ENOUGH = "Enough"  # what runs is what the forecast needs
    HOLD_METRICS = "HoldMetrics"  # metrics are missing, stale or contradictory
    HOLD_STARTING = "HoldStarting"  # capacity is already on its way
    HOLD_ROLLOUT = "HoldRollout"  # no scale-down during a roll-out
    HOLD_FAILING = "HoldFailing"  # no scale-down while pods or requests fail
    HOLD_RISES = "HoldRises"  # load rises faster than replicas start
    HOLD_PAUSED = "HoldPaused"
    HOLD_CONFLICT = "HoldConflict"  # something else scales this Deployment
    HOLD_PROBLEM = "HoldProblem"  # the Model has a problem that its author must mend
    HOLD_MEMORY = "HoldMemory"  # memory was lost: no scale-down for a full window
    PRIORITY = "Priority"  # a Model of higher priority lacks GPUs
    HOLD_UNMEASURED = "HoldUnmeasured"  # nothing starts, and no request was counted yet
    BOUNDS = "Bounds"  # spec.scaling, or a limit of the namespace, sets the number
    STAND_IN = "StandIn"  # pods on lost nodes, or a slow one, are stood in for, or were
    # Nobody knows any more what a replica that serves can do: its Model was edited, or nobody believes that it runs.
    HOLD_CHANGE = "HoldChange"
    CHANGE_ASKED = "ChangeAsked"  # another checkpoint, precision or speculation is asked for
    CANARY_READY = "CanaryReady"
    CHECK_PASSED = "CheckPassed"
    UNCHECKED = "Unchecked"  # nobody checked the quality
    SERVED_BEFORE = "ServedBefore"  # back to what served before
    CHECK_FAILED = "CheckFailed"
    CANARY_FAILED = "CanaryFailed"  # it did not get ready
    CHANGE_UNDONE = "ChangeUndone"


class Clamp(StrEnum):
    NONE = "None"
    MIN_REPLICAS = "MinReplicas"
    MAX_REPLICAS = "MaxReplicas"
    MAX_COST = "MaxCostPerHour"
    GPUS = "FreeGPUs"
    PRIORITY = "Priority"
    # What the administrator grants all Models of a namespace.
    GRANTED_GPUS = "GPUsPerNamespace"
    GRANTED_COST = "CostPerHourPerNamespace"


class Quantity(Value, frozen=True):
    """A number that went into a decision, with its unit ('' for a ratio or a count)."""

    name: str
    value: float
    unit: str = ""


class Rejected(Value, frozen=True):
    """An option that was not taken, and why."""

    option: str
    reason: str


_RULES = {
    Rule.INITIAL: "a new Model starts at its minimum",
    Rule.EXPECTED: "a new Model starts with what spec.workload.requestsPerSecond needs",
    Rule.DEMAND: "the load to provide for needs it",
    Rule.DEADLINE: "what waits is not done before its deadline otherwise",
    Rule.CERTAIN_MISSES: "even at best fewer requests meet the SLO than it asks for",
    Rule.TRIM: "attainment is undecided, so capacity is trimmed by a step",
    Rule.SCALE_DOWN_ALLOWED: "load left room for the whole window",
    Rule.SCALE_DOWN_WAITING: "load leaves room, but not for the whole window yet",
    Rule.ENOUGH: "what runs is what the load needs",
    Rule.HOLD_METRICS: "metrics are not fresh, so nothing is decided from them",
    Rule.HOLD_STARTING: "capacity is on its way",
    Rule.HOLD_ROLLOUT: "no scale-down during a roll-out",
    Rule.HOLD_FAILING: "no scale-down while pods or requests fail for reasons that replicas do not heal",
    Rule.HOLD_RISES: "load rises faster than replicas start",
    Rule.HOLD_PAUSED: "the Model is paused",
    Rule.HOLD_CONFLICT: "something else writes the replicas of this Deployment",
    Rule.HOLD_PROBLEM: "the Model has a problem that its author must mend",
    Rule.HOLD_MEMORY: "no scale-down before a full window was watched",
    Rule.PRIORITY: "a Model of higher priority lacks GPUs",
    Rule.HOLD_UNMEASURED: "nothing was measured yet",
    Rule.BOUNDS: "spec.scaling or a limit sets the number",
    Rule.STAND_IN: "replicas stand in for pods on lost nodes or for a slow one, as long as those need it",
    Rule.HOLD_CHANGE: "what its running replicas can do is not known",
    Rule.CHANGE_ASKED: "another checkpoint, precision or speculation is asked for",
    Rule.CANARY_READY: "the canary is ready",
    Rule.CHECK_PASSED: "the quality check succeeded",
    Rule.UNCHECKED: "the canary is ready, and nobody checked the quality",
    Rule.SERVED_BEFORE: "it served before the last change, so nothing is checked",
    Rule.CHECK_FAILED: "the quality check failed",
    Rule.CANARY_FAILED: "the canary did not get ready",
    Rule.CHANGE_UNDONE: "the Model asks for what runs",
}
# Steps of a change: what they count are canaries.
STEPS = frozenset({Action.START_CANARY, Action.CHECK_QUALITY, Action.PROMOTE, Action.REFUSE, Action.DROP})
_MOVES = frozenset({Action.SCALE_UP, Action.SCALE_DOWN, Action.ADVISE_UP, Action.ADVISE_DOWN, Action.REPLACE})
_VERBS = {
    Action.PLACE: "Place",
    Action.SCALE_UP: "Scale up",
    Action.SCALE_DOWN: "Scale down",
    Action.HOLD: "Hold",
    Action.ADVISE_UP: "Advise up",
    Action.ADVISE_DOWN: "Advise down",
    Action.REPLACE: "Replace",
    Action.START_CANARY: "Start a canary",
    Action.CHECK_QUALITY: "Check the quality",
    Action.PROMOTE: "Roll out",
    Action.REFUSE: "Refuse the change",
    Action.DROP: "Drop the change",
}


def number(value: float) -> str:
    """Two decimals below 100, none above: enough to recompute the decision."""
    return f"{value:.2f}" if abs(value) < 100.0 else f"{value:.0f}"


def quantities(inputs: tuple[Quantity, ...]) -> str:
    return ", ".join(f"{item.name} {number(item.value)}{' ' + item.unit if item.unit else ''}" for item in inputs)


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
    # What the law wanted before the clamp; minReplicas, where a limit of the namespace leaves fewer.
    wanted_replicas: int
    inputs: tuple[Quantity, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    # What else there is to say.
    detail: str = ""

    @property
    def message(self) -> str:
        """The decision in a sentence."""
        before, after = self.from_replicas, self.to_replicas
        count = (
            f"{before} -> {after} replicas" if self.action in _MOVES else f"{after} replica{'' if after == 1 else 's'}"
        )
        what = _VERBS[self.action] if self.action in STEPS else f"{_VERBS[self.action]} {count}"
        text = f"{what}: {_RULES[self.rule]}"
        if self.inputs:
            text += f" ({quantities(self.inputs)})"
        if self.clamp is not Clamp.NONE and self.wanted_replicas != after:
            verb = "Capped" if self.wanted_replicas > after else "Raised"
            text += f". {verb} by {self.clamp.value}: {self.wanted_replicas} wanted"
        if self.detail:
            text += f". {self.detail}"
        return text

    @property
    def id(self) -> str:
        """Stable within one Model: the instant and what changed."""
        return f"{int(self.at)}-{self.pool}-{self.from_replicas}-{self.to_replicas}"

    @property
    def changes(self) -> bool:
        """Whether this decision alters what runs."""
        return self.action in (Action.SCALE_UP, Action.SCALE_DOWN, Action.PLACE, Action.REPLACE)
