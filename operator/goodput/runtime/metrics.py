"""Prometheus metrics of the operator itself, in a registry of their own.

Figures of a Model are labelled by its namespace and name, and go when the Model goes. Decisions and writes are counted
by enums only, never by names of pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from goodput.domain.decision import Decision
from goodput.domain.identity import Key
from goodput.domain.plan import Figures

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


# Counter name, help, and the delta of a tick that it adds up.
_COUNTERS = (
    ("requests_offered_total", "Requests offered by users.", "offered_delta"),
    ("requests_good_lower_total", "Requests that met the SLO, at least.", "good_lower_delta"),
    ("requests_good_upper_total", "Requests that met the SLO, at most.", "good_upper_delta"),
    # Rates of two of these over each other are utilisations: compute over replica seconds is MFU, over busy seconds
    # that of busy time; memory gives MBU.
    ("replica_seconds_total", "Time of replicas that was watched.", "wall_seconds"),
    ("replica_busy_seconds_total", "Of that, time of steps.", "busy_seconds"),
    ("replica_compute_seconds_total", "What the model's FLOP would take at dense peak.", "compute_seconds"),
    ("replica_memory_seconds_total", "What the bytes moved would take at full bandwidth.", "memory_seconds"),
)


@dataclass(slots=True)
class _Shown:
    """What is published of one Model: its labels as text, its figures, and its counters in the order above."""

    labels: str
    figures: Figures
    counters: list[float]


class Metrics:
    """All metrics; `render` gives the text that Prometheus scrapes."""

    def __init__(self, version: str) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
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
        shown = self._shown.get(key)
        if shown is None:
            # Names of Kubernetes need no escaping.
            labels = f'model="{key.name}",namespace="{key.namespace}"'
            shown = self._shown[key] = _Shown(labels, figures, [0.0] * len(_COUNTERS))
        shown.figures = figures
        for index, (_, _, attribute) in enumerate(_COUNTERS):
            shown.counters[index] += max(0.0, getattr(figures, attribute))

    def forget_others(self, present: set[Key]) -> None:
        """Drop the series of Models that are gone."""
        for key in self._shown.keys() - present:
            del self._shown[key]

    def count(self, decision: Decision) -> None:
        self.decisions.labels(decision.action.value, decision.rule.value, decision.clamp.value).inc()

    def render(self) -> bytes:
        """The exposition text."""
        return generate_latest(self.registry) + "".join(self._of_models()).encode()

    def _of_models(self) -> Iterator[str]:
        """Series of Models, written by hand: a client library takes ten times as long for thousands of them."""
        for name, text, attribute in _FIGURES:
            yield f"# HELP goodput_{name} {text}\n# TYPE goodput_{name} gauge\n"
            for shown in self._shown.values():
                value = getattr(shown.figures, attribute)
                if value is not None:
                    yield f"goodput_{name}{{{shown.labels}}} {float(value)!r}\n"
        for index, (name, text, _) in enumerate(_COUNTERS):
            yield f"# HELP goodput_{name} {text}\n# TYPE goodput_{name} counter\n"
            for shown in self._shown.values():
                yield f"goodput_{name}{{{shown.labels}}} {shown.counters[index]!r}\n"
