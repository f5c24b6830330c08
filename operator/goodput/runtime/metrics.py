"""Prometheus metrics of the operator itself, in a registry of their own.

Figures of a Model are labelled by its namespace and name, and go when the Model goes. Decisions and writes are counted
by enums only, never by names of pods.
"""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from goodput.domain.decision import Decision
from goodput.domain.identity import Key
from goodput.domain.plan import Figures

MODEL = ("namespace", "model")
STEP_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

# Gauge name, help, and the figure that it shows.
_FIGURES = (
    ("demand_requests_per_second", "Load that users offer.", "demand_rps"),
    ("forecast_requests_per_second", "Load expected over the start-up of a replica.", "forecast_rps"),
    (
        "replica_capacity_requests_per_second",
        "Load that one replica carries within the SLO.",
        "capacity_rps_per_replica",
    ),
    ("goodput_lower_requests_per_second", "Requests that met the SLO, at least.", "goodput_lower_rps"),
    ("goodput_upper_requests_per_second", "Requests that met the SLO, at most.", "goodput_upper_rps"),
    ("attainment_lower_ratio", "Share of requests that met the SLO, at least.", "attainment_lower"),
    ("attainment_upper_ratio", "Share of requests that met the SLO, at most.", "attainment_upper"),
    ("replicas_desired", "Replicas decided on.", "replicas_desired"),
    ("replicas_ready", "Replicas that serve.", "replicas_ready"),
    ("replicas_pending", "Replicas that wait for a node.", "replicas_pending"),
    ("cost_per_hour", "Cost of all replicas per hour, in the currency of GPU prices.", "cost_per_hour"),
    ("utilisation_ratio", "Demand over the capacity of ready replicas.", "utilisation"),
    ("startup_seconds", "Learned start-up time of a replica.", "startup_seconds"),
)


@dataclass(frozen=True, slots=True)
class _Shown:
    """Series of one Model: its counters, and those gauges that are known."""

    counters: tuple[Counter, ...]
    gauges: dict[str, Gauge]


class Metrics:
    """All metrics; `render` gives the text that Prometheus scrapes."""

    def __init__(self, version: str) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self._figures = {
            attribute: Gauge(f"goodput_{name}", text, MODEL, registry=registry) for name, text, attribute in _FIGURES
        }
        self.offered = Counter("goodput_requests_offered", "Requests offered by users.", MODEL, registry=registry)
        self.good_lower = Counter(
            "goodput_requests_good_lower", "Requests that met the SLO, at least.", MODEL, registry=registry
        )
        self.good_upper = Counter(
            "goodput_requests_good_upper", "Requests that met the SLO, at most.", MODEL, registry=registry
        )
        self.decisions = Counter(
            "goodput_decisions", "Decisions by action and rule.", ("action", "rule", "clamp"), registry=registry
        )
        self.conditions = Gauge(
            "goodput_models_condition",
            "Models by condition type, status and reason.",
            ("type", "status", "reason"),
            registry=registry,
        )
        self.steps = Histogram(
            "goodput_loop_step_seconds",
            "Time of one step of the fleet loop.",
            ("step",),
            registry=registry,
            buckets=STEP_BUCKETS,
        )
        self.passes = Counter("goodput_loop_passes", "Passes of the fleet loop.", ("result",), registry=registry)
        self.last_pass = Gauge(
            "goodput_loop_last_pass_timestamp_seconds", "When the loop last ended a pass.", registry=registry
        )
        self.writes = Counter(
            "goodput_api_requests", "Requests to the API server.", ("verb", "kind", "result"), registry=registry
        )
        self.errors = Counter("goodput_model_errors", "Unexpected errors by step.", ("step",), registry=registry)
        self.reflector_lag = Gauge(
            "goodput_reflector_idle_seconds",
            "Time since a watch last gave a sign of life.",
            ("kind",),
            registry=registry,
        )
        self.reflector_objects = Gauge("goodput_reflector_objects", "Objects kept.", ("kind",), registry=registry)
        self.leader = Gauge("goodput_leader", "Whether this process writes.", registry=registry)
        self.telemetry_up = Gauge(
            "goodput_telemetry_up", "Whether the last reading of Prometheus succeeded.", registry=registry
        )
        build = Gauge("goodput_build_info", "Version of the operator.", ("version",), registry=registry)
        build.labels(version).set(1)
        self._shown: dict[Key, _Shown] = {}

    def show(self, key: Key, figures: Figures) -> None:
        """Publish the figures of one Model; an unknown figure has no series."""
        labels = (key.namespace, key.name)
        shown = self._shown.get(key)
        if shown is None:
            counters = tuple(counter.labels(*labels) for counter in (self.offered, self.good_lower, self.good_upper))
            shown = self._shown[key] = _Shown(counters, {})
        for attribute, gauge in self._figures.items():
            value = getattr(figures, attribute)
            child = shown.gauges.get(attribute)
            if value is not None:
                if child is None:
                    # Looking a child up by its labels costs more than all the rest here.
                    child = shown.gauges[attribute] = gauge.labels(*labels)
                child.set(value)
            elif child is not None:
                gauge.remove(*labels)
                del shown.gauges[attribute]
        deltas = (figures.offered_delta, figures.good_lower_delta, figures.good_upper_delta)
        for counter, delta in zip(shown.counters, deltas, strict=True):
            if delta > 0.0:
                counter.inc(delta)

    def forget_others(self, present: set[Key]) -> None:
        """Drop the series of Models that are gone."""
        for key in self._shown.keys() - present:
            labels = (key.namespace, key.name)
            for attribute in self._shown.pop(key).gauges:
                self._figures[attribute].remove(*labels)
            for counter in (self.offered, self.good_lower, self.good_upper):
                counter.remove(*labels)

    def count(self, decision: Decision) -> None:
        self.decisions.labels(decision.action.value, decision.rule.value, decision.clamp.value).inc()

    def render(self) -> bytes:
        """The exposition text."""
        return generate_latest(self.registry)
