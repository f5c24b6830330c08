"""One decision for one Model: read, estimate, forecast, size, bound, explain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite

from goodput.decide import bounds, explain, history, replicas
from goodput.decide.conditions import Findings, conditions
from goodput.decide.correction import Observation, speed, trim
from goodput.decide.count import Count
from goodput.decide.demand import Demand, estimate, intervals
from goodput.decide.forecast import Forecast, forecast, horizon_seconds, learn_ratio, startup_seconds
from goodput.decide.placement import Placed, place
from goodput.decide.policy import Policy
from goodput.decide.startup import learn_startups
from goodput.decide.telemetry import Reading, objective_mark, read
from goodput.decide.victims import victims
from goodput.domain.decision import Action, Clamp, Decision, Quantity, Rule
from goodput.domain.identity import SERVE_POOL
from goodput.domain.intent import GpuType, ModelIntent, Objective, RoutingMode, ScalingMode
from goodput.domain.memory import LoopMemory, Sample
from goodput.domain.observed import GpuSupply, ModelView, PodState, PoolView
from goodput.domain.plan import Figures, ModelPlan, Placement, PoolPlan
from goodput.perfmodel import Capacity, Lengths, Shape, capacity
from goodput.perfmodel.memory import weight_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What all Models of one tick have in common. `shared` is used up as Models are decided."""

    gpus: Mapping[str, GpuType]
    supply: Mapping[str, GpuSupply]
    shared: bounds.Shared
    policy: Policy
    now: float
    telemetry_error: str


@dataclass(slots=True)
class _Work:
    """Values of one Model on their way to a decision; filled step by step."""

    view: ModelView
    memory: LoopMemory
    fleet: Fleet
    reading: Reading
    placed: Placed
    samples: tuple[Sample, ...]
    startup: float
    lengths: Lengths
    lengths_requests: float
    attainment: history.Attainment
    window: float  # seconds of the attainment
    count: Count
    demand: Demand | None = None
    outlook: Forecast | None = None
    able: Capacity | None = None  # of one replica, at the learned speed
    capacity_rps: float = 0.0  # believed, trim included
    plain_rps: float = 0.0  # believed, without the trim
    load_rps: float | None = None
    floor_rps: float = 0.0
    peak_rps: float = 0.0
    utilisation: float | None = None
    certain: bool = False
    correction: float | None = None
    proven_rps: float = 0.0
    trim: float = 1.0
    trimmed_at: float = 0.0
    failing: str = ""


def decide_model(view: ModelView, remembered: LoopMemory | None, fleet: Fleet) -> ModelPlan:
    """The plan of one Model."""
    policy, now, intent = fleet.policy, fleet.now, view.intent
    memory = remembered if remembered is not None else LoopMemory(born_at=now)
    if not memory.born_at:
        memory = replace(memory, born_at=now)
    reading = read(view, memory, policy, now, fleet.telemetry_error)
    placed = place(intent, view.pool, fleet.gpus, fleet.supply, policy)
    p95 = view.telemetry.pool.request_seconds_p95 if view.telemetry and view.telemetry.pool else None
    window = history.window_seconds(p95, policy)
    samples = history.keep(memory.samples, reading.sample, now, max(window, policy.attainment_window_seconds))
    seen_ready, startups = learn_startups(view.pool, memory)
    if seen_ready is not memory.pods_seen_ready or startups is not memory.startup_seconds:
        memory = replace(memory, startup_seconds=startups, pods_seen_ready=seen_ready)
    weights = weight_bytes(intent.architecture) if intent.architecture is not None else 0.0
    lengths, seen, _ = history.lengths(samples, now - policy.attainment_window_seconds, policy)
    routed = intent.routing is RoutingMode.ROUTER
    least = intent.objective.min_requests if intent.objective is not None else 1
    work = _Work(
        view=view,
        memory=memory,
        fleet=fleet,
        reading=reading,
        placed=placed,
        samples=samples,
        startup=startup_seconds(memory, policy, weights),
        lengths=lengths,
        lengths_requests=seen,
        attainment=history.attainment(samples, now - window, least, routed),
        window=window,
        count=Count.of(view.pool),
    )
    if placed.placement is not None and intent.objective is not None:
        _size(work, placed.placement, intent.objective)
    return _conclude(work)


def _size(work: _Work, placement: Placement, objective: Objective) -> None:
    """Believed capacity of a replica, demand, and the load to provide for."""
    view, reading, policy, now = work.view, work.reading, work.fleet.policy, work.fleet.now
    arch, gpu = view.intent.architecture, work.placed.gpu
    if arch is None or gpu is None:
        return
    memory = work.memory
    shape = Shape(tensor_parallel=placement.tensor_parallel, pipeline_parallel=placement.pipeline_parallel)
    pool = view.pool
    ready, starting = work.count.ready, work.count.starting
    correction = memory.correction
    if not reading.blind:
        counts = intervals(work.samples, reading.tail, reading.demand_at, policy) if reading.demand_at else []
        work.demand = estimate(counts, policy)
        if reading.sample is not None:
            correction = speed(
                memory, arch, gpu, shape, work.lengths, _observation(work, reading.sample, ready), policy
            )
    work.able = capacity(arch, gpu, shape, work.lengths, objective, correction=correction)
    work.plain_rps = _believed(work.able, memory, correction, placement)
    demand = work.demand
    if demand is not None and ready:
        work.utilisation = demand.rps / (ready * work.plain_rps) if work.plain_rps > 0 else None
    recent = _recent(work)
    work.failing = _failing(work, recent, objective)
    utilisation = work.utilisation or 0.0
    work.certain = (
        not reading.blind
        and demand is not None
        and recent.upper is not None
        and history.certainly_below(recent, objective.attainment)
        and work.able.feasible
        and not work.failing
        and (utilisation >= policy.explained_utilisation or reading.waiting > 0.0)
    )
    settled = not starting and not pool.rolling_out and not reading.blind and work.able.feasible
    trimmed, trimmed_at = trim(
        memory,
        recent,
        objective,
        0.0 if work.failing else utilisation,
        certain=work.certain,
        settled=settled,
        now=now,
        policy=policy,
    )
    proven = memory.proven_rps
    if recent.lower is not None and recent.lower >= objective.attainment and demand is not None and ready:
        proven = max(proven, round(demand.slow_rps / ready, 4))
    work.correction, work.proven_rps = correction, proven
    work.trim, work.trimmed_at = trimmed, trimmed_at
    work.capacity_rps = work.plain_rps * trimmed
    if demand is not None:
        work.outlook = forecast(demand, memory, work.startup, policy)
        # What waits beyond what the objective allows must be gone by the time that new replicas serve.
        backlog = reading.waiting / max(objective.ttft_seconds or 0.0, work.startup)
        work.load_rps = work.outlook.rps + backlog
        work.floor_rps = max(work.load_rps, demand.rps * (1.0 + policy.headroom))


def _believed(able: Capacity, memory: LoopMemory, correction: float, placement: Placement) -> float:
    """Capacity of one replica: raised above the prior only as far as load has shown."""
    proven = max(placement.capacity_rps, 1.1 * memory.proven_rps)
    return min(able.rps, proven) if correction > 1.0 else able.rps


def _observation(work: _Work, sample: Sample, ready: int) -> Observation:
    now, policy = work.fleet.now, work.fleet.policy
    newest = work.count.newest_ready_at
    seconds = max(1.0, sample.seconds or policy.scrape_seconds)
    return Observation(
        itl_seconds=work.reading.itl_seconds,
        itl_count=work.reading.itl_count,
        running=work.reading.running,
        ready=ready,
        rps=sample.first_tokens / seconds,
        seconds=seconds,
        warm=not work.view.pool.rolling_out and now - newest >= policy.warmup_seconds,
    )


def _recent(work: _Work) -> history.Attainment:
    """Attainment of the last moments, since the last change took effect: what a decision may still mend."""
    policy, now, memory = work.fleet.policy, work.fleet.now, work.memory
    intent = work.view.intent
    newest = work.count.newest_ready_at
    since = max(now - policy.miss_window_seconds, newest + policy.scrape_seconds, memory.last_scale_up_at)
    least = intent.objective.min_requests if intent.objective is not None else 1
    return history.attainment(work.samples, since, least, intent.routing is RoutingMode.ROUTER)


def _failing(work: _Work, recent: history.Attainment, objective: Objective) -> str:
    """Why requests fail for reasons that replicas do not heal; empty where they do not."""
    failed_pods = work.count.failed
    if failed_pods:
        return f"{failed_pods} of {len(work.view.pool.pods)} pods fail to run"
    rejected = sum(sample.rejected for sample in work.samples[-8:])
    errors = recent.failed
    if recent.requests and errors > (1.0 - objective.attainment) * recent.requests and errors > 2.0 * rejected + 5.0:
        return f"{errors:.0f} of {recent.requests:.0f} requests were answered with an error"
    return ""


def _current(pool: PoolView, memory: LoopMemory) -> tuple[int, int]:
    """(replicas without stand-ins, stand-ins for pods on lost nodes) of what the Deployment asks for now."""
    if not pool.exists:
        return 0, 0
    surge = memory.surge if memory.desired == pool.spec_replicas else 0
    return max(0, pool.spec_replicas - surge), surge


def _stand_ins(pool: PoolView, lost: int, base: int) -> int:
    """Replicas to add because `lost` pods sit on lost nodes: gone again once enough others are ready."""
    if not lost:
        return 0
    healthy = sum(1 for pod in pool.pods if pod.state is PodState.READY and not pod.node_lost)
    return min(lost, max(0, base - healthy))


def _conclude(work: _Work) -> ModelPlan:
    """Replicas, decision, conditions, figures and memory."""
    view, memory, fleet = work.view, work.memory, work.fleet
    policy, now, intent, pool = fleet.policy, fleet.now, view.intent, view.pool
    base, surge_before = _current(pool, memory)
    placement = work.placed.placement
    fatal = any(problem.fatal for problem in intent.problems)
    loads = memory.loads
    room_since = 0.0
    clamp, clamp_message, overruled = Clamp.NONE, "", ""
    surge = surge_before
    held = _held_rule(intent, pool, placement, fatal)
    if held is not None or placement is None:
        rule = held or Rule.HOLD_PROBLEM
        wanted_replicas = total = pool.spec_replicas if pool.exists else 0
        if placement is not None:
            bounds.take(total, intent, placement, pool, fleet.shared, fleet.gpus)
    else:
        wanted = _wanted(work, base)
        loads = wanted.loads
        work.peak_rps = wanted.law.peak_rps
        room_since = wanted.law.room_since
        rule = wanted.law.rule
        wanted_replicas = wanted.law.replicas
        surge = _stand_ins(pool, work.count.lost, wanted_replicas)
        limited = bounds.bound(wanted_replicas, intent, placement, pool, fleet.shared, fleet.gpus, policy)
        clamp, clamp_message, overruled = limited.clamp, limited.message, limited.overruled
        if clamp is not Clamp.NONE and wanted_replicas == base and limited.replicas != base:
            rule = Rule.BOUNDS
        total = limited.replicas
        if surge:
            total = _with_stand_ins(total, surge, work, placement)
            surge = max(0, total - limited.replicas)
        bounds.take(total, intent, placement, pool, fleet.shared, fleet.gpus)
    advise = intent.mode is ScalingMode.ADVISE and pool.exists and rule not in (Rule.HOLD_PROBLEM,)
    runs = pool.spec_replicas if (advise or held is not None) else total
    action = _action(pool, total, surge, surge_before, advise, placement, held)
    inputs = _inputs(work)
    detail = "; ".join(
        part for part in (clamp_message if clamp is not Clamp.NONE else "", _detail(work, surge)) if part
    )
    decision = Decision(
        model=intent.key,
        pool=SERVE_POOL,
        at=now,
        action=action,
        rule=rule,
        clamp=clamp,
        from_replicas=pool.spec_replicas if pool.exists else 0,
        to_replicas=total,
        wanted_replicas=wanted_replicas,
        message=explain.sentence(
            action, rule, clamp, pool.spec_replicas if pool.exists else 0, total, wanted_replicas, inputs, detail
        ),
        inputs=inputs,
        rejected=(placement.rejected if placement is not None and action is Action.PLACE else ())
        + explain.neighbours(total, work.load_rps, work.peak_rps, work.capacity_rps),
    )
    figures = _figures(work, runs, total)
    plan = None
    if placement is not None and not fatal and not (held is not None and not pool.exists):
        plan = PoolPlan(
            name=SERVE_POOL,
            replicas=runs,
            placement=placement,
            victims=victims(pool, runs, work.reading.in_flight) if runs < pool.spec_replicas or surge else (),
        )
    findings = Findings(
        view=view,
        reading=work.reading,
        placed=work.placed,
        decision=decision,
        clamp_message=clamp_message,
        overruled=overruled,
        figures=figures,
        able=work.able,
        failing=work.failing,
        count=work.count,
    )
    return ModelPlan(
        key=intent.key,
        pool=plan,
        decision=decision,
        conditions=conditions(findings),
        figures=figures,
        memory=_remember(work, decision, runs, surge if not advise else 0, room_since, loads),
    )


def _held_rule(intent: ModelIntent, pool: PoolView, placement: Placement | None, fatal: bool) -> Rule | None:
    """The rule that keeps what runs whatever the load, or None."""
    if fatal or placement is None:
        return Rule.HOLD_PROBLEM
    if intent.paused:
        return Rule.HOLD_PAUSED
    if pool.exists and pool.foreign_scaler:
        return Rule.HOLD_CONFLICT
    return None


@dataclass(frozen=True, slots=True)
class _Law:
    law: replicas.Wanted
    loads: tuple[tuple[float, float], ...]


def _wanted(work: _Work, base: int) -> _Law:
    """What the law of replicas asks for, before limits."""
    view, memory, policy, now = work.view, work.memory, work.fleet.policy, work.fleet.now
    pool, reading = view.pool, work.reading
    if not pool.exists:
        return _Law(replicas.Wanted(view.intent.min_replicas, Rule.INITIAL), ())
    drain = _drain_seconds(work)
    window = replicas.down_window_seconds(work.startup, drain, policy)
    blind = reading.blind or work.load_rps is None
    loads = memory.loads
    if not blind and work.load_rps is not None:
        loads = replicas.remember_load(memory, work.floor_rps, now, window, policy)
    situation = replicas.Situation(
        current=base,
        load_rps=None if blind else work.load_rps,
        floor_rps=work.floor_rps,
        capacity_rps=work.capacity_rps,
        plain_capacity_rps=work.plain_rps,
        certain_misses=work.certain,
        starting=work.count.starting,
        rolling_out=pool.rolling_out,
        fresh=reading.problem is None and not reading.nothing_to_measure,
        startup_seconds=work.startup,
        drain_seconds=drain,
    )
    law = replicas.wanted(situation, loads, memory, policy, now)
    if law.rule is Rule.CERTAIN_MISSES and loads:
        # What was added against misses is needed for a whole window, or the next tick would take it away again.
        at, load = loads[-1]
        loads = (*loads[:-1], (at, max(load, (law.replicas - 0.5) * work.capacity_rps)))
    if law.rule is Rule.HOLD_METRICS and reading.problem is None and situation.load_rps is None:
        # Nothing serves yet, or nothing was counted yet: that is a start, not a fault of metrics.
        law = replace(law, rule=Rule.HOLD_STARTING)
    return _Law(law, loads)


def _drain_seconds(work: _Work) -> float:
    telemetry = work.view.telemetry
    p95 = telemetry.pool.request_seconds_p95 if telemetry is not None and telemetry.pool is not None else None
    return p95 if p95 is not None and isfinite(p95) and p95 >= 0.0 else work.fleet.policy.drain_prior_seconds


def _with_stand_ins(limited: int, surge: int, work: _Work, placement: Placement) -> int:
    """`limited` plus stand-ins, as far as GPUs reach: a lost node does not free those of its pods."""
    free = work.fleet.shared.free.get(placement.gpu_type)
    if free is None:
        return limited + surge
    here = bounds.placed_replicas(work.view.pool, placement.gpu_type)
    return max(limited, min(limited + surge, here + free // placement.gpus))


def _action(
    pool: PoolView,
    total: int,
    surge: int,
    surge_before: int,
    advise: bool,
    placement: Placement | None,
    held: Rule | None,
) -> Action:
    if held is not None or placement is None:
        return Action.HOLD
    if not pool.exists:
        return Action.PLACE
    if total == pool.spec_replicas:
        return Action.HOLD
    if total > pool.spec_replicas:
        if advise:
            return Action.ADVISE_UP
        return Action.REPLACE if surge > surge_before else Action.SCALE_UP
    return Action.ADVISE_DOWN if advise else Action.SCALE_DOWN


def _inputs(work: _Work) -> tuple[Quantity, ...]:
    found: list[Quantity] = []
    if work.demand is not None:
        found.append(Quantity("demand", round(work.demand.rps, 4), "requests/s"))
    if work.outlook is not None:
        found.append(Quantity("forecast", round(work.outlook.rps, 4), "requests/s"))
        found.append(Quantity("horizon", round(work.outlook.horizon_seconds, 1), "s"))
    if work.capacity_rps > 0.0:
        found.append(Quantity("capacity per replica", round(work.capacity_rps, 4), "requests/s"))
    if work.reading.waiting:
        found.append(Quantity("waiting", round(work.reading.waiting, 1), "requests"))
    if work.attainment.upper is not None and work.attainment.lower is not None:
        found.append(Quantity("attainment at least", round(work.attainment.lower, 4)))
        found.append(Quantity("attainment at most", round(work.attainment.upper, 4)))
    return tuple(found)


def _detail(work: _Work, surge: int) -> str:
    parts = []
    if surge:
        parts.append(f"{surge} of them stand in for pods on lost nodes")
    if work.reading.problem is not None:
        parts.append(work.reading.message)
    if work.placed.placement is None:
        parts.append(work.placed.message)
    if work.view.intent.routing is RoutingMode.NONE and work.demand is not None:
        parts.append("without a router, demand is a lower bound: what engines saw arrive")
    if work.view.pool.foreign_scaler:
        parts.append(f"{work.view.pool.foreign_scaler} scales it")
    return "; ".join(parts)


def _figures(work: _Work, runs: int, total: int) -> Figures:
    view, placement = work.view, work.placed.placement
    sample = work.reading.sample
    price = placement.price_per_hour if placement is not None else None
    pods = work.count.placed
    covered = min(work.window, max(1.0, work.fleet.now - work.memory.born_at))
    seen = work.attainment
    known = bool(work.samples) and not work.reading.blind
    demand = work.demand
    return Figures(
        demand_rps=demand.rps if demand is not None else None,
        forecast_rps=work.outlook.rps if work.outlook is not None else None,
        capacity_rps_per_replica=work.capacity_rps if work.capacity_rps > 0.0 else None,
        goodput_lower_rps=seen.good_lower / covered if known else None,
        goodput_upper_rps=seen.good_upper / covered if known else None,
        attainment_lower=work.attainment.lower,
        attainment_upper=work.attainment.upper,
        attainment_requests=int(work.attainment.requests),
        replicas_desired=total,
        replicas_ready=work.count.ready,
        replicas_pending=work.count.starting,
        cost_per_hour=price * pods if price is not None else None,
        input_tokens_mean=work.lengths.input_mean if work.lengths_requests else None,
        output_tokens_mean=work.lengths.output_mean if work.lengths_requests else None,
        utilisation=work.utilisation,
        startup_seconds=work.startup,
        offered_delta=sample.offered if sample is not None else 0.0,
        good_lower_delta=sample.good_lower if sample is not None else 0.0,
        good_upper_delta=sample.good_upper if sample is not None else 0.0,
    )


def _remember(
    work: _Work,
    decision: Decision,
    runs: int,
    surge: int,
    room_since: float,
    loads: tuple[tuple[float, float], ...],
) -> LoopMemory:
    memory, reading, now = work.memory, work.reading, work.fleet.now
    policy = work.fleet.policy
    ratios, ratio_at = memory.max_ratios, memory.ratio_at
    if reading.demand_at and not reading.blind and not work.view.pool.rolling_out:
        horizon = horizon_seconds(work.startup, policy)
        ratios, ratio_at = learn_ratio(memory, work.samples, reading.demand_at, horizon, policy)
    sized = work.correction is not None
    problem_since = (memory.metrics_problem_since or now) if reading.problem is not None else 0.0
    return replace(
        memory,
        last_scale_up_at=now if decision.action is Action.SCALE_UP else memory.last_scale_up_at,
        last_scale_down_at=now if decision.action is Action.SCALE_DOWN else memory.last_scale_down_at,
        room_since=room_since,
        desired=runs,
        samples=work.samples,
        marks=reading.marks,
        router_marks=reading.router_marks,
        pool_mark=reading.pool_mark,
        metrics_problem_since=problem_since,
        loads=loads,
        surge=surge,
        objective=memory.objective if reading.blind else objective_mark(work.view.intent.objective),
        max_ratios=ratios,
        ratio_at=ratio_at,
        correction=work.correction if work.correction is not None else memory.correction,
        proven_rps=work.proven_rps if sized else memory.proven_rps,
        trim=work.trim if sized else memory.trim,
        trimmed_at=work.trimmed_at if sized else memory.trimmed_at,
    )
