"""The demo's result: `summary.json`, and the checks that decide its exit code. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from goodput_world.demo.ledger import FleetState, Ledger
from goodput_world.replay.summary import LATENESS_LIMIT_SECONDS, ReplaySummary

# Between the client and what the operator sees lies the router hop.
HOP_TOLERANCE = 0.01
# A shorter replay spends a larger share of its time starting engines, and ends before a scale-down is due.
LONG_RUN_SECONDS = 900.0
GPU_HOURS_SHARE_LONG = 0.85
GPU_HOURS_SHARE_SHORT = 0.95


@dataclass(frozen=True, slots=True)
class StaticPeak:
    """The fixed fleet that holds the busiest minute: ceil(its requests/s / what one replica holds), for the whole
    run.
    """

    busiest_minute_rps: float
    replica_rps: float
    gpus_per_replica: int

    @property
    def replicas(self) -> int:
        """Replicas of that fleet; at least one."""
        # Rounded first: 3.0000000004 replicas are three.
        return max(1, math.ceil(round(self.busiest_minute_rps / self.replica_rps, 6)))

    def gpu_hours(self, duration_seconds: float) -> float:
        """GPU-hours of that fleet over a run."""
        return self.replicas * self.gpus_per_replica * duration_seconds / 3600


@dataclass(frozen=True, slots=True)
class Run:
    """Everything measured in one demo. Instants are Unix seconds; counting runs from start to end.

    `steady_writes` are the operator's in the last two minutes without a change, by kind; `cpu_wait_share` is the share
    of the time in which something waited for a processor of this machine.
    """

    replay: ReplaySummary
    replay_seconds: float
    ledger: Ledger
    start_epoch: float
    end_epoch: float
    static_peak: StaticPeak
    attainment_objective: float
    attainment_operator: tuple[float, float] | None
    price_per_gpu_hour: float | None
    seconds_to_first_ready: float
    steady_writes: dict[str, int] | None
    speed: float
    cpu_wait_share: float | None


def _timeline_row(state: FleetState, start_epoch: float) -> dict[str, Any]:
    return {
        "t": round(max(0.0, state.at_epoch - start_epoch), 1),
        "desired": state.desired,
        "ready": state.ready,
        "starting": state.starting,
        "terminating": state.terminating,
    }


def summarise_run(run: Run) -> dict[str, Any]:
    """The content of `summary.json`. What could not be measured is null, never 0."""
    span = (run.start_epoch, run.end_epoch)
    duration_seconds = run.end_epoch - run.start_epoch
    resizes = run.ledger.resizes_within(*span)
    states = run.ledger.states_within(*span)
    gpu_hours = run.ledger.gpu_seconds(*span) / 3600
    ups = sum(resize.after > resize.before for resize in resizes)
    return {
        "attainment": run.replay.attainment,
        "attainment_objective": run.attainment_objective,
        "attainment_operator": None if run.attainment_operator is None else list(run.attainment_operator),
        "goodput_rps": run.replay.goodput_rps,
        "offered_rps": run.replay.offered_rps,
        "requests": run.replay.requests,
        "requests_met": run.replay.met,
        "requests_late": run.replay.late,
        "requests_lost": run.replay.lost,
        "requests_lost_by_outcome": run.replay.lost_by_outcome,
        "replay_seconds": run.replay_seconds,
        "duration_seconds": duration_seconds,
        "replicas_max": max((state.ready + state.starting + state.terminating for state in states), default=0),
        "replicas_timeline": [_timeline_row(state, run.start_epoch) for state in states],
        "replica_hours": run.ledger.replica_seconds(*span) / 3600,
        "gpu_hours": gpu_hours,
        "static_peak_replicas": run.static_peak.replicas,
        "static_peak_gpu_hours": run.static_peak.gpu_hours(duration_seconds),
        "busiest_minute_rps": run.static_peak.busiest_minute_rps,
        "replica_rps_measured": run.static_peak.replica_rps,
        "cost": None if run.price_per_gpu_hour is None else gpu_hours * run.price_per_gpu_hour,
        "price_per_gpu_hour": run.price_per_gpu_hour,
        "scale_ups": ups,
        "scale_downs": len(resizes) - ups,
        "scale_events": len(resizes),
        "scale_log": [
            {"t": round(resize.at_epoch - run.start_epoch, 1), "from": resize.before, "to": resize.after}
            for resize in resizes
        ],
        "seconds_to_first_ready": run.seconds_to_first_ready,
        "api_writes_last_steady_minutes": None if run.steady_writes is None else sum(run.steady_writes.values()),
        "api_writes_last_steady_by_kind": run.steady_writes,
        "replayer_lateness_p99_seconds": run.replay.lateness_p99_seconds,
        "speed": run.speed,
        "cpu_wait_share": run.cpu_wait_share,
        "latency": {key: value for key, value in asdict(run.replay).items() if key.startswith(("ttft_", "tpot_"))},
    }


@dataclass(frozen=True, slots=True)
class Check:
    """One condition for exit code 0. `excused` ones are shown and do not count."""

    name: str
    passed: bool
    text: str
    excused: bool = False

    @property
    def counts_as_failed(self) -> bool:
        """Whether it alone makes the demo fail."""
        return not self.passed and not self.excused


def is_valid(summary: dict[str, Any]) -> bool:
    """Whether the replayer kept to its schedule; if not, the run is neither pass nor fail."""
    lateness = summary["replayer_lateness_p99_seconds"]
    return lateness is not None and lateness <= LATENESS_LIMIT_SECONDS


def checks(summary: dict[str, Any]) -> Sequence[Check]:
    """The conditions of the demo, each with its numbers. `is_valid` comes before them."""
    long_run = summary["replay_seconds"] >= LONG_RUN_SECONDS
    share = GPU_HOURS_SHARE_LONG if long_run else GPU_HOURS_SHARE_SHORT
    attainment, objective = summary["attainment"], summary["attainment_objective"]
    peak_gpu_hours = summary["static_peak_gpu_hours"]
    limit_gpu_hours = share * peak_gpu_hours
    return (
        Check(
            "attainment",
            attainment is not None and attainment >= objective,
            f"{_percent(attainment)} of offered requests met the SLO; the objective is {_percent(objective)}",
        ),
        _bounds_check(attainment, summary["attainment_operator"]),
        Check(
            "GPU-hours",
            summary["gpu_hours"] <= limit_gpu_hours,
            f"{summary['gpu_hours']:.3f} GPU-hours; at most {share:g} x static peak "
            f"({summary['static_peak_replicas']} replicas, {peak_gpu_hours:.3f}) = {limit_gpu_hours:.3f}",
        ),
        Check("scaled up", summary["scale_ups"] >= 1, f"{summary['scale_ups']} scale-ups"),
        Check(
            "scaled down",
            summary["scale_downs"] >= 1,
            f"{summary['scale_downs']} scale-downs" + ("" if long_run else " (none is due in under 900 s)"),
            excused=not long_run,
        ),
    )


def _bounds_check(attainment: float | None, bounds: list[float] | None) -> Check:
    if bounds is None or attainment is None:
        return Check("operator agrees", False, "the operator counted no request: there are no bounds to compare with")
    lower, upper = bounds
    return Check(
        "operator agrees",
        lower - HOP_TOLERANCE <= attainment <= upper + HOP_TOLERANCE,
        f"clients saw {_percent(attainment)}; the operator's bounds are {_percent(lower)} to {_percent(upper)}, "
        f"+-{HOP_TOLERANCE * 100:g} point for the hop",
    )


def _percent(share: float | None) -> str:
    return "nothing" if share is None else f"{share * 100:.2f} %"
