"""What a replica is believed to do, what is asked of the fleet, and which misses replicas can mend."""

from __future__ import annotations

from math import sqrt

from goodput.decide import history
from goodput.decide.correction import Observation, acceptance, prefill_speed, speed, trim
from goodput.decide.demand import Demand, estimate, intervals
from goodput.decide.engine import shape_of
from goodput.decide.forecast import forecast
from goodput.decide.placement import moving, running
from goodput.decide.policy import Policy
from goodput.decide.work import Work
from goodput.domain.intent import Objective, RoutingMode
from goodput.domain.observed import PodState, PoolView
from goodput.domain.plan import Placement
from goodput.perfmodel import capacity

# Up to so many times the capacity that priors give, live speeds alone are believed: so much do priors err, by a fifth
# in each efficiency. Beyond it, load has to show it.
_PRIORS_ERR = 1.4


def size(work: Work, placement: Placement, objective: Objective) -> None:
    """Believed capacity of a replica, demand, and the load to provide for."""
    view, reading, policy, now = work.view, work.reading, work.fleet.policy, work.fleet.now
    arch, gpu = view.intent.architecture, work.placed.gpu
    if arch is None or gpu is None:
        return
    memory = work.memory
    pool = view.pool
    ready, coming = work.count.ready, pool.coming
    changing = pool.rolling_out or moving(pool, placement)
    seen = _observation(work, changing)
    runs = running(pool, placement)
    accepted, coverage = acceptance(memory, seen, policy)
    shape = shape_of(view.intent, runs, runs.speculative_tokens, accepted=accepted, coverage=coverage)
    work.shape = shape
    correction, prefill = memory.correction, memory.prefill_correction
    if not reading.blind:
        if reading.demand_at:
            work.demand = estimate(intervals(work.samples, reading.tail, reading.demand_at, policy), policy)
        if reading.engine_seconds:
            correction = speed(
                memory,
                arch,
                gpu,
                shape,
                work.lengths,
                observation=seen,
                policy=policy,
            )
            prefill = prefill_speed(
                memory, arch, gpu, shape, work.lengths, observation=seen, correction=correction, policy=policy
            )
    # A fleet with one replica fewer has to hold what is believed, or what was taken away would come back.
    beside = max(1, ready - 1) if view.routed else 1
    work.able = capacity(
        arch,
        gpu,
        shape,
        work.lengths,
        objective,
        correction=correction,
        prefill_correction=prefill,
        replicas=beside,
    )
    work.plain_rps = work.able.rps
    if correction > 1.0 or prefill > 1.0:
        prior = capacity(arch, gpu, shape, work.lengths, objective, replicas=beside)
        work.plain_rps = min(work.able.rps, max(_PRIORS_ERR * prior.rps, 1.1 * memory.proven_rps))
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
        and (
            (ready > 0 and _load_explains(demand, ready * work.plain_rps, policy))
            or _queue_misses(reading.waiting, demand.rps, objective)
        )
    )
    settled = not coming and not changing and not reading.blind and not reading.unlisted and work.able.feasible
    trimmed, trimmed_at = trim(
        memory,
        recent,
        objective,
        0.0 if work.failing else utilisation,
        0.0 if work.failing else utilisation / memory.trim,
        certain=work.certain,
        settled=settled,
        now=now,
        policy=policy,
    )
    proven = memory.proven_rps
    held = recent.lower is not None and recent.lower >= objective.attainment
    if held and demand is not None and ready and not changing and not reading.unlisted:
        proven = max(proven, round(demand.slow_rps / ready, 4))
    work.correction, work.prefill_correction, work.proven_rps = correction, prefill, proven
    work.accepted_per_draft, work.draft_coverage = accepted, coverage
    work.tokens_per_step = shape.drafts.tokens_per_step if shape.drafts is not None else None
    work.trim, work.trimmed_at = trimmed, trimmed_at
    work.capacity_rps = work.plain_rps * trimmed
    if demand is not None:
        work.outlook = forecast(demand, memory, work.startup, policy)
        # What waits beyond what the objective allows must be gone by the time that new replicas serve.
        backlog = reading.waiting / max(objective.ttft_seconds or 0.0, work.startup)
        work.load_rps = work.outlook.rps + backlog
        work.floor_rps = max(work.load_rps, demand.rps * (1.0 + policy.headroom))


def _load_explains(demand: Demand, capacity_rps: float, policy: Policy) -> bool:
    """Whether misses may be for lack of replicas: the load is real, and has not just gone (by two deviations)."""
    newest = demand.fast_rps * policy.scrape_seconds
    still = (newest + 2.0 * sqrt(newest) + 1.0) / policy.scrape_seconds
    return min(demand.rps, still) >= policy.explained_utilisation * capacity_rps


def _queue_misses(waiting: float, rps: float, objective: Objective) -> bool:
    """Whether the queue alone explains late first tokens: by Little's law the mean wait exceeds the objective."""
    allowed = rps * (objective.ttft_seconds or objective.e2e_seconds or 0.0)
    return waiting > 1.0 + allowed + 2.0 * sqrt(allowed)


def _observation(work: Work, changing: bool) -> Observation:
    now, policy, reading = work.fleet.now, work.fleet.policy, work.reading
    newest = work.count.newest_ready_at
    # First tokens come from replicas like others: in proportion to what they run.
    share = reading.batch / reading.running if reading.running > 0.0 else 0.0
    return Observation(
        itl_seconds=reading.itl_seconds,
        itl_count=reading.itl_count,
        batch=reading.batch,
        rps=share * reading.first_rps,
        seconds=reading.engine_seconds,
        waiting=reading.waiting / max(1, work.count.ready),
        prefill_seconds=reading.prefill_seconds,
        prefill_count=reading.prefill_count,
        drafts=reading.drafts,
        accepted_tokens=reading.accepted_tokens,
        warm=not changing and now - newest >= policy.warmup_seconds,
    )


def _recent(work: Work) -> history.Attainment:
    """Attainment of the last moments, since the last change took effect: what a decision may still mend."""
    intent = work.view.intent
    least = intent.objective.min_requests if intent.objective is not None else 1
    routed = intent.routing is RoutingMode.ROUTER
    return history.attainment(work.recent, least, routed, explained=True)


def _only_new_revision_fails(pool: PoolView) -> bool:
    """Whether a blocked roll-out is all that fails: no request goes to such pods, the old ones serve them."""
    failed = [pod for pod in pool.pods if pod.state is PodState.FAILED]
    serving = any(pod.state is PodState.READY and pod.revision != pool.revision for pod in pool.pods)
    return pool.rolling_out and serving and all(pod.revision == pool.revision for pod in failed)


def _failing(work: Work, recent: history.Attainment, objective: Objective) -> str:
    """Why requests fail for reasons that replicas do not heal; empty where they do not."""
    failed_pods = work.count.failed
    if failed_pods and not _only_new_revision_fails(work.view.pool):
        return f"{failed_pods} of {len(work.view.pool.pods)} pods fail to run"
    errors = recent.failed - recent.refused
    ended = recent.requests + errors
    if errors > (1.0 - objective.attainment) * ended and errors > recent.refused + 5.0:
        return f"{errors:.0f} of {ended:.0f} requests were answered with an error"
    return ""
