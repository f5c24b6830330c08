"""The loop itself: when it looks, what it waits for, and what it does not wait for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from goodput.adapters.fakes import FakeKube
from goodput.adapters.kinds import LEASES, MODELS, Resource
from goodput.adapters.telemetry import Reading, Wanted
from goodput.domain.identity import Key
from goodput_controllers import loop as loop_module


class SlowTelemetry:
    """Answers only when it is told to."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.reads = 0

    async def read(self, wanted: Sequence[Wanted]) -> Reading:
        self.reads += 1
        await self.released.wait()
        return Reading(error="late")


async def test_a_hanging_prometheus_does_not_stop_the_loop(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects are written while a reading hangs; no second one is piled upon it, and it counts once it comes."""
    monkeypatch.setattr(loop_module, "READING_SECONDS", 0.02)
    monkeypatch.setattr(loop_module, "FIRST_READING_SECONDS", 0.02)
    slow = SlowTelemetry()
    bench.operator.loop.telemetry = slow
    bench.apply(bench.model())
    bench.operator.loop._read_at = float("-inf")
    await bench.tick()
    assert bench.replicas() == 1
    assert bench.law.snapshots[-1].telemetry_error == "Prometheus was not asked yet"
    bench.operator.loop._read_at = float("-inf")
    await bench.tick()
    assert slow.reads == 1
    slow.released.set()
    await asyncio.sleep(0)
    assert bench.operator.world.dirty.is_set()
    await bench.tick()
    assert bench.law.snapshots[-1].telemetry_error == "late"


class BrokenTelemetry(SlowTelemetry):
    """Dies of something that nobody foresaw, once."""

    async def read(self, wanted: Sequence[Wanted]) -> Reading:
        self.reads += 1
        if self.reads == 1:
            raise RuntimeError("boom")
        return Reading()


async def test_a_reading_that_dies_is_begun_anew(bench: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Its pass decides without one and logs why; the next tick reads again."""
    broken = BrokenTelemetry()
    bench.operator.loop.telemetry = broken
    bench.apply(bench.model())
    await bench.tick()
    assert bench.replicas() == 1
    assert bench.law.snapshots[-1].telemetry_error == "unexpected error: RuntimeError: boom"
    assert "Traceback" in caplog.text
    bench.operator.loop._read_at -= 10.0
    await bench.tick()
    assert broken.reads == 2
    assert bench.law.snapshots[-1].telemetry_error == ""


async def test_a_slow_neighbour_holds_nobody_up(
    bench: Any, make_model: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writes of one Model that hang are left behind; the others are served meanwhile, and it is not written twice."""
    hanging = asyncio.Event()
    original = bench.api.apply
    attempts = []

    async def apply(manifest: dict[str, Any], resource: Resource, *, subresource: str = "") -> dict[str, Any]:
        if manifest["metadata"]["name"].startswith("slow"):
            attempts.append(manifest["metadata"]["name"])
            await hanging.wait()
        answer: dict[str, Any] = await original(manifest, resource, subresource=subresource)
        return answer

    bench.api.apply = apply
    bench.apply(make_model("slow"), make_model("quick"))
    monkeypatch.setattr(loop_module, "WRITES_SECONDS", 0.05)
    for _ in range(3):
        await bench.operator._relist_once()
        await bench.settle()
        started = time.monotonic()
        await bench.operator.loop.run_once()
        assert time.monotonic() - started < 3.0
        bench.now += 10
    assert bench.replicas("quick") == 1
    assert len(attempts) == 1
    hanging.set()


async def test_it_runs_by_itself_and_ends_cleanly(
    new_bench: Callable[..., Any], make_model: Callable[..., dict[str, Any]]
) -> None:
    """The whole process over a fake cluster: Lease, stores, loop; a change is served, the end gives up the Lease."""
    bench = new_bench(leader_election=True, tick_seconds=1.0, relist_seconds=0.2, lease_namespace="system")
    bench.furnish()
    running = asyncio.create_task(bench.operator.run())
    bench.operator.loop.clock = time.time
    bench.apply(make_model())
    await until(lambda: Key("a", "llama") in bench.api.objects[MODELS.plural])
    await until(lambda: bool(bench.status().get("conditions")))
    assert bench.operator.not_ready() == ""
    assert bench.operator.not_alive() == ""
    assert b"goodput_leader 1.0" in bench.operator.exposition()
    bench.operator.stop.set()
    await asyncio.wait_for(running, 10)
    (lease,) = bench.api.objects[LEASES.plural].values()
    assert lease["spec"]["holderIdentity"] == ""


@pytest.mark.parametrize("steps", range(5))
async def test_a_change_at_the_end_does_not_keep_it_running(bench: Any, steps: int) -> None:
    """Cancelled at whichever instant between a change and its waking to it, the loop ends."""
    loop = bench.operator.loop
    loop.unsynced, loop._read_at = lambda: "not yet", time.monotonic()
    bench.operator.world.dirty.clear()
    running = asyncio.create_task(loop.run())
    await asyncio.sleep(2.0 * loop_module.DEBOUNCE_SECONDS)
    bench.operator.world.dirty.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    running.cancel()
    done, _ = await asyncio.wait({running}, timeout=5.0)
    assert done
    assert running.cancelled()


async def test_two_operators_write_as_one(
    new_bench: Callable[..., Any], make_model: Callable[..., dict[str, Any]]
) -> None:
    """Of two processes over one cluster one writes; the fleet is created once and stays as it is."""
    api = FakeKube()
    options = {"leader_election": True, "tick_seconds": 1.0, "relist_seconds": 0.2, "lease_namespace": "system"}
    benches = [new_bench(api, identity=name, **options) for name in ("one", "two")]
    benches[0].furnish()
    benches[0].apply(make_model())
    running = [asyncio.create_task(bench.operator.run()) for bench in benches]
    await until(lambda: bool(benches[0].status().get("conditions")))
    await asyncio.sleep(0.5)
    assert [bench.operator.leading() for bench in benches].count(True) == 1
    writes = [write for write in api.writes if write[1] != "Lease" and not write[1].startswith("Model")]
    assert len(writes) == len(set(writes))
    for bench in benches:
        bench.operator.stop.set()
    await asyncio.wait_for(asyncio.gather(*running), 20)


async def test_a_part_that_dies_ends_the_process(new_bench: Callable[..., Any]) -> None:
    """If a part ends by itself the process ends with its error, so that the pod restarts."""
    bench = new_bench()

    async def shell() -> None:
        await asyncio.sleep(0.05)
        raise RuntimeError("kopf is gone")

    with pytest.raises(RuntimeError, match="kopf is gone"):
        await asyncio.wait_for(bench.operator.run(shell()), 10)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not condition():
            await asyncio.sleep(0.02)
