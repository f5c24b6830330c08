"""From indexed vectors to telemetry of each Model. Pure; absent stays absent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from goodput.adapters.metric_names import ENGINE_BUCKETS, ENGINE_COUNTERS, Quantity
from goodput.adapters.tables import Tables
from goodput.adapters.telemetry import Wanted
from goodput.adapters.vectors import Name, Rows
from goodput.domain import podtable as pt
from goodput.domain.identity import Key
from goodput.domain.intent import Objective
from goodput.domain.observed import ModelTelemetry, PoolTelemetry, RouterTelemetry
from goodput.domain.podtable import Column, PodTable

# Column of each bounded quantity.
WITHIN = {
    Quantity.TTFT_WITHIN: pt.TTFT_WITHIN,
    Quantity.TPOT_WITHIN: pt.TPOT_WITHIN,
    Quantity.E2E_WITHIN: pt.E2E_WITHIN,
}
_COLUMNS = {
    Quantity.FIRST_TOKENS: pt.FIRST_TOKENS,
    Quantity.FINISHED: pt.FINISHED,
    Quantity.RUNNING: pt.RUNNING,
    Quantity.WAITING: pt.WAITING,
    Quantity.REJECTED: pt.REJECTED,
}
# What every engine must export, with or without an objective.
_NEEDED = (Quantity.FIRST_TOKENS, Quantity.FINISHED, Quantity.WAITING)


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


class Scraped:
    """The engine pods of all Models that were scraped, in the order of their Models, and what bounds each."""

    def __init__(self, wanted: Sequence[Wanted], tables: Tables) -> None:
        slots, there = _slots([(model.key.namespace, pod) for model in wanted for pod in model.pods], tables)
        routers, up = _slots([(model.key.namespace, pod) for model in wanted for pod in model.routers], tables)
        sizes = np.array([len(model.pods) for model in wanted], dtype=np.intp)
        ends = np.cumsum(sizes)
        counts = np.concatenate(([0], np.cumsum(there)))
        self.wanted = wanted
        self.there = there
        self.slots = slots[there]
        # Models that have a pod that was scraped and is none of those that are wanted.
        self.unlisted = tables.models_beside(np.concatenate((self.slots, routers[up])))
        # Rows of each Model among all that were scraped, and among all that are wanted.
        self.starts, self.ends = counts[ends - sizes], counts[ends]
        self.begins = (ends - sizes).tolist()
        whose = np.repeat(np.arange(len(wanted)), sizes)[there]
        bounds = [thresholds(model.objective) for model in wanted]
        self.bounds = {
            quantity: np.array([each.get(quantity, np.nan) for each in bounds], dtype=np.float64)[whose]
            for quantity in WITHIN
        }

    def within(self, quantity: Quantity, tables: Tables) -> Column:
        """Requests within the bound of each pod's Model; NaN without a bound, or where the pod has no such edge."""
        bounds = self.bounds[quantity]
        found = np.full(len(bounds), np.nan)
        for edge, column in tables.within.get(quantity, {}).items():
            rows = np.flatnonzero(bounds == edge)
            found[rows] = column[self.slots[rows]]
        return found

    def missing_edges(self, tables: Tables) -> dict[Quantity, frozenset[float]]:
        """Thresholds that some scraped pod does not export as an edge."""
        missing = {}
        for quantity, bounds in self.bounds.items():
            lacking = np.isnan(self.within(quantity, tables)) & ~np.isnan(bounds)
            if lacking.any():
                missing[quantity] = frozenset(np.unique(bounds[lacking]).tolist())
        return missing

    def counters(self, tables: Tables) -> list[tuple[PodTable, bool]]:
        """The counters of each Model's pods, and whether all pods have all that is needed."""
        values = np.full((len(self.slots), pt.COUNTERS), np.nan)
        values[:, pt.SCRAPED_AT] = tables.scraped[self.slots]
        values[:, pt.UNSURE] = 0.0
        for quantity, column in _COLUMNS.items():
            if quantity in tables.engine:
                values[:, column] = tables.engine[quantity][self.slots]
        for quantity, column in WITHIN.items():
            values[:, column] = self.within(quantity, tables)
            for row in np.flatnonzero(np.isnan(values[:, column]) & ~np.isnan(self.bounds[quantity])):
                self._between_edges(values[row], quantity, int(row), tables)
        lacking = np.isnan(values[:, [_COLUMNS[quantity] for quantity in _NEEDED]]).any(axis=1)
        for quantity, column in WITHIN.items():
            lacking |= np.isnan(values[:, column]) & ~np.isnan(self.bounds[quantity])
        lacks = np.concatenate(([0], np.cumsum(lacking)))
        lacks = (lacks[self.ends] - lacks[self.starts]).tolist()
        found = []
        spans = zip(self.starts.tolist(), self.ends.tolist(), self.begins, strict=True)
        for model, lack, (start, end, begin) in zip(self.wanted, lacks, spans, strict=True):
            pods, complete = model.pods, not lack
            if end - start < len(pods):
                pods, complete = tuple([pod for at, pod in enumerate(pods, begin) if self.there[at]]), False
            found.append((PodTable(pods, values[start:end]), complete))
        return found

    def _between_edges(self, values: Column, quantity: Quantity, row: int, tables: Tables) -> None:
        """Interpolate what lies within the bound of one pod that exports other edges."""
        total = float(values[pt.FIRST_TOKENS if quantity is Quantity.TTFT_WITHIN else pt.FINISHED])
        edges = tables.edges_of(quantity, int(self.slots[row]))
        found = interpolated(edges, float(self.bounds[quantity][row]), None if math.isnan(total) else total)
        if found is not None:
            values[WITHIN[quantity]] = found[0]
            values[pt.UNSURE] += found[1]


def _slots(pods: Sequence[Name], tables: Tables) -> tuple[Rows, npt.NDArray[np.bool_]]:
    """The slot of each pod, and whether it was scraped."""
    slots = np.array([tables.slots.get(pod, -1) for pod in pods], dtype=np.intp)
    there = (slots >= 0) & (slots < len(tables.scraped))
    there[there] = ~np.isnan(tables.scraped[slots[there]])
    return slots, there


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


def telemetry_of(scraped: Scraped, tables: Tables) -> dict[Key, ModelTelemetry]:
    """Telemetry of each Model."""
    return {
        model.key: _model_telemetry(
            model, counters, complete, tables, unlisted=(model.key.namespace, model.key.name) in scraped.unlisted
        )
        for model, (counters, complete) in zip(scraped.wanted, scraped.counters(tables), strict=True)
    }


def _model_telemetry(
    wanted: Wanted, counters: PodTable, complete: bool, tables: Tables, *, unlisted: bool
) -> ModelTelemetry:
    """Telemetry of one Model; `problem` names what should be there and is not."""
    unlabelled = not len(counters) and bool(tables.unlabelled_namespaces & {wanted.key.namespace, ""})
    return ModelTelemetry(
        pool=_pool(wanted, tables, counters, unlisted) if len(counters) else None,
        router=_router(wanted, tables) if wanted.routed else None,
        problem="" if complete or not wanted.serving else _problem(wanted, counters),
        unlabelled=unlabelled,
    )


def _fault(wanted: Wanted, tables: Tables) -> str:
    """Which counter of which pod is no count."""
    for pod in wanted.pods:
        slot = tables.slot((wanted.key.namespace, pod))
        if slot in tables.faults:
            return f"of pod {pod}, {tables.faults[slot]}: counts are finite, and never negative"
    return ""


def _pool(wanted: Wanted, tables: Tables, counters: PodTable, unlisted: bool) -> PoolTelemetry:
    sums = {quantity: table.get((wanted.key.namespace, wanted.key.name)) for quantity, table in tables.pools.items()}
    return PoolTelemetry(
        counters=counters,
        unlisted=unlisted,
        fault=_fault(wanted, tables) if tables.faults else "",
        prompt_tokens=sums.get(Quantity.PROMPT_TOKENS),
        cached_prompt_tokens=sums.get(Quantity.CACHED_PROMPT_TOKENS),
        generation_tokens=sums.get(Quantity.GENERATION_TOKENS),
        itl_sum_seconds=sums.get(Quantity.ITL_SUM),
        itl_count=sums.get(Quantity.ITL_COUNT),
        prefill_sum_seconds=sums.get(Quantity.PREFILL_SUM),
        prefill_count=sums.get(Quantity.PREFILL_COUNT),
        drafts=sums.get(Quantity.DRAFTS),
        accepted_tokens=sums.get(Quantity.ACCEPTED_TOKENS),
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


def _problem(wanted: Wanted, counters: PodTable) -> str:
    bounded = thresholds(wanted.objective)
    columns = [*(_COLUMNS[quantity] for quantity in _NEEDED), *(WITHIN[quantity] for quantity in bounded)]
    lacking = np.isnan(counters.values[:, columns])
    seen = counters.index()
    unseen = [pod for pod in wanted.serving if pod not in seen]
    if unseen:
        return f"Prometheus has no scrape of {len(unseen)} of {len(wanted.serving)} ready pods, such as {unseen[0]}"
    names = [*(ENGINE_COUNTERS[quantity] for quantity in _NEEDED), *(ENGINE_BUCKETS[quantity] for quantity in bounded)]
    for pod in wanted.serving:
        for name, absent in zip(names, lacking[seen[pod]], strict=True):
            if absent:
                return f"pod {pod} exports no {name.alternatives[0]}"
    return ""
