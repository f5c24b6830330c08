"""From vectors, as Prometheus answers them, to telemetry of each Model. Pure; absent stays absent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from goodput.adapters.metric_names import (
    ENGINE_BUCKETS,
    ENGINE_COUNTERS,
    POD_LABEL_MODEL,
    POOL_SUMS,
    ROUTER_COUNTERS,
    ROUTER_NO_WORKER,
    ROUTER_REFUSED,
    Names,
    Quantity,
)
from goodput.adapters.telemetry import Wanted
from goodput.adapters.vectors import Row
from goodput.domain.intent import Objective
from goodput.domain.observed import ModelTelemetry, PodCounters, PoolTelemetry, RouterTelemetry

# (namespace, pod) -> value
ByPod = dict[tuple[str, str], float]
# (namespace, pod) -> edge in seconds -> cumulative count
Edges = dict[tuple[str, str], dict[float, float]]


@dataclass(slots=True)
class RouterCounts:
    """Cumulative counters of one router pod. The router makes a series with its first event, so they begin at 0."""

    attempts: float = 0.0
    no_worker: float = 0.0
    retries: float = 0.0
    refused: float = 0.0
    exhausted: float = 0.0

    @property
    def offered(self) -> float:
        """Requests of users, each once: all attempts, those that found no engine too, less the repeated ones."""
        return self.attempts + self.no_worker - self.retries

    @property
    def failed(self) -> float:
        """Requests that ended with an error for their user."""
        return self.refused + self.exhausted


class OfferedBook:
    """Keeps what a router pod was offered from falling.

    A retry is counted when it is planned and its attempt when it starts, so the difference of the two can dip for a
    moment; a falling counter would be read as a restart. Only a fall of the attempts themselves is one.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[float, float]] = {}

    def take(self, routers: Mapping[tuple[str, str], RouterCounts]) -> dict[tuple[str, str], float]:
        """Requests offered so far, by router pod."""
        offered = {}
        for key, counts in routers.items():
            attempts, before = self._seen.get(key, (0.0, 0.0))
            offered[key] = counts.offered if counts.attempts < attempts else max(before, counts.offered)
            self._seen[key] = (counts.attempts, offered[key])
        for gone in self._seen.keys() - routers.keys():
            del self._seen[gone]
        return offered


@dataclass(slots=True)
class Tables:
    """All vectors of one reading, indexed. A NaN stays one: whoever reads it must say so."""

    scraped: ByPod = field(default_factory=dict)
    engine: dict[Quantity, ByPod] = field(default_factory=dict)
    within: dict[Quantity, Edges] = field(default_factory=dict)
    pools: dict[Quantity, ByPod] = field(default_factory=dict)
    routers: dict[tuple[str, str], RouterCounts] = field(default_factory=dict)
    offered: ByPod = field(default_factory=dict)
    p95: ByPod = field(default_factory=dict)
    unlabelled_namespaces: frozenset[str] = frozenset()

    def by_pod(self, rows: Iterable[Row], second: str = "pod") -> ByPod:
        """Values by namespace and `second` label; rows without these labels are not ours."""
        table: ByPod = {}
        for row in rows:
            name = getattr(row.metric, second)
            if name:
                table[row.metric.namespace, name] = float(row.value[1])
        return table

    @staticmethod
    def by_name(rows: Sequence[Row], names: Mapping[Quantity, Names], second: str = "pod") -> dict[Quantity, ByPod]:
        """Values by quantity; where a pod exports several names of one, the newest counts."""
        by_metric: dict[str, ByPod] = {
            name: {} for alternatives in names.values() for name in alternatives.alternatives
        }
        for row in rows:
            labels = row.metric
            table = by_metric.get(labels.name)
            name = getattr(labels, second)
            if table is not None and name:
                table[labels.namespace, name] = float(row.value[1])
        tables: dict[Quantity, ByPod] = {}
        for quantity, alternatives in names.items():
            newest, *older = alternatives.alternatives
            tables[quantity] = by_metric[newest]
            for name in older:
                tables[quantity] = {**by_metric[name], **tables[quantity]}
        return tables

    def add_buckets(self, rows: Iterable[Row]) -> None:
        """Cumulative counts at bucket edges."""
        tables = {
            name: self.within.setdefault(quantity, {})
            for quantity, names in ENGINE_BUCKETS.items()
            for name in names.alternatives
        }
        for row in rows:
            labels = row.metric
            table = tables.get(labels.name)
            if table is None or not labels.le:
                continue
            key = (labels.namespace, labels.pod)
            edges = table.get(key)
            if edges is None:
                edges = table[key] = {}
            edges[float(labels.le)] = float(row.value[1])

    def add_engine(self, rows: Sequence[Row]) -> None:
        self.engine = self.by_name(rows, ENGINE_COUNTERS)

    def add_pools(self, rows: Sequence[Row]) -> None:
        self.pools = self.by_name(rows, POOL_SUMS, POD_LABEL_MODEL)

    def add_routers(self, rows: Iterable[Row], book: OfferedBook) -> None:
        """Counters of router pods, and what each was offered."""
        for row in rows:
            labels = row.metric
            counts = self.routers.setdefault((labels.namespace, labels.pod), RouterCounts())
            name, value = labels.name, float(row.value[1])
            if name in ROUTER_COUNTERS[Quantity.ROUTER_ATTEMPTS].alternatives:
                counts.attempts = value
            elif name in ROUTER_COUNTERS[Quantity.ROUTER_RETRIES].alternatives:
                counts.retries = value
            elif name in ROUTER_COUNTERS[Quantity.ROUTER_EXHAUSTED].alternatives:
                counts.exhausted = value
            elif labels.error_type == ROUTER_NO_WORKER:
                counts.no_worker = value
            elif labels.error_type == ROUTER_REFUSED:
                counts.refused = value
        self.offered = book.take(self.routers)


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
        for quantity, bound in thresholds(model.objective).items():
            edges = tables.within.get(quantity, {})
            for pod in model.pods:
                key = (model.key.namespace, pod)
                if key in tables.scraped and bound not in edges.get(key, {}):
                    missing.setdefault(quantity, set()).add(bound)
                    break
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
    namespace = wanted.key.namespace
    bounds = [
        (quantity, bound, tables.within.get(quantity, {})) for quantity, bound in thresholds(wanted.objective).items()
    ]
    nothing: ByPod = {}
    first_tokens, finished, running, waiting, rejected = (
        tables.engine.get(quantity, nothing)
        for quantity in (
            Quantity.FIRST_TOKENS,
            Quantity.FINISHED,
            Quantity.RUNNING,
            Quantity.WAITING,
            Quantity.REJECTED,
        )
    )
    counters: list[PodCounters] = []
    for pod in wanted.pods:
        key = (namespace, pod)
        scraped_at = tables.scraped.get(key)
        if scraped_at is None:
            continue
        first, ended = first_tokens.get(key), finished.get(key)
        within: dict[Quantity, float] = {}
        unsure = 0.0
        for quantity, bound, table in bounds:
            edges = table.get(key)
            total = first if quantity is Quantity.TTFT_WITHIN else ended
            found = interpolated(edges, bound, total) if edges else None
            if found is not None:
                within[quantity] = found[0]
                unsure += found[1]
        counters.append(
            PodCounters(
                pod=pod,
                scraped_at=scraped_at,
                first_tokens=first,
                ttft_within=within.get(Quantity.TTFT_WITHIN),
                finished=ended,
                tpot_within=within.get(Quantity.TPOT_WITHIN),
                e2e_within=within.get(Quantity.E2E_WITHIN),
                running=running.get(key),
                waiting=waiting.get(key),
                rejected=rejected.get(key),
                unsure=unsure,
            )
        )
    pool = _pool(wanted, tables, tuple(counters)) if counters else None
    unlabelled = not counters and bool(tables.unlabelled_namespaces & {namespace, ""})
    return ModelTelemetry(
        pool=pool,
        router=_router(wanted, tables) if wanted.routers else None,
        problem=_problem(wanted, counters),
        unlabelled=unlabelled,
    )


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
        if key in tables.scraped:
            scraped_at = tables.scraped[key]
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
    expected: dict[str, str] = {
        ENGINE_COUNTERS[Quantity.FIRST_TOKENS].alternatives[0]: "first_tokens",
        ENGINE_COUNTERS[Quantity.FINISHED].alternatives[0]: "finished",
        ENGINE_COUNTERS[Quantity.WAITING].alternatives[0]: "waiting",
    }
    fields = {
        Quantity.TTFT_WITHIN: "ttft_within",
        Quantity.TPOT_WITHIN: "tpot_within",
        Quantity.E2E_WITHIN: "e2e_within",
    }
    for quantity in thresholds(wanted.objective):
        expected[ENGINE_BUCKETS[quantity].alternatives[0]] = fields[quantity]
    for metric, attribute in expected.items():
        lacking = [pod for pod in wanted.serving if getattr(seen[pod], attribute) is None]
        if lacking:
            return f"pod {lacking[0]} exports no {metric}"
    return ""
