"""The demo's summary and the checks that make its exit code."""

from __future__ import annotations

from typing import Any

import pytest

from goodput_world.demo.counters import OperatorCount, total
from goodput_world.demo.ledger import Ledger, PodSighting
from goodput_world.demo.summary import Run, StaticPeak, checks, is_valid, summarise_run
from goodput_world.replay import Objectives, Outcome, Record, summarise

REQUIRED_KEYS = {
    "attainment",
    "attainment_operator",
    "goodput_rps",
    "offered_rps",
    "requests",
    "requests_lost",
    "replicas_max",
    "replicas_timeline",
    "replica_hours",
    "gpu_hours",
    "static_peak_gpu_hours",
    "cost",
    "scale_ups",
    "scale_downs",
    "scale_events",
    "seconds_to_first_ready",
    "api_writes_last_steady_minutes",
    "replayer_lateness_p99_seconds",
    "speed",
}


def run(replay_seconds: float = 900.0, met: int = 97, bounds: tuple[float, float] | None = (0.95, 0.99)) -> Run:
    ledger = Ledger()
    first, second = PodSighting("a", 500.0, 1, True, False), PodSighting("b", 1200.0, 1, True, False)
    ledger.observe(990.0, 1, [first])
    ledger.observe(1200.0, 2, [first, second])
    ledger.observe(1500.0, 1, [first])
    records = [
        Record(f"{index}", 1.0, 5, 2, 1.001, 1.1, 1.1 if index < met else 1.9, 2.0, 2.0, 2, 1, 200, Outcome.OK)
        for index in range(100)
    ]
    return Run(
        replay=summarise(records, Objectives(ttft_seconds=0.5), replay_seconds),
        replay_seconds=replay_seconds,
        ledger=ledger,
        start_epoch=1000.0,
        end_epoch=1900.0,
        static_peak=StaticPeak(busiest_minute_rps=5.9, replica_rps=3.0, gpus_per_replica=1),
        attainment_objective=0.95,
        attainment_operator=bounds,
        price_per_gpu_hour=2.0,
        seconds_to_first_ready=60.0,
        steady_writes={},
        speed=1.0,
        cpu_wait_share=0.1,
    )


def test_the_summary_has_every_key_and_the_right_figures() -> None:
    """GPU-hours of two pods, the fixed fleet beside them, and both resizes."""
    summary = summarise_run(run())

    assert set(summary) >= REQUIRED_KEYS
    assert summary["attainment"] == 0.97
    assert summary["gpu_hours"] == pytest.approx((900 + 300) / 3600)
    assert summary["cost"] == pytest.approx(2 * (900 + 300) / 3600)
    assert summary["static_peak_gpu_hours"] == pytest.approx(2 * 900 / 3600)
    assert (summary["scale_ups"], summary["scale_downs"], summary["scale_events"]) == (1, 1, 2)
    assert summary["replicas_max"] == 2
    assert summary["replicas_timeline"] == [
        {"t": 0.0, "desired": 1, "ready": 1, "starting": 0, "terminating": 0},
        {"t": 200.0, "desired": 2, "ready": 2, "starting": 0, "terminating": 0},
        {"t": 500.0, "desired": 1, "ready": 1, "starting": 0, "terminating": 0},
    ]
    assert summary["api_writes_last_steady_minutes"] == 0
    assert is_valid(summary)
    assert not [check for check in checks(summary) if not check.passed]


@pytest.mark.parametrize(
    ("change", "failed"),
    [
        ({"attainment": 0.949, "attainment_operator": [0.94, 0.96]}, ["attainment"]),
        ({"attainment": None}, ["attainment", "operator agrees"]),
        ({"attainment_operator": None}, ["operator agrees"]),
        ({"attainment_operator": [0.9, 0.9599]}, ["operator agrees"]),
        ({"attainment_operator": [0.9801, 0.99]}, ["operator agrees"]),
        ({"attainment_operator": [0.9, 0.9601]}, []),
        ({"gpu_hours": 0.4251}, ["GPU-hours"]),
        ({"gpu_hours": 0.4249}, []),
        ({"gpu_hours": 0.4749, "replay_seconds": 899.0}, []),
        ({"gpu_hours": 0.4751, "replay_seconds": 899.0}, ["GPU-hours"]),
        ({"scale_ups": 0}, ["scaled up"]),
        ({"scale_downs": 0}, ["scaled down"]),
        ({"scale_downs": 0, "replay_seconds": 600.0}, []),
        ({"scale_ups": 0, "replay_seconds": 600.0}, ["scaled up"]),
    ],
)
def test_each_condition_fails_alone(change: dict[str, Any], failed: list[str]) -> None:
    """One figure on the wrong side of its limit is enough; a short run excuses the scale-down and has a wider limit."""
    summary = {**summarise_run(run()), **change}

    assert [check.name for check in checks(summary) if check.counts_as_failed] == failed


@pytest.mark.parametrize(("lateness", "valid"), [(0.05, True), (0.0501, False), (None, False)])
def test_a_late_replayer_makes_it_invalid(lateness: float | None, valid: bool) -> None:
    """Above 50 ms at p99 the run shows nothing; a run without a request shows nothing either."""
    assert is_valid({**summarise_run(run()), "replayer_lateness_p99_seconds": lateness}) is valid


@pytest.mark.parametrize(("rps", "replicas"), [(0.1, 1), (2.99, 1), (3.0, 1), (3.0000001, 1), (3.01, 2), (12.0, 4)])
def test_static_peak_rounds_up(rps: float, replicas: int) -> None:
    """Whole replicas, at least one, and no extra one for a rounding error."""
    assert StaticPeak(rps, 3.0, 1).replicas == replicas


def test_operator_counts_are_those_of_the_replay() -> None:
    """What was counted before the replay is taken off; a restart of the operator is an error, not a small number."""
    count = OperatorCount(110.0, 95.0, 106.0).since(OperatorCount(10.0, 5.0, 8.0))

    assert count == OperatorCount(100.0, 90.0, 98.0)
    assert count.bounds() == (0.9, 0.98)
    assert OperatorCount(0.0, 0.0, 0.0).bounds() is None
    with pytest.raises(ValueError, match="restarted"):
        OperatorCount(3.0, 2.0, 2.0).since(OperatorCount(10.0, 5.0, 8.0))


def test_series_of_other_models_are_left_out() -> None:
    """A scrape's own labels move the operator's to `exported_`; no series is None, not 0."""
    vector: list[dict[str, Any]] = [
        {"metric": {"namespace": "goodput-system", "exported_namespace": "default", "model": "a"}, "value": [0, "3"]},
        {"metric": {"namespace": "default", "model": "a"}, "value": [0, "4"]},
        {"metric": {"namespace": "default", "model": "b"}, "value": [0, "5"]},
        {"metric": {"namespace": "other", "model": "a"}, "value": [0, "6"]},
    ]

    assert total(vector, "default", "a") == 7.0
    assert total(vector, "default", "c") is None
