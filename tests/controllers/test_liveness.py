"""The liveness probe: a dead watch ends the process, a wait for what is not there yet does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from goodput.adapters.kinds import MODELS, PODS, Resource
from goodput.adapters.kube_errors import NotFound
from goodput_controllers import cluster as cluster_module
from goodput_controllers import process as process_module


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


async def test_an_operator_that_waits_for_its_crds_is_alive(
    new_bench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long: a restart brings no CRD. Watches begin, and are watched, once the CRDs are there."""
    monkeypatch.setattr(process_module, "CRD_RETRY_SECONDS", 0.01)
    bench = new_bench()

    def lacks_crds(verb: str, resource: Resource, _: str) -> None:
        if (verb, resource) == ("list", MODELS):
            raise NotFound("the server could not find the requested resource", 404)

    bench.api.fault = lacks_crds
    operator = bench.operator
    running = asyncio.create_task(operator.run())
    await asyncio.sleep(0.05)
    for reflector in operator.cluster.reflectors():
        reflector.last_activity -= 10.0 * cluster_module.DEAD_SECONDS
    assert operator.not_alive() == ""
    assert "not in sync" in operator.not_ready()

    # From the CRDs' arrival on a watch has as long as ever to give a sign of life.
    bench.api.fault = None
    alive = []
    async with asyncio.timeout(5):
        while operator.unsynced():
            alive.append(operator.not_alive())
            await asyncio.sleep(0)
    assert set(alive) == {""}
    operator.stop.set()
    await asyncio.wait_for(running, 10)


async def test_a_watch_without_a_sign_of_life_is_dead(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind is named, once it was silent for longer than bookmarks take to come."""
    clock = Clock()
    monkeypatch.setattr(cluster_module, "time", clock)
    for reflector in bench.operator.cluster.reflectors():
        reflector.last_activity = clock.now
    bench.operator.cluster._begun_at = clock.now
    clock.now += cluster_module.DEAD_SECONDS
    assert bench.operator.not_alive() == ""
    clock.now += 1.0
    for reflector in bench.operator.cluster.reflectors():
        if reflector.resource is not PODS:
            reflector.last_activity = clock.now
    assert bench.operator.not_alive() == "no sign of life from the watches of pods"
