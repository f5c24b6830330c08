"""Roll-outs: who may take an operator's update now, whether pods are replaced before or after, and what blocks one.

The Deployment does the work (a pod that does not get ready stops it, old pods serve on); this only sets its terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from goodput.decide import Policy, bounds
from goodput.decide.change import never_served
from goodput.domain.conditions import ConditionReason, ConditionType
from goodput.domain.identity import Key
from goodput.domain.intent import ModelIntent, Problem
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import ModelView, PodState, PodView, Snapshot
from goodput.domain.plan import ModelPlan, Placement, Plan

# A pod of a new revision that needs longer than this many learned start-ups is not going to make it.
SLOW_STARTS = 2.0
# Nothing is slow before this, whatever was learned: image pulls differ.
LEAST_SLOW_SECONDS = 120.0


@dataclass(slots=True)
class Rollouts:
    """Terms of the roll-outs of all Models. Of `policy` only what a namespace may hold counts."""

    policy: Policy = field(default_factory=Policy)
    _updating: Key | None = None
    _one_by_one: set[Key] = field(default_factory=set)
    # Models whose namespace may not hold one more of their replicas, and those that hold one more for now.
    _ungranted: set[Key] = field(default_factory=set)
    _surging: set[Key] = field(default_factory=set)
    # Models that may not begin to roll out, and those that were asked to and did not.
    _blocked: set[Key] = field(default_factory=set)
    _waiting: set[Key] = field(default_factory=set)
    _problems: dict[Key, Problem] = field(default_factory=dict)
    # Pools of which no pod was ever ready, by Model.
    _unserved: dict[Key, tuple[str, ...]] = field(default_factory=dict)

    def forget(self, present: set[Key]) -> None:
        self._one_by_one &= present
        self._ungranted &= present
        self._surging &= present
        self._blocked &= present
        self._waiting &= present
        for kept in (self._problems, self._unserved):
            for key in kept.keys() - present:
                del kept[key]
        if self._updating is not None and self._updating not in present:
            self._updating = None

    def look(self, snapshot: Snapshot, plan: Plan, candidates: list[Key], now: float) -> None:
        """Take a pass's view; `candidates` would take an update by themselves, sorted."""
        plans = {model.key: model for model in plan.models}
        rolling = {view.intent.key for view in snapshot.models if view.pool.rolling_out or view.router.rolling_out}
        for view in snapshot.models:
            key = view.intent.key
            model = plans.get(key)
            self._unserved[key] = () if model is None else _unserved(view, model)
            if not view.pool.rolling_out or model is None:
                self._one_by_one.discard(key)
                self._problems.pop(key, None)
                continue
            self._look_at(view, model, now)
        stuck = self._look_at_grants(snapshot, plans)
        if self._updating not in rolling:
            able = [key for key in candidates if key not in stuck]
            self._updating = able[0] if able and not rolling.intersection(candidates) else None

    def take_update(self, key: Key) -> bool:
        """Whether it is this Model's turn."""
        return key == self._updating

    def unserved(self, key: Key) -> tuple[str, ...]:
        """Pools that take an update at once: none of their pods was ever ready."""
        return self._unserved.get(key, ())

    def surge(self, key: Key) -> bool:
        """Whether a new pod starts before an old one goes."""
        return key not in self._one_by_one and key not in self._ungranted

    def room(self, key: Key) -> bool:
        """Whether it may begin to roll out."""
        return key not in self._blocked

    def withheld(self, key: Key, *, waits: bool) -> bool:
        """Note whether this Model waits to begin; whether that is news which the next pass can do something about."""
        news = waits and key not in self._waiting
        (self._waiting.add if waits else self._waiting.discard)(key)
        return news

    def problem(self, key: Key) -> Problem | None:
        return self._problems.get(key)

    def _look_at_grants(self, snapshot: Snapshot, plans: Mapping[Key, ModelPlan]) -> set[Key]:
        """Find out who may not start a new pod before an old one goes, since its namespace would hold too much then.

        Returns those that cannot begin to roll out by themselves: there is no room, and no replica to spare.

        A Model that rolls out takes one replica beside what was decided. One that may do so next takes nothing yet, and
        has to say that it wants to: of several that begin at once only as many may as there is room for. Who can spare
        a replica needs none.
        """
        policy = self.policy
        if policy.max_gpus_per_namespace is None and policy.max_cost_per_hour_per_namespace is None:
            return set()
        shared = bounds.Shared.of(snapshot)
        resting: list[tuple[ModelIntent, Placement]] = []
        rolling: list[tuple[ModelIntent, Placement]] = []
        guarded = set()
        for view in snapshot.models:
            intent = view.intent
            plan = plans.get(intent.key)
            if plan is not None and plan.pool is not None:
                bounds.take(plan.pool.replicas, intent, plan.pool.placement, view.pool, shared)
                replaces = _replaces_pods(view) and intent.key not in self._one_by_one
                (rolling if replaces else resting).append((intent, plan.pool.placement))
                if not replaces and view.pool.ready and view.pool.name not in self._unserved[intent.key]:
                    guarded.add(intent.key)
        beyond = {intent.key for intent, placed in resting if bounds.beyond_grant(intent, placed, shared, policy)}
        surging = set()
        # Who has its new pod already comes first, then who waits for it.
        for intent, placed in sorted(rolling, key=lambda each: each[0].key not in self._surging):
            if bounds.beyond_grant(intent, placed, shared, policy):
                beyond.add(intent.key)
            else:
                bounds.add_one(intent, placed, shared)
                surging.add(intent.key)
        without_room = frozenset(beyond)
        spared = {view.intent.key for view in snapshot.models if _spares_one(view, plans.get(view.intent.key))}
        self._blocked = guarded - (beyond & spared)
        for intent, placed in resting:
            key = intent.key
            if key not in self._waiting or key not in self._blocked:
                continue
            lacking = bounds.beyond_grant(intent, placed, shared, policy)
            if not lacking:
                bounds.add_one(intent, placed, shared)
                surging.add(key)
                self._blocked.discard(key)
            elif key in spared:
                beyond.add(key)
                self._blocked.discard(key)
            else:
                self._problems[key] = _blocked(
                    f"the roll-out needs {lacking}: ask its administrator for more, or lower the load until one "
                    "replica can be spared"
                )
        self._ungranted, self._surging = beyond, surging
        return guarded & without_room - spared

    def _look_at(self, view: ModelView, plan: ModelPlan, now: float) -> None:
        key = view.intent.key
        new = [pod for pod in view.pool.pods if pod.revision == view.pool.revision]
        unplaced = [pod for pod in new if pod.unschedulable]
        self._problems.pop(key, None)
        if unplaced and plan.pool is not None:
            resource = plan.pool.placement.resource_name
            others = [pod for pod in unplaced if not pod.lacks(resource)]
            if others and view.pool.name not in self._unserved[key]:
                # An old pod that made way would gain nothing.
                self._one_by_one.discard(key)
                self._problems[key] = _blocked(
                    f"pod {others[0].name} of the new revision finds no node ({others[0].said}), old pods serve "
                    "on: mend that, or undo the change"
                )
                return
            # Of pods of which none was ever ready, the old ones may hold the very GPU that a new one waits for.
            if view.pool.name in self._unserved[key] or _rest_suffices(view, plan):
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


def _replaces_pods(view: ModelView) -> bool:
    """Whether pods of an older revision are there: a Deployment that was just written says so too that it rolls out."""
    pool = view.pool
    return pool.rolling_out and any(
        pod.revision != pool.revision for pod in pool.pods if pod.state is not PodState.TERMINATING
    )


def _unserved(view: ModelView, plan: ModelPlan) -> tuple[str, ...]:
    """Pools that serve nobody and never did.

    Of routers nothing is remembered.
    """
    memories = ((view.pool, plan.memory), (view.router, LoopMemory()))
    return tuple(pool.name for pool, memory in memories if pool.exists and never_served(pool, memory))


def _blocked(message: str) -> Problem:
    return Problem(type=ConditionType.STALLED, reason=ConditionReason.ROLLOUT_BLOCKED, message=message, fatal=False)


def _spares_one(view: ModelView, plan: ModelPlan | None) -> bool:
    return plan is not None and _rest_suffices(view, plan)


def _rest_suffices(view: ModelView, plan: ModelPlan) -> bool:
    """Whether one replica fewer still carries the load to come."""
    figures = plan.figures
    load = figures.forecast_rps if figures.forecast_rps is not None else figures.demand_rps
    if load is None or figures.capacity_rps_per_replica is None:
        return False
    spare = view.pool.ready - 1
    return spare >= 1 and load <= spare * figures.capacity_rps_per_replica


def _slow(pod: PodView, startup_seconds: float | None, now: float) -> bool:
    if pod.state not in (PodState.STARTING, PodState.UNREADY) or startup_seconds is None:
        return False
    return now - pod.created_at > max(LEAST_SLOW_SECONDS, SLOW_STARTS * startup_seconds)
