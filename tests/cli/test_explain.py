"""`explain` tells the last decision of a Model from its status alone."""

from __future__ import annotations

from typing import Any

from goodput.cli.explain import explained, told


def model(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "llama", "namespace": "a", "generation": 2},
        "spec": {"model": "org/llama", "slo": {"name": "chat", "namespace": "platform"}},
        "status": status,
    }


CONDITIONS = [
    {"type": "Ready", "status": "True", "reason": "Serving", "message": "3 replicas serve"},
    {"type": "Stalled", "status": "False", "reason": "NotStalled"},
    {"type": "SLOMet", "status": "False", "reason": "Capped", "message": "maxReplicas is 3"},
]


def test_tells_the_whole_story() -> None:
    """State, figures with bounds, decision, its numbers, the cap, what was not taken, and what is wrong."""
    story = list(
        told(
            model(
                observedGeneration=2,
                conditions=CONDITIONS,
                pools=[{"name": "serve", "desired": 3, "ready": 2, "gpuType": "l40s", "tensorParallel": 2}],
                demand={"requestsPerSecond": "9.1", "inputTokens": "1200", "outputTokens": "210"},
                goodput={"requestsPerSecond": "8.6", "lower": "8.3", "upper": "8.9"},
                attainment="91-98%",
                gpuUse={"mfu": "12%", "mbu": "40%", "busyMFU": "25%", "busyMBU": "80%", "bottleneck": "bandwidth"},
                costPerHour="~5.58",
                lastDecision={
                    "id": "1-serve-2-3",
                    "time": "2026-01-01T00:00:00Z",
                    "action": "ScaleUp",
                    "message": "Scale up 2 -> 3 replicas",
                    "wanted": 5,
                    "clamp": "MaxReplicas",
                    "inputs": [{"name": "demand", "value": "9.1", "unit": "requests/s"}],
                    "rejected": [{"option": "5 replicas", "reason": "maxReplicas is 3"}],
                },
            )
        )
    )
    text = "\n".join(story)
    assert "under SLO chat on 3 replicas (2 ready), each on 2 x l40s" in text
    assert "users offer 9.1 requests/s of 1200 tokens in and 210 out" in text
    assert "8.6 a second meet the SLO (between 8.3 and 8.9)" in text
    assert "Its GPUs reach 12% of their arithmetic (MFU) and 40% of their bandwidth (MBU), in the time of" in text
    assert "engine steps alone 25% and 80%." in text
    assert "What keeps a replica from carrying more is bandwidth." in text
    assert "costs 5.58 an hour by assumed list prices" in text
    assert "The rule asked for 5 replicas; MaxReplicas stopped it." in text
    assert "    demand  9.1 requests/s" in story
    assert "    5 replicas: maxReplicas is 3" in story
    assert "! SLOMet=False (Capped): maxReplicas is 3" in story
    assert "  Stalled=False (NotStalled)" in story


def test_a_canary_is_told_apart_from_what_serves() -> None:
    """It runs beside it, without users; what judges it stands in the conditions."""
    canary = {"name": "canary", "role": "Canary", "desired": 1, "ready": 0, "gpuType": "l40s", "tensorParallel": 2}
    serve = {"name": "serve", "role": "Aggregated", "desired": 3, "ready": 3, "gpuType": "l40s"}
    story = list(told(model(observedGeneration=2, conditions=CONDITIONS, pools=[serve, canary])))
    assert story[1] == "A canary of a change runs beside it, without users, on 2 x l40s (not ready yet)."
    assert sum("serves under SLO" in line for line in story) == 1


def test_says_when_nobody_looked_and_when_the_spec_is_newer() -> None:
    """A Model without conditions points to the operator; an unseen generation is said."""
    assert "operator has not looked" in next(told(model()))
    assert any("latest change" in line for line in told(model(observedGeneration=1, conditions=CONDITIONS)))


def test_structured_output_leaves_nothing_undefined() -> None:
    """Programs get the same facts; what is unknown is null or empty."""
    value = explained(model())
    assert value["lastDecision"] is None
    assert value["conditions"] == []
