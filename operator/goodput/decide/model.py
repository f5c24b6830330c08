"""One decision for one Model: read, estimate, forecast, size, bound, explain."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from goodput.decide import bounds, explain, history, number, outcome, replicas
from goodput.decide.change import Change, as_it_runs, begin, never_served, plan_of, with_room
from goodput.decide.change_text import step
from goodput.decide.conditions import Findings, conditions
from goodput.decide.correction import for_placement
from goodput.decide.engine import prior_lengths
from goodput.decide.failed import failed_pods
from goodput.decide.forecast import startup_seconds
from goodput.decide.placement import Placed, moving, place, running
from goodput.decide.podcounts import Counted
from goodput.decide.sizing import size
from goodput.decide.slow import Slow, find
from goodput.decide.startup import learn_startups
from goodput.decide.telemetry import Reading, in_flight, objective_mark, read
from goodput.decide.victims import victims
from goodput.decide.work import Fleet, Work
from goodput.domain.architecture import Architecture
from goodput.domain.change import Serving, Stage
from goodput.domain.decision import Action, Decision, Rule
from goodput.domain.errors import InvalidObject
from goodput.domain.identity import SERVE_POOL
from goodput.domain.intent import ModelIntent, RoutingMode, ScalingMode
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import ModelView, PoolView, Tally
from goodput.domain.plan import ChangePlan, ModelPlan, Placement, PoolPlan
from goodput.domain.samples import Samples
from goodput.domain.values import Value
from goodput.perfmodel.catalogue import architecture
from goodput.perfmodel.precision import with_precision


def recalled(view: ModelView, remembered: LoopMemory | None, fleet: Fleet) -> LoopMemory:
    """What of a Model's memory is to be believed now."""
    policy, now = fleet.policy, fleet.now
    memory = remembered if remembered is not None else LoopMemory(born_at=now)
    if not memory.born_at:
        memory = replace(memory, born_at=now)
    if history.in_future(memory, now, policy):
        # The clock went back. Times of another clock prove nothing: what was learned stays, windows begin anew.
        memory = LoopMemory(
            born_at=now,
            desired=memory.desired,
            startup_seconds=memory.startup_seconds,
            pods_seen_ready=memory.pods_seen_ready,
            correction=memory.correction,
            prefill_correction=memory.prefill_correction,
            accepted_per_draft=memory.accepted_per_draft,
            draft_coverage=memory.draft_coverage,
            shape=memory.shape,
            max_ratios=memory.max_ratios,
            surge=memory.surge,
            change=replace(memory.change, since=now),
        )
    asked = view.intent.objective.attainment if view.intent.objective is not None else memory.attainment
    if asked > memory.attainment > 0.0:
        # What held under a laxer attainment is no proof for a stricter one.
        memory = replace(memory, proven_rps=0.0, trim=min(1.0, memory.trim))
    if asked != memory.attainment:
        memory = replace(memory, attainment=asked)
    if memory.objective != objective_mark(view.intent.objective):
        memory = replace(
            memory,
            samples=history.under_another_objective(memory.samples),
            proven_rps=0.0,
            trim=min(1.0, memory.trim),
            budget_ended=0.0,
            budget_missed=0.0,
        )
    return memory


class Looked(Value, frozen=True):
    """What one Model's telemetry says, before anything is decided. Times are Unix seconds."""

    view: ModelView
    memory: LoopMemory
    reading: Reading
    samples: Samples
    count: Tally
    window: float  # seconds of the attainment
    # What a decision may still mend: since the last change took effect, a minute or two ago where enough came in that.
    recent_since: float
    slow: Slow


def look_at(view: ModelView, memory: LoopMemory, counted: Counted | None, fleet: Fleet) -> Looked:
    """Read the telemetry of one Model; `counted` is what its engine pods did, None where that cannot be told."""
    policy, now = fleet.policy, fleet.now
    reading = read(view, memory, policy, now, counted=counted, telemetry_error=fleet.telemetry_error)
    reading.marks, slow = find(reading.marks, view.pool, now, policy, memory)
    p95 = view.telemetry.pool.request_seconds_p95 if view.telemetry and view.telemetry.pool else None
    window = history.window_seconds(p95, policy)
    samples = memory.samples.with_new(reading.sample, now - max(window, policy.attainment_window_seconds))
    count = view.pool.tally
    changed = max(count.newest_ready_at + policy.scrape_seconds, memory.last_scale_up_at)
    recent_since = max(now - policy.miss_window_seconds, changed)
    # Few requests take longer to tell something. What was answered is not answered again.
    furthest = max(now - window, changed, memory.last_scale_down_at, memory.trimmed_at)
    if furthest < recent_since:
        recent_since = min(recent_since, samples.back_to(policy.least_requests, furthest, history.gap_seconds(policy)))
    return Looked(view, memory, reading, samples, count, window, recent_since, slow)


class Seen(Value, frozen=True):
    """Sums over what was seen of one Model."""

    ten_minutes: history.Totals
    windowed: history.Totals  # over the window of its attainment
    recent: history.Totals


def sum_up(looked: Sequence[Looked], fleet: Fleet) -> list[Seen]:
    """Sums for each Model."""
    policy, now = fleet.policy, fleet.now
    samples = [each.samples for each in looked]
    gap = history.gap_seconds(policy)
    ten_minutes = history.totals(samples, [now - policy.attainment_window_seconds] * len(looked), gap)
    windowed = ten_minutes
    if any(each.window != policy.attainment_window_seconds for each in looked):
        windowed = history.totals(samples, [now - each.window for each in looked], gap)
    recent = history.totals(samples, [each.recent_since for each in looked], policy.scrape_seconds)
    return [Seen(*sums) for sums in zip(ten_minutes, windowed, recent, strict=True)]


def decide_model(looked: Looked, seen: Seen, fleet: Fleet) -> ModelPlan:
    """The plan of one Model."""
    view, memory, policy = looked.view, looked.memory, fleet.policy
    change = begin(view, memory, policy, fleet.now)
    free, tolerations = fleet.shared.free, view.intent.tolerations
    reach = free.reach(tolerations)
    asked = placed = place(
        view.intent,
        view.pool,
        fleet.gpus,
        reach.supply,
        policy,
        free=free.by_type(tolerations),
        beyond=reach.beyond,
        strangers=fleet.strangers,
        canary=view.canary,
        begun=change.seen is not None and change.seen.started,
        served=change.seen is None and not never_served(view.pool, memory),
    )
    withheld = _withheld(view, asked.placement, fleet)
    if withheld:
        change = replace(change, held=True)
    if change.held or (change.seen is not None and asked.placement is not None):
        # Also where it may roll out: until it does, pods are what they were.
        view, placed = _what_runs(view, asked, fleet)
    intent = view.intent
    if placed.placement is not None and placed.known:
        memory = for_placement(memory, running(view.pool, placed.placement), intent)
    seen_ready, startups = learn_startups(view.pool, memory)
    if seen_ready is not memory.pods_seen_ready or startups is not memory.startup_seconds:
        memory = replace(memory, startup_seconds=startups, pods_seen_ready=seen_ready)
    weights = intent.architecture.checkpoint_bytes if intent.architecture is not None else 0.0
    lengths, lengths_requests = history.lengths(seen.ten_minutes, prior_lengths(intent.workload, policy), policy)
    routed = intent.routing is RoutingMode.ROUTER
    least = intent.objective.min_requests if intent.objective is not None else 1
    work = Work(
        view=view,
        memory=memory,
        fleet=fleet,
        reading=looked.reading,
        placed=placed,
        samples=looked.samples,
        startup=startup_seconds(memory, policy, weights),
        lengths=lengths,
        lengths_requests=lengths_requests,
        attainment=history.attainment(seen.windowed, least, routed),
        recent=seen.recent,
        recent_seconds=fleet.now - looked.recent_since + policy.scrape_seconds,
        window=looked.window,
        seen_seconds=seen.windowed.seconds,
        count=looked.count,
        change=change,
        slow=looked.slow,
        failed=failed_pods(view.pool, memory),
        asked=asked,
        withheld=withheld,
    )
    if placed.placement is not None and intent.objective is not None:
        size(work, placed.placement, intent.objective)
        work.memory = replicas.believing(work.memory, work.capacity_rps)
    return _conclude(work)


def _withheld(view: ModelView, asked: Placement | None, fleet: Fleet) -> str:
    """Why what serves does not move to the GPUs that are asked for; '' if it does, or where it is."""
    pool = view.pool
    if asked is None or pool.placement is None or not moving(pool, asked) or not pool.ready:
        return ""
    return bounds.beyond_move(view.intent, asked, pool, fleet.shared, fleet.policy)


def _what_runs(view: ModelView, asked: Placed, fleet: Fleet) -> tuple[ModelView, Placed]:
    """`view` with an intent that tells what serves, and its placement."""
    pool = view.pool
    runs = pool.serving
    if runs is not None:
        if runs.architecture is None:
            runs = replace(runs, architecture=_structure(runs))
        intent = as_it_runs(view.intent, runs, pool)
        supply = fleet.shared.free.reach(intent.tolerations).supply
        placed = place(intent, pool, fleet.gpus, supply, fleet.policy, strangers=fleet.strangers, served=True)
        if placed.placement is not None:
            return replace(view, intent=intent), placed
    return view, Placed(pool.placement or asked.placement)


def _structure(runs: Serving) -> Architecture | None:
    """What the catalogue knows of a model whose record tells no structure, in the precision that it is loaded in."""
    found = architecture(runs.model)
    if found is None or runs.weights is None:
        return found
    try:
        return with_precision(found, runs.weights)
    except InvalidObject:
        return None


def _beside(work: Work) -> float:
    """What the canary costs per hour."""
    canary = work.asked.placement
    return (canary.price_per_hour or 0.0) if canary is not None and work.view.canary.exists else 0.0


def _conclude(work: Work) -> ModelPlan:
    """Replicas, decision, conditions, figures and memory."""
    view, memory, fleet = work.view, work.memory, work.fleet
    policy, now, intent, pool = fleet.policy, fleet.now, view.intent, view.pool
    _, surge_before = number.current(pool, memory)
    placement = work.placed.placement
    fatal = any(problem.fatal for problem in intent.problems)
    held = _held_rule(intent, pool, placement, fatal, known=work.placed.known)
    if held is not None or placement is None:
        runs = pool.spec_replicas if pool.exists else 0
        count = number.Count(
            total=runs, surge=surge_before, wanted=runs, rule=held or Rule.HOLD_PROBLEM, loads=memory.loads
        )
    else:
        count = number.count(work, placement, _beside(work))
    total, surge, rule = count.total, count.surge, count.rule
    advise = intent.mode is ScalingMode.ADVISE and pool.exists and rule is not Rule.HOLD_PROBLEM
    runs = pool.spec_replicas if (advise or held is not None) else total
    yielded = ""
    if placement is not None:
        if held is None and not advise:
            yielded = bounds.claim(
                count.certain,
                total,
                intent,
                placement,
                pool=pool,
                shared=fleet.shared,
                policy=policy,
                beside_per_hour=_beside(work),
            )
        bounds.take(runs, intent, placement, pool, fleet.shared)
    change, change_plan = _change(work, placement, runs)
    action = _action(pool, total, surge=surge, surge_before=surge_before, advise=advise, placement=placement, held=held)
    inputs = outcome.inputs(work)
    detail = "; ".join(
        part
        for part in (
            work.placed.message if action is Action.PLACE else "",
            count.clamp_message,
            yielded,
            outcome.detail(work, surge),
            *count.notes,
        )
        if part
    )
    decision = Decision(
        model=intent.key,
        pool=SERVE_POOL,
        at=now,
        action=action,
        rule=rule,
        clamp=count.clamp,
        from_replicas=pool.spec_replicas if pool.exists else 0,
        to_replicas=total,
        wanted_replicas=count.wanted,
        inputs=inputs,
        detail=detail,
        rejected=(placement.rejected if placement is not None and action is Action.PLACE else ())
        + explain.neighbours(total, work.load_rps, work.peak_rps, work.capacity_rps, intent.min_replicas),
    )
    figures = outcome.figures(work, runs, total)
    plan = None
    if placement is not None and not fatal and not (held is not None and not pool.exists):
        plan = PoolPlan(
            name=SERVE_POOL,
            replicas=runs,
            placement=_to_render(work, placement),
            victims=victims(pool, runs, in_flight(view), work.slow.replaced)
            if runs < pool.spec_replicas or surge
            else (),
        )
    findings = Findings(
        view=view,
        reading=work.reading,
        placed=work.placed,
        decision=decision,
        clamp_message="; ".join(part for part in (count.clamp_message, yielded) if part),
        overruled=count.overruled,
        notes=count.notes,
        figures=figures,
        able=work.able,
        failing=work.failing,
        failed=work.failed,
        count=work.count,
        change=change,
        slow=work.slow,
        rises=work.rises.advice(intent.min_replicas, intent.max_replicas),
        withheld=work.withheld,
        beyond=fleet.shared.free.reach(intent.tolerations).beyond.get(placement.gpu_type, "") if placement else "",
    )
    return ModelPlan(
        key=intent.key,
        pool=plan,
        decision=decision,
        conditions=conditions(findings),
        figures=figures,
        memory=outcome.remember(
            work,
            decision,
            runs=runs,
            surge=surge if not advise else 0,
            room_since=count.room_since,
            loads=count.loads,
            change=change.mark,
        ),
        change=change_plan,
        step=step(intent.key, memory.change, change, now),
    )


def _to_render(work: Work, serves: Placement) -> Placement:
    """The placement of pods that are to be: of what is asked for as soon as it may serve."""
    change = work.change
    lets_through = change.seen is not None and not change.held
    return work.asked.placement if lets_through and work.asked.placement is not None else serves


def _change(work: Work, serves: Placement | None, runs: int) -> tuple[Change, ChangePlan | None]:
    """The change after what serves took what it needs, and what is to exist for it."""
    change, asked, fleet = work.change, work.asked.placement, work.fleet
    if change.seen is None:
        return change, None
    intent, canary = work.view.intent, work.view.canary
    if asked is None or serves is None:
        change = with_room(change, work.asked.message or "it cannot be placed", fleet.now)
    elif change.stage is Stage.WAITING:
        lacking = ""
        if pending := [pod for pod in canary.pods if pod.unschedulable]:
            short = all(pod.lacks(asked.resource_name) for pod in pending)
            why = f"{asked.gpus} GPUs {asked.gpu_type} are missing" if short else pending[0].said
            lacking = f"the canary is Pending: {why}"
        elif not canary.exists:
            lacking = bounds.lacking_for_canary(runs, intent, serves, asked, shared=fleet.shared, policy=fleet.policy)
        change = with_room(change, lacking, fleet.now)
    plan = plan_of(change, asked)
    if plan is not None and plan.canary is not None:
        bounds.take_canary(intent, plan.canary, canary, fleet.shared)
    return change, plan


def _held_rule(
    intent: ModelIntent, pool: PoolView, placement: Placement | None, fatal: bool, *, known: bool
) -> Rule | None:
    """The rule that keeps what runs whatever the load, or None."""
    if fatal or placement is None:
        return Rule.HOLD_PROBLEM
    if intent.paused:
        return Rule.HOLD_PAUSED
    if pool.exists and pool.foreign_scaler:
        return Rule.HOLD_CONFLICT
    return None if known else Rule.HOLD_CHANGE


def _action(
    pool: PoolView,
    total: int,
    *,
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
