"""What a replica is believed to do, what is asked of the fleet, and which misses replicas can mend."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from goodput.decide import history
from goodput.decide.backlog import backlog, unfinished
from goodput.decide.budget import Budget
from goodput.decide.correction import Observation, acceptance, prefill_speed, speed, trim
from goodput.decide.demand import Demand, distinct, estimate, intervals, latest, meant
from goodput.decide.engine import shape_of
from goodput.decide.forecast import forecast
from goodput.decide.placement import moving, running
from goodput.decide.policy import Policy
from goodput.decide.proven import Proven
from goodput.decide.telemetry import in_flight
from goodput.decide.work import Work
from goodput.domain.intent import Objective, RoutingMode
from goodput.domain.observed import PodState, PodView, PoolView
from goodput.domain.plan import Placement
from goodput.perfmodel import capacity

# Up to so many times the capacity that priors give, live speeds alone are believed: so much do priors err, by a fifth
# in each efficiency. Beyond it, load has to show it.
_PRIORS_ERR = 1.4
# Fewer refusals than this share do not change what the load is taken for.
_LEAST_REFUSED = 0.02
# One new pod may fail for its node. Two in a row, and the next one would.
_NEW_FAILED = 2


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
            work.counts = intervals(work.samples, reading.tail, reading.demand_at, policy)
            work.demand = estimate(work.counts, policy)
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
    work.proven = Proven.of(memory)
    work.plain_rps = max(work.plain_rps, work.proven.floor_rps(work.lengths))
    demand = work.demand
    if demand is not None and ready:
        work.utilisation = demand.rps / (ready * work.plain_rps) if work.plain_rps > 0 else None
    recent = _recent(work)
    work.failing = _failing(work, recent, objective)
    # What fails is left out of what was seen. What is late on the others is theirs, unless more would fail as well.
    mendable = not _more_would_fail(view.pool, work.failed)
    utilisation = work.utilisation or 0.0
    work.certain = (
        not reading.blind
        # What ends late came long before: its backlog asks for replicas.
        and not objective.batch
        and demand is not None
        and recent.upper is not None
        and history.certainly_below(recent, objective.attainment)
        and history.spends_budget(work.attainment, recent, objective.attainment, demand.slow_rps * work.window)
        and work.able.feasible
        and mendable
        and (
            (ready > 0 and _load_explains(demand, ready * work.plain_rps, policy))
            or _queue_misses(reading.waiting, demand.rps, objective)
        )
    )
    settled = (
        not objective.batch
        and not coming
        and not changing
        and not reading.blind
        and not reading.unlisted
        and work.able.feasible
    )
    trimmed, trimmed_at = trim(
        memory,
        recent,
        objective,
        utilisation if mendable else 0.0,
        utilisation / memory.trim if mendable else 0.0,
        spent=Budget.of(memory).spent(objective.attainment),
        certain=work.certain,
        settled=settled,
        now=now,
        policy=policy,
    )
    if demand is not None and ready and not changing and not reading.unlisted:
        work.proven = _proof(work, recent, demand, objective)
    work.correction, work.prefill_correction = correction, prefill
    work.accepted_per_draft, work.draft_coverage = accepted, coverage
    work.tokens_per_step = shape.drafts.tokens_per_step if shape.drafts is not None else None
    work.trim, work.trimmed_at = trimmed, trimmed_at
    work.capacity_rps = work.plain_rps * trimmed
    if demand is not None and objective.batch:
        _provide_for_backlog(work, demand, objective)
    elif demand is not None:
        _provide(work, demand, objective)


def rps_of_each(work: Work, replicas: int) -> float:
    """What each of so many replicas is believed to hold once they are all there are."""
    able, arch, gpu, objective = work.able, work.view.intent.architecture, work.placed.gpu, work.view.intent.objective
    if able is None or able.rps <= 0.0 or arch is None or gpu is None or objective is None or work.shape is None:
        return work.capacity_rps
    beside = max(1, replicas - 1) if work.view.routed else 1
    alone = capacity(
        arch,
        gpu,
        work.shape,
        work.lengths,
        objective,
        correction=work.correction if work.correction is not None else 1.0,
        prefill_correction=work.prefill_correction,
        replicas=beside,
    )
    return work.capacity_rps * min(1.0, alone.rps / able.rps)


def _provide(work: Work, demand: Demand, objective: Objective) -> None:
    """The load to provide for, and what must stay served after a scale-down."""
    policy = work.fleet.policy
    refused = _refused_share(work, demand) if work.view.routed else 0.0
    work.distinct = distinct(refused, policy) if refused > _LEAST_REFUSED else 1.0
    work.outlook = forecast(meant(demand, work.distinct), work.memory, work.startup, policy)
    # What waits beyond what the objective allows must be gone by the time that new replicas serve.
    backlog = work.reading.waiting / max(objective.ttft_seconds or 0.0, work.startup)
    work.load_rps = work.outlook.rps + backlog
    # Nothing shrinks on a guess at what clients repeat.
    low = latest(demand, policy)
    kept_free = sqrt((policy.headroom * low.rps) ** 2 + (policy.down_sigmas * low.error) ** 2)
    falls_to = work.outlook.rps * (low.rps / demand.rps if demand.rps > 0.0 else 1.0)
    work.floor_rps = max((falls_to if work.distinct == 1.0 else work.outlook.rps) + backlog, low.rps + kept_free)
    counted = max(1.0, demand.rps * policy.slow_intervals * policy.scrape_seconds)
    work.noisy_rps = work.load_rps * (1.0 + policy.steady_sigmas / sqrt(counted))


def _provide_for_backlog(work: Work, demand: Demand, objective: Objective) -> None:
    """The load of a Batch Model is the rate at which what waits is done in time. No replica goes that has work.

    A request waits on the engine to which it was sent: more replicas serve what is still to come, and none is added
    where nothing comes.
    """
    policy, reading, now = work.fleet.policy, work.reading, work.fleet.now
    deadline, pool = objective.e2e_seconds or 0.0, work.view.pool
    starts_in = work.startup
    if pool.coming:
        starts_in = max(0.0, work.startup - (now - work.memory.last_scale_up_at))
    work.backlog = backlog(
        unfinished(work.memory.queue, reading.sample, reading.waiting + reading.running, now, deadline),
        reading.running,
        now=now,
        deadline=deadline,
        starts_in=starts_in,
        ready=work.count.ready,
        capacity_rps=work.capacity_rps,
        policy=policy,
    )
    low = latest(demand, policy)
    arriving = low.rps + sqrt((policy.headroom * low.rps) ** 2 + (policy.down_sigmas * low.error) ** 2)
    busy = sum(1 for requests in in_flight(work.view).values() if requests >= 1.0)
    kept = max(arriving, busy * work.capacity_rps) if reading.waiting >= 1.0 else arriving
    work.load_rps = min(work.backlog.rps, work.count.ready * work.capacity_rps + demand.rps)
    work.floor_rps = max(work.load_rps, kept)
    work.noisy_rps = work.load_rps


def _proof(work: Work, recent: history.Attainment, demand: Demand, objective: Objective) -> Proven:
    """What the last moments prove of a replica. What came is no proof: what was served well is.

    Nor is what came over a longer time, for want of requests: that is no load to be proud of.
    """
    ready, policy = work.count.ready, work.fleet.policy
    if work.recent_seconds > policy.miss_window_seconds + policy.scrape_seconds and not work.certain:
        return work.proven
    if recent.lower is not None and recent.lower >= objective.attainment:
        served = min(demand.slow_rps, recent.good_lower / work.recent_seconds)
        return work.proven.held(served / ready, work.lengths)
    return work.proven.missed(demand.slow_rps / ready) if work.certain else work.proven


def _refused_share(work: Work, demand: Demand) -> float:
    """Of the requests that make the demand, the share that engines refused."""
    policy = work.fleet.policy
    since = work.reading.demand_at - min(demand.seconds, policy.slow_intervals * policy.scrape_seconds)
    sums = work.samples.after(since)
    return min(sums.failed, sums.rejected) / sums.offered if sums.offered > 0.0 else 0.0


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
        # Times are means over the pool: those of a slow pod are none of a replica.
        warm=not changing and not work.slow.suspected and now - newest >= policy.warmup_seconds,
    )


def _recent(work: Work) -> history.Attainment:
    """Attainment of the last moments, since the last change took effect: what a decision may still mend.

    How many requests the SLO wants to see before status claims something is no concern of it.
    """
    routed = work.view.intent.routing is RoutingMode.ROUTER
    return history.attainment(work.recent, work.fleet.policy.least_requests, routed, explained=True)


def _only_new_revision_fails(pool: PoolView, failed: Sequence[PodView]) -> bool:
    """Whether a blocked roll-out is all that fails: no request goes to such pods, the old ones serve them."""
    serving = any(pod.state is PodState.READY and pod.revision != pool.revision for pod in pool.pods)
    return pool.rolling_out and serving and all(pod.revision == pool.revision for pod in failed)


def _more_would_fail(pool: PoolView, failed: Sequence[PodView]) -> bool:
    """Whether what fails is the Model rather than a pod: no fewer do than do not, or two that are newer than any that
    serves. A fleet of such pods would grow without end."""
    if not failed or _only_new_revision_fails(pool, failed):
        return False
    newest = max([pod.created_at for pod in pool.pods if pod.state is PodState.READY], default=0.0)
    newer = sum(1 for pod in failed if pod.created_at > newest)
    return 2 * len(failed) >= len(pool.pods) - pool.tally.leaving or newer >= _NEW_FAILED


def _failing(work: Work, recent: history.Attainment, objective: Objective) -> str:
    """Why requests fail for reasons that replicas do not heal; empty where they do not."""
    if work.failed and not _only_new_revision_fails(work.view.pool, work.failed):
        return f"{len(work.failed)} of {len(work.view.pool.pods)} pods fail to run"
    errors = recent.failed - recent.refused
    ended = recent.requests + errors
    if errors > (1.0 - objective.attainment) * ended and errors > recent.refused + 5.0:
        return f"{errors:.0f} of {ended:.0f} requests were answered with an error"
    return ""
