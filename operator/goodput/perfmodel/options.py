"""Every way to place a Model, judged: can it run, how long does it take, what does it cost - in this order.

An option is a GPU type, a parallelism and engine settings. One that runs and meets the SLO is sized for the expected
demand and ranked by what that fleet costs; each other one says what is too large, or which objective it misses and by
how much. Replicas come before pipeline stages: a stage is considered only where nothing else of a type holds the
model, or where no objective bounds the time of a token.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from math import ceil, floor, inf, sqrt

from msgspec.structs import replace

from goodput.domain.architecture import Architecture
from goodput.domain.errors import ModelDoesNotFit
from goodput.domain.intent import GpuType, Objective
from goodput.domain.speculation import Speculation
from goodput.domain.values import Value
from goodput.perfmodel.capacity import LEAST_SHARE, Capacity, Latency, Shape, Wall, latency, replica_pool
from goodput.perfmodel.cost import Cost, cost, price_per_hour
from goodput.perfmodel.lengths import Lengths
from goodput.perfmodel.memory import KvPool, engine_defaults
from goodput.perfmodel.phases import Use, use
from goodput.perfmodel.precision import cannot_keep, cannot_run
from goodput.perfmodel.speculating import choose
from goodput.perfmodel.verdicts import dearer, lost, missed, shortfall

DEGREES = (1, 2, 4, 8)
# Share of the load that a fleet keeps free, and the seconds over which arrivals are counted when it is sized: the noise
# of such a count (one standard deviation, Poisson) is kept free where it is more.
HEADROOM = 0.10
COUNTING_SECONDS = 60.0
# A deadline of so many seconds for whole requests, and no bound on tokens, leaves time to wait: throughput counts.
BATCH_E2E_SECONDS = 600.0
# What a replica for throughput is started with: as many sequences as its KV cache holds, and large steps.
THROUGHPUT_SEQUENCES = 1024
THROUGHPUT_TOKENS = 16384
# GPUs, and slices of them, that the engine's default image runs on.
_CUDA = "nvidia.com/"


class Verdict(StrEnum):
    """What came of an option, best first."""

    MEETS = "Meets"  # runs, and meets the SLO at the expected demand
    DEARER = "Dearer"  # no fleet of it that costs less than a smaller replica of the same type can meet the SLO
    MISSES = "Misses"  # runs, but even an idle replica misses the SLO
    TOO_LARGE = "TooLarge"  # does not fit
    INVALID = "Invalid"  # the parallelism that was asked for does not exist there


class Requirements(Value, frozen=True, kw_only=True):
    """What is to be placed. `rps` is the expected demand in requests/s; 0: unknown, one replica is priced."""

    arch: Architecture
    objective: Objective
    lengths: Lengths
    rps: float = 0.0
    tensor_parallel: int | None = None  # None: every degree
    pipeline_parallel: int | None = None
    min_replicas: int = 1
    kv_dtype: str = "auto"  # precision of the KV cache, as the engine names it
    speculation: Speculation | None = None  # allowed or demanded

    @property
    def patient(self) -> bool:
        """Whether latency does not matter: nothing bounds first or later tokens, and requests may take minutes."""
        wanted = self.objective
        return (
            wanted.ttft_seconds is None
            and wanted.tpot_seconds is None
            and (wanted.e2e_seconds or 0.0) >= BATCH_E2E_SECONDS
        )

    @property
    def load_rps(self) -> float:
        """Demand with what is kept free for growth and noise."""
        return self.rps + max(HEADROOM * self.rps, sqrt(self.rps / COUNTING_SECONDS))


class Bottleneck(StrEnum):
    """What a replica has too little of, when it carries all it can."""

    COMPUTE = "compute"
    BANDWIDTH = "bandwidth"
    KV_CAPACITY = "KV capacity"
    QUEUE = "queue"  # max-num-seqs: requests wait though memory and time are left


class Fleet(Value, frozen=True, kw_only=True):
    """Replicas of one option that carry the expected demand. Costs are in the currency of the GPU prices."""

    replicas: int
    gpus: int
    rps: float  # demand that costs are shared among: the expected one, or the capacity where that is unknown
    cost: Cost
    at_load: Latency  # of one replica
    use: Use  # of one GPU at that load
    bottleneck: Bottleneck


class Option(Value, frozen=True, kw_only=True):
    """One way to place a Model. `why` says in words what kept it from winning ('' for the winner)."""

    gpu: GpuType
    shape: Shape
    verdict: Verdict
    why: str = ""
    pool: KvPool | None = None
    idle: Latency | None = None
    capacity: Capacity | None = None
    fleet: Fleet | None = None
    available: bool = True
    note: str = ""  # why it speculates, or why not, where that was asked for
    shortfall: float = 0.0  # of one that misses: times the objective that an idle replica takes, at worst

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
        """Whether it runs and meets the SLO."""
        return self.verdict is Verdict.MEETS


def options(wanted: Requirements, gpus: Iterable[GpuType], free: Mapping[str, int] | None = None) -> tuple[Option, ...]:
    """Every option on these types, the best first; each but the first says why it lost to that.

    `free` holds free GPUs by type; None: all are there in plenty.
    Raises `ValueError` where tensor or pipeline parallelism is below 1, or the demand is no finite number.
    """
    _check(wanted)
    found = [option for gpu in gpus for option in _of_type(wanted, gpu)]
    if free is not None:
        found = [replace(option, available=_is_free(option, free)) for option in found]
    found.sort(key=rank)
    return tuple(replace(option, why=lost(option, found[0])) if index else option for index, option in enumerate(found))


def rank(option: Option) -> tuple[object, ...]:
    """Smaller is better: meets the SLO, is available, costs little at the expected demand, needs few GPUs, name.

    An option without a price follows those with one: what it costs is unknown, not nothing.
    """
    order = tuple(Verdict).index(option.verdict)
    fleet = option.fleet
    cost = fleet.cost.per_hour if fleet is not None and fleet.cost.per_hour is not None else inf
    gpus = fleet.gpus if fleet is not None else option.gpus
    return order, not option.available, option.shortfall, cost, gpus, option.gpu.name, option.gpus


def cheapest(wanted: Requirements, gpus: Iterable[GpuType], first: Option | None = None) -> Option | None:
    """The first of `options` if it meets the SLO, found without judging those that cannot cost less. None: none does.

    `first` is an option that is likely to be good, such as the winner of a similar question.
    """
    _check(wanted)
    tried = [] if first is None else [(first.gpu, first.shape)]
    by_price = sorted(gpus, key=lambda gpu: (gpu.price_per_hour is None, gpu.price_per_hour or 0.0, gpu.name))
    tried += [(each, shape) for each in by_price if not _refused(wanted, each) for shape in _shapes(wanted, each)]
    best: Option | None = None
    for gpu, shape in tried:
        limit = None if best is None or best.fleet is None else best.fleet.cost.per_hour
        if limit is not None and (gpu.price_per_hour is None or not _may_cost(wanted, gpu, shape, limit)):
            continue
        option = tuned(wanted, gpu, shape)
        if option.meets and (best is None or rank(option) < rank(best)):
            best = option
    return best


def _check(wanted: Requirements) -> None:
    for name in ("tensor_parallel", "pipeline_parallel"):
        value = getattr(wanted, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}")
    if not 0.0 <= wanted.rps < inf:
        raise ValueError(f"the expected demand must be a number of requests/s, not {wanted.rps}")


def _shapes(wanted: Requirements, gpu: GpuType) -> Iterator[Shape]:
    """Parallelisms that exist on a node of this type, in the order in which they are to be tried."""
    stages = (wanted.pipeline_parallel,) if wanted.pipeline_parallel else DEGREES
    degrees = (wanted.tensor_parallel,) if wanted.tensor_parallel else DEGREES
    heads = wanted.arch.attention_heads
    for pipeline in stages:
        if wanted.pipeline_parallel is None and pipeline > 1 and not (wanted.patient or not _fits(wanted, gpu)):
            return
        for tensor in degrees:
            if tensor * pipeline <= gpu.gpus_per_node and heads % tensor == 0 and pipeline <= wanted.arch.layers:
                yield Shape(tensor_parallel=tensor, pipeline_parallel=pipeline, kv_dtype=wanted.kv_dtype)


@lru_cache(maxsize=4096)
def _fits(wanted: Requirements, gpu: GpuType) -> bool:
    """Whether some replica without pipeline stages fits."""
    degrees = (wanted.tensor_parallel,) if wanted.tensor_parallel else DEGREES
    for tensor in reversed(degrees):
        if tensor <= gpu.gpus_per_node and wanted.arch.attention_heads % tensor == 0:
            return _pool(wanted, gpu, Shape(tensor_parallel=tensor, kv_dtype=wanted.kv_dtype)) is not None
    return False


def _pool(wanted: Requirements, gpu: GpuType, shape: Shape) -> KvPool | None:
    try:
        return replica_pool(wanted.arch, gpu, shape)
    except ModelDoesNotFit:
        return None


def _refused(wanted: Requirements, gpu: GpuType) -> str:
    """Why the type does not run these precisions; empty: it does."""
    return cannot_run(wanted.arch.precision, gpu) or cannot_keep(wanted.kv_dtype, gpu)


def _of_type(wanted: Requirements, gpu: GpuType) -> Iterator[Option]:
    why = _refused(wanted, gpu)
    if why:
        yield Option(gpu=gpu, shape=Shape(kv_dtype=wanted.kv_dtype), verdict=Verdict.INVALID, why=why)
        return
    shapes = tuple(_shapes(wanted, gpu))
    if not shapes:
        yield _nonexistent(wanted, gpu)
    least = inf
    for shape in shapes:
        if least < inf and not _may_cost(wanted, gpu, shape, least):
            yield Option(gpu=gpu, shape=shape, verdict=Verdict.DEARER, why=dearer(gpu, least))
            continue
        option = tuned(wanted, gpu, shape)
        if option.meets and option.fleet is not None:
            # Of a type without a price, GPUs are compared as if each cost the same.
            cost = option.fleet.cost.per_hour
            least = min(least, cost if cost is not None else float(option.fleet.gpus))
        yield option


def _is_free(option: Option, free: Mapping[str, int]) -> bool:
    """Whether as many GPUs as the fleet needs (one replica, where it was not sized) are free."""
    needed = option.fleet.gpus if option.fleet is not None else option.gpus
    return free.get(option.gpu.name, 0) >= needed


def _nonexistent(wanted: Requirements, gpu: GpuType) -> Option:
    tensor, pipeline = wanted.tensor_parallel or 1, wanted.pipeline_parallel or 1
    shape = Shape(tensor_parallel=tensor, pipeline_parallel=pipeline)
    if wanted.arch.attention_heads % tensor:
        why = f"TP {tensor} does not divide the {wanted.arch.attention_heads} attention heads"
    elif pipeline > wanted.arch.layers:
        why = f"PP {pipeline} is more than the {wanted.arch.layers} layers"
    else:
        why = f"{tensor * pipeline} GPUs are needed in one pod, a node of {gpu.name} has {gpu.gpus_per_node}"
    return Option(gpu=gpu, shape=shape, verdict=Verdict.INVALID, why=why)


def _may_cost(wanted: Requirements, gpu: GpuType, shape: Shape, cost_per_hour: float) -> bool:
    """Whether a fleet of at most this cost might meet the SLO: False is certain, True is not.

    Without KV cache and max-num-seqs in the way a replica carries more, so one look at its latency is a bound.
    """
    # Of a bought GPU only what is written off is sure.
    price = price_per_hour(gpu, 0.0)
    if price is None:
        price = 1.0
    most = floor(cost_per_hour / (price * shape.tensor_parallel * shape.pipeline_parallel) + 1e-9)
    if most < max(1, wanted.min_replicas):
        return False
    if wanted.speculation is not None or _pool(wanted, gpu, shape) is None:
        return True
    return any(
        _may_hold(wanted, gpu, each, wanted.load_rps / most)
        for each in (shape, *((_for_throughput(gpu, shape),) if wanted.patient else ()))
    )


def _may_hold(wanted: Requirements, gpu: GpuType, shape: Shape, rps: float) -> bool:
    """Whether a replica might hold the SLO at this rate, by its latency alone."""
    idle, at = (latency(wanted.arch, gpu, shape, wanted.lengths, wanted.objective, rps=rate) for rate in (0.0, rps))
    if idle.good < wanted.objective.attainment:
        return True
    # A nearly idle replica is given its share whatever it misses (`LEAST_SHARE`), and what an idle one misses does not
    # count.
    return at.prefill_share <= LEAST_SHARE or at.good + 1.0 - idle.good >= wanted.objective.attainment


def _for_throughput(gpu: GpuType, shape: Shape) -> Shape:
    sequences = max(THROUGHPUT_SEQUENCES, engine_defaults(gpu)[0])
    return replace(shape, max_num_seqs=sequences, max_num_batched_tokens=THROUGHPUT_TOKENS)


@lru_cache(maxsize=8192)
def tuned(wanted: Requirements, gpu: GpuType, shape: Shape) -> Option:
    """The option with the engine's own limits, or with others where these need fewer replicas.

    Others are those for throughput where latency does not matter, and more sequences where max-num-seqs binds.
    """
    option = judge(wanted, gpu, shape)
    if option.fleet is None or option.capacity is None or option.fleet.replicas <= max(1, wanted.min_replicas):
        return option
    if wanted.patient:
        other = judge(wanted, gpu, _for_throughput(gpu, shape))
    elif option.capacity.wall is Wall.SEQUENCES and engine_defaults(gpu)[0] < THROUGHPUT_SEQUENCES:
        other = judge(wanted, gpu, replace(shape, max_num_seqs=THROUGHPUT_SEQUENCES))
    else:
        return option
    return other if other.fleet is not None and other.fleet.replicas < option.fleet.replicas else option


@lru_cache(maxsize=8192)
def judge(wanted: Requirements, gpu: GpuType, shape: Shape) -> Option:
    """One option: memory first, then the time of an idle replica, then the fleet for the demand."""
    arch, objective, lengths = wanted.arch, wanted.objective, wanted.lengths
    try:
        pool = replica_pool(arch, gpu, shape)
    except ModelDoesNotFit as error:
        return Option(gpu=gpu, shape=shape, verdict=Verdict.TOO_LARGE, why=str(error))
    if pool.max_model_len < lengths.input_mean + lengths.output_mean:
        why = (
            f"the KV cache holds a request of {pool.max_model_len} tokens, a mean one has "
            f"{lengths.input_mean + lengths.output_mean:.0f}"
        )
        return Option(gpu=gpu, shape=shape, verdict=Verdict.TOO_LARGE, pool=pool, why=why)
    if wanted.speculation is None:
        idle = latency(arch, gpu, shape, lengths, objective, rps=0.0)
        if idle.good < objective.attainment:
            return _missing(wanted, gpu, shape, pool=pool, idle=idle)
    try:
        found = choose(arch, gpu, shape, lengths, objective, speculation=wanted.speculation)
    except ModelDoesNotFit as error:
        return Option(gpu=gpu, shape=shape, verdict=Verdict.TOO_LARGE, why=str(error))
    if not found.capacity.feasible:
        return _missing(wanted, gpu, found.shape, pool=pool, idle=found.capacity.idle, note=found.message)
    return Option(
        gpu=gpu,
        shape=found.shape,
        verdict=Verdict.MEETS,
        pool=replica_pool(arch, gpu, found.shape),
        idle=found.capacity.idle,
        capacity=found.capacity,
        fleet=_fleet(wanted, gpu, found.shape, found.capacity),
        note=found.message,
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


def _fleet(wanted: Requirements, gpu: GpuType, shape: Shape, found: Capacity) -> Fleet:
    replicas = max(wanted.min_replicas, ceil(wanted.load_rps / found.rps - 1e-9), 1)
    gpus = replicas * shape.tensor_parallel * shape.pipeline_parallel
    rps = wanted.rps or replicas * found.rps
    at = latency(wanted.arch, gpu, shape, wanted.lengths, wanted.objective, rps=rps / replicas)
    used = use(
        wanted.arch,
        gpu,
        shape,
        wanted.lengths,
        rps=rps / replicas,
        batch=at.batch,
        tokens_per_step=shape.drafts.tokens_per_step if shape.drafts is not None else 1.0,
    )
    return Fleet(
        replicas=replicas,
        gpus=gpus,
        rps=rps,
        cost=cost(
            gpu,
            gpus=gpus,
            requests_per_second=rps,
            output_tokens_per_second=rps * wanted.lengths.output_mean,
            mfu=used.mfu,
            mbu=used.mbu,
        ),
        at_load=at,
        use=used,
        bottleneck=_bottleneck(found, used),
    )


def _bottleneck(found: Capacity, used: Use) -> Bottleneck:
    """What stands in the way of more requests a replica."""
    if found.wall is Wall.KV:
        return Bottleneck.KV_CAPACITY
    if found.wall is Wall.SEQUENCES:
        return Bottleneck.QUEUE
    return Bottleneck.COMPUTE if used.compute_bound else Bottleneck.BANDWIDTH


def allowed(gpus: Iterable[GpuType], names: Iterable[str]) -> tuple[tuple[GpuType, ...], tuple[str, ...]]:
    """(types that may be used, names of those that the engine's default image does not run on), in the given order.

    Whoever names a type that CUDA does not run on brings an image for it.
    """
    wanted = frozenset(names)
    if wanted:
        return tuple(gpu for gpu in gpus if gpu.name in wanted), ()
    every = tuple(gpus)
    runs = tuple(gpu for gpu in every if gpu.resource_name.startswith(_CUDA))
    return runs, tuple(gpu.name for gpu in every if not gpu.resource_name.startswith(_CUDA))
