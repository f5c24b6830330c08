"""One option of placement, judged: can it run, how long does it take, what does it cost - in this order."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache

from msgspec.structs import replace

from goodput.domain.architecture import Architecture
from goodput.domain.errors import ModelDoesNotFit
from goodput.domain.intent import GpuType, Precision
from goodput.domain.remembered import for_each_model
from goodput.domain.values import Value
from goodput.perfmodel.capacity import Capacity, Latency, Shape, latency, replica_pool
from goodput.perfmodel.fleet import Fleet, fleet_of
from goodput.perfmodel.memory import KvPool
from goodput.perfmodel.precision import cannot_keep, cannot_run
from goodput.perfmodel.requirements import Requirements
from goodput.perfmodel.speculating import Choice, choose
from goodput.perfmodel.verdicts import busy, missed, short_of, shortfall
from goodput.perfmodel.weights import Parallel, cannot_split

DEGREES = (1, 2, 4, 8)


class Verdict(StrEnum):
    """What came of an option, best first."""

    MEETS = "Meets"  # runs, and meets the SLO at the expected demand
    DEARER = "Dearer"  # no fleet of it that costs less than a smaller replica of the same type can meet the SLO
    CAPPED = "Capped"  # meets the SLO, though not for the whole demand: the author's caps allow too few replicas
    BUSY_MISSES = "BusyMisses"  # an idle replica meets the SLO, one at the least rate that it is given does not
    MISSES = "Misses"  # runs, but even an idle replica misses the SLO
    TOO_SHORT = "TooShort"  # fits, but no request of the mean length fits its KV cache
    TOO_LARGE = "TooLarge"  # does not fit
    UNSUPPORTED = "Unsupported"  # the GPU does not run the precision
    INVALID = "Invalid"  # the parallelism that was asked for does not exist there


_RUNS = frozenset({Verdict.MEETS, Verdict.CAPPED, Verdict.BUSY_MISSES, Verdict.MISSES})


class Option(Value, frozen=True, kw_only=True):
    """One way to place a Model. `why` says in words what kept it from winning ('' for the winner)."""

    gpu: GpuType
    shape: Shape  # with its drafts, where it speculates
    verdict: Verdict
    why: str = ""
    field: str = ""  # of the Model, where that keeps it from running
    note: str = ""  # why it speculates, or why not, where that was asked for
    pool: KvPool | None = None
    idle: Latency | None = None
    capacity: Capacity | None = None
    fleet: Fleet | None = None
    free: int | None = None  # free GPUs of the type; None: plenty
    # How far it is from the demand (share of replicas that its fleet lacks), from the SLO (share of requests, or
    # `verdicts.shortfall`), from holding the model (its weights over the memory of a replica) or a request (its
    # tokens over those of the longest), or from existing (its GPUs over those of a node).
    shortfall: float = 0.0

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.shape.tensor_parallel * self.shape.pipeline_parallel

    @property
    def label(self) -> str:
        """Such as `l40s TP2`, `a100-40g-sxm TP4 PP2` or `l4 TP1 ngram4`."""
        stages = f" PP{self.shape.pipeline_parallel}" if self.shape.pipeline_parallel > 1 else ""
        drafts = self.shape.drafts
        drafting = f" {drafts.method.value}{drafts.tokens}" if drafts is not None else ""
        return f"{self.gpu.name} TP{self.shape.tensor_parallel}{stages}{drafting}"

    @property
    def meets(self) -> bool:
        """Whether it runs and meets the SLO at the expected demand."""
        return self.verdict is Verdict.MEETS

    @property
    def runs(self) -> bool:
        """Whether a replica would serve requests, however well."""
        return self.verdict in _RUNS

    @property
    def starts(self) -> bool:
        """Whether the GPUs of one replica are free."""
        return self.free is None or self.free >= self.gpus

    @property
    def available(self) -> bool:
        """Whether as many GPUs as the fleet needs (one replica, where it was not sized) are free."""
        needed = self.fleet.gpus if self.fleet is not None else self.gpus
        return self.free is None or self.free >= needed


def unsupported(arch: Architecture, precision: Precision, gpu: GpuType) -> tuple[str, str] | None:
    """(field of a Model, why) where this type runs no replica in this precision; None where it does."""
    reason = cannot_run(arch.precision, gpu)
    if reason:
        return "spec.model" if precision.weights is None else "spec.precision.weights", reason
    reason = cannot_keep(precision.kv_cache or "auto", gpu)
    return ("spec.precision.kvCache", reason) if reason else None


def shapes(wanted: Requirements, gpu: GpuType) -> Iterator[Shape]:
    """Parallelisms that exist on a node of this type, in the order in which they are to be tried.

    Replicas come before pipeline stages: a stage is considered only where nothing else of the type holds the model, or
    where no objective bounds the time of a token.
    """
    stages = (wanted.pipeline_parallel,) if wanted.pipeline_parallel else DEGREES
    degrees = (wanted.tensor_parallel,) if wanted.tensor_parallel else DEGREES
    for pipeline in stages:
        if wanted.pipeline_parallel is None and pipeline > 1 and not (wanted.patient or not _fits(wanted, gpu)):
            return
        for tensor in degrees:
            if tensor * pipeline <= gpu.gpus_per_node and _exists(wanted, tensor, pipeline):
                yield wanted.plain(tensor, pipeline)


def _exists(wanted: Requirements, tensor: int, pipeline: int = 1) -> bool:
    return cannot_split(wanted.arch, Parallel(tensor=tensor, pipeline=pipeline)) is None


@lru_cache(maxsize=for_each_model(8))
def _fits(wanted: Requirements, gpu: GpuType) -> bool:
    """Whether some replica without pipeline stages fits."""
    degrees = (wanted.tensor_parallel,) if wanted.tensor_parallel else DEGREES
    for tensor in reversed(degrees):
        if tensor <= gpu.gpus_per_node and _exists(wanted, tensor):
            return holds(wanted, gpu, wanted.plain(tensor))
    return False


def holds(wanted: Requirements, gpu: GpuType, shape: Shape) -> bool:
    try:
        replica_pool(wanted.arch, gpu, shape)
    except ModelDoesNotFit:
        return False
    return True


def nonexistent(wanted: Requirements, gpu: GpuType) -> Option:
    """The parallelism that was asked for, where a node of this type has none such."""
    tensor, pipeline = wanted.tensor_parallel or 1, wanted.pipeline_parallel or 1
    refused = cannot_split(wanted.arch, Parallel(tensor=tensor, pipeline=pipeline))
    lacking = 0.0
    if refused is not None:
        field, why = f"spec.parallelism.{refused[0]}", refused[1]
    else:
        field, lacking = "spec.parallelism", tensor * pipeline / gpu.gpus_per_node
        why = f"{tensor * pipeline} GPUs are needed in one pod, a node of {gpu.name} has {gpu.gpus_per_node}"
    shape = wanted.plain(tensor, pipeline)
    return Option(gpu=gpu, shape=shape, verdict=Verdict.INVALID, field=field, why=why, shortfall=lacking)


@lru_cache(maxsize=8192)
def judge(wanted: Requirements, gpu: GpuType, shape: Shape) -> Option:
    """One option: memory first, then the time of an idle replica, then the fleet for the demand.

    Of `shape` parallelism and engine limits count: the precision is that of `wanted`, and whether it speculates is
    found here.
    """
    arch, objective, lengths = wanted.arch, wanted.objective, wanted.lengths
    shape = replace(shape, kv_dtype=wanted.kv_dtype, speculation=None, drafts=None)
    refused = unsupported(arch, wanted.precision, gpu)
    if refused is not None:
        return Option(gpu=gpu, shape=shape, verdict=Verdict.UNSUPPORTED, field=refused[0], why=refused[1])
    try:
        pool = replica_pool(arch, gpu, shape)
        if pool.max_model_len < lengths.input_mean + lengths.output_mean:
            return _too_short(wanted, gpu, shape, pool)
        if wanted.speculation is None:
            idle = latency(arch, gpu, shape, lengths, objective, rps=0.0)
            if idle.good < objective.attainment:
                return _missing(wanted, gpu, shape, pool=pool, idle=idle)
        found = choose(arch, gpu, shape, lengths, objective, speculation=wanted.speculation)
    except ModelDoesNotFit as error:
        # The more memory, the nearer.
        if error.part == "parallelism":
            # Of the model itself no such shape is tried: its drafter refuses it.
            return Option(gpu=gpu, shape=shape, verdict=Verdict.INVALID, field="spec.speculative", why=str(error))
        needed = arch.weight_bytes / (gpu.memory_bytes * shape.tensor_parallel * shape.pipeline_parallel)
        return Option(gpu=gpu, shape=shape, verdict=Verdict.TOO_LARGE, why=str(error), shortfall=needed)
    if found.tokens:
        pool = replica_pool(arch, gpu, found.shape)
        if pool.max_model_len < lengths.input_mean + lengths.output_mean:
            return _too_short(wanted, gpu, found.shape, pool)
    if not found.capacity.feasible:
        return _missing(wanted, gpu, found.shape, pool=pool, idle=found.capacity.idle, note=found.message)
    return _sized(wanted, gpu, found, pool)


def _too_short(wanted: Requirements, gpu: GpuType, shape: Shape, pool: KvPool) -> Option:
    mean = wanted.lengths.input_mean + wanted.lengths.output_mean
    limit = "that its KV cache holds" if pool.max_model_len < wanted.arch.max_model_len else "of the model"
    return Option(
        gpu=gpu,
        shape=shape,
        verdict=Verdict.TOO_SHORT,
        pool=pool,
        field="spec.workload",
        why=f"the longest request {limit} has {pool.max_model_len} tokens, a mean one {mean:.0f}",
        shortfall=mean / pool.max_model_len,
    )


def _missing(
    wanted: Requirements, gpu: GpuType, shape: Shape, *, pool: KvPool, idle: Latency, note: str = ""
) -> Option:
    return Option(
        gpu=gpu,
        shape=shape,
        verdict=Verdict.MISSES,
        pool=pool,
        idle=idle,
        why=missed(wanted.objective, wanted.lengths, idle),
        shortfall=shortfall(wanted.objective, wanted.lengths, idle),
        note=note,
    )


def _sized(wanted: Requirements, gpu: GpuType, found: Choice, pool: KvPool) -> Option:
    """One of which an idle replica meets the SLO, with its fleet for the demand as far as the author's caps allow.

    A replica is given a least rate, so that a strict percentile calls for no hundreds of idle ones: what its fleet
    makes of the SLO at its load is looked at, and not taken for granted.
    """
    gpus = found.shape.tensor_parallel * found.shape.pipeline_parallel
    needed = wanted.replicas(found.capacity.rps)
    most, field = wanted.most_replicas(gpu, gpus)
    # Caps beat the SLO, and the minimum beats the caps.
    fleet = fleet_of(wanted, gpu, found, int(max(1, wanted.min_replicas, min(needed, most))))
    verdict, why, lacks = Verdict.MEETS, [], 0.0
    if needed > most:
        verdict, lacks = Verdict.CAPPED, 1.0 - most / needed
        why = [f"{needed} replica{' is' if needed == 1 else 's are'} needed, {field} allows {most:.0f}"]
    short = short_of(wanted.objective, fleet.at_load)
    if short:
        verdict, lacks = Verdict.BUSY_MISSES, short
        rps = fleet.rps / fleet.replicas
        why = [busy(wanted.objective, wanted.lengths, found.capacity.idle, fleet.at_load, rps), *why]
    return Option(
        gpu=gpu,
        shape=found.shape,
        verdict=verdict,
        why="; ".join(why),
        field=field if verdict is Verdict.CAPPED else "",
        pool=pool,
        idle=found.capacity.idle,
        capacity=found.capacity,
        fleet=fleet,
        shortfall=lacks,
        note=found.message,
    )
