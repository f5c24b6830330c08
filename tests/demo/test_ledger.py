"""What pods cost and when the fleet was resized."""

from __future__ import annotations

import pytest

from goodput_world.demo.fleet import ModelView, sighting
from goodput_world.demo.ledger import Ledger, PodSighting, Resize, last_quiet_span


def pod(uid: str, created: float = 0.0, gpus: int = 1, ready: bool = True, terminating: bool = False) -> PodSighting:
    return PodSighting(uid, created, gpus, ready, terminating)


def test_a_pod_is_paid_from_creation_to_removal() -> None:
    """Start-up before Ready and the drain after it count; what lies outside the span does not."""
    ledger = Ledger()
    ledger.observe(100.0, 1, [pod("a", 40.0)])
    ledger.observe(110.0, 2, [pod("a", 40.0), pod("b", 109.0, gpus=2, ready=False)])
    ledger.observe(160.0, 1, [pod("a", 40.0, terminating=True), pod("b", 109.0, gpus=2)])
    ledger.observe(170.0, 1, [pod("b", 109.0, gpus=2)])

    assert ledger.replica_seconds(100.0, 200.0) == (170 - 100) + (200 - 109)
    assert ledger.gpu_seconds(100.0, 200.0) == (170 - 100) + 2 * (200 - 109)
    assert ledger.gpu_seconds(0.0, 50.0) == 10.0
    assert ledger.gpu_seconds(300.0, 200.0) == 0.0


def test_the_timeline_holds_changes_only() -> None:
    """One entry for each change, ready, starting and draining told apart."""
    ledger = Ledger()
    for now in (1.0, 2.0, 3.0):
        ledger.observe(now, 1, [pod("a")])
    ledger.observe(4.0, 2, [pod("a"), pod("b", ready=False)])
    ledger.observe(5.0, 1, [pod("a", terminating=True), pod("b")])

    assert [state.counts for state in ledger.timeline] == [(1, 1, 0, 0), (2, 1, 1, 0), (1, 1, 0, 1)]
    assert [state.at_epoch for state in ledger.states_within(2.5, 4.5)] == [1.0, 4.0]


def test_resizes_are_the_deployments_not_the_pods() -> None:
    """A pod that is replaced or a Deployment that appears is no resize."""
    ledger = Ledger()
    ledger.observe(1.0, None, [])
    ledger.observe(2.0, 1, [])
    ledger.observe(3.0, 1, [pod("a")])
    ledger.observe(4.0, 1, [pod("b")])
    ledger.observe(5.0, 3, [pod("b")])
    ledger.observe(6.0, 2, [pod("b")])

    assert ledger.resizes == [Resize(5.0, 1, 3), Resize(6.0, 3, 2)]
    assert ledger.resizes_within(5.0, 6.0) == [Resize(6.0, 3, 2)]


@pytest.mark.parametrize(
    ("instants", "expected"),
    [
        pytest.param([], (480.0, 600.0), id="no-decision"),
        pytest.param([100.0, 400.0], (480.0, 600.0), id="quiet-end"),
        pytest.param([100.0, 550.0], (430.0, 550.0), id="late-decision"),
        pytest.param([0.0, 600.0], (480.0, 600.0), id="at-the-edges"),
        pytest.param([100.0, 200.0, 300.0, 400.0, 500.0], None, id="never-two-quiet-minutes"),
    ],
)
def test_the_last_quiet_span_is_the_last(instants: list[float], expected: tuple[float, float] | None) -> None:
    """Two minutes without a decision, counted from the end; None where there are none."""
    assert last_quiet_span(instants, 0.0, 600.0, 120.0) == expected


def test_a_pod_is_read_as_the_api_server_shows_it() -> None:
    """GPUs are the sum of the containers' limits; readiness is the condition, not the phase."""
    shown = {
        "metadata": {
            "uid": "u",
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "deletionTimestamp": "2026-01-02T03:05:05Z",
        },
        "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2", "memory": "1Gi"}}}, {"name": "x"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]},
    }

    assert sighting(shown) == PodSighting("u", 1767323045.0, 2, ready=False, terminating=True)
    assert not sighting({**shown, "status": {}}).ready


def test_a_model_without_status_shows_nothing() -> None:
    """Absent is empty, not zero."""
    assert ModelView.of({"metadata": {}}) == ModelView()
