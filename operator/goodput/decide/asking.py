"""How many replicas one Model asks for, before limits, and how many of them it surely needs."""

from __future__ import annotations

from math import isfinite

from msgspec.structs import replace

from goodput.decide import replicas
from goodput.decide.demand import meant
from goodput.decide.placement import moving
from goodput.decide.policy import Policy
from goodput.decide.rises import NO_RISES, Rises, rises
from goodput.decide.sizing import rps_of_each
from goodput.decide.work import Work
from goodput.domain.decision import Rule
from goodput.domain.intent import ModelIntent, ScalingMode
from goodput.domain.values import Value
from goodput.perfmodel.requirements import provided_rps


class Law(Value, frozen=True):
    law: replicas.Wanted
    loads: tuple[tuple[float, float], ...]


def wanted(work: Work, base: int) -> Law:
    """What the law of replicas asks for, before limits."""
    view, memory, policy, now = work.view, work.memory, work.fleet.policy, work.fleet.now
    pool, reading, placement = view.pool, work.reading, work.placed.placement
    if not pool.exists:
        return Law(_first(view.intent, work.capacity_rps, policy), ())
    drain = _drain_seconds(work)
    window = replicas.down_window_seconds(work.startup, drain, work.capacity_rps, policy)
    window *= replicas.edge_windows(memory, window)
    blind = reading.blind or work.load_rps is None
    loads = memory.loads
    fresh = reading.problem is None and not reading.nothing_to_measure and not _load_unseen(work)
    if fresh and not blind and work.load_rps is not None:
        # A load that is only a lower bound proves no room: it leaves a gap.
        loads = replicas.remember_load(memory, work.floor_rps, now, window, policy)
    situation = replicas.Situation(
        current=base,
        load_rps=None if blind else work.load_rps,
        floor_rps=work.floor_rps,
        lacking=work.slow.lacking,
        demand_rps=work.demand.rps if work.demand is not None else 0.0,
        noisy_rps=work.noisy_rps,
        capacity_rps=work.capacity_rps,
        plain_capacity_rps=work.plain_rps,
        certain_misses=work.certain,
        coming=pool.coming,
        # Pods of another shape are those that the load is on: what one of the new shape does says nothing of them.
        rolling_out=pool.rolling_out or (placement is not None and moving(pool, placement)),
        failing=bool(work.failing),
        fresh=fresh,
        startup_seconds=work.startup,
        drain_seconds=drain,
    )
    law = replicas.wanted(situation, loads, memory, policy, now)
    if law.rule is Rule.SCALE_DOWN_ALLOWED:
        law = replicas.once_fewer(law, situation, rps_of_each(work, law.replicas))
    # What a Batch Model gets may wait until replicas have started.
    waits = work.backlog is not None
    if not waits and (law.rule is Rule.SCALE_DOWN_ALLOWED or _missing(work)):
        work.rises = _rises(work, drain)
    if not waits and law.rule is Rule.SCALE_DOWN_ALLOWED:
        law = replicas.once_risen(law, situation, work.rises.hold)
    if law.rule is Rule.CERTAIN_MISSES and loads:
        # What was added against misses is needed for a whole window, or the next tick would take it away again.
        at, load = loads[-1]
        loads = (*loads[:-1], (at, max(load, (law.replicas - 0.5) * work.capacity_rps)))
    if law.rule is Rule.HOLD_METRICS and reading.problem is None and situation.load_rps is None:
        # Nothing serves yet, or nothing was counted yet: that is a start, not a fault of metrics.
        law = replace(law, rule=Rule.HOLD_STARTING if pool.coming else Rule.HOLD_UNMEASURED)
    if waits and law.rule is Rule.DEMAND:
        law = replace(law, rule=Rule.DEADLINE)
    return Law(law, loads)


def _first(intent: ModelIntent, capacity_rps: float, policy: Policy) -> replicas.Wanted:
    """Replicas of a new Model: its minimum, or what the expected load needs with head-room where it may scale."""
    rate = intent.workload.requests_per_second
    if rate is None or intent.mode is not ScalingMode.AUTO:
        return replicas.Wanted(intent.min_replicas, Rule.INITIAL)
    expected = replicas.needed(provided_rps(rate, policy.headroom), capacity_rps)
    if expected <= intent.min_replicas:
        return replicas.Wanted(intent.min_replicas, Rule.INITIAL)
    return replicas.Wanted(expected, Rule.EXPECTED)


def certain(work: Work, wanted_replicas: int, rule: Rule) -> int:
    """Of the replicas that are wanted, those for which others are to yield: for load that is there, not for what is
    forecast, nor for what may fail for other reasons, and for minReplicas."""
    least, demand, outlook = work.view.intent.min_replicas, work.demand, work.outlook
    if demand is None or work.load_rps is None or not work.view.pool.exists or work.failing:
        return least
    if rule is Rule.CERTAIN_MISSES:
        return max(least, wanted_replicas)
    now_rps = work.load_rps
    if outlook is not None:
        now_rps += meant(demand, work.distinct).rps - outlook.rps
    needs = replicas.needed(now_rps / (1.0 + work.fleet.policy.up_tolerance), work.plain_rps, work.slow.lacking)
    return max(least, min(wanted_replicas, needs))


def _missing(work: Work) -> bool:
    """Whether even at best fewer requests met the objective than it asks for."""
    objective, upper = work.view.intent.objective, work.attainment.upper
    return objective is not None and upper is not None and upper < objective.attainment


def _rises(work: Work, drain: float) -> Rises:
    """What of the load rises faster than this Model's replicas start."""
    objective, policy = work.view.intent.objective, work.fleet.policy
    if objective is None:
        return NO_RISES
    return rises(
        work.memory.watched,
        work.plain_rps,
        work.startup + policy.scheduling_seconds,
        replicas.down_window_seconds(work.startup, drain, work.capacity_rps, policy),
        allowed=policy.rises_share * (1.0 - objective.attainment),
        wait=objective.ttft_seconds or 0.0,
        policy=policy,
    )


def _load_unseen(work: Work) -> bool:
    """Whether replicas that are still expected serve already, and only engines tell of load: it is a lower bound."""
    return not work.view.routed and work.reading.unlisted and work.view.pool.coming > 0


def _drain_seconds(work: Work) -> float:
    if work.backlog is not None and work.able is not None and work.able.rps > 0.0:
        # Without the time that requests of a Batch Model wait, which may be hours.
        return work.able.sequences / work.able.rps
    telemetry = work.view.telemetry
    p95 = telemetry.pool.request_seconds_p95 if telemetry is not None and telemetry.pool is not None else None
    return p95 if p95 is not None and isfinite(p95) and p95 >= 0.0 else work.fleet.policy.drain_prior_seconds
