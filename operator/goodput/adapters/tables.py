"""All vectors of one reading, indexed by pod or Model. Pure; absent stays absent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from goodput.adapters.metric_names import (
    ENGINE_BUCKETS,
    ENGINE_COUNTERS,
    POOL_SUMS,
    ROUTER_COUNTERS,
    ROUTER_NO_WORKER,
    ROUTER_REFUSED,
    Quantity,
)
from goodput.adapters.vectors import Name, Row, Slots

# (namespace, name of a pod or Model) -> value
Values = dict[Name, float]
# A value for each pod, by its slot; None where it has none.
Column = list[float | None]


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
            attempts, before = self._seen.get(key, (0.0, 0.0))
            offered[key] = counts.offered if counts.attempts < attempts else max(before, counts.offered)
            self._seen[key] = (counts.attempts, offered[key])
        for gone in self._seen.keys() - routers.keys():
            del self._seen[gone]
        return offered


@dataclass(slots=True)
class Tables:
    """All vectors of one reading, indexed. A NaN stays one: whoever reads it must say so."""

    slots: Slots = field(default_factory=dict)
    # When each pod was scraped last; a pod that was not is in no other column either.
    scraped: Column = field(default_factory=list)
    # Counters and gauges that some pod exports.
    engine: dict[Quantity, Column] = field(default_factory=dict)
    # Cumulative counts at bucket edges (seconds).
    within: dict[Quantity, dict[float, Column]] = field(default_factory=dict)
    pools: dict[Quantity, Values] = field(default_factory=dict)
    routers: dict[Name, RouterCounts] = field(default_factory=dict)
    offered: Values = field(default_factory=dict)
    p95: Values = field(default_factory=dict)
    unlabelled_namespaces: frozenset[str] = frozenset()

    def slot(self, pod: Name) -> int | None:
        """Where a pod that was scraped is in every column."""
        slot = self.slots.get(pod)
        return None if slot is None or slot >= len(self.scraped) or self.scraped[slot] is None else slot

    def scraped_at(self, pod: Name) -> float | None:
        """When a pod was scraped (Unix seconds)."""
        slot = self.slot(pod)
        return None if slot is None else self.scraped[slot]

    def add_scrapes(self, rows: Sequence[Row]) -> None:
        """Timestamps of scrapes: the first vector, which says what there is."""
        self.scraped = [None] * len(self.slots)
        for series, value in rows:
            if series.slot >= 0:
                self.scraped[series.slot] = value

    def add_engine(self, rows: Iterable[Row]) -> None:
        """Counters and gauges of engine pods; where one exports several names of a quantity, the newest counts."""
        size = len(self.scraped)
        by_name: dict[str, Column] = {}
        for series, value in rows:
            column = by_name.get(series.name)
            if column is None:
                column = by_name[series.name] = [None] * size
            if 0 <= series.slot < size:
                column[series.slot] = value
        for quantity, names in ENGINE_COUNTERS.items():
            found = [by_name[name] for name in names.alternatives if name in by_name]
            if len(found) == 1:
                self.engine[quantity] = found[0]
            elif found:
                self.engine[quantity] = [
                    next((value for value in values if value is not None), None) for values in zip(*found, strict=True)
                ]

    def add_buckets(self, rows: Iterable[Row]) -> None:
        """Cumulative counts at bucket edges."""
        size = len(self.scraped)
        tables = {
            name: self.within.setdefault(quantity, {})
            for quantity, names in ENGINE_BUCKETS.items()
            for name in names.alternatives
        }
        for series, count in rows:
            edges = tables.get(series.name)
            if edges is None or not 0 <= series.slot < size:
                continue
            column = edges.get(series.edge)
            if column is None:
                if math.isnan(series.edge):
                    continue
                column = edges[series.edge] = [None] * size
            column[series.slot] = count

    def edges_of(self, quantity: Quantity, slot: int) -> dict[float, float]:
        """Cumulative counts of one pod by edge, in seconds."""
        found = {edge: column[slot] for edge, column in self.within.get(quantity, {}).items()}
        return {edge: count for edge, count in found.items() if count is not None}

    def add_pools(self, rows: Iterable[Row]) -> None:
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

    def add_routers(self, rows: Iterable[Row], book: OfferedBook) -> None:
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


def finite_by_model(rows: Iterable[Row]) -> Values:
    """Values by Model. NaN is left out: a percentile of no request is no fault of metrics."""
    return {series.model: value for series, value in rows if series.model is not None and math.isfinite(value)}
