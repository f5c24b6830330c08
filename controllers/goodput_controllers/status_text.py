"""The text of a Model's status: figures with two significant digits, bounds, and the last decision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from goodput.api.conditions import merge_conditions
from goodput.api.modelstatus import (
    BoundedFigure,
    DecisionInput,
    DecisionStatus,
    DemandStatus,
    GoodputStatus,
    ModelStatus,
    PinnedStatus,
    PoolStatus,
    RejectedOption,
)
from goodput.domain.conditions import Condition
from goodput.domain.decision import Clamp, Decision
from goodput.domain.identity import Key
from goodput.domain.intent import RoutingMode
from goodput.domain.observed import ModelView, PodState
from goodput.domain.plan import ModelPlan
from goodput_controllers.figures import Figure, percent, two_digits


def rfc3339(at: float) -> str:
    """Unix seconds as status writes them."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def slo_text(model: Key, slo: Key) -> str:
    """The SLO by name, with its namespace where that is another one."""
    return slo.name if slo.namespace == model.namespace else str(slo)


def pool_status(view: ModelView, plan: ModelPlan) -> PoolStatus | None:
    """The engine pool as it is and should be; None while there is none."""
    ready = view.pool.count(PodState.READY)
    if view.pool.exists and view.pool.gpu_type and (plan.pool is None or plan.pool.placement.gpu_type == ""):
        desired = view.pool.spec_replicas
        gpu_type, tensor, pipeline = view.pool.gpu_type, view.pool.tensor_parallel, view.pool.pipeline_parallel
    elif plan.pool is not None:
        placement = plan.pool.placement
        desired = plan.pool.replicas
        gpu_type, tensor, pipeline = placement.gpu_type, placement.tensor_parallel, placement.pipeline_parallel
    else:
        return None
    return PoolStatus.model_construct(
        name=view.pool.name,
        role="Aggregated",
        gpu_type=gpu_type,
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        desired=desired,
        ready=ready,
    )


def replicas_text(pool: PoolStatus | None) -> str | None:
    """`ready/desired`."""
    return f"{pool.ready}/{pool.desired}" if pool else None


def pool_summary(pool: PoolStatus | None) -> str | None:
    """GPUs of one replica."""
    if pool is None or pool.gpu_type is None:
        return None
    return f"{(pool.tensor_parallel or 1) * (pool.pipeline_parallel or 1)}x {pool.gpu_type}"


def status_of(
    view: ModelView,
    plan: ModelPlan,
    *,
    conditions: Iterable[Condition],
    before: ModelStatus | None,
    decision: Decision | None,
    figures: Mapping[str, Figure],
    pinned: PinnedStatus | None,
    now: float,
) -> ModelStatus:
    """The whole status. `decision` is the last one that said something new (None: none in this process yet)."""
    generation = view.intent.generation
    old = before.conditions if before is not None else ()
    pool = pool_status(view, plan)
    values: dict[str, Any] = {
        "observed_generation": generation,
        "conditions": merge_conditions(old, conditions, generation=generation, now=rfc3339(now)),
        "slo": slo_text(view.intent.key, view.intent.slo),
        "pools": (pool,) if pool else (),
        "pool_summary": pool_summary(pool),
        "replicas": replicas_text(pool),
        "cost_per_hour": cost_text(plan),
        "service_url": f"http://{plan.key.name}.{plan.key.namespace}.svc",
        "pinned": pinned,
        "last_decision": decision_status(decision) if decision else before.last_decision if before else None,
    }
    if "demand" in figures:
        routed = view.intent.routing is RoutingMode.ROUTER
        values["demand"] = DemandStatus(
            requests_per_second=two_digits(figures["demand"].value),
            source="router" if routed else "engines",
            input_tokens=two_digits(figures["input tokens"].value) if "input tokens" in figures else None,
            output_tokens=two_digits(figures["output tokens"].value) if "output tokens" in figures else None,
        )
    if "goodput lower" in figures:
        lower, upper = figures["goodput lower"].value, figures["goodput upper"].value
        values["goodput"] = GoodputStatus(
            requests_per_second=two_digits((lower + upper) / 2), lower=two_digits(lower), upper=two_digits(upper)
        )
    if "attainment lower" in figures:
        low, high = percent(figures["attainment lower"].value), percent(figures["attainment upper"].value)
        values["attainment"] = low if low == high else f"{low.rstrip('%')}-{high}"
        values["attainment_bounds"] = BoundedFigure(lower=low, upper=high)
    return ModelStatus(**values)


def decision_status(decision: Decision) -> DecisionStatus:
    """A decision as status shows it."""
    clamp = decision.clamp.value if decision.clamp is not Clamp.NONE else None
    return DecisionStatus(
        id=decision.id[:128],
        time=rfc3339(decision.at),
        action=decision.action.value,
        reason=clamp or decision.rule.value,
        rule=decision.rule.value,
        message=decision.message[:1024],
        from_=decision.from_replicas,
        to=decision.to_replicas,
        wanted=decision.wanted_replicas,
        clamp=clamp,
        inputs=tuple(
            DecisionInput(name=item.name[:128], value=f"{item.value:.4g}", unit=item.unit[:128])
            for item in decision.inputs[:32]
        ),
        rejected=tuple(
            RejectedOption(option=item.option[:128], reason=item.reason[:1024]) for item in decision.rejected[:32]
        ),
    )


def cost_text(plan: ModelPlan) -> str | None:
    """Cost per hour; `~` marks a built-in price."""
    cost = plan.figures.cost_per_hour
    if cost is None:
        return None
    assumed = plan.pool is not None and plan.pool.placement.price_assumed
    return f"{'~' if assumed else ''}{cost:.2f}"
