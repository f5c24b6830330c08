"""All vectors of one reading, by pod or Model. Pure; absent stays absent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from goodput.adapters.metric_names import (
    ENGINE_BUCKETS,
    ENGINE_COUNTERS,
    POOL_SUMS,
    ROUTER_COUNTERS,
    ROUTER_NO_WORKER,
    ROUTER_REFUSED,
    Quantity,
)
from goodput.adapters.vectors import NOTHING, Name, Rows, Series, Slots, Vector
from goodput.domain.podtable import MOST_COUNT, Column

# (namespace, name of a pod or Model) -> value
Values = dict[Name, float]


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
        self._seen: dict[Name, tuple[float, float]] = {}

    def take(self, routers: Mapping[Name, RouterCounts]) -> dict[Name, float]:
        """Requests offered so far, by router pod."""
        offered = {}
        for key, counts in routers.items():
            if not math.isfinite(counts.offered):
                # That is told, and leaves no trace in what is kept.
                offered[key] = counts.offered
                continue
            attempts, before = self._seen.get(key, (0.0, 0.0))
            offered[key] = counts.offered if counts.attempts < attempts else max(before, counts.offered)
            self._seen[key] = (counts.attempts, offered[key])
        for gone in self._seen.keys() - routers.keys():
            del self._seen[gone]
        return offered


class Tables:
    """All vectors of one reading, indexed. What is absent is NaN; what is no count is told in `faults`."""

    def __init__(self, slots: Slots | None = None) -> None:
        self.slots = slots if slots is not None else {}
        # When each pod was scraped last, by its slot; a pod that was not is in no other column either.
        self.scraped: Column = np.empty(0)
        self._scraped: list[float] = []
        self._scrapes = NOTHING
        # Counters and gauges that some pod exports.
        self.engine: dict[Quantity, Column] = {}
        # Cumulative counts at bucket edges (seconds).
        self.within: dict[Quantity, dict[float, Column]] = {}
        self.faults: dict[int, str] = {}  # by slot
        self.pools: dict[Quantity, Values] = {}
        self.routers: dict[Name, RouterCounts] = {}
        self.offered: Values = {}
        self.p95: Values = {}
        self.unlabelled_namespaces: frozenset[str] = frozenset()

    def slot(self, pod: Name) -> int | None:
        """Where a pod that was scraped is in every column."""
        slot = self.slots.get(pod)
        return None if slot is None or slot >= len(self._scraped) or math.isnan(self._scraped[slot]) else slot

    def scraped_at(self, pod: Name) -> float | None:
        """When a pod was scraped (Unix seconds)."""
        slot = self.slot(pod)
        return None if slot is None else self._scraped[slot]

    def add_scrapes(self, vector: Vector) -> None:
        """Timestamps of scrapes: the first vector, which says what there is."""
        self._scrapes = vector
        self.scraped = np.full(len(self.slots), np.nan)
        for key in vector.layout.groups:
            self._fill(self.scraped, vector, key)
        self._scraped = self.scraped.tolist()

    def models_beside(self, known: Rows) -> frozenset[Name]:
        """Models of which a pod was scraped whose slot is not among those."""
        layout = self._scrapes.layout
        found = np.zeros(len(self.scraped), dtype=np.bool_)
        found[known] = True
        rows = np.flatnonzero(~found[layout.slots] & (layout.slots >= 0)).tolist() if len(found) else []
        return frozenset([model for row in rows if (model := layout.series[row].model) is not None])

    def add_engine(self, vector: Vector) -> None:
        """Counters and gauges of engine pods; where one exports several names of a quantity, the newest counts."""
        for quantity, names in ENGINE_COUNTERS.items():
            column = None
            for name in reversed(names.alternatives):
                if (name, None) in vector.layout.groups:
                    column = np.full(len(self.scraped), np.nan) if column is None else column
                    self._fill(column, vector, (name, None))
            if column is not None:
                self.engine[quantity] = column

    def add_buckets(self, vector: Vector) -> None:
        """Cumulative counts at bucket edges."""
        quantities = {name: quantity for quantity, names in ENGINE_BUCKETS.items() for name in names.alternatives}
        for name, edge in vector.layout.groups:
            if edge is not None and name in quantities:
                edges = self.within.setdefault(quantities[name], {})
                if edge not in edges:
                    edges[edge] = np.full(len(self.scraped), np.nan)
                self._fill(edges[edge], vector, (name, edge))

    def _fill(self, column: Column, vector: Vector, key: tuple[str, float | None]) -> None:
        """Lay the rows of one name (and edge) into a column; say which are no counts."""
        rows, slots, repeated = vector.layout.groups[key]
        values = vector.values[rows]
        if len(slots) and slots.max() >= len(column):
            # A pod that appeared after the vector of scrapes.
            there = slots < len(column)
            values, slots = values[there], slots[there]
        if repeated:
            # One edge written in two ways, as around an upgrade of Prometheus: the series that does not stand still.
            np.fmax.at(column, slots, values)
        else:
            column[slots] = values
        if not (len(values) == 0 or (values.min() >= 0.0 and values.max() < MOST_COUNT)):
            for slot, value in zip(slots.tolist(), values.tolist(), strict=True):
                if not 0.0 <= value < MOST_COUNT:
                    self.faults.setdefault(slot, f"{key[0] or 'the time of the last scrape'} is {value}")

    def edges_of(self, quantity: Quantity, slot: int) -> dict[float, float]:
        """Cumulative counts of one pod by edge, in seconds."""
        found = {edge: float(column[slot]) for edge, column in self.within.get(quantity, {}).items()}
        return {edge: count for edge, count in found.items() if not math.isnan(count)}

    def add_pools(self, rows: Iterable[tuple[Series, float]]) -> None:
        """Sums over the pods of each Model."""
        by_name: dict[str, Values] = {}
        for series, value in rows:
            if series.model is not None:
                by_name.setdefault(series.name, {})[series.model] = value
        for quantity, names in POOL_SUMS.items():
            found: Values = {}
            for name in reversed(names.alternatives):
                found.update(by_name.get(name, {}))
            self.pools[quantity] = found

    def add_routers(self, rows: Iterable[tuple[Series, float]], book: OfferedBook) -> None:
        """Counters of router pods, and what each was offered."""
        for series, value in rows:
            if series.pod is None:
                continue
            counts = self.routers.get(series.pod)
            if counts is None:
                counts = self.routers[series.pod] = RouterCounts()
            name = series.name
            if name in ROUTER_COUNTERS[Quantity.ROUTER_ATTEMPTS].alternatives:
                counts.attempts = value
            elif name in ROUTER_COUNTERS[Quantity.ROUTER_RETRIES].alternatives:
                counts.retries = value
            elif name in ROUTER_COUNTERS[Quantity.ROUTER_EXHAUSTED].alternatives:
                counts.exhausted = value
            elif series.error_type == ROUTER_NO_WORKER:
                counts.no_worker = value
            elif series.error_type == ROUTER_REFUSED:
                counts.refused = value
        self.offered = book.take(self.routers)


def finite_by_model(rows: Iterable[tuple[Series, float]]) -> Values:
    """Values by Model. NaN is left out: a percentile of no request is no fault of metrics."""
    return {series.model: value for series, value in rows if series.model is not None and math.isfinite(value)}
