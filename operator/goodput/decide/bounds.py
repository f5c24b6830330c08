"""Limits of a number of replicas: the author's, the chart's and the GPUs that there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from goodput.decide.policy import Policy
from goodput.decide.priority import Lack, Yields
from goodput.decide.reach import Free
from goodput.domain.decision import Clamp
from goodput.domain.intent import GpuType, ModelIntent
from goodput.domain.observed import PoolView, Snapshot
from goodput.domain.plan import Placement
from goodput.domain.values import Value


@dataclass(slots=True)
class Shared:
    """GPUs and money that Models share within one tick; they take from it by priority, then in the order of keys."""

    free: Free = field(default_factory=Free)
    # Per namespace, by all its Models: what runs, replaced by what is decided as the tick goes on.
    gpus: dict[str, int] = field(default_factory=dict)
    cost: dict[str, float] = field(default_factory=dict)
    types: Mapping[str, GpuType] = field(default_factory=dict)
    yields: Yields = field(default_factory=Yields)

    @classmethod
    def of(cls, snapshot: Snapshot) -> Shared:
        """What is free, and what every namespace holds now: by Models that nothing is decided for too."""
        gpus = {gpu.name: gpu for gpu in snapshot.gpu_types}
        yields = Yields.of(snapshot.models, (pool for each in snapshot.undecided for pool in each.pools), gpus)
        free = Free.of({there.type: there for there in snapshot.supply})
        shared = cls(free=free, types=gpus, yields=yields)
        pools = [(view.intent.key, pool) for view in snapshot.models for pool in (view.pool, view.canary)]
        pools += [(each.key, pool) for each in snapshot.undecided for pool in each.pools]
        for key, pool in pools:
            held, cost = _held(pool, gpus)
            shared.gpus[key.namespace] = shared.gpus.get(key.namespace, 0) + held
            shared.cost[key.namespace] = shared.cost.get(key.namespace, 0.0) + cost
        return shared


def _held(pool: PoolView, gpus: Mapping[str, GpuType]) -> tuple[int, float]:
    """GPUs and cost per hour of what a pool asks for now."""
    if not pool.exists:
        return 0, 0.0
    held = pool.spec_replicas * pool.tensor_parallel * pool.pipeline_parallel
    gpu = gpus.get(pool.gpu_type)
    return held, held * (gpu.price_per_hour or 0.0) if gpu is not None else 0.0


# A number of replicas, which limit it is, and its words, which are needed where it binds only.
_Limit = tuple[int, Clamp, Callable[[], str]]
# Limits of the administrator.
GRANTS = frozenset({Clamp.GRANTED_COST, Clamp.GRANTED_GPUS})


class Bounded(Value, frozen=True):
    """A number within its limits, and the limit that moved it."""

    replicas: int
    clamp: Clamp = Clamp.NONE
    message: str = ""
    # A cap that lies below minReplicas, which stands; empty: none does.
    overruled: str = ""
    # A limit that is exceeded all the same, and why; empty: none is.
    exceeded: str = ""


def placed_replicas(pool: PoolView, gpu_type: str) -> int:
    """Replicas that hold GPUs of this type already."""
    if pool.gpu_type != gpu_type:
        return 0
    return pool.tally.holding


def bound(
    wanted: int,
    intent: ModelIntent,
    placement: Placement,
    pool: PoolView,
    shared: Shared,
    *,
    policy: Policy,
    runs: int,
    beside_per_hour: float = 0.0,
) -> Bounded:
    """`wanted` within every limit: the author's caps and free GPUs beat the SLO, minReplicas beats those, and what the
    administrator grants a namespace beats all: else an author could write any number.

    A grant stops growth, and takes none of the `runs` replicas that were granted before. GPUs that are missing lower
    what is asked for already only where a Model of higher priority lacks them: else its Pending pods are reported.
    `beside_per_hour` is what the Model's canary costs.
    """
    result = Bounded(wanted)
    if wanted < intent.min_replicas:
        result = Bounded(intent.min_replicas, Clamp.MIN_REPLICAS, f"spec.scaling.minReplicas is {intent.min_replicas}")
    cap = ""
    for limit, clamp, message in (
        *_caps(intent, placement, beside_per_hour),
        *_left_to_higher(intent, pool, shared),
        *_free(intent, placement, pool, shared, pool.spec_replicas),
    ):
        if result.replicas > limit:
            result = Bounded(limit, clamp, f"{message()}, {wanted - limit} fewer than wanted")
            cap = message() if clamp is Clamp.MAX_COST else ""
    if result.replicas < intent.min_replicas:
        # minReplicas is a promise of the author: it stands above caps, and its pods may stay Pending.
        least = f"spec.scaling.minReplicas is {intent.min_replicas}"
        overruled = f"{cap}, but {least}, which stands: raise the one or lower the other" if cap else ""
        result = Bounded(intent.min_replicas, Clamp.MIN_REPLICAS, least, overruled)
    exceeded = []
    for limit, clamp, message in _grants(intent, placement, pool, shared, policy):
        most = max(limit, runs)
        if result.replicas > most:
            fewer = max(wanted, intent.min_replicas) - most
            result = Bounded(most, clamp, f"{message()}, {fewer} fewer than wanted")
        elif result.replicas > limit:
            exceeded.append(message())
    if exceeded:
        kept = "what runs goes on while the load or minReplicas needs it, and no replica is added"
        return replace(result, exceeded=f"{' and '.join(exceeded)}: {kept}")
    return result


def _left_to_higher(intent: ModelIntent, pool: PoolView, shared: Shared) -> list[_Limit]:
    kept = shared.yields.kept(intent, pool.gpu_type)
    if kept is None:
        return []
    most, why = kept
    return [(most, Clamp.PRIORITY, lambda: why)]


def _caps(intent: ModelIntent, placement: Placement, beside_per_hour: float) -> list[_Limit]:
    """The author's caps."""
    limits: list[_Limit] = []
    if intent.max_replicas is not None:
        limits.append(
            (intent.max_replicas, Clamp.MAX_REPLICAS, lambda: f"spec.scaling.maxReplicas is {intent.max_replicas}")
        )
    price = placement.price_per_hour
    if price and intent.max_cost_per_hour is not None:
        affordable = int(max(0.0, intent.max_cost_per_hour - beside_per_hour) / price + 1e-9)
        canary = f" beside a canary of {beside_per_hour:.2f} $/h" if beside_per_hour else ""
        limits.append(
            (
                affordable,
                Clamp.MAX_COST,
                lambda: (
                    f"spec.scaling.maxCostPerHour {intent.max_cost_per_hour:.2f} $ pays {affordable} replicas"
                    f" at {price:.2f} $/h{canary}"
                ),
            )
        )
    return limits


def _free(intent: ModelIntent, placement: Placement, pool: PoolView, shared: Shared, runs: int) -> list[_Limit]:
    """Replicas for which there are GPUs; what runs on another type runs on until its GPUs of this one are free."""
    reachable = _reachable(intent, placement, pool, shared)
    if reachable is None:
        return []
    free = shared.free.of_type(placement.gpu_type, intent.tolerations)
    beyond = shared.free.reach(intent.tolerations).beyond.get(placement.gpu_type)
    gpus, possible = placement.gpus, max(reachable, runs)
    return [
        (
            possible,
            Clamp.GPUS,
            lambda: (
                f"{free} GPUs {placement.gpu_type} are free, a replica takes {gpus}: at most {possible} replicas"
                f"{shared.yields.above(shared.yields.held_of.get(placement.gpu_type), intent)}"
                f"{f'; {beyond}' if beyond else ''}"
            ),
        )
    ]


def _reachable(intent: ModelIntent, placement: Placement, pool: PoolView, shared: Shared) -> int | None:
    """Replicas for which there are GPUs: on those that it holds, and on those that are free."""
    free = shared.free.of_type(placement.gpu_type, intent.tolerations)
    return None if free is None else placed_replicas(pool, placement.gpu_type) + free // placement.gpus


def with_stand_ins(
    limited: int,
    stand_ins: int,
    intent: ModelIntent,
    placement: Placement,
    *,
    pool: PoolView,
    shared: Shared,
    policy: Policy,
    beside_per_hour: float = 0.0,
) -> Bounded:
    """`limited` plus stand-ins, as far as limits reach: a lost node does not free the GPUs of its pods.

    maxReplicas counts replicas to stay, and stand-ins are beside it as the new pod of a roll-out is. maxCostPerHour
    counts what serves, pods on a cordoned node too; only those of a dead node are beside it, for they serve nobody.
    """
    whole = limited + stand_ins
    result, beyond = Bounded(whole), []
    for limit, clamp, message in _caps(intent, placement, beside_per_hour):
        most = max(limited, limit + (pool.tally.lost_silent if clamp is Clamp.MAX_COST else stand_ins))
        if result.replicas > most:
            result = Bounded(most, clamp, message())
        if result.replicas > max(limit, limited):
            beyond.append(message())
    for limit, clamp, message in _left_to_higher(intent, pool, shared):
        if result.replicas > max(limit, limited):
            result = Bounded(max(limit, limited), clamp, message())
    # What stands in already stays.
    runs = max(limited, min(whole, pool.spec_replicas))
    for limit, clamp, message in (
        *_free(intent, placement, pool, shared, runs),
        *_grants(intent, placement, pool, shared, policy),
    ):
        if result.replicas > max(limit, runs):
            result = Bounded(max(limit, runs), clamp, message())
    if beyond and result.replicas > limited:
        beside = "stand-ins are beside that until what they replace is gone"
        return replace(result, exceeded=f"{' and '.join(beyond)}: {beside}")
    return result


def _grants(intent: ModelIntent, placement: Placement, pool: PoolView, shared: Shared, policy: Policy) -> list[_Limit]:
    """What the administrator grants the namespace, less what its other Models hold."""
    namespace = intent.key.namespace
    own_gpus, own_cost = _held(pool, shared.types)
    price = placement.price_per_hour
    grants: list[_Limit] = []
    if policy.max_cost_per_hour_per_namespace is not None:
        may_spend = (
            f"namespace {namespace} may spend {policy.max_cost_per_hour_per_namespace:.2f} $/h"
            " (limits.costPerHourPerNamespace of the chart)"
        )
        if price is None:
            # What runs on this type stays: it was there before the limit, or before its price was lost.
            kept = own_gpus // placement.gpus if pool.gpu_type in ("", placement.gpu_type) else 0
            unknown = (
                f"{may_spend}, and no price of {placement.gpu_type} is known: set spec.pricePerHour of a GPUType of "
                "that name; no replica is added until then"
            )
            grants.append((kept, Clamp.GRANTED_COST, lambda: unknown))
        elif price:
            left = policy.max_cost_per_hour_per_namespace - shared.cost.get(namespace, 0.0) + own_cost
            affordable = max(0, int(left / price + 1e-9))
            above = shared.yields.above(shared.yields.held_in.get(namespace), intent)
            spent = f"{may_spend}, {max(0.0, left):.2f} $ of it are left for {affordable} replicas of this Model{above}"
            grants.append((affordable, Clamp.GRANTED_COST, lambda: spent))
    if policy.max_gpus_per_namespace is not None:
        left_gpus = max(0, policy.max_gpus_per_namespace - shared.gpus.get(namespace, 0) + own_gpus)
        grants.append(
            (
                left_gpus // placement.gpus,
                Clamp.GRANTED_GPUS,
                lambda: (
                    f"namespace {namespace} may hold {policy.max_gpus_per_namespace} GPUs"
                    f" (limits.gpusPerNamespace of the chart), {left_gpus} are left for this Model"
                    f"{shared.yields.above(shared.yields.held_in.get(namespace), intent)}"
                ),
            )
        )
    return grants


def beyond_move(intent: ModelIntent, placement: Placement, pool: PoolView, shared: Shared, policy: Policy) -> str:
    """Which grant does not reach for all that runs where it is to move to, in words; '' if all do.

    Fewer there are the author's to allow: of what another replica can do, nothing is measured before one runs.
    """
    runs = pool.spec_replicas
    number = min([runs, *(limit for limit, _, _ in _caps(intent, placement, 0.0))])
    number = max(number, min(intent.min_replicas, runs))
    for limit, _, message in _grants(intent, placement, pool, shared, policy):
        if limit < number:
            return (
                f"{number} replicas of {placement.gpus} x {placement.gpu_type} are to take over, but {message()}: what "
                "serves serves on; ask its administrator for more, lower spec.scaling.maxReplicas, or undo the edit"
            )
    return ""


def claim(
    certain: int,
    granted: int,
    intent: ModelIntent,
    placement: Placement,
    *,
    pool: PoolView,
    shared: Shared,
    policy: Policy,
    beside_per_hour: float,
) -> str:
    """Have Models of lower priority yield what `certain` replicas lack beyond those that are `granted`; told in words.

    Replicas come with the next ticks, once pods are gone: what is free until then is kept for them.
    """
    certain = min([certain, *(limit for limit, _, _ in _caps(intent, placement, beside_per_hour))])
    certain = max(certain, intent.min_replicas)
    namespace, gpus, price = intent.key.namespace, placement.gpus, placement.price_per_hour or 0.0
    own_gpus, own_cost = _held(pool, shared.types)
    free = shared.free.of_type(placement.gpu_type, intent.tolerations)
    reachable = _reachable(intent, placement, pool, shared)
    lacking = granted_gpus = 0
    granted_cost = 0.0
    if free is not None:
        lacking = max(0, (certain - placed_replicas(pool, placement.gpu_type)) * gpus - free)
    # What runs is not taken, so that others yield for what is to be added only.
    adds = certain * gpus > own_gpus
    if policy.max_gpus_per_namespace is not None and adds:
        left = policy.max_gpus_per_namespace - shared.gpus.get(namespace, 0) + own_gpus
        granted_gpus = max(0, certain * gpus - left)
    if policy.max_cost_per_hour_per_namespace is not None and price and adds:
        budget = policy.max_cost_per_hour_per_namespace - shared.cost.get(namespace, 0.0) + own_cost
        granted_cost = max(0.0, certain * price - budget)
    if not (lacking or granted_gpus or granted_cost):
        return ""
    closed = tuple(row.taints for row in shared.free.reach(intent.tolerations).closed.get(placement.gpu_type, ()))
    lack = Lack(gpus=lacking, granted_gpus=granted_gpus, granted_cost=granted_cost, closed=closed)
    there_may_be, told = shared.yields.claim(intent, placement, certain, lack)
    have = granted if reachable is None else min(granted, reachable)
    if free is not None and there_may_be > have:
        left_over = max(0, free - max(0, have - placed_replicas(pool, placement.gpu_type)) * gpus)
        kept = min(left_over, (there_may_be - have) * gpus)
        shared.free.take(placement.gpu_type, kept, intent.tolerations)
    return told


def take(
    replicas: int,
    intent: ModelIntent,
    placement: Placement,
    pool: PoolView,
    shared: Shared,
) -> None:
    """Take what `replicas` need from what is shared, so that the next Model sees what is left."""
    namespace = intent.key.namespace
    own_gpus, own_cost = _held(pool, shared.types)
    shared.gpus[namespace] = shared.gpus.get(namespace, 0) + replicas * placement.gpus - own_gpus
    cost = replicas * (placement.price_per_hour or 0.0)
    shared.cost[namespace] = shared.cost.get(namespace, 0.0) + cost - own_cost
    more = max(0, replicas - placed_replicas(pool, placement.gpu_type)) * placement.gpus
    shared.yields.hold(intent, placement.gpu_type, more)
    shared.free.take(placement.gpu_type, more, intent.tolerations)


def beyond_grant(intent: ModelIntent, placement: Placement, shared: Shared, policy: Policy) -> str:
    """What one more replica needs beyond what the administrator grants the namespace, by number; '' if nothing."""
    namespace = intent.key.namespace
    most_gpus, most_cost = policy.max_gpus_per_namespace, policy.max_cost_per_hour_per_namespace
    if most_gpus is not None:
        missing = shared.gpus.get(namespace, 0) + placement.gpus - most_gpus
        if missing > 0:
            return f"{missing} more GPUs than the {most_gpus} that namespace {namespace} may hold"
    price = placement.price_per_hour
    if most_cost is None or price == 0.0:
        return ""
    if price is None:
        return (
            f"a known price of {placement.gpu_type} (spec.pricePerHour of a GPUType of that name), for namespace "
            f"{namespace} may spend {most_cost:.2f} $/h"
        )
    dearer = shared.cost.get(namespace, 0.0) + price - most_cost
    if dearer <= 1e-9:
        return ""
    return f"{dearer:.2f} $/h more than the {most_cost:.2f} $/h that namespace {namespace} may spend"


def add_one(intent: ModelIntent, placement: Placement, shared: Shared) -> None:
    """Take one replica more than what was decided."""
    namespace = intent.key.namespace
    shared.gpus[namespace] = shared.gpus.get(namespace, 0) + placement.gpus
    shared.cost[namespace] = shared.cost.get(namespace, 0.0) + (placement.price_per_hour or 0.0)


def lacking_for_canary(
    replicas: int, intent: ModelIntent, serves: Placement, canary: Placement, *, shared: Shared, policy: Policy
) -> str:
    """What there is no room for beside the `replicas` that serve, by number; '' if a canary may start."""
    free = shared.free.of_type(canary.gpu_type, intent.tolerations)
    if free is not None and free < canary.gpus:
        return (
            f"the canary needs {canary.gpus - free} more free GPUs {canary.gpu_type} ({canary.gpus} a replica, {free} "
            "free): free them, or lower spec.scaling until a replica that serves can be spared"
        )
    spent = replicas * (serves.price_per_hour or 0.0)
    price, most = canary.price_per_hour, intent.max_cost_per_hour
    if price and most is not None and spent + price > most + 1e-9:
        return (
            f"spec.scaling.maxCostPerHour {most:.2f} $ does not pay a canary of {price:.2f} $/h beside {replicas} "
            f"replicas of {spent:.2f} $/h: raise it, or wait until fewer serve"
        )
    beyond = beyond_grant(intent, canary, shared, policy)
    return f"the canary needs {beyond}: ask its administrator for more, or lower spec.scaling" if beyond else ""


def take_canary(intent: ModelIntent, canary: Placement, pool: PoolView, shared: Shared) -> None:
    """Take what a canary needs; what its pod holds is no longer free, and what its Deployment asks for is counted."""
    if not pool.exists:
        add_one(intent, canary, shared)
    if not pool.tally.holding:
        shared.free.take(canary.gpu_type, canary.gpus, intent.tolerations)
