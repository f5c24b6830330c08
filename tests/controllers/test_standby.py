"""An operator that stands by keeps nothing of what is gone, and one that ends writes nothing after its Lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from goodput.adapters import lease as lease_module
from goodput.adapters.kinds import DEPLOYMENTS, GPU_TYPES, LEASES, SLOS, Resource
from goodput.domain.identity import Key
from goodput_controllers import kopf_shell
from goodput_controllers import process as process_module
from goodput_controllers import reconcile as reconcile_module

LATE = {"kind": "SLO", "metadata": {"name": "late", "namespace": "a"}, "spec": {"ttft": "500ms", "tpot": "50ms"}}


async def test_a_model_is_not_placed_by_what_went_before_it_came(bench: Any) -> None:
    """SLO and GPUType come and go while another one leads; the Model that names them comes later."""
    bench.operator.loop.leading = lambda: False
    bench.apply(LATE)
    bench.api.put(GPU_TYPES, {"metadata": {"name": "mine"}, "spec": {"nodeSelector": {"gpu": "mine"}}})
    await bench.tick()
    bench.api.remove(SLOS, Key("a", "late"))
    bench.api.remove(GPU_TYPES, Key("", "mine"))
    await bench.tick()
    bench.apply(bench.model(slo="late"))
    await bench.tick()
    assert bench.operator.world.gpu_types.deleted_keys() == []

    bench.operator.loop.leading = lambda: True
    await bench.tick()
    assert bench.condition("Stalled") == ("True", "SLONotFound")
    assert not bench.api.objects[DEPLOYMENTS.plural]


async def test_what_a_model_uses_is_kept_while_standing_by(bench: Any) -> None:
    """The SLO of a Model and the type that it runs on stay as they were last seen."""
    bench.apply(LATE, bench.model(slo="late"))
    bench.api.put(GPU_TYPES, {"metadata": {"name": "l40s"}, "spec": {"nodeSelector": {"gpu": "mine"}}})
    await bench.tick()
    bench.operator.loop.leading = lambda: False
    bench.api.remove(SLOS, Key("a", "late"))
    bench.api.remove(GPU_TYPES, Key("", "l40s"))
    await bench.tick(2)
    assert bench.operator.world.slos.deleted_keys() == [Key("a", "late")]
    assert bench.operator.world.gpu_types.deleted_keys() == [Key("", "l40s")]


async def test_a_write_that_hangs_ends_before_the_lease_is_released(
    new_bench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is still pending after the time to drain is cancelled, and only then may another one lead."""
    monkeypatch.setattr(reconcile_module, "DRAIN_SECONDS", 0.1)
    bench = new_bench(leader_election=True, tick_seconds=1.0, lease_namespace="system")
    bench.furnish()
    told: list[str] = []
    original = bench.api.apply

    async def apply(manifest: dict[str, Any], resource: Resource, *, subresource: str = "") -> dict[str, Any]:
        if resource is DEPLOYMENTS:
            told.append("hangs")
            try:
                await asyncio.Event().wait()
            finally:
                (lease,) = bench.api.objects[LEASES.plural].values()
                told.append("ended" if lease["spec"]["holderIdentity"] else "ended after the Lease")
        answer: dict[str, Any] = await original(manifest, resource, subresource=subresource)
        return answer

    bench.api.apply = apply
    bench.apply(bench.model())
    running = asyncio.create_task(bench.operator.run())
    async with asyncio.timeout(15):
        while not told:
            await asyncio.sleep(0.02)
    bench.operator.stop.set()
    await asyncio.wait_for(running, 10)
    (lease,) = bench.api.objects[LEASES.plural].values()
    assert lease["spec"]["holderIdentity"] == ""
    assert told == ["hangs", "ended"]


async def test_kopf_ends_last(new_bench: Callable[..., Any]) -> None:
    """Writes in flight come to their end, then the Lease is given up, and only then kopf is told to end."""
    bench = new_bench(leader_election=True, tick_seconds=1.0, lease_namespace="system")
    bench.furnish()
    told: list[str] = []
    original = bench.api.apply

    async def apply(manifest: dict[str, Any], resource: Resource, *, subresource: str = "") -> dict[str, Any]:
        if resource is DEPLOYMENTS and not told:
            told.append("begun")
            await asyncio.sleep(0.5)
            told.append("written")
        answer: dict[str, Any] = await original(manifest, resource, subresource=subresource)
        return answer

    async def shell() -> None:
        await bench.operator.drained.wait()
        (lease,) = bench.api.objects[LEASES.plural].values()
        told.append("kopf after the Lease" if not lease["spec"]["holderIdentity"] else "kopf before the Lease")

    bench.api.apply = apply
    bench.apply(bench.model())
    running = asyncio.create_task(bench.operator.run(shell()))
    async with asyncio.timeout(15):
        while not told:
            await asyncio.sleep(0.02)
        bench.operator.stop.set()
        await running
    assert told == ["begun", "written", "kopf after the Lease"]


async def test_a_shell_that_does_not_end_holds_up_nothing(
    new_bench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is cancelled after its time: the process must end within the grace period of its pod."""
    monkeypatch.setattr(process_module, "SHELL_END_SECONDS", 0.05)
    bench = new_bench()
    told: list[str] = []

    async def shell() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            told.append("cancelled")

    running = asyncio.create_task(bench.operator.run(shell()))
    await asyncio.sleep(0.1)
    bench.operator.stop.set()
    async with asyncio.timeout(5):
        await running
    assert told == ["cancelled"]


def test_the_shutdown_fits_into_the_grace_period() -> None:
    """All its steps at their longest, within 30 s."""
    steps = (
        reconcile_module.DRAIN_SECONDS,
        lease_module.RELEASE_SECONDS,
        process_module.SHELL_END_SECONDS,
    )
    assert sum(steps) < 30.0
    assert 3 * kopf_shell.END_SECONDS < process_module.SHELL_END_SECONDS
