"""One replica as it is to run: its shape, and the settings of its engine."""

from __future__ import annotations

from functools import lru_cache
from math import ceil, sqrt

from msgspec.structs import asdict, replace

from goodput.decide.policy import Policy
from goodput.domain.architecture import Architecture
from goodput.domain.change import fingerprint
from goodput.domain.decision import Rejected
from goodput.domain.errors import ModelDoesNotFit
from goodput.domain.intent import GpuType, ModelIntent, Objective, Precision, Workload
from goodput.domain.plan import Placement
from goodput.domain.remembered import for_each_model
from goodput.domain.speculation import Speculation
from goodput.perfmodel import Lengths, Shape, engine_defaults
from goodput.perfmodel.capacity import overload_sequences, replica_pool
from goodput.perfmodel.lengths import expected
from goodput.perfmodel.requirements import Requirements
from goodput.perfmodel.speculating import choose
from goodput.perfmodel.speculation import drafts_of
from goodput.perfmodel.tuning import tuned

# What is believed of memory is never off by as much as this.
_MOST_MEMORY = 4.0
_HALVINGS = 16


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
        max_num_seqs=placement.max_num_seqs,
        max_num_batched_tokens=placement.max_num_batched_tokens,
        kv_dtype=intent.precision.kv_cache or "auto",
        speculation=speculation,
        drafts=drafts,
    )


def _lengths_only(workload: Workload) -> Workload:
    """What the settings of one replica depend on: not how many of them there will be."""
    return replace(workload, requests_per_second=None) if workload.requests_per_second is not None else workload


def _sized_for(objective: Objective, workload: Workload) -> str:
    """A fingerprint of what authors of SLO and Model say of it; what is unset is left out, as for a newer operator."""
    bounds: tuple[object, ...]
    bounds = (objective.ttft_seconds, objective.tpot_seconds, objective.e2e_seconds, objective.attainment)
    if objective.batch:
        bounds = (*bounds, "batch")
    said = tuple(sorted((name, value) for name, value in asdict(workload).items() if value))
    return fingerprint(bounds, said)


def replica_of(
    intent: ModelIntent,
    gpu: GpuType,
    tensor_parallel: int,
    pipeline_parallel: int,
    *,
    policy: Policy,
    rejected: tuple[Rejected, ...] = (),
) -> Placement:
    """Settings of one replica of a Model whose architecture and objective are known.

    Raises `ModelDoesNotFit`.
    """
    assert intent.architecture is not None
    assert intent.objective is not None
    return _replica(
        intent.architecture,
        gpu,
        intent.objective,
        policy,
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        admission=intent.admission,
        precision=intent.precision,
        workload=_lengths_only(intent.workload),
        speculation=intent.speculation,
        rejected=rejected,
    )


def price_of(gpu: GpuType, gpus: int) -> float | None:
    """Price per hour of so many GPUs, None where nobody knows it."""
    return None if gpu.price_per_hour is None else gpu.price_per_hour * gpus


def holding(intent: ModelIntent, gpu: GpuType, runs: Placement) -> GpuType | None:
    """`gpu` with the memory that replicas which run as `runs` show it to have, though less of it is believed.

    An engine that started holds a request of the length that it admits: as much memory as that takes. None: no memory
    would do by what is believed.
    """
    assert intent.architecture is not None
    shape = shape_of(intent, runs, runs.speculative_tokens)
    return _holding(intent.architecture, gpu, shape, runs.max_model_len)


@lru_cache(maxsize=for_each_model(1))
def _holding(arch: Architecture, gpu: GpuType, shape: Shape, tokens: int) -> GpuType | None:
    def with_share(share: float) -> GpuType:
        return replace(gpu, memory_bytes=share * gpu.memory_bytes)

    def holds(share: float) -> bool:
        try:
            return replica_pool(arch, with_share(share), shape).max_model_len >= tokens
        except ModelDoesNotFit:
            return False

    low, high = 1.0, _MOST_MEMORY
    if not holds(high):
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if holds(middle) else (middle, high)
    return with_share(high)


@lru_cache(maxsize=for_each_model(2))
def _replica(
    arch: Architecture,
    gpu: GpuType,
    objective: Objective,
    policy: Policy,
    *,
    tensor_parallel: int,
    pipeline_parallel: int,
    admission: bool,
    precision: Precision,
    workload: Workload,
    speculation: Speculation | None,
    rejected: tuple[Rejected, ...],
) -> Placement:
    """They depend on what is known at placement only, never on live metrics."""
    lengths = prior_lengths(workload, policy)
    wanted = Requirements(arch=arch, objective=objective, lengths=lengths, precision=precision, speculation=speculation)
    limits = tuned(wanted, gpu, wanted.plain(tensor_parallel, pipeline_parallel)).shape
    plain = replace(limits, speculation=None, drafts=None)
    choice = choose(arch, gpu, plain, lengths, objective, speculation=speculation)
    found = choice.capacity
    pool = replica_pool(arch, gpu, choice.shape)
    if choice.message:
        rejected = (*rejected, Rejected("plain decoding" if choice.tokens else "speculation", choice.message))
    sequences, batched_tokens = engine_defaults(gpu)
    queued_requests = queued_tokens = None
    if admission:
        # In flight where the mean request just misses, three deviations of its own noise, and what may wait.
        overload = overload_sequences(arch, gpu, choice.shape, lengths, objective)
        in_flight = overload + 3.0 * sqrt(max(1.0, overload))
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
        max_num_seqs=plain.max_num_seqs or sequences,
        max_num_batched_tokens=plain.max_num_batched_tokens or batched_tokens,
        max_model_len=pool.max_model_len,
        speculative_tokens=choice.tokens,
        max_num_queued_requests=queued_requests,
        max_num_queued_tokens=queued_tokens,
        sized_for=_sized_for(objective, workload),
        capacity_rps=found.rps,
        price_per_hour=price_of(gpu, tensor_parallel * pipeline_parallel),
        price_assumed=gpu.price_assumed,
        rejected=rejected,
    )
