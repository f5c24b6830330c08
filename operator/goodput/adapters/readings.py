"""From indexed vectors to telemetry of each Model. Pure; absent stays absent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from msgspec import structs

from goodput.adapters.metric_names import ENGINE_BUCKETS, ENGINE_COUNTERS, Quantity
from goodput.adapters.tables import Column, Tables
from goodput.adapters.telemetry import Wanted
from goodput.domain.intent import Objective
from goodput.domain.observed import ModelTelemetry, PodCounters, PoolTelemetry, RouterTelemetry

# Field of PodCounters of each bounded quantity.
WITHIN = {
    Quantity.TTFT_WITHIN: "ttft_within",
    Quantity.TPOT_WITHIN: "tpot_within",
    Quantity.E2E_WITHIN: "e2e_within",
}
# What every engine must export, with or without an objective.
_NEEDED = (
    ("first_tokens", ENGINE_COUNTERS[Quantity.FIRST_TOKENS]),
    ("finished", ENGINE_COUNTERS[Quantity.FINISHED]),
    ("waiting", ENGINE_COUNTERS[Quantity.WAITING]),
)


def thresholds(objective: Objective | None) -> dict[Quantity, float]:
    """The bounds of an objective, in seconds, by the quantity that they bound."""
    if objective is None:
        return {}
    bounds = {
        Quantity.TTFT_WITHIN: objective.ttft_seconds,
        Quantity.TPOT_WITHIN: objective.tpot_seconds,
        Quantity.E2E_WITHIN: objective.e2e_seconds,
    }
    return {quantity: bound for quantity, bound in bounds.items() if bound is not None}


def missing_edges(wanted: Sequence[Wanted], tables: Tables) -> dict[Quantity, frozenset[float]]:
    """Thresholds that some scraped pod does not export as an edge."""
    missing: dict[Quantity, set[float]] = {}
    for model in wanted:
        namespace = model.key.namespace
        slots = [slot for pod in model.pods if (slot := tables.slot((namespace, pod))) is not None]
        for quantity, bound in thresholds(model.objective).items():
            column = tables.within.get(quantity, {}).get(bound)
            if slots and (column is None or None in [column[slot] for slot in slots]):
                missing.setdefault(quantity, set()).add(bound)
    return {quantity: frozenset(bounds) for quantity, bounds in missing.items()}


def neighbours(bounds: frozenset[float], known: Iterable[float], each_side: int = 3) -> frozenset[float]:
    """Edges around each bound: several on each side, for pods of unlike edge sets."""
    finite = sorted(edge for edge in known if math.isfinite(edge))
    chosen: set[float] = set()
    for bound in bounds:
        chosen.update([edge for edge in finite if edge <= bound][-each_side:])
        chosen.update([edge for edge in finite if edge > bound][:each_side])
    return frozenset(chosen)


def interpolated(edges: Mapping[float, float], bound: float, total: float | None) -> tuple[float, float] | None:
    """Cumulative count at `bound` between two exported edges, and by how many requests it may be off.

    Above the last edge all requests (`total`) bound it; below the first edge zero does. None: no edge at all.
    """
    if bound in edges:
        return edges[bound], 0.0
    below = max((edge for edge in edges if edge < bound), default=None)
    above = min((edge for edge in edges if bound < edge < math.inf), default=None)
    if below is None and above is None:
        return None
    low = edges[below] if below is not None else 0.0
    if above is None:
        # Nothing is known of where beyond the last edge they lie: count none of them as good.
        return low, max(0.0, (total if total is not None else low) - low)
    left = below if below is not None else 0.0
    share = (bound - left) / (above - left)
    return low + share * (edges[above] - low), max(0.0, edges[above] - low)


def model_telemetry(wanted: Wanted, tables: Tables) -> ModelTelemetry:
    """Telemetry of one Model; `problem` names what should be there and is not."""
    counters = _counters(wanted, tables)
    unlabelled = not counters and bool(tables.unlabelled_namespaces & {wanted.key.namespace, ""})
    return ModelTelemetry(
        pool=_pool(wanted, tables, counters) if counters else None,
        router=_router(wanted, tables) if wanted.routers else None,
        problem=_problem(wanted, counters),
        unlabelled=unlabelled,
    )


def _counters(wanted: Wanted, tables: Tables) -> tuple[PodCounters, ...]:
    """Counters of the engine pods that were scraped."""
    namespace, engine, scraped = wanted.key.namespace, tables.engine, tables.scraped
    nothing: Column = [None] * len(scraped) if scraped else []
    first_tokens = engine.get(Quantity.FIRST_TOKENS, nothing)
    finished = engine.get(Quantity.FINISHED, nothing)
    running = engine.get(Quantity.RUNNING, nothing)
    waiting = engine.get(Quantity.WAITING, nothing)
    rejected = engine.get(Quantity.REJECTED, nothing)
    bounds = thresholds(wanted.objective)
    ttft, tpot, e2e = (
        tables.within.get(quantity, {}).get(bounds.get(quantity, math.nan), nothing) for quantity in WITHIN
    )
    found: list[PodCounters] = []
    slots, size = tables.slots, len(scraped)
    for name in wanted.pods:
        slot = slots.get((namespace, name), size)
        scraped_at = scraped[slot] if slot < size else None
        if scraped_at is None:
            continue
        counters = PodCounters(
            pod=name,
            scraped_at=scraped_at,
            first_tokens=first_tokens[slot],
            ttft_within=ttft[slot],
            finished=finished[slot],
            tpot_within=tpot[slot],
            e2e_within=e2e[slot],
            running=running[slot],
            waiting=waiting[slot],
            rejected=rejected[slot],
        )
        for quantity, bound in bounds.items():
            if getattr(counters, WITHIN[quantity]) is None:
                counters = _between_edges(counters, quantity, bound, tables.edges_of(quantity, slot))
        found.append(counters)
    return tuple(found)


def _between_edges(
    counters: PodCounters, quantity: Quantity, bound: float, edges: Mapping[float, float]
) -> PodCounters:
    """`counters` with what lies within `bound` interpolated, where the pod exports other edges."""
    total = counters.first_tokens if quantity is Quantity.TTFT_WITHIN else counters.finished
    found = interpolated(edges, bound, total)
    if found is None:
        return counters
    within, unsure = found
    return structs.replace(counters, **{WITHIN[quantity]: within, "unsure": counters.unsure + unsure})


def _pool(wanted: Wanted, tables: Tables, pods: tuple[PodCounters, ...]) -> PoolTelemetry:
    sums = {quantity: table.get((wanted.key.namespace, wanted.key.name)) for quantity, table in tables.pools.items()}
    return PoolTelemetry(
        pods=pods,
        prompt_tokens=sums.get(Quantity.PROMPT_TOKENS),
        cached_prompt_tokens=sums.get(Quantity.CACHED_PROMPT_TOKENS),
        generation_tokens=sums.get(Quantity.GENERATION_TOKENS),
        itl_sum_seconds=sums.get(Quantity.ITL_SUM),
        itl_count=sums.get(Quantity.ITL_COUNT),
        request_seconds_p95=tables.p95.get((wanted.key.namespace, wanted.key.name)),
    )


def _router(wanted: Wanted, tables: Tables) -> RouterTelemetry | None:
    """Counters of the router pods; None if no router pod was scraped.

    The router creates a counter with the first request that it counts. A router that was scraped and has none has
    therefore counted nothing: the one place where a missing series is a zero, because the scrape proves it.
    """

    requests, errors = [], []
    for pod in sorted(wanted.routers):
        key = (wanted.key.namespace, pod)
        scraped_at = tables.scraped_at(key)
        if scraped_at is not None:
            requests.append((pod, scraped_at, tables.offered.get(key, 0.0)))
            errors.append((pod, scraped_at, tables.routers[key].failed if key in tables.routers else 0.0))
    return RouterTelemetry(requests=tuple(requests), errors=tuple(errors)) if requests else None


def _problem(wanted: Wanted, counters: Sequence[PodCounters]) -> str:
    if not wanted.serving:
        return ""
    seen = {counter.pod: counter for counter in counters}
    unseen = [pod for pod in wanted.serving if pod not in seen]
    if unseen:
        return f"Prometheus has no scrape of {len(unseen)} of {len(wanted.serving)} ready pods, such as {unseen[0]}"
    bounded = [(WITHIN[quantity], ENGINE_BUCKETS[quantity]) for quantity in thresholds(wanted.objective)]
    needed = (*_NEEDED, *bounded)
    values = attrgetter(*(attribute for attribute, _ in needed))
    for pod in wanted.serving:
        found = values(seen[pod])
        if None in found:
            _, names = needed[found.index(None)]
            return f"pod {pod} exports no {names.alternatives[0]}"
    return ""
