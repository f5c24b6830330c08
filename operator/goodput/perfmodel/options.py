"""Every way to place a Model, the best first.

An option is a GPU type, a parallelism, the precision that its author allows, engine limits, and drafts or none. One
that runs and meets the SLO is sized for the expected demand and ranked by what that fleet costs; each other one says
what is too large, or which objective it misses and by how much. What the operator places and what `plan` shows come
from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf

from msgspec.structs import replace

from goodput.domain.intent import GpuType
from goodput.perfmodel.judging import Option, Verdict, nonexistent, shapes, unsupported
from goodput.perfmodel.requirements import Requirements
from goodput.perfmodel.tuning import may_cost, tuned
from goodput.perfmodel.verdicts import dearer, lost

# GPUs, and slices of them, that the engine's default image runs on.
_CUDA = "nvidia.com/"
_ORDER = {verdict: place for place, verdict in enumerate(Verdict)}


def options(wanted: Requirements, gpus: Iterable[GpuType], free: Mapping[str, int] | None = None) -> tuple[Option, ...]:
    """Every option on these types, the best first; each but the first says why it lost to that.

    `free` holds free GPUs by type; None: all are there in plenty.
    Raises `ValueError` where tensor or pipeline parallelism is below 1, or the demand is no finite number.
    """
    wanted.check()
    found = [option for gpu in gpus for option in _of_type(wanted, gpu)]
    if free is not None:
        found = [replace(option, free=free.get(option.gpu.name, 0)) for option in found]
    found.sort(key=rank)
    return tuple(replace(option, why=lost(option, found[0])) if index else option for index, option in enumerate(found))


def rank(option: Option) -> tuple[object, ...]:
    """Smaller is better: meets the SLO, is free, costs little at the expected demand, needs few GPUs, name.

    A type that has GPUs for the whole fleet goes before one that has them for its first replica. An option without a
    price follows those with one: what it costs is unknown, not nothing.
    """
    fleet = option.fleet
    cost = fleet.cost.per_hour if fleet is not None and fleet.cost.per_hour is not None else inf
    return (
        _ORDER[option.verdict],
        not option.starts,
        not option.available,
        option.shortfall,
        cost,
        fleet.gpus if fleet is not None else option.gpus,
        option.gpu.name,
        option.gpus,
        option.shape.pipeline_parallel,
    )


def cheapest(wanted: Requirements, gpus: Iterable[GpuType], first: Option | None = None) -> Option | None:
    """The first of `options` if it meets the SLO, found without judging those that cannot cost less. None: none does.

    `first` is an option that is likely to be good, such as the winner of a similar question.
    """
    wanted.check()
    tried = (
        [] if first is None else [(first.gpu, wanted.plain(first.shape.tensor_parallel, first.shape.pipeline_parallel))]
    )
    by_price = sorted(gpus, key=lambda gpu: (gpu.price_per_hour is None, gpu.price_per_hour or 0.0, gpu.name))
    tried += [(each, shape) for each in by_price if _may_run(wanted, each) for shape in shapes(wanted, each)]
    best: Option | None = None
    for gpu, shape in tried:
        limit = None if best is None or best.fleet is None else best.fleet.cost.per_hour
        if limit is not None and (gpu.price_per_hour is None or not may_cost(wanted, gpu, shape, limit)):
            continue
        option = tuned(wanted, gpu, shape)
        if option.meets and (best is None or rank(option) < rank(best)):
            best = option
    return best


def _may_run(wanted: Requirements, gpu: GpuType) -> bool:
    return unsupported(wanted.arch, wanted.precision, gpu) is None


def _of_type(wanted: Requirements, gpu: GpuType) -> Iterator[Option]:
    if not _may_run(wanted, gpu):
        yield tuned(wanted, gpu, wanted.plain(wanted.tensor_parallel or 1, wanted.pipeline_parallel or 1))
        return
    every = tuple(shapes(wanted, gpu))
    if not every:
        yield nonexistent(wanted, gpu)
    least = inf
    for shape in every:
        if least < inf and not may_cost(wanted, gpu, shape, least):
            yield Option(gpu=gpu, shape=shape, verdict=Verdict.DEARER, why=dearer(gpu, least))
            continue
        option = tuned(wanted, gpu, shape)
        if option.meets and option.fleet is not None:
            # Of a type without a price, GPUs are compared as if each cost the same.
            cost = option.fleet.cost.per_hour
            least = min(least, cost if cost is not None else float(option.fleet.gpus))
        yield option


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
