"""What leaves a decision beside the number: inputs, details, figures and the memory of the next tick."""

from __future__ import annotations

from msgspec.structs import replace

from goodput.decide.budget import Budget
from goodput.decide.demand import as_before
from goodput.decide.failed import remembered
from goodput.decide.forecast import horizon_seconds, learn_ratio
from goodput.decide.rises import watch
from goodput.decide.telemetry import objective_mark
from goodput.decide.work import Work
from goodput.domain.change import ChangeMark
from goodput.domain.decision import Action, Decision, Quantity, Rule, number
from goodput.domain.memory import LoopMemory
from goodput.domain.plan import Figures
from goodput.domain.usage import Usage
from goodput.perfmodel.binding import bottleneck
from goodput.perfmodel.usage import Counts, usage


def inputs(work: Work) -> tuple[Quantity, ...]:
    found: list[Quantity] = []
    if work.demand is not None:
        found.append(Quantity("demand", round(work.demand.rps, 4), "requests/s"))
    if work.distinct < 0.995:
        found.append(Quantity("of it not repeated", round(work.distinct, 3)))
    if work.outlook is not None:
        found.append(Quantity("forecast", round(work.outlook.rps, 4), "requests/s"))
        found.append(Quantity("horizon", round(work.outlook.horizon_seconds, 1), "s"))
    if work.backlog is not None:
        tokens = work.lengths.input_mean + work.lengths.output_mean
        found.append(Quantity("to be done", round(work.backlog.requests * tokens), "tokens"))
        if work.backlog.seconds:
            found.append(Quantity("within", round(work.backlog.seconds), "s"))
            found.append(Quantity("needed for that", round(work.backlog.rps * tokens, 1), "tokens/s"))
        found.append(Quantity("throughput per replica", round(work.capacity_rps * tokens, 1), "tokens/s"))
    if work.capacity_rps > 0.0:
        found.append(Quantity("capacity per replica", round(work.capacity_rps, 4), "requests/s"))
    if work.tokens_per_step is not None:
        found.append(Quantity("tokens per step", round(work.tokens_per_step, 2)))
    if work.reading.waiting:
        found.append(Quantity("waiting", round(work.reading.waiting, 1), "requests"))
    if work.attainment.upper is not None and work.attainment.lower is not None:
        found.append(Quantity("attainment at least", round(work.attainment.lower, 4)))
        found.append(Quantity("attainment at most", round(work.attainment.upper, 4)))
    return tuple(found)


def detail(work: Work, surge: int) -> str:
    parts = []
    if surge:
        lost = sorted({pod.node for pod in work.view.pool.pods if pod.node_lost and pod.node is not None})
        whom = f"pods on lost nodes ({', '.join(lost)})" if lost else work.slow.replaced
        stand_in = f"stand in for {whom}" if whom else "stood in for others, and go once the roll-out has ended"
        parts.append(f"{surge} of them {stand_in}")
    if work.slow.known:
        parts.append(work.slow.message)
    if work.reading.problem is not None:
        parts.append(work.reading.message)
    if work.placed.placement is None:
        parts.append(work.placed.message)
    intent = work.view.intent
    if advice := work.rises.advice(intent.min_replicas, intent.max_replicas):
        parts.append(advice)
    if not work.view.routed and work.demand is not None:
        parts.append("without a router, demand is a lower bound: what engines saw arrive")
    if work.backlog is not None and work.load_rps is not None and work.backlog.rps > work.load_rps:
        parts.append(
            f"{number(work.backlog.rps)} requests/s would be needed to be done in time, but what waits stays on the "
            "engine to which it was sent: more replicas serve only what is still to come"
        )
    if work.distinct < 0.995:
        parts.append("refused requests are taken to come back, and count once")
    if work.view.pool.foreign_scaler:
        parts.append(f"{work.view.pool.foreign_scaler} scales it")
    return "; ".join(parts)


def figures(work: Work, runs: int, total: int) -> Figures:
    placement = work.placed.placement
    sample = work.reading.sample
    price = placement.price_per_hour if placement is not None else None
    pods = work.count.placed
    cost = price * pods if price is not None else None
    canary, canaries = work.asked.placement, work.view.canary.tally.placed
    if canaries and cost is not None:
        each = canary.price_per_hour if canary is not None else None
        cost = None if each is None else cost + each * canaries
    seen = work.attainment
    known = work.seen_seconds > 0.0 and not work.reading.blind
    seconds = max(work.fleet.policy.scrape_seconds, work.seen_seconds)
    demand = work.demand
    return Figures(
        demand_rps=demand.rps if demand is not None else None,
        forecast_rps=work.outlook.rps if work.outlook is not None else None,
        horizon_seconds=work.outlook.horizon_seconds if work.outlook is not None else None,
        capacity_rps_per_replica=work.capacity_rps if work.capacity_rps > 0.0 else None,
        goodput_lower_rps=seen.good_lower / seconds if known else None,
        goodput_upper_rps=seen.good_upper / seconds if known else None,
        attainment_lower=work.attainment.lower,
        attainment_upper=work.attainment.upper,
        attainment_requests=int(work.attainment.requests),
        replicas_desired=total,
        replicas_ready=work.count.ready,
        replicas_pending=work.count.starting,
        cost_per_hour=cost,
        input_tokens_mean=work.lengths.input_mean if work.lengths_requests else None,
        output_tokens_mean=work.lengths.output_mean if work.lengths_requests else None,
        utilisation=work.utilisation,
        startup_seconds=work.startup,
        offered_delta=sample.offered if sample is not None else 0.0,
        good_lower_delta=sample.good_lower if sample is not None else 0.0,
        good_upper_delta=sample.good_upper if sample is not None else 0.0,
        delta_seconds=max(sample.seconds, sample.engine_seconds) if sample is not None else 0.0,
        usage=_usage(work),
        bottleneck=_bottleneck(work),
    )


def _usage(work: Work) -> Usage:
    """What the engines made of their GPUs since the last look; nothing where that cannot be told."""
    arch, gpu, shape = work.view.intent.architecture, work.placed.gpu, work.shape
    reading, sample = work.reading, work.reading.sample
    if arch is None or gpu is None or shape is None or sample is None or not reading.engine_seconds_all:
        return Usage()
    counts = Counts(
        replica_seconds=reading.engine_seconds_all,
        prompt_tokens=max(0.0, sample.prompt_tokens - sample.cached_tokens),
        prompts=sample.first_tokens,
        generated_tokens=sample.generation_tokens,
        itl_seconds=reading.itl_seconds or 0.0,
        itl_count=reading.itl_count,
        batch=reading.batch,
    )
    return usage(arch, gpu, shape, work.lengths, counts)


def _bottleneck(work: Work) -> str:
    arch, gpu = work.view.intent.architecture, work.placed.gpu
    if arch is None or gpu is None or work.shape is None or work.able is None or not work.able.feasible:
        return ""
    return bottleneck(arch, gpu, work.shape, work.lengths, work.able).value


def remember(
    work: Work,
    decision: Decision,
    *,
    runs: int,
    surge: int,
    room_since: float,
    loads: tuple[tuple[float, float], ...],
    change: ChangeMark,
) -> LoopMemory:
    memory, reading, now = work.memory, work.reading, work.fleet.now
    policy = work.fleet.policy
    ratios, ratio_at = memory.max_ratios, memory.ratio_at
    if reading.demand_at and not reading.blind and not work.view.pool.rolling_out:
        horizon = horizon_seconds(work.startup, policy)
        ratios, ratio_at = learn_ratio(memory, work.samples, reading.demand_at, horizon, policy)
    watched = memory.watched
    if not reading.blind and work.counts is not None and work.load_rps is not None:
        watched = watch(watched, work.counts, reading.demand_at, work.load_rps, policy)
    sized = work.correction is not None
    budget = Budget.of(memory).after(None if reading.blind else reading.sample, now, policy)
    problem_since = (memory.metrics_problem_since or now) if reading.problem is not None else 0.0
    return replace(
        memory,
        last_scale_up_at=now if decision.action is Action.SCALE_UP else memory.last_scale_up_at,
        last_scale_down_at=now
        # What another Model needs says nothing of this one's load.
        if decision.action is Action.SCALE_DOWN and decision.rule is not Rule.PRIORITY
        else memory.last_scale_down_at,
        room_since=room_since,
        failed=remembered(work.failed),
        desired=runs,
        samples=work.samples,
        marks=reading.marks,
        router_marks=reading.router_marks,
        pool_mark=reading.pool_mark,
        metrics_problem_since=problem_since,
        loads=loads,
        watched=watched,
        surge=surge,
        change=change,
        objective=memory.objective if reading.blind else objective_mark(work.view.intent.objective),
        max_ratios=ratios,
        ratio_at=ratio_at,
        steady_until=_steady_until(work, decision),
        strained_rps=_strained_rps(work, decision),
        queue=work.backlog.queue if work.backlog is not None else memory.queue if _batch(work) else (),
        slow_pod=work.slow.replaced,
        slow_replaced_at=now if work.slow.replaced not in ("", memory.slow_pod) else memory.slow_replaced_at,
        correction=work.correction if work.correction is not None else memory.correction,
        prefill_correction=work.prefill_correction if sized else memory.prefill_correction,
        accepted_per_draft=work.accepted_per_draft if sized else memory.accepted_per_draft,
        draft_coverage=work.draft_coverage if sized else memory.draft_coverage,
        proven_rps=work.proven.rps if sized else memory.proven_rps,
        proven_input_tokens=work.proven.input_tokens if sized else memory.proven_input_tokens,
        proven_output_tokens=work.proven.output_tokens if sized else memory.proven_output_tokens,
        budget_ended=budget.ended,
        budget_missed=budget.missed,
        budget_at=budget.at,
        trim=work.trim if sized else memory.trim,
        trimmed_at=work.trimmed_at if sized else memory.trimmed_at,
    )


def _batch(work: Work) -> bool:
    return work.view.intent.objective is not None and work.view.intent.objective.batch


def _steady_until(work: Work, decision: Decision) -> float:
    """How long replicas are kept against the noise of a load that is the same since before the last one was added."""
    memory, counts, demand, policy = work.memory, work.counts, work.demand, work.fleet.policy
    if decision.action in (Action.SCALE_UP, Action.SCALE_DOWN):
        return 0.0
    since = work.fleet.now - memory.last_scale_up_at
    if counts is not None and demand is not None and as_before(counts, demand, since, policy):
        return memory.last_scale_up_at + policy.steady_seconds
    return memory.steady_until


def _strained_rps(work: Work, decision: Decision) -> float:
    """Load of one replica when one that had been taken away was added again; 0: none was."""
    memory = work.memory
    if decision.action is not Action.SCALE_UP or work.demand is None:
        return memory.strained_rps
    if not memory.last_scale_down_at or work.fleet.now - memory.last_scale_down_at > work.fleet.policy.steady_seconds:
        return 0.0
    return round(work.demand.rps / max(1, decision.from_replicas), 4)
