"""The text of a Model's status: figures with two significant digits, bounds, and the last decision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from goodput.api.conditions import merge_conditions
from goodput.api.modelstatus import (
    BoundedFigure,
    DecisionInput,
    DecisionStatus,
    DemandStatus,
    GoodputStatus,
    GpuUseStatus,
    ModelStatus,
    PinnedStatus,
    PoolStatus,
    RejectedOption,
)
from goodput.domain.conditions import Condition
from goodput.domain.decision import Clamp, Decision
from goodput.domain.identity import CANARY_POOL, Key
from goodput.domain.observed import ModelView
from goodput.domain.percent import percent
from goodput.domain.plan import ModelPlan
from goodput_controllers.figures import Figure, two_digits


def rfc3339(at: float) -> str:
    """Unix seconds as status writes them."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def slo_text(model: Key, slo: Key) -> str:
    """The SLO by name, with its namespace where that is another one."""
    return slo.name if slo.namespace == model.namespace else str(slo)


class Pool(NamedTuple):
    """The engine pool as it is and should be."""

    name: str
    gpu_type: str
    tensor_parallel: int
    pipeline_parallel: int
    desired: int
    ready: int


def pool_of(view: ModelView, plan: ModelPlan) -> Pool | None:
    """What was decided; where nothing was, what runs; None while there is neither."""
    there, ready = view.pool, view.pool.ready
    if plan.pool is not None:
        placement = plan.pool.placement
        return Pool(
            there.name,
            placement.gpu_type,
            placement.tensor_parallel,
            placement.pipeline_parallel,
            plan.pool.replicas,
            ready,
        )
    if not there.exists:
        return None
    return Pool(there.name, there.gpu_type, there.tensor_parallel, there.pipeline_parallel, there.spec_replicas, ready)


def canary_of(view: ModelView, plan: ModelPlan) -> Pool | None:
    """The canary of a change, while there is one or is to be one."""
    change, there = plan.change, view.canary
    if change is None or change.canary is None:
        return None
    placed = change.canary
    return Pool(there.name, placed.gpu_type, placed.tensor_parallel, placed.pipeline_parallel, 1, there.ready)


def replicas_text(pool: Pool | None) -> str | None:
    """`ready/desired`."""
    return f"{pool.ready}/{pool.desired}" if pool else None


def pool_summary(pool: Pool | None, canary: Pool | None) -> str | None:
    """GPUs of one replica, and of a canary."""
    if pool is None or not pool.gpu_type:
        return None
    text = _gpus(pool)
    return f"{text}, canary {_gpus(canary)}" if canary is not None else text


def _gpus(pool: Pool) -> str:
    return f"{pool.tensor_parallel * pool.pipeline_parallel}x {pool.gpu_type}"


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
    pool, canary = pool_of(view, plan), canary_of(view, plan)
    values: dict[str, Any] = {
        "observed_generation": generation,
        "conditions": merge_conditions(old, conditions, generation=generation, now=rfc3339(now)),
        "slo": slo_text(view.intent.key, view.intent.slo),
        "pools": tuple(_pool_status(each) for each in (pool, canary) if each),
        "pool_summary": pool_summary(pool, canary),
        "replicas": replicas_text(pool),
        "cost_per_hour": cost_text(plan),
        "service_url": f"http://{plan.key.name}.{plan.key.namespace}.svc",
        "pinned": pinned,
        "last_decision": decision_status(decision) if decision else before.last_decision if before else None,
    }
    if "demand" in figures:
        values["demand"] = DemandStatus(
            requests_per_second=two_digits(figures["demand"].value),
            source="router" if view.routed else "engines",
            input_tokens=two_digits(figures["input tokens"].value) if "input tokens" in figures else None,
            output_tokens=two_digits(figures["output tokens"].value) if "output tokens" in figures else None,
        )
    if "mfu" in figures:
        values["gpu_use"] = GpuUseStatus(
            mfu=_share(figures, "mfu"),
            mbu=_share(figures, "mbu"),
            busy_mfu=_share(figures, "busy mfu"),
            busy_mbu=_share(figures, "busy mbu"),
            bottleneck=plan.figures.bottleneck or None,
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


def _share(figures: Mapping[str, Figure], name: str) -> str | None:
    return f"{two_digits(100.0 * figures[name].value)}%" if name in figures else None


def _pool_status(pool: Pool) -> PoolStatus:
    return PoolStatus(
        name=pool.name,
        role="Canary" if pool.name == CANARY_POOL else "Aggregated",
        gpu_type=pool.gpu_type or None,
        tensor_parallel=pool.tensor_parallel,
        pipeline_parallel=pool.pipeline_parallel,
        desired=pool.desired,
        ready=pool.ready,
    )


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
