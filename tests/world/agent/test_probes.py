"""Probe thresholds and restart back-off."""

from __future__ import annotations

import pytest

from goodput_world.agent.probes import ProbeCounter, RestartBackoff, parse_probe, should_restart


@pytest.mark.parametrize(
    ("outcomes", "want"),
    [
        ([True], [None]),
        ([True, True], [None, True]),
        ([True, False, True, True], [None, None, None, True]),
        ([False, False, False], [None, None, False]),
        ([True, True, False, False, True, False, False, False], [None, True, None, None, None, None, None, False]),
    ],
    ids=["one is not enough", "two in a row", "a failure starts anew", "three failures", "successes between reset"],
)
def test_results_change_at_thresholds(outcomes: list[bool], want: list[bool | None]) -> None:
    """With thresholds 2 and 3, a result is confirmed only by equal outcomes in a row."""
    counter = ProbeCounter(success_threshold=2, failure_threshold=3, result=False)

    assert [counter.record(outcome) for outcome in outcomes] == want


def test_a_confirmed_result_is_confirmed_again_by_each_further_outcome() -> None:
    """So a liveness probe that goes on failing is acted on although its first kill was missed."""
    counter = ProbeCounter(1, 1, result=True)

    assert [counter.record(False), counter.record(False)] == [False, False]
    assert counter.result is False


def test_probe_defaults() -> None:
    """The API's defaults: every 10 s, 1 s timeout, 1 success, 3 failures."""
    spec = parse_probe({"httpGet": {"port": 1}})

    assert spec is not None
    assert (spec.period_seconds, spec.timeout_seconds, spec.success_threshold, spec.failure_threshold) == (10, 1, 1, 3)
    assert (spec.initial_delay_seconds, spec.termination_grace_seconds) == (0, None)
    assert parse_probe(None) is None


def test_backoff_doubles_up_to_its_limit() -> None:
    """The first restart is at once, then 10, 20, ... 300 s, as a kubelet does."""
    backoff = RestartBackoff(10, 300)

    assert [backoff.delay_after(1) for _ in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]


def test_a_long_run_forgives() -> None:
    """Ten minutes of running start the back-off anew."""
    backoff = RestartBackoff(10, 300)
    for _ in range(4):
        backoff.delay_after(1)

    assert backoff.delay_after(600) == 0
    assert backoff.delay_after(1) == 10


@pytest.mark.parametrize(
    ("policy", "code", "want"),
    [
        ("Always", 0, True),
        ("Always", 1, True),
        ("OnFailure", 0, False),
        ("OnFailure", 1, True),
        ("Never", 1, False),
    ],
)
def test_restart_policies(policy: str, code: int, want: bool) -> None:
    """Always restarts all, OnFailure what failed, Never nothing."""
    assert should_restart(policy, code) is want
