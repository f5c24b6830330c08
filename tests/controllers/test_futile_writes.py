"""What somebody else keeps beside our fields costs one write, not one in every pass."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from goodput.adapters.fakes import FakeKube
from goodput.adapters.kinds import SERVICES, Resource
from goodput.adapters.objects import Object
from goodput.domain.identity import Key

LLAMA = Key("a", "llama")


class MergingKube(FakeKube):
    """Ports of a Service merge by number, as on an API server, so that others stay; `applied` lists calls."""

    def __init__(self) -> None:
        super().__init__()
        self.applied: list[str] = []

    async def apply(self, manifest: Object, resource: Resource, *, subresource: str = "") -> Object:
        self.applied.append(resource.kind)
        there = self.objects[SERVICES.plural].get(LLAMA)
        if resource is SERVICES and there is not None:
            manifest = copy.deepcopy(manifest)
            mine = {port["port"] for port in manifest["spec"]["ports"]}
            manifest["spec"]["ports"] += [port for port in there["spec"]["ports"] if port["port"] not in mine]
        return await super().apply(manifest, resource, subresource=subresource)


@pytest.fixture
async def merging(new_bench: Callable[..., Any]) -> AsyncIterator[Any]:
    """An operator whose one Model runs, and whose Service somebody gave a second port."""
    bench = new_bench(MergingKube())
    bench.furnish()
    await bench.start()
    bench.apply(bench.model())
    await bench.tick()
    bench.play_kubelet()
    await bench.tick(3)
    _edit(bench, lambda ports: ports.append({"name": "extra", "port": 8443, "targetPort": 8443, "protocol": "TCP"}))
    bench.api.applied.clear()
    yield bench
    await bench.stop()


def _edit(bench: Any, change: Callable[[list[Any]], None]) -> None:
    found = copy.deepcopy(bench.api.objects[SERVICES.plural][LLAMA])
    change(found["spec"]["ports"])
    bench.api.put(SERVICES, found)


def _ports(bench: Any) -> list[tuple[int, Any]]:
    found = bench.api.objects[SERVICES.plural][LLAMA]["spec"]["ports"]
    return [(port["port"], port["targetPort"]) for port in found]


async def test_a_write_that_changes_nothing_is_not_made_again(merging: Any) -> None:
    """Nor is it when another object of the Model is written in between."""
    await merging.tick(6)
    assert merging.api.applied.count("Service") == 1
    merging.law.wanted["llama"] = 2
    await merging.tick(6)
    assert "Deployment" in merging.api.applied
    assert merging.api.applied.count("Service") == 1
    assert _ports(merging) == [(80, "http"), (8443, 8443)]


async def test_another_change_of_the_object_is_mended(merging: Any) -> None:
    """It differs from what was found then: our own port is put right beside the other one."""
    await merging.tick(3)
    _edit(merging, lambda ports: ports[0].update(targetPort="metrics"))
    await merging.tick(3)
    assert _ports(merging) == [(80, "http"), (8443, 8443)]
    merging.api.applied.clear()
    await merging.tick(6)
    assert "Service" not in merging.api.applied


async def test_a_change_of_what_is_wanted_is_written(merging: Any) -> None:
    """Without routers, users are sent to engines, whoever has a port there."""
    await merging.tick(3)
    merging.apply(merging.model(routing={"mode": "None"}))
    await merging.tick(2)
    service = merging.api.objects[SERVICES.plural][LLAMA]["spec"]
    assert service["selector"]["goodput.dev/pool"] == "serve"
    merging.api.applied.clear()
    await merging.tick(6)
    assert "Service" not in merging.api.applied
