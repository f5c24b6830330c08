"""The status a kubelet writes."""

from __future__ import annotations

from typing import Any

import pytest

from goodput_world.agent.status import Conditions, ContainerView, build_status, pod_phase, waiting

RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


def ended(code: int) -> dict[str, Any]:
    """The state of a container that has ended."""
    return {"terminated": {"exitCode": code}}


def view(state: dict[str, Any], **more: Any) -> ContainerView:
    """A container in a state."""
    return ContainerView("c", "i", state=state, **more)


def status_of(containers: list[ContainerView], inits: list[ContainerView] | None = None, **more: Any) -> dict[str, Any]:
    """The status of a pod with these containers."""
    pod = {"metadata": {"generation": 3}, "spec": {"restartPolicy": "Always", **more.pop("spec", {})}, "status": {}}
    options: dict[str, Any] = {
        "host_ip": "127.0.9.9",
        "pod_ip": "127.0.1.1",
        "start_time": "t",
        "sandbox_ready": True,
        "force_not_ready": False,
        "final_phase": None,
        **more,
    }
    return build_status(pod, containers, inits or [], Conditions(), **options)


def conditions_of(status: dict[str, Any]) -> dict[str, str]:
    """Condition type -> status."""
    return {condition["type"]: condition["status"] for condition in status["conditions"]}


@pytest.mark.parametrize(
    ("states", "policy", "want"),
    [
        ([waiting("ContainerCreating")], "Always", "Pending"),
        ([RUNNING, waiting("ContainerCreating")], "Always", "Running"),
        ([ended(0)], "Always", "Running"),
        ([ended(0), ended(0)], "Never", "Succeeded"),
        ([ended(0), ended(1)], "OnFailure", "Failed"),
    ],
)
def test_phase(states: list[dict[str, Any]], policy: str, want: str) -> None:
    """A pod that restarts its containers never ends."""
    assert pod_phase([view(state) for state in states], [], policy) == want


def test_a_crash_looping_pod_is_running() -> None:
    """Waiting with a last state is not Pending."""
    container = view(waiting("CrashLoopBackOff"), last_state=ended(1))

    assert pod_phase([container], [], "Always") == "Running"


def test_readiness_needs_every_container() -> None:
    """ContainersReady and Ready name the container that is not."""
    status = status_of([view(RUNNING, ready=True), view(RUNNING)])

    assert conditions_of(status)["Ready"] == "False"
    message = next(c["message"] for c in status["conditions"] if c["type"] == "Ready")
    assert "[c]" in message
    assert conditions_of(status_of([view(RUNNING, ready=True)])) == dict.fromkeys(
        ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"), "True"
    )


def test_readiness_gates_hold_ready_back() -> None:
    """ContainersReady is True, Ready is not until the gate's condition is."""
    spec = {"readinessGates": [{"conditionType": "gate"}]}
    conditions = conditions_of(status_of([view(RUNNING, ready=True)], spec=spec))

    assert (conditions["ContainersReady"], conditions["Ready"]) == ("True", "False")


def test_init_containers_hold_initialized_back() -> None:
    """Until each has ended with 0."""
    assert conditions_of(status_of([view(RUNNING)], [view(RUNNING)]))["Initialized"] == "False"
    assert conditions_of(status_of([view(RUNNING)], [view(ended(0))]))["Initialized"] == "True"


def test_transition_times_move_with_the_status_only() -> None:
    """The same status keeps its time although the message changes."""
    conditions = Conditions()
    conditions.set("Ready", False, "A", now="1")
    conditions.set("Ready", False, "B", now="2")

    (condition,) = conditions.listed(["Ready"])
    assert (condition["lastTransitionTime"], condition["reason"]) == ("1", "B")
    conditions.set("Ready", True, now="3")
    assert conditions.listed(["Ready"])[0]["lastTransitionTime"] == "3"


def test_a_pod_without_network_has_no_ip() -> None:
    """The IP appears with the sandbox."""
    assert "podIP" not in status_of([view(waiting("ContainerCreating"))], sandbox_ready=False)
    assert status_of([view(RUNNING)])["podIPs"] == [{"ip": "127.0.1.1"}]
    assert status_of([view(RUNNING)])["observedGeneration"] == 3
