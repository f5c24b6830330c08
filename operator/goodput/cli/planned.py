"""One Model planned: every option, the winner, notches of its SLO; and all of it as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from goodput.cli.figures import rounded
from goodput.domain.intent import GpuType, Objective
from goodput.perfmodel.binding import Bottleneck, bottleneck
from goodput.perfmodel.fleet import Fleet
from goodput.perfmodel.judging import Option, Verdict
from goodput.perfmodel.memory import engine_defaults
from goodput.perfmodel.notches import Notch, notches
from goodput.perfmodel.options import cheapest, options
from goodput.perfmodel.remedies import Diagnosis, diagnose
from goodput.perfmodel.requirements import Requirements


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What was asked for a Model, and everything that was found."""

    name: str
    slo: str
    wanted: Requirements
    options: tuple[Option, ...]
    notches: tuple[Notch, ...]
    plain: Option | None  # the cheapest without speculation, where it was asked for
    unbounded: Option | None  # the cheapest without the Model's caps, where these stand in the way
    diagnosis: Diagnosis | None  # why nothing meets the SLO, and what helps
    gpu_types: tuple[GpuType, ...]  # that were looked at
    left_out: Mapping[str, tuple[str, ...]]  # why -> types that were not
    reasoning_tokens: float = 0.0
    lengths_assumed: bool = False

    @property
    def winner(self) -> Option | None:
        """The option to take; None: none meets the SLO."""
        return self.options[0] if self.options and self.options[0].meets else None


def planned(
    name: str,
    slo: str,
    wanted: Requirements,
    types: Sequence[GpuType],
    *,
    every: Sequence[GpuType] = (),
    left_out: Mapping[str, tuple[str, ...]],
    free: Mapping[str, int] | None = None,
    reasoning_tokens: float = 0.0,
    lengths_assumed: bool = False,
) -> Planned:
    """Plan one Model on `types`; `free` holds free GPUs by type, None: all are there in plenty.

    `every` are the types that might be allowed where none of `types` does.
    """
    found = options(wanted, types, free)
    best = found[0] if found and found[0].meets else None
    return Planned(
        name=name,
        slo=slo,
        wanted=wanted,
        options=found,
        notches=notches(wanted, types, best) if best is not None else (),
        plain=None if wanted.speculation is None else cheapest(replace(wanted, speculation=None), types),
        unbounded=_unbounded(wanted, found, types),
        diagnosis=diagnose(wanted, found[0], every or types) if found and best is None else None,
        gpu_types=tuple(types),
        left_out=left_out,
        reasoning_tokens=reasoning_tokens,
        lengths_assumed=lengths_assumed,
    )


def _unbounded(wanted: Requirements, found: Sequence[Option], types: Sequence[GpuType]) -> Option | None:
    if not found or found[0].verdict is not Verdict.CAPPED:
        return None
    return cheapest(replace(wanted, max_replicas=None, max_cost_per_hour=None), types)


def together(online: Planned, batch: Planned) -> float | None:
    """What it would cost per hour more to serve the requests of `batch` in the fleet of `online`, under its SLO.

    None where the models differ, or nothing that has a price would do.
    """
    first, second = online.wanted, batch.wanted
    best = online.winner
    if first.arch != second.arch or best is None or best.fleet is None or not (first.rps and second.rps):
        return None
    rps = first.rps + second.rps
    share = second.rps / rps
    lengths = replace(
        first.lengths,
        input_mean=(1.0 - share) * first.lengths.input_mean + share * second.lengths.input_mean,
        output_mean=(1.0 - share) * first.lengths.output_mean + share * second.lengths.output_mean,
    )
    found = cheapest(replace(first, rps=rps, lengths=lengths), online.gpu_types, best)
    cost = None if found is None or found.fleet is None else found.fleet.cost.per_hour
    alone = best.fleet.cost.per_hour
    return None if cost is None or alone is None else cost - alone


def objective_as_json(objective: Objective) -> dict[str, Any]:
    """Bounds in seconds; one that is not set is null."""
    return {
        "ttftSeconds": objective.ttft_seconds,
        "tpotSeconds": objective.tpot_seconds,
        "e2eSeconds": objective.e2e_seconds,
        "attainment": objective.attainment,
    }


def as_json(plan: Planned) -> dict[str, Any]:
    """Everything, every option included."""
    wanted = plan.wanted
    return {
        "name": plan.name,
        "model": wanted.arch.name,
        "notCounted": list(wanted.arch.unsized_towers),
        "slo": {"name": plan.slo, **objective_as_json(wanted.objective)},
        "workload": {
            "requestsPerSecond": wanted.rps or None,
            "inputTokens": wanted.lengths.input_mean,
            "outputTokens": wanted.lengths.output_mean,
            "reasoningTokens": plan.reasoning_tokens,
            "lengthsAssumed": plan.lengths_assumed,
        },
        "chosen": plan.winner.label if plan.winner else None,
        "options": [option_as_json(wanted, option) for option in plan.options],
        "notches": [_notch(notch) for notch in plan.notches],
        "diagnosis": _diagnosis(plan.diagnosis) if plan.diagnosis else None,
        "leftOut": {why: list(names) for why, names in plan.left_out.items()},
    }


def option_bottleneck(wanted: Requirements, option: Option) -> Bottleneck | None:
    """What keeps a replica from carrying more; None where it was not sized."""
    if option.capacity is None:
        return None
    return bottleneck(wanted.arch, option.gpu, option.shape, wanted.lengths, option.capacity)


def option_as_json(wanted: Requirements, option: Option) -> dict[str, Any]:
    """One option; what was not reached (the time of what does not fit) is null. Percentiles are at the attainment."""
    return {
        "option": option.label,
        "gpuType": option.gpu.name,
        "tensorParallel": option.shape.tensor_parallel,
        "pipelineParallel": option.shape.pipeline_parallel,
        "maxNumSeqs": option.shape.max_num_seqs or engine_defaults(option.gpu)[0],
        "maxNumBatchedTokens": option.shape.max_num_batched_tokens or engine_defaults(option.gpu)[1],
        "speculation": None
        if option.shape.drafts is None
        else {"method": option.shape.drafts.method.value, "tokens": option.shape.drafts.tokens},
        "speculationNote": option.note or None,
        "verdict": option.verdict.value,
        "why": option.why or None,
        "field": option.field or None,
        "available": option.available,
        "memory": None
        if option.pool is None
        else {
            "weightBytes": round(option.pool.weight_bytes),
            "kvPoolBytes": round(option.pool.pool_bytes),
            "kvTokens": option.pool.tokens,
            "maxModelLen": option.pool.max_model_len,
        },
        "idle": None
        if option.idle is None
        else {
            "ttftSeconds": rounded(option.idle.ttft_mean_seconds),
            "tpotSeconds": rounded(option.idle.tpot_mean_seconds),
            "attainment": rounded(option.idle.good),
        },
        "capacity": None
        if option.capacity is None
        else {"requestsPerSecond": rounded(option.capacity.rps), "wall": option.capacity.wall.value},
        "fleet": None if option.fleet is None else _fleet(wanted, option, option.fleet),
    }


def _fleet(wanted: Requirements, option: Option, fleet: Fleet) -> dict[str, Any]:
    attainment, binds = wanted.objective.attainment, option_bottleneck(wanted, option)
    return {
        "replicas": fleet.replicas,
        "gpus": fleet.gpus,
        "requestsPerSecond": rounded(fleet.rps),
        "ttftSeconds": rounded(fleet.at_load.ttft_mean_seconds),
        "tpotSeconds": rounded(fleet.at_load.tpot_mean_seconds),
        "ttftPercentileSeconds": rounded(fleet.at_load.ttft.quantile(attainment)),
        "tpotPercentileSeconds": rounded(fleet.at_load.tpot.quantile(attainment)),
        "attainment": rounded(fleet.at_load.good),
        "costPerHour": rounded(fleet.cost.per_hour),
        "costPerThousandRequests": rounded(fleet.cost.per_thousand_requests),
        "costPerMillionOutputTokens": rounded(fleet.cost.per_million_output_tokens),
        "mfu": rounded(fleet.use.mfu, 3),
        "mbu": rounded(fleet.use.mbu, 3),
        "prefillShare": rounded(fleet.use.prefill_share, 3),
        "bottleneck": binds.value if binds else None,
        "watts": rounded(fleet.cost.watts),
        "kWhPerMillionOutputTokens": rounded(fleet.cost.kwh_per_million_output_tokens),
        "priceAssumed": option.gpu.price_assumed,
    }


def _notch(notch: Notch) -> dict[str, Any]:
    fleet = notch.option.fleet if notch.option else None
    return {
        "bound": notch.bound,
        "before": notch.before,
        "after": notch.after,
        "option": notch.option.label if notch.option else None,
        "costPerHour": rounded(fleet.cost.per_hour) if fleet else None,
        "saving": rounded(notch.saving, 3),
    }


def _diagnosis(found: Diagnosis) -> dict[str, Any]:
    return {
        "missed": found.missed.value,
        "boundSeconds": found.bound_seconds,
        "idleSeconds": rounded(found.seconds),
        "binds": found.binds.value,
        "causes": list(found.causes),
        "remedies": [
            {"what": remedy.what, "idleSeconds": rounded(remedy.seconds), "meets": remedy.meets}
            for remedy in found.remedies
        ],
    }
