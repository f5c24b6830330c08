"""GPU type and parallelism of one replica: the cheapest that fits and meets the SLO; who is placed stays placed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import ceil, sqrt

from msgspec.structs import replace

from goodput.decide.policy import Policy
from goodput.domain.architecture import Architecture
from goodput.domain.conditions import ConditionReason
from goodput.domain.decision import Rejected
from goodput.domain.errors import ModelDoesNotFit
from goodput.domain.intent import AS_STORED, UNSAID, GpuType, ModelIntent, Objective, Precision, Workload
from goodput.domain.observed import GpuSupply, PoolView
from goodput.domain.percent import MOST_DECIMALS, percent
from goodput.domain.plan import Placement
from goodput.domain.speculation import Speculation
from goodput.domain.values import Value
from goodput.perfmodel import Capacity, Lengths, Shape, engine_defaults
from goodput.perfmodel.capacity import replica_pool
from goodput.perfmodel.lengths import expected
from goodput.perfmodel.precision import cannot_keep, cannot_run
from goodput.perfmodel.speculating import choose
from goodput.perfmodel.speculation import drafts_of

_DEGREES = (1, 2, 4, 8)
# GPUs, and slices of them, that the engine's default image runs on.
_CUDA = "nvidia.com/"


class Placed(Value, frozen=True):
    """A placement, or why there is none (`reason`)."""

    placement: Placement | None
    gpu: GpuType | None = None
    reason: ConditionReason = ConditionReason.PLACED
    message: str = ""
    # Whether only a change of the Model or of GPUTypes can help (else: nodes that may come).
    stalled: bool = False


class _Option(Value, frozen=True):
    gpu: GpuType
    tensor_parallel: int
    capacity: Capacity
    has_room: bool
    replicas: int  # that the expected load needs; 1: nobody said what to expect

    @property
    def gpus(self) -> int:
        """GPUs of all these replicas."""
        return self.tensor_parallel * self.replicas

    @property
    def label(self) -> str:
        return f"{self.gpu.name} TP{self.tensor_parallel}"


def prior_lengths(workload: Workload, policy: Policy) -> Lengths:
    """Lengths of requests until metrics speak: what the author expects, else those of a public trace."""
    return expected(workload, policy.prior_input_tokens, policy.prior_output_tokens)


def shape_of(
    intent: ModelIntent,
    placement: Placement,
    tokens: int,
    *,
    accepted: float | None = None,
    coverage: float | None = None,
) -> Shape:
    """A replica of `placement` that drafts `tokens` at a time (0: none); `accepted` and `coverage` as counted."""
    speculation = intent.speculation if tokens else None
    drafts = None
    if speculation is not None:
        drafts = drafts_of(
            speculation.method,
            tokens,
            speculation.acceptance,
            # In steps of a twentieth, so that what is hardly different is worked out once.
            accepted_per_draft=None if accepted is None else round(accepted * 20.0) / 20.0,
            coverage=None if coverage is None else round(coverage * 20.0) / 20.0,
        )
    return Shape(
        tensor_parallel=placement.tensor_parallel,
        pipeline_parallel=placement.pipeline_parallel,
        kv_dtype=kv_dtype(intent.precision),
        speculation=speculation,
        drafts=drafts,
    )


def kv_dtype(precision: Precision) -> str:
    """Precision of the KV cache as the performance model names it."""
    return precision.kv_cache or "auto"


def _precision_problem(arch: Architecture, precision: Precision, gpu: GpuType) -> str:
    """Why this type runs no replica in this precision, with the field to change; empty where it does."""
    reason = cannot_run(arch.precision, gpu)
    if reason:
        return f"{'spec.model' if precision.weights is None else 'spec.precision.weights'}: {reason}"
    reason = cannot_keep(kv_dtype(precision), gpu)
    return f"spec.precision.kvCache: {reason}" if reason else ""


def place(
    intent: ModelIntent,
    pool: PoolView,
    gpus: Mapping[str, GpuType],
    supply: Mapping[str, GpuSupply],
    policy: Policy,
    *,
    strangers: str = "",
) -> Placed:
    """Placement of a Model. What is placed stays, unless its type is gone, disallowed or its parallelism was edited.

    `strangers` says which accelerators there are that no type counts, for who finds no other.
    """
    arch, objective = intent.architecture, intent.objective
    if arch is None:
        return Placed(
            None,
            None,
            ConditionReason.ARCHITECTURE_UNKNOWN,
            f"spec.architecture: {intent.model} is not built in: give the fields of its config.json",
            True,
        )
    if objective is None:
        return Placed(None, None, ConditionReason.SLO_NOT_FOUND, f"spec.slo: SLO {intent.slo} was never seen", True)
    unknown = [name for name in intent.gpu_types if name not in gpus]
    if unknown and len(unknown) == len(intent.gpu_types):
        return Placed(
            None,
            None,
            ConditionReason.GPU_TYPE_NOT_FOUND,
            f"spec.gpuTypes: no GPUType named {', '.join(unknown)} exists or is built in",
            True,
        )
    incumbent = _incumbent(intent, pool, gpus, supply)
    if incumbent is not None:
        try:
            return Placed(
                replica(
                    arch,
                    incumbent,
                    objective,
                    policy,
                    tensor_parallel=pool.tensor_parallel,
                    pipeline_parallel=pool.pipeline_parallel,
                    admission=intent.admission,
                    precision=intent.precision,
                    workload=_lengths_only(intent.workload),
                    speculation=intent.speculation,
                ),
                incumbent,
            )
        except ModelDoesNotFit as error:
            return Placed(None, None, ConditionReason.DOES_NOT_FIT, _unfit(intent, str(error)), True)
    return _choose(intent, arch, objective, gpus, supply, policy=policy, strangers=strangers)


def moving(pool: PoolView, placement: Placement) -> bool:
    """Whether what runs is of another GPU type or parallelism than what is to run: its pods are all to be replaced."""
    runs = (pool.gpu_type, pool.tensor_parallel, pool.pipeline_parallel)
    return pool.exists and runs != (placement.gpu_type, placement.tensor_parallel, placement.pipeline_parallel)


def _incumbent(
    intent: ModelIntent, pool: PoolView, gpus: Mapping[str, GpuType], supply: Mapping[str, GpuSupply]
) -> GpuType | None:
    gpu = gpus.get(pool.gpu_type) if pool.exists else None
    if gpu is None or (intent.gpu_types and gpu.name not in intent.gpu_types):
        return None
    if intent.tensor_parallel not in (None, pool.tensor_parallel):
        return None
    if (intent.pipeline_parallel or 1) != pool.pipeline_parallel:
        return None
    if intent.architecture is not None and _precision_problem(intent.architecture, intent.precision, gpu):
        return None
    if pool.carrier in gpu.alternatives:
        # Other labels of the same nodes appeared, or became more: no reason to render its pods anew.
        gpu = replace(
            gpu,
            resource_name=pool.carrier.resource_name,
            node_selector=pool.carrier.node_selector,
            alternatives=tuple(way for way in gpu.carriers if way != pool.carrier),
        )
    there = supply.get(gpu.name)
    if any(pod.node is not None for pod in pool.pods) or (there is not None and there.capacity > 0):
        return gpu
    # No node of the type is left and nothing runs: stay only if there is nowhere else to go.
    elsewhere = any(
        other.capacity > 0 and name != gpu.name and name in gpus and _allowed(intent, gpus[name])
        for name, other in supply.items()
    )
    return None if elsewhere else gpu


def _allowed(intent: ModelIntent, gpu: GpuType) -> bool:
    """Whether replicas may go to this type. Who names one that CUDA does not run on brings an image for it."""
    return gpu.name in intent.gpu_types if intent.gpu_types else gpu.resource_name.startswith(_CUDA)


def _lengths_only(workload: Workload) -> Workload:
    """What the settings of one replica depend on: not how many of them there will be."""
    return replace(workload, requests_per_second=None) if workload.requests_per_second is not None else workload


def _choose(
    intent: ModelIntent,
    arch: Architecture,
    objective: Objective,
    gpus: Mapping[str, GpuType],
    supply: Mapping[str, GpuSupply],
    *,
    policy: Policy,
    strangers: str,
) -> Placed:
    rejected: list[Rejected] = []
    options: list[_Option] = []
    unfit: list[str] = []
    invalid: list[tuple[ConditionReason, str]] = []
    unnamed: list[str] = []
    allowed = sorted(intent.gpu_types) if intent.gpu_types else sorted(gpus)
    present = False
    for name in allowed:
        gpu = gpus.get(name)
        if gpu is None:
            rejected.append(Rejected(name, "no GPUType of that name exists or is built in"))
            continue
        there = supply.get(name)
        if there is None or there.capacity <= 0:
            if intent.gpu_types:
                rejected.append(Rejected(name, "no node of the cluster has it"))
            continue
        if not _allowed(intent, gpu):
            unnamed.append(name)
            rejected.append(
                Rejected(
                    name,
                    f"the default engine image does not run on {gpu.resource_name}: set spec.engine.image to one that "
                    "does, and name the type in spec.gpuTypes",
                )
            )
            continue
        present = True
        problem = _precision_problem(arch, intent.precision, gpu)
        reason = ConditionReason.PRECISION_INVALID
        if not problem:
            problem, reason = _parallelism_problem(intent, arch, gpu), ConditionReason.PARALLELISM_INVALID
        if problem:
            invalid.append((reason, problem))
            rejected.append(Rejected(name, problem))
            continue
        option = _smallest(intent, arch, objective, gpu, there, policy=policy, rejected=rejected, unfit=unfit)
        if option is not None:
            options.append(option)
    if not options:
        return _nothing(intent, allowed, present, unfit, invalid, unnamed=unnamed, strangers=strangers)
    if policy.max_cost_per_hour_per_namespace is not None:
        options = _priced_if_any(options, rejected)
    unpriced = [option.gpu.name for option in options if option.gpu.price_per_hour is None]
    best = min(options, key=lambda option: _rank(option, not unpriced))
    others = sorted((option for option in options if option is not best), key=lambda option: option.label)
    rejected.extend(Rejected(option.label, _compare(option, best)) for option in others)
    message = ""
    reason = ConditionReason.PLACED
    if unpriced:
        reason = ConditionReason.PRICE_UNKNOWN
        message = f"no price is known for {', '.join(sorted(unpriced))}: ranked by GPUs, not by cost"
    placement = replica(
        arch,
        best.gpu,
        objective,
        policy,
        tensor_parallel=best.tensor_parallel,
        pipeline_parallel=intent.pipeline_parallel or 1,
        admission=intent.admission,
        precision=intent.precision,
        workload=_lengths_only(intent.workload),
        speculation=intent.speculation,
        rejected=tuple(rejected),
    )
    return Placed(placement, best.gpu, reason, message)


def _priced_if_any(options: list[_Option], rejected: list[Rejected]) -> list[_Option]:
    """Those with a price, if there are any: of others a namespace with a limit of cost gets no replica."""
    priced = [option for option in options if option.gpu.price_per_hour is not None]
    if not priced:
        return options
    rejected.extend(
        Rejected(option.label, "no price of it is known, and what a namespace may spend is limited")
        for option in options
        if option.gpu.price_per_hour is None
    )
    return priced


def _parallelism_problem(intent: ModelIntent, arch: Architecture, gpu: GpuType) -> str:
    tensor = intent.tensor_parallel or 1
    if arch.attention_heads % tensor:
        return f"spec.parallelism.tensor: {tensor} does not divide the {arch.attention_heads} attention heads"
    total = tensor * (intent.pipeline_parallel or 1)
    if total > gpu.gpus_per_node:
        return f"spec.parallelism: {total} GPUs are needed in one pod, a node of {gpu.name} has {gpu.gpus_per_node}"
    return ""


def _smallest(
    intent: ModelIntent,
    arch: Architecture,
    objective: Objective,
    gpu: GpuType,
    there: GpuSupply,
    *,
    policy: Policy,
    rejected: list[Rejected],
    unfit: list[str],
) -> _Option | None:
    """The smallest tensor parallelism that fits and meets the SLO; if none meets it, the largest that fits."""
    stages = intent.pipeline_parallel or 1
    degrees = (intent.tensor_parallel,) if intent.tensor_parallel else _DEGREES
    fallback = None
    for degree in degrees:
        if degree * stages > gpu.gpus_per_node or arch.attention_heads % degree:
            continue
        shape = Shape(tensor_parallel=degree, pipeline_parallel=stages, kv_dtype=kv_dtype(intent.precision))
        try:
            found = choose(
                arch, gpu, shape, prior_lengths(intent.workload, policy), objective, speculation=intent.speculation
            ).capacity
        except ModelDoesNotFit as error:
            unfit.append(str(error))
            rejected.append(Rejected(f"{gpu.name} TP{degree}", str(error)))
            continue
        option = _Option(gpu, degree, found, there.free >= degree * stages, _replicas(intent, found.rps, policy))
        if found.feasible:
            return option
        rejected.append(
            Rejected(
                option.label,
                f"an idle replica meets the SLO for {percent(found.idle.good, 1)} of requests, not "
                f"{percent(objective.attainment, MOST_DECIMALS)}",
            )
        )
        fallback = option
    return fallback


def _replicas(intent: ModelIntent, rps: float, policy: Policy) -> int:
    """Replicas of `rps` requests/s that the expected load needs, within the bounds of the Model."""
    rate = intent.workload.requests_per_second
    if rate is None or rps <= 0.0:
        return 1
    wanted = max(intent.min_replicas, ceil(rate * (1.0 + policy.headroom) / rps - 1e-9))
    return min(wanted, intent.max_replicas) if intent.max_replicas is not None else wanted


def _rank(option: _Option, priced: bool) -> tuple[int, int, float, float, str]:
    """Smaller is better: feasible, with GPUs free, cheap (or few GPUs), strong; then by name."""
    cost = (option.gpu.price_per_hour or 0.0) * option.gpus if priced else float(option.gpus)
    return (
        0 if option.capacity.feasible else 1,
        0 if option.has_room else 1,
        cost,
        -option.capacity.rps,
        option.gpu.name,
    )


def _compare(option: _Option, best: _Option) -> str:
    if best.capacity.feasible and not option.capacity.feasible:
        return "does not meet the SLO even when idle"
    if best.has_room and not option.has_room:
        return "none of its GPUs is free"
    price = option.gpu.price_per_hour
    cost = "price unknown" if price is None else f"{price * option.gpus:.2f} $/h"
    several = f"{option.replicas} replicas of " if option.replicas > 1 else ""
    return f"{cost} for {several}{option.capacity.rps:.2f} requests/s a replica, {best.label} was preferred"


def _unfit(intent: ModelIntent, message: str) -> str:
    """Names what its author can change."""
    if intent.tensor_parallel or intent.pipeline_parallel:
        return f"spec.parallelism: {message}: give a replica more GPUs, or leave it unset"
    return f"spec.model: {message}: allow larger GPU types, or serve a smaller model"


def _nothing(
    intent: ModelIntent,
    allowed: list[str],
    present: bool,
    unfit: list[str],
    invalid: list[tuple[ConditionReason, str]],
    *,
    unnamed: list[str],
    strangers: str,
) -> Placed:
    if unfit:
        return Placed(None, None, ConditionReason.DOES_NOT_FIT, _unfit(intent, unfit[-1]), True)
    if invalid:
        return Placed(None, None, *invalid[0], True)
    if intent.gpu_types:
        message = f"spec.gpuTypes: no node of the cluster has {', '.join(allowed)}: add nodes, or name other types"
    elif unnamed:
        message = (
            f"spec.gpuTypes: nodes have {', '.join(unnamed)} only, on which the default engine image does not run: set "
            "spec.engine.image to one that does, and name the types here"
        )
        return Placed(None, None, ConditionReason.NO_GPU_TYPE, message, True)
    else:
        message = (
            "no node of the cluster has any known GPU type: add nodes, or a GPUType that names the labels of yours"
        )
    if strangers:
        message = f"{message} ({strangers})"
    return Placed(None, None, ConditionReason.NO_GPU_TYPE, message, present)


@lru_cache(maxsize=4096)
def replica(
    arch: Architecture,
    gpu: GpuType,
    objective: Objective,
    policy: Policy,
    *,
    tensor_parallel: int,
    pipeline_parallel: int,
    admission: bool,
    precision: Precision = AS_STORED,
    workload: Workload = UNSAID,
    speculation: Speculation | None = None,
    rejected: tuple[Rejected, ...] = (),
) -> Placement:
    """Settings of one replica. They depend on what is known at placement only, never on live metrics.

    Raises `ModelDoesNotFit`.
    """
    shape = Shape(tensor_parallel=tensor_parallel, pipeline_parallel=pipeline_parallel, kv_dtype=kv_dtype(precision))
    lengths = prior_lengths(workload, policy)
    choice = choose(arch, gpu, shape, lengths, objective, speculation=speculation)
    found = choice.capacity
    pool = replica_pool(arch, gpu, choice.shape)
    if choice.message:
        rejected = (*rejected, Rejected("plain decoding" if choice.tokens else "speculation", choice.message))
    sequences, batched_tokens = engine_defaults(gpu)
    queued_requests = queued_tokens = None
    if admission:
        # In flight where the mean request just misses, three deviations of its own noise, and what may wait.
        in_flight = found.overload_sequences + 3.0 * sqrt(max(1.0, found.overload_sequences))
        wait_seconds = objective.ttft_seconds or objective.e2e_seconds or 10.0
        waiting = wait_seconds * found.prefill_tokens_per_second / lengths.input_mean
        queued_requests = max(8, ceil(in_flight + waiting))
        queued_tokens = max(ceil(wait_seconds * found.prefill_tokens_per_second), pool.max_model_len)
    return Placement(
        gpu_type=gpu.name,
        resource_name=gpu.resource_name,
        node_selector=gpu.node_selector,
        tolerations=gpu.tolerations,
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        max_num_seqs=sequences,
        max_num_batched_tokens=batched_tokens,
        max_model_len=pool.max_model_len,
        speculative_tokens=choice.tokens,
        max_num_queued_requests=queued_requests,
        max_num_queued_tokens=queued_tokens,
        capacity_rps=found.rps,
        price_per_hour=None if gpu.price_per_hour is None else gpu.price_per_hour * tensor_parallel * pipeline_parallel,
        price_assumed=gpu.price_assumed,
        rejected=rejected,
    )
