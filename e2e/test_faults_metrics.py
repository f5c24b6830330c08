"""Absent, stale, NaN and empty metrics hold what runs and are named; never does the fleet shrink (DESIGN 9.4)."""

from __future__ import annotations

import asyncio

import pytest

from faults.fixtures import Bench
from faults.fleet import ENGINE, HIGH, LOW, create_fleet

pytestmark = pytest.mark.timeout(240)

HOLD_SECONDS = 15.0
"""Three times the window after which these tests' law lets replicas go: the control below needs one."""

ONE_MODEL = {
    "nan": "MetricsInvalid",
    "stale": "MetricsStale",
    "absent": "MetricsMissing",
    "no-histogram": "MetricsMissing",
    "unlabelled": "MetricsUnlabelled",
}
"""What may be wrong with the metrics of one Model, and the reason that names it."""
ALL_MODELS = {"error": "PrometheusUnreachable", "hang": "PrometheusUnreachable", "empty": "MetricsMissing"}
"""What may be wrong with a whole Prometheus."""


async def test_metrics_that_lie_or_are_gone_hold_the_fleet(bench: Bench) -> None:
    """Every kind of bad metrics keeps 3 replicas while the load is gone, says why, and ends when they are good again.

    A Model beside them, whose metrics are good, shrinks meanwhile: the same load would have let theirs go.
    """
    prometheus = bench.prometheus
    each = {f"metrics-{fault}": fault for fault in ONE_MODEL}
    whole = {f"prometheus-{fault}": fault for fault in ALL_MODELS}
    control = "metrics-good"
    everyone = [*each, *whole, control]
    for namespace in everyone:
        prometheus.load(namespace, HIGH)
        await create_fleet(bench.person, namespace)
    shared = await bench.operators.start("metrics", *each, control, prometheus_url=prometheus.url())
    own = [
        await bench.operators.start(namespace, namespace, prometheus_url=prometheus.url(namespace))
        for namespace in whole
    ]
    await bench.settled(*everyone, replicas=3, timeout_seconds=60.0)

    for namespace, fault in each.items():
        prometheus.falsify(namespace, fault)
    prometheus.faults.update(whole)
    for namespace in everyone:
        prometheus.load(namespace, LOW)
    for namespace, fault in (each | whole).items():
        reason = (ONE_MODEL | ALL_MODELS)[fault]
        await bench.says(namespace, "MetricsFresh", "False", reason)
    await bench.settled(control, replicas=1)
    await asyncio.sleep(HOLD_SECONDS)
    for namespace in each | whole:
        assert bench.recorder.asked(namespace, ENGINE)[-1] == 3, f"{namespace}: shrank on ignorance"
        assert len(bench.recorder.ready(namespace)) == 3, f"{namespace}: a pod went"
        decision = bench.model(namespace)["status"]["lastDecision"]
        assert (decision["action"], decision["rule"]) == ("Hold", "HoldMetrics"), f"{namespace}: {decision}"
        ready = next(each for each in bench.model(namespace)["status"]["conditions"] if each["type"] == "Ready")
        assert ready["status"] == "True", f"{namespace}: bad metrics are no reason to call it not Ready: {ready}"

    for namespace in each:
        prometheus.falsify(namespace, "")
    prometheus.faults.clear()
    await bench.settled(*each, *whole, replicas=1, timeout_seconds=60.0)
    for namespace in each | whole:
        await bench.says(namespace, "MetricsFresh", "True", "Fresh")
        turns = bench.recorder.turns(namespace, ENGINE)
        assert turns == [1, 3, 1], f"{namespace}: replicas went {turns}"
    for operator in (shared, *own):
        assert "Traceback" not in operator.log_text(), operator.log_tail(60)
        assert await operator.stop() == 0
