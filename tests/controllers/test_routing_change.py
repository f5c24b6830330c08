"""Users are served on while `routing.mode` changes, and router pods have one scaler at a time."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest

from goodput.adapters.kinds import AUTOSCALERS, DEPLOYMENTS, MODELS, NETWORK_POLICIES, PODS, SERVICES
from goodput.decide import decide
from goodput.domain.identity import Key

LLAMA = Key("a", "llama")
ROUTERS = Key("a", "llama-router")


async def _served(bench: Any, mode: str) -> None:
    bench.apply(bench.model(routing={"mode": mode}))
    await bench.tick()
    bench.play_kubelet()
    await bench.tick(3)


async def _route(bench: Any, mode: str) -> None:
    found = copy.deepcopy(bench.api.objects[MODELS.plural][LLAMA])
    found["spec"]["routing"] = {"mode": mode}
    bench.api.put(MODELS, found)
    await bench.tick()


def _sends_to(bench: Any) -> str:
    pool: str = bench.api.objects[SERVICES.plural][LLAMA]["spec"]["selector"]["goodput.dev/pool"]
    return pool


def _engines_are_open(bench: Any) -> bool:
    (rule,) = bench.api.objects[NETWORK_POLICIES.plural][Key("a", "llama-serve")]["spec"]["ingress"]
    return "from" not in rule


def _ready(bench: Any, ready: bool) -> None:
    for key, pod in list(bench.api.objects[PODS.plural].items()):
        if key.name.startswith("llama-router"):
            changed = copy.deepcopy(pod)
            changed["status"]["conditions"][0]["status"] = "True" if ready else "False"
            bench.api.put(PODS, changed)


async def test_users_reach_engines_until_a_router_is_ready(bench: Any) -> None:
    """Then the Service goes to routers, engines close behind it, and neither comes back."""
    await _served(bench, "None")
    await _route(bench, "Router")
    bench.play_kubelet(ready=False)
    await bench.tick(3)
    assert (_sends_to(bench), _engines_are_open(bench)) == ("serve", True)

    _ready(bench, True)
    await bench.tick()
    assert (_sends_to(bench), _engines_are_open(bench)) == ("router", True)
    await bench.tick()
    assert (_sends_to(bench), _engines_are_open(bench)) == ("router", False)

    _ready(bench, False)
    bench.api.writes.clear()
    await bench.tick(3)
    assert (_sends_to(bench), _engines_are_open(bench)) == ("router", False)
    assert {kind for _, kind, _ in bench.api.writes} <= {"Model/status"}


async def test_a_model_is_ready_for_as_long_as_users_are_served(bench: Any) -> None:
    """By engines until a router is ready, by routers from then on."""
    bench.operator.loop.decide = decide
    await _served(bench, "None")
    await _route(bench, "Router")
    bench.play_kubelet(ready=False)
    await bench.tick(3)
    assert bench.condition("Ready") == ("True", "Serving")
    _ready(bench, True)
    await bench.tick(2)
    assert bench.condition("Ready") == ("True", "Serving")
    _ready(bench, False)
    await bench.tick(2)
    assert bench.condition("Ready") == ("False", "RouterNotReady")


async def test_a_new_model_goes_by_its_routers_at_once(bench: Any) -> None:
    """Nobody was served before, so there is nothing to wait for, and nothing to switch later."""
    bench.apply(bench.model())
    await bench.tick()
    assert (_sends_to(bench), _engines_are_open(bench)) == ("router", False)
    bench.play_kubelet(ready=False)
    await bench.tick(2)
    assert (_sends_to(bench), _engines_are_open(bench)) == ("router", False)


async def test_without_routers_engines_open_before_users_come(bench: Any) -> None:
    """From Router to None nothing has to be waited for, but the order matters."""
    await _served(bench, "Router")
    bench.api.writes.clear()
    await _route(bench, "None")
    assert (_sends_to(bench), _engines_are_open(bench)) == ("serve", True)
    written = [kind for _, kind, _ in bench.api.writes]
    assert written.index("NetworkPolicy") < written.index("Service")


async def test_routers_that_drain_are_known_and_not_asked(bench: Any) -> None:
    """They are scraped until their last request ends: nobody takes them for pods that nothing is known of."""
    await _served(bench, "Router")
    await _route(bench, "None")
    bench.operator.loop._read_at = float("-inf")
    await bench.tick()
    (wanted,) = bench.telemetry.asked[-1]
    assert (wanted.routers, wanted.routed) == (("llama-router-0",), False)


def _router_replicas(bench: Any, replicas: int | None = None) -> int:
    if replicas is not None:
        found = copy.deepcopy(bench.api.objects[DEPLOYMENTS.plural][ROUTERS])
        found["spec"]["replicas"] = replicas
        bench.api.put(DEPLOYMENTS, found)
    count: int = bench.api.objects[DEPLOYMENTS.plural][ROUTERS]["spec"]["replicas"]
    return count


async def test_what_scales_the_routers_is_not_fought(bench: Any) -> None:
    """An autoscaler of the router Deployment has its way, and when it is gone the settings have theirs again."""
    await _served(bench, "Router")
    target = {"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "llama-router"}}}
    bench.api.put(AUTOSCALERS, {"metadata": {"name": "r", "namespace": "a"}, **target})
    await bench.tick()
    bench.api.writes.clear()
    for wanted in (4, 5, 2):
        _router_replicas(bench, wanted)
        await bench.tick(2)
        assert _router_replicas(bench) == wanted
    assert "Deployment" not in {kind for _, kind, _ in bench.api.writes}

    bench.api.remove(AUTOSCALERS, Key("a", "r"))
    await bench.tick(2)
    assert _router_replicas(bench) == 1


@pytest.mark.parametrize(("seconds_ago", "want"), [(0, 4), (700, 1)])
async def test_a_person_who_scales_the_routers_is_left_alone_for_ten_minutes(
    bench: Any, seconds_ago: int, want: int
) -> None:
    """As decision 6 has it for engines."""
    await _served(bench, "Router")
    found = copy.deepcopy(bench.api.objects[DEPLOYMENTS.plural][ROUTERS])
    found["spec"]["replicas"] = 4
    at = datetime.fromtimestamp(bench.now - seconds_ago, tz=UTC).isoformat()
    fields = {"f:spec": {"f:replicas": {}}}
    found["metadata"]["managedFields"] = [{"manager": "kubectl", "operation": "Update", "time": at, "fieldsV1": fields}]
    bench.api.put(DEPLOYMENTS, found)
    await bench.tick(2)
    assert _router_replicas(bench) == want
