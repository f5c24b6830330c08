"""`UpdateAvailable` is told at once and once, wherever the update comes from."""

from __future__ import annotations

import asyncio
from typing import Any

from goodput.adapters.kinds import DEPLOYMENTS
from goodput.domain.identity import Key


async def _served(bench: Any) -> None:
    bench.apply(bench.model())
    await bench.tick()
    bench.play_kubelet()
    await bench.tick(3)
    bench.api.writes.clear()


def _status_writes(bench: Any) -> int:
    return [write[1] for write in bench.api.writes].count("Model/status")


async def test_an_update_that_comes_or_goes_is_written_at_once_and_once(bench: Any) -> None:
    """Nothing else changed, and the quiet time of figures does not hold it back."""
    await _served(bench)
    assert bench.condition("UpdateAvailable") == ("False", "UpToDate")
    for revision, told in (("0", ("True", "RenderingChanged")), ("1", ("False", "UpToDate"))):
        found = bench.api.objects[DEPLOYMENTS.plural][Key("a", "llama-serve")]
        annotations = {**found["metadata"]["annotations"], "goodput.dev/render-revision": revision}
        bench.api.put(DEPLOYMENTS, {**found, "metadata": {**found["metadata"], "annotations": annotations}})
        bench.api.writes.clear()
        await bench.tick(2)
        assert bench.condition("UpdateAvailable") == told
        await bench.tick(5)
        assert _status_writes(bench) == 1, bench.api.writes


async def test_a_pause_does_not_unsay_an_update(bench: Any) -> None:
    """A paused Model is not rendered: what is known of an update stays as it was said."""
    await _served(bench)
    bench.apply(bench.model(paused=True))
    await bench.tick()
    bench.api.writes.clear()
    await bench.tick(5)
    assert bench.condition("UpdateAvailable") == ("False", "UpToDate")
    assert _status_writes(bench) == 0


async def test_one_that_cannot_take_its_update_does_not_keep_the_turn(bench: Any) -> None:
    """Of three that update by themselves the first is paused and the second's writes are refused: the third updates."""
    automatic = {"engine": {"update": "Automatic"}}
    names = ("first", "second", "third")
    bench.apply(*(bench.model(name, **automatic) for name in names))
    await bench.tick()
    bench.play_kubelet()
    await bench.tick(3)
    bench.apply(bench.model("first", paused=True, **automatic))
    await bench.tick()
    for name in names:
        bench.operator.reconciler.book.note_update(Key("a", name), "a new rendering")
    bench.operator.reconciler._retry(Key("a", "second"), bench.now, 120.0)
    snapshot = bench.law.snapshots[-1]
    plan = bench.law(snapshot, {}, bench.operator.loop.policy, bench.now)
    started = bench.operator.reconciler.start(snapshot, plan, {}, bench.now)
    assert [name for name in names if bench.operator.reconciler.rollouts.take_update(Key("a", name))] == ["third"]
    await asyncio.gather(*started)
