"""The choice of GPU type and parallelism for a Model that is not placed: the first option, and why it is no other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from goodput.decide.engine import prior_lengths
from goodput.decide.policy import Policy
from goodput.domain.architecture import Architecture
from goodput.domain.conditions import ConditionReason
from goodput.domain.decision import Rejected
from goodput.domain.intent import GpuType, ModelIntent, Objective
from goodput.domain.observed import GpuSupply
from goodput.domain.values import Value
from goodput.perfmodel.config_towers import towers_remark
from goodput.perfmodel.judging import Option, Verdict
from goodput.perfmodel.options import allowed, options
from goodput.perfmodel.requirements import Requirements

# Rejected options that are told, the best of every type first.
MOST_REJECTED = 16
_REASONS = {
    Verdict.TOO_SHORT: ConditionReason.DOES_NOT_FIT,
    Verdict.TOO_LARGE: ConditionReason.DOES_NOT_FIT,
    Verdict.UNSUPPORTED: ConditionReason.PRECISION_INVALID,
    Verdict.INVALID: ConditionReason.PARALLELISM_INVALID,
}
NOTHING_BEYOND: Mapping[str, str] = {}
_OTHER_IMAGE = "set spec.engine.image to one that does, and name the"


class Chosen(Value, frozen=True, kw_only=True):
    """An option to place, or `reason` and `message` of there being none, and what was rejected."""

    option: Option | None
    rejected: tuple[Rejected, ...] = ()
    reason: ConditionReason = ConditionReason.PLACED
    message: str = ""
    # Whether only a change of the Model or of GPUTypes can help (else: nodes that may come).
    stalled: bool = False


def requirements(intent: ModelIntent, arch: Architecture, objective: Objective, policy: Policy) -> Requirements:
    """What options are judged by for this Model."""
    return Requirements(
        arch=arch,
        objective=objective,
        lengths=prior_lengths(intent.workload, policy),
        rps=intent.workload.requests_per_second or 0.0,
        headroom=policy.headroom,
        tensor_parallel=intent.tensor_parallel,
        pipeline_parallel=intent.pipeline_parallel,
        precision=intent.precision,
        speculation=intent.speculation,
        min_replicas=intent.min_replicas,
        max_replicas=intent.max_replicas,
        max_cost_per_hour=intent.max_cost_per_hour,
    )


def choose(
    intent: ModelIntent,
    wanted: Requirements,
    gpus: Mapping[str, GpuType],
    supply: Mapping[str, GpuSupply],
    free: Mapping[str, int],
    *,
    policy: Policy,
    strangers: str,
    beyond: Mapping[str, str] = NOTHING_BEYOND,
) -> Chosen:
    """The first option on the types of the cluster; of those that the Model names, if it names any.

    Where none meets the SLO: the nearest that runs. `free` holds free GPUs by type, `supply` what its pods reach, and
    `beyond` tells by type what they do not reach.
    """
    names = intent.gpu_types
    rejected: list[Rejected] = []
    there: list[GpuType] = []
    for name in sorted(set(names) or gpus):
        gpu, stock = gpus.get(name), supply.get(name)
        if gpu is None:
            rejected.append(Rejected(name, "no GPUType of that name exists or is built in"))
        elif stock is not None and stock.capacity > 0:
            there.append(gpu)
        elif name in beyond:
            rejected.append(Rejected(name, beyond[name]))
        elif names:
            rejected.append(Rejected(name, "no node of the cluster has it"))
    usable, foreign = allowed(there, names)
    rejected += [
        Rejected(
            name,
            f"the default engine image does not run on {gpus[name].resource_name}: {_OTHER_IMAGE} type in "
            "spec.gpuTypes",
        )
        for name in foreign
    ]
    found = _affordable(wanted, usable, free, policy, rejected)
    best = next((option for option in found if option.runs), None)
    if best is None:
        return _nothing(intent, found, foreign, strangers, beyond)
    rejected += _told(found, best)
    reason, message = _remark(wanted, found, best)
    return Chosen(option=best, rejected=tuple(rejected), reason=reason, message=message)


def _affordable(
    wanted: Requirements,
    usable: Sequence[GpuType],
    free: Mapping[str, int],
    policy: Policy,
    rejected: list[Rejected],
) -> tuple[Option, ...]:
    """Options on types with a price where a namespace's costs are limited: of others it would get no replica.

    Where nothing with a price runs, the others count all the same: what lacks is told with the replicas.
    """
    unpriced = [gpu.name for gpu in usable if gpu.price_per_hour is None]
    if policy.max_cost_per_hour_per_namespace is not None and unpriced:
        found = options(wanted, [gpu for gpu in usable if gpu.price_per_hour is not None], free)
        if any(option.runs for option in found):
            why = "no price of it is known, and what a namespace may spend is limited"
            rejected += [Rejected(name, why) for name in unpriced]
            return found
    return options(wanted, usable, free)


def _told(found: Sequence[Option], best: Option) -> list[Rejected]:
    """Why the others lost: the best of every type, then as many more as are told, in the order of options."""
    others = [(place, option) for place, option in enumerate(found) if option is not best]
    of_type: Counter[str] = Counter()
    turns = []
    for place, option in others:
        turns.append((of_type[option.gpu.name], place))
        of_type[option.gpu.name] += 1
    told = sorted(place for _, place in sorted(turns)[:MOST_REJECTED])
    rejected = [Rejected(found[place].label, _why(found[place])) for place in told]
    if len(others) > len(told):
        rejected.append(Rejected(f"{len(others) - len(told)} others", "no better than those of the same GPU types"))
    return rejected


def _why(option: Option) -> str:
    return f"{option.field}: {option.why}" if option.field else option.why


def _remark(wanted: Requirements, found: Sequence[Option], best: Option) -> tuple[ConditionReason, str]:
    """What is to be said of a choice that does not go without saying."""
    if best.verdict in (Verdict.BUSY_MISSES, Verdict.MISSES):
        return ConditionReason.PLACED, f"no option meets the SLO, {best.label} comes nearest: {best.why}"
    peers = [option for option in found if option.verdict is best.verdict and option.fleet is not None]
    unpriced = sorted({o.gpu.name for o in peers if o.fleet is not None and o.fleet.cost.per_hour is None})
    texts = []
    if best.verdict is Verdict.CAPPED:
        texts.append(f"no fleet for the expected load is allowed: {best.why}")
    if unpriced:
        how = (
            "ranked by GPUs, not by cost"
            if best.gpu.name in unpriced
            else "not compared by cost, and taken only where no type with a price does"
        )
        texts.append(f"no price is known for {', '.join(unpriced)}: {how}")
    if towers := towers_remark(wanted.arch):
        texts.append(towers)
    return ConditionReason.PRICE_UNKNOWN if unpriced else ConditionReason.PLACED, "; ".join(texts)


def unfit(intent: ModelIntent, message: str) -> str:
    """Why nothing holds the Model, with what its author can change."""
    if intent.tensor_parallel or intent.pipeline_parallel:
        return f"spec.parallelism: {message}: give a replica more GPUs, or leave it unset"
    return f"spec.model: {message}: allow larger GPU types, or serve a smaller model"


def _nothing(
    intent: ModelIntent, found: Sequence[Option], foreign: Sequence[str], strangers: str, beyond: Mapping[str, str]
) -> Chosen:
    """Why no option runs: the nearest one says it."""
    if found:
        nearest = found[0]
        reason = _REASONS[nearest.verdict]
        message = unfit(intent, nearest.why) if nearest.verdict is Verdict.TOO_LARGE else _why(nearest)
        return Chosen(option=None, reason=reason, message=message, stalled=True)
    if foreign:
        message = (
            f"spec.gpuTypes: nodes have {', '.join(foreign)} only, on which the default engine image does not run: "
            f"{_OTHER_IMAGE} types here"
        )
        return Chosen(option=None, reason=ConditionReason.NO_GPU_TYPE, message=message, stalled=True)
    closed = [text for name, text in sorted(beyond.items()) if not intent.gpu_types or name in intent.gpu_types]
    if closed:
        return Chosen(option=None, reason=ConditionReason.NO_GPU_TYPE, message="; ".join(closed))
    if intent.gpu_types:
        named = ", ".join(sorted(intent.gpu_types))
        message = f"spec.gpuTypes: no node of the cluster has {named}: add nodes, or name other types"
    else:
        message = (
            "no node of the cluster has any known GPU type: add nodes, or a GPUType that names the labels of yours"
        )
    told = f"{message} ({strangers})" if strangers else message
    return Chosen(option=None, reason=ConditionReason.NO_GPU_TYPE, message=told)
