"""Roll-outs: who may take an operator's update now, whether pods are replaced before or after, and what blocks one.

The Deployment does the work (a pod that does not get ready stops it, old pods serve on); this only sets its terms.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from goodput.domain.conditions import ConditionReason, ConditionType
from goodput.domain.identity import Key
from goodput.domain.intent import Problem
from goodput.domain.observed import ModelView, PodState, PodView, Snapshot
from goodput.domain.plan import ModelPlan, Plan

# A pod of a new revision that needs longer than this many learned start-ups is not going to make it.
SLOW_STARTS = 2.0
# Nothing is slow before this, whatever was learned: image pulls differ.
LEAST_SLOW_SECONDS = 120.0


@dataclass(slots=True)
class Rollouts:
    """Terms of the roll-outs of all Models."""

    _updating: Key | None = None
    _one_by_one: set[Key] = field(default_factory=set)
    _problems: dict[Key, Problem] = field(default_factory=dict)

    def forget(self, present: set[Key]) -> None:
        self._one_by_one &= present
        for key in self._problems.keys() - present:
            del self._problems[key]
        if self._updating is not None and self._updating not in present:
            self._updating = None

    def look(self, snapshot: Snapshot, plan: Plan, candidates: list[Key], now: float) -> None:
        """Take a pass's view; `candidates` would take an update by themselves, sorted."""
        plans = {model.key: model for model in plan.models}
        rolling = {view.intent.key for view in snapshot.models if view.pool.rolling_out or view.router.rolling_out}
        if self._updating not in rolling:
            self._updating = candidates[0] if candidates and not rolling.intersection(candidates) else None
        for view in snapshot.models:
            key = view.intent.key
            model = plans.get(key)
            if not view.pool.rolling_out or model is None:
                self._one_by_one.discard(key)
                self._problems.pop(key, None)
                continue
            self._look_at(view, model, now)

    def take_update(self, key: Key) -> bool:
        """Whether it is this Model's turn."""
        return key == self._updating

    def surge(self, key: Key) -> bool:
        """Whether a new pod starts before an old one goes."""
        return key not in self._one_by_one

    def problem(self, key: Key) -> Problem | None:
        return self._problems.get(key)

    def _look_at(self, view: ModelView, plan: ModelPlan, now: float) -> None:
        key = view.intent.key
        new = [pod for pod in view.pool.pods if pod.revision == view.pool.revision]
        unplaced = [pod for pod in new if pod.state is PodState.PENDING and "nschedulable" in pod.trouble]
        self._problems.pop(key, None)
        if unplaced and plan.pool is not None:
            if _rest_suffices(view, plan):
                self._one_by_one.add(key)
                return
            gpus = plan.pool.placement.gpus * len(unplaced)
            self._problems[key] = _blocked(
                f"the roll-out needs {gpus} more free GPUs {plan.pool.placement.gpu_type}: free them, or lower the "
                "load until one replica can be spared"
            )
            return
        slow = [pod for pod in new if _slow(pod, plan.figures.startup_seconds, now)]
        if slow:
            self._problems[key] = _blocked(
                f"pod {slow[0].name} of the new revision is not ready after {now - slow[0].created_at:.0f} s; old pods "
                "serve on: see its log, or undo the change"
            )


def _blocked(message: str) -> Problem:
    return Problem(type=ConditionType.STALLED, reason=ConditionReason.ROLLOUT_BLOCKED, message=message, fatal=False)


def _rest_suffices(view: ModelView, plan: ModelPlan) -> bool:
    """Whether one replica fewer still carries the load to come."""
    figures = plan.figures
    load = figures.forecast_rps if figures.forecast_rps is not None else figures.demand_rps
    if load is None or figures.capacity_rps_per_replica is None:
        return False
    spare = view.pool.count(PodState.READY) - 1
    return spare >= 1 and load <= spare * figures.capacity_rps_per_replica


def _slow(pod: PodView, startup_seconds: float | None, now: float) -> bool:
    if pod.state not in (PodState.STARTING, PodState.UNREADY) or startup_seconds is None:
        return False
    return now - pod.created_at > max(LEAST_SLOW_SECONDS, SLOW_STARTS * startup_seconds)
