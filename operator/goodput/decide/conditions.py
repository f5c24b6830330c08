"""Conditions of a Model from what was seen and decided, in one order, each with a sentence."""

from __future__ import annotations

from msgspec.structs import replace

from goodput.decide.bounds import GRANTS
from goodput.decide.change import Change
from goodput.decide.change_text import in_the_way, under_way
from goodput.decide.placement import Placed
from goodput.decide.slow import Slow
from goodput.decide.telemetry import Reading
from goodput.domain.conditions import Condition, ConditionReason, ConditionStatus, ConditionType
from goodput.domain.decision import Clamp, Decision
from goodput.domain.intent import Objective, RoutingMode
from goodput.domain.observed import ModelView, PodView, PoolView, Tally
from goodput.domain.percent import MOST_DECIMALS, percent
from goodput.domain.plan import Figures, Placement
from goodput.domain.values import Value
from goodput.perfmodel import Capacity
from goodput.perfmodel.verdicts import short_of

_TRUE, _FALSE, _UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN
# The order of severity: the first that any failed pod shows is reported.
_TROUBLES: tuple[tuple[str, ConditionReason], ...] = (
    ("ImagePull", ConditionReason.IMAGE_PULL_FAILED),
    ("InvalidImageName", ConditionReason.IMAGE_PULL_FAILED),
    ("OOMKilled", ConditionReason.OUT_OF_MEMORY),
    ("CreateContainerConfigError", ConditionReason.SECRET_NOT_FOUND),
    ("CrashLoopBackOff", ConditionReason.CRASH_LOOP),
)


class Findings(Value, frozen=True, kw_only=True):
    """What conditions are made of."""

    view: ModelView
    reading: Reading
    placed: Placed
    decision: Decision
    clamp_message: str
    overruled: str  # a cap below minReplicas
    notes: tuple[str, ...]  # of limits, beside the clamp
    figures: Figures
    able: Capacity | None  # of one replica
    count: Tally
    failed: tuple[PodView, ...]
    failing: str  # why requests fail for reasons that replicas do not heal; empty: they do not
    change: Change
    slow: Slow
    rises: str  # that load rises faster than replicas start, and what to do; empty: it does not
    withheld: str  # why what serves does not move to the GPUs that are asked for
    beyond: str  # GPUs of its type that its pods do not reach, and why; empty: there are none

    @property
    def short(self) -> bool:
        """Whether what the administrator grants leaves fewer replicas than the author's minimum."""
        return self.decision.clamp in GRANTS and self.decision.to_replicas < self.view.intent.min_replicas


def conditions(findings: Findings) -> tuple[Condition, ...]:
    """Ready, Reconciling, Stalled, SLOMet, MetricsFresh, Placed, with the Model's own problems.

    A fatal problem wins. Another one is told where nothing else is found, else beside what is found.
    """
    seen = {
        ConditionType.READY: _ready(findings),
        ConditionType.RECONCILING: _reconciling(findings),
        ConditionType.STALLED: _stalled(findings),
        ConditionType.SLO_MET: _slo_met(findings),
        ConditionType.METRICS_FRESH: _metrics(findings),
        ConditionType.PLACED: _placed(findings),
    }
    found = dict(seen)
    for problem in findings.view.intent.problems:
        positive = problem.type in (ConditionType.STALLED, ConditionType.UPDATE_AVAILABLE, ConditionType.RECONCILING)
        before = found.get(problem.type)
        if problem.fatal or before is None:
            found[problem.type] = Condition(
                problem.type, _TRUE if positive else _FALSE, problem.reason, problem.message
            )
            continue
        healthy = before is seen.get(problem.type) and before.status is (_FALSE if positive else _TRUE)
        if healthy:
            status = _TRUE if positive else before.status
            found[problem.type] = Condition(problem.type, status, problem.reason, problem.message)
        else:
            # Of the same reason, the problem names the field.
            texts = (before.message, problem.message)
            told = "; ".join(texts if before.reason is not problem.reason else reversed(texts))
            found[problem.type] = replace(before, message=told)
    return tuple(found.values())


def trouble_reason(pod: PodView) -> ConditionReason:
    """Reason of a failed pod, from the kubelet's own words."""
    for part, reason in _TROUBLES:
        if part in pod.trouble:
            if reason is ConditionReason.SECRET_NOT_FOUND and "configmap" in pod.trouble_message.lower():
                return ConditionReason.CONFIGMAP_NOT_FOUND
            return reason
    return ConditionReason.CRASH_LOOP


def _ready(findings: Findings) -> Condition:
    view = findings.view
    pool = view.pool
    ready = findings.count.ready
    if not ready:
        starting = findings.count.starting
        reason = ConditionReason.STARTING if starting else ConditionReason.NO_REPLICA_READY
        return Condition(ConditionType.READY, _FALSE, reason, f"0 of {pool.spec_replicas} replicas are ready")
    if view.routers_bypassed:
        message = f"{ready} replicas serve, and users are sent to them directly until a router is ready"
        return Condition(ConditionType.READY, _TRUE, ConditionReason.SERVING, message)
    if view.intent.routing is RoutingMode.ROUTER and not view.router.ready:
        message = f"{ready} replicas are ready, but no router pod is"
        return Condition(ConditionType.READY, _FALSE, ConditionReason.ROUTER_NOT_READY, message)
    message = "; ".join(part for part in (f"{ready} replicas serve", findings.slow.message) if part)
    return Condition(ConditionType.READY, _TRUE, ConditionReason.SERVING, message)


def _reconciling(findings: Findings) -> Condition:
    view, decision = findings.view, findings.decision
    pool = view.pool
    kind = ConditionType.RECONCILING
    if not pool.exists:
        if findings.placed.placement is None:
            return Condition(kind, _FALSE, ConditionReason.SETTLED, "nothing can be placed yet")
        if findings.short:
            return Condition(kind, _FALSE, ConditionReason.HELD_UP, "no replica can be created yet")
        return Condition(kind, _TRUE, ConditionReason.FIRST_SEEN, "the first replicas are being created")
    change = under_way(findings.change)
    if change is not None:
        return change
    if pool.rolling_out:
        return Condition(kind, _TRUE, ConditionReason.ROLLING_OUT, "pods of a new revision replace the old ones")
    ready = findings.count.ready
    # What is only advised is on its way to nobody.
    wanted = decision.to_replicas if decision.changes else pool.spec_replicas
    if wanted != pool.spec_replicas or ready != wanted:
        return Condition(kind, _TRUE, ConditionReason.SCALING, f"{ready} of {wanted} replicas are ready")
    return Condition(kind, _FALSE, ConditionReason.SETTLED, f"{ready} replicas run as decided")


def _stalled(findings: Findings) -> Condition:
    view = findings.view
    kind = ConditionType.STALLED
    fatal = [problem for problem in view.intent.problems if problem.fatal]
    if fatal:
        return Condition(kind, _TRUE, fatal[0].reason, fatal[0].message)
    if view.intent.paused:
        message = "spec.paused is true: nothing is written until it is false again"
        return Condition(kind, _TRUE, ConditionReason.PAUSED, message)
    if view.pool.foreign_scaler:
        message = (
            f"{view.pool.foreign_scaler} also writes the replicas of this Deployment: remove it;"
            f" until then the number that runs ({view.pool.spec_replicas}) is kept"
        )
        return Condition(kind, _TRUE, ConditionReason.SCALER_CONFLICT, message)
    if findings.placed.placement is None and findings.placed.stalled:
        return Condition(kind, _TRUE, findings.placed.reason, findings.placed.message)
    failed = findings.failed
    if failed:
        worst = min(failed, key=lambda pod: (_severity(pod), pod.name))
        reason = trouble_reason(worst)
        message = f"{len(failed)} of {len(view.pool.pods)} pods fail, {worst.name}: {worst.trouble or 'restarts'}"
        if worst.trouble_message:
            message += f" ({worst.trouble_message[:200]})"
        if view.pool.rolling_out and all(pod.revision == view.pool.revision for pod in failed):
            message = f"the new revision does not get ready, old pods serve on: {message}"
            reason = ConditionReason.ROLLOUT_BLOCKED
        return Condition(kind, _TRUE, reason, message)
    change = in_the_way(findings.change)
    if change is not None:
        return change
    if findings.withheld:
        return Condition(kind, _TRUE, ConditionReason.ROLLOUT_BLOCKED, findings.withheld)
    for pool in (view.pool, view.router):
        if pool.pods_refused:
            message = f"pods of pool {pool.name} are refused: {pool.pods_refused[:500]}"
            return Condition(kind, _TRUE, ConditionReason.PODS_REFUSED, message)
    if view.router.foreign_scaler:
        # Last: engines are scaled all the same.
        message = (
            f"{view.router.foreign_scaler} also writes the replicas of Deployment {view.intent.key.name}-"
            f"{view.router.name}: remove it; until then the number that runs ({view.router.spec_replicas}) is kept"
        )
        return Condition(kind, _TRUE, ConditionReason.SCALER_CONFLICT, message)
    if findings.short:
        message = (
            f"{findings.decision.to_replicas} of the {view.intent.min_replicas} replicas of spec.scaling.minReplicas: "
            f"{findings.clamp_message}; ask its administrator for more, or lower spec.scaling.minReplicas"
        )
        return Condition(kind, _TRUE, ConditionReason.CAPPED, message)
    return Condition(kind, _FALSE, ConditionReason.NOT_STALLED, "nothing stands in the way")


def _severity(pod: PodView) -> int:
    for index, (part, _) in enumerate(_TROUBLES):
        if part in pod.trouble:
            return index
    return len(_TROUBLES)


def _slo_met(findings: Findings) -> Condition:
    kind = ConditionType.SLO_MET
    objective = findings.view.intent.objective
    figures = findings.figures
    if objective is None:
        return Condition(kind, _UNKNOWN, ConditionReason.TOO_FEW_REQUESTS, "the SLO was never seen")
    lower, upper = figures.attainment_lower, figures.attainment_upper
    wanted = objective.attainment
    if lower is None or upper is None:
        status, reason = _UNKNOWN, ConditionReason.TOO_FEW_REQUESTS
        text = f"{figures.attainment_requests} requests in the window, the SLO asks for {objective.min_requests}"
    else:
        text = (
            f"{percent(lower, 1)} to {percent(upper, 1)} of {figures.attainment_requests} requests met the SLO of "
            f"{percent(wanted, MOST_DECIMALS)}"
        )
        if upper < wanted:
            status, reason = _FALSE, ConditionReason.MISSING_OBJECTIVE
        elif lower >= wanted:
            status, reason = _TRUE, ConditionReason.MEETING
        else:
            status, reason = _UNKNOWN, ConditionReason.UNDECIDED
    if findings.failing:
        return Condition(kind, _FALSE, ConditionReason.FAILING, f"{findings.failing}; {text}")
    if findings.able is not None and not findings.able.feasible and status is not _TRUE:
        text = f"{_infeasible(findings.able, objective)}; {text}"
        return Condition(kind, _FALSE, ConditionReason.SLO_INFEASIBLE, text)
    if findings.able is not None and status is not _TRUE:
        text += _too_busy(findings.able, objective)
    if findings.rises and status is not _TRUE:
        text += f"; {findings.rises}"
    capped = findings.decision.clamp not in (Clamp.NONE, Clamp.MIN_REPLICAS)
    if capped and findings.decision.wanted_replicas > findings.decision.to_replicas:
        return Condition(kind, status, ConditionReason.CAPPED, f"{findings.clamp_message}; {text}")
    if findings.overruled:
        return Condition(kind, status, ConditionReason.CAPPED, f"{findings.overruled}; {text}")
    return Condition(kind, status, reason, text)


def _infeasible(able: Capacity, objective: Objective) -> str:
    """Which objectives even an idle replica misses too often, with their bounds."""
    idle = able.idle
    bounds = (
        ("ttft", objective.ttft_seconds, idle.ttft_misses),
        ("tpot", objective.tpot_seconds, idle.tpot_misses),
        ("deadline" if objective.batch else "e2e", objective.e2e_seconds, idle.e2e_misses),
    )
    allowed = 1.0 - objective.attainment
    worst = max(misses for _, _, misses in bounds)
    missed = ", ".join(
        f"{name} of {bound * 1000.0:.0f} ms for {percent(misses, 1)}"
        for name, bound, misses in bounds
        if bound is not None and (misses > allowed or misses == worst)
    )
    return (
        f"of requests, an idle replica misses {missed}, the SLO allows {percent(allowed, MOST_DECIMALS)}: more "
        "replicas cannot mend that, relax it or allow faster GPU types"
    )


def _too_busy(able: Capacity, objective: Objective) -> str:
    """What is expected at the least rate of a replica, where that is less than the SLO asks for; else nothing."""
    if not short_of(objective, able.at_capacity):
        return ""
    return (
        f"; at {able.rps:.3g} requests/s, the least that a replica is given, {percent(able.at_capacity.good, 1)} are "
        "expected to meet it: relax it or allow faster GPU types"
    )


def _metrics(findings: Findings) -> Condition:
    reading = findings.reading
    kind = ConditionType.METRICS_FRESH
    if reading.problem is not None and not (
        reading.nothing_to_measure and reading.problem is ConditionReason.METRICS_MISSING
    ):
        return Condition(kind, _FALSE, reading.problem, reading.message)
    if reading.nothing_to_measure:
        return Condition(kind, _UNKNOWN, ConditionReason.NO_PODS, "no pod has been ready for two scrapes yet")
    return Condition(kind, _TRUE, ConditionReason.FRESH, "every ready pod was scraped lately")


def _placed(findings: Findings) -> Condition:
    kind = ConditionType.PLACED
    placed = findings.placed
    if placed.placement is None:
        return Condition(kind, _FALSE, placed.reason, placed.message)
    if findings.count.unschedulable:
        return _unschedulable(findings.view.pool, placed.placement, findings.beyond)
    where = f"{placed.placement.gpus} x {placed.placement.gpu_type} a replica"
    price = placed.placement.price_per_hour
    told = "".join(f"; {part}" for part in (placed.message, *findings.notes) if part)
    if price is None:
        message = f"{where}; its price is unknown: set GPUType.spec.pricePerHour"
        if findings.view.intent.max_cost_per_hour is not None:
            message += ", until then spec.scaling.maxCostPerHour limits nothing"
        if placed.reason is not ConditionReason.PRICE_UNKNOWN:
            message += told
        return Condition(kind, _TRUE, ConditionReason.PRICE_UNKNOWN, message)
    if placed.reason is ConditionReason.PRICE_UNKNOWN:
        return Condition(kind, _TRUE, ConditionReason.PRICE_UNKNOWN, f"{where}{told}")
    assumed = " (assumed list price)" if placed.placement.price_assumed else ""
    return Condition(kind, _TRUE, ConditionReason.PLACED, f"{where}, {price:.2f} $/h{assumed}{told}")


def _unschedulable(pool: PoolView, placement: Placement, beyond: str) -> Condition:
    """Pending pods: GPUs by number where the scheduler says that it lacks those, else its own words."""
    pods = [pod for pod in pool.pods if pod.unschedulable]
    without_gpus = [pod for pod in pods if pod.lacks(placement.resource_name)]
    others = [pod for pod in pods if not pod.lacks(placement.resource_name)]
    texts = []
    if without_gpus:
        count = len(without_gpus)
        missing = count * placement.gpus
        texts.append(
            f"{count} pods are Pending: {missing} GPUs {placement.gpu_type} are missing ({placement.gpus} each)"
        )
    if others:
        texts.append(f"{len(others)} pods are Pending, {others[0].name}: {others[0].said}")
    if beyond:
        texts.append(beyond)
    reason = ConditionReason.INSUFFICIENT_GPUS if without_gpus else ConditionReason.PODS_REFUSED
    return Condition(ConditionType.PLACED, _FALSE, reason, "; ".join(texts))
