"""`UpdateAvailable` is told at once and once, wherever the update comes from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from goodput.adapters.kinds import DEPLOYMENTS, ROLE_BINDINGS, SERVICE_ACCOUNTS
from goodput.domain.identity import Key
from goodput.resources.engine.pod import PRE_STOP_SECONDS
from goodput.resources.pinning import RENDER_REVISION


async def _served(bench: Any) -> None:
    bench.apply(bench.model())
    await bench.tick()
    bench.play_kubelet()
    await bench.tick(3)
    bench.api.writes.clear()


def _status_writes(bench: Any) -> int:
    return [write[1] for write in bench.api.writes].count("Model/status")


async def test_an_update_that_comes_or_goes_is_written_at_once_and_once(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else changed, and the quiet time of figures does not hold it back."""
    await _served(bench)
    assert bench.condition("UpdateAvailable") == ("False", "UpToDate")
    for revision, seconds, told in (
        ("0", 99, ("True", "RenderingChanged")),
        (str(RENDER_REVISION), PRE_STOP_SECONDS, ("False", "UpToDate")),
    ):
        monkeypatch.setattr("goodput.resources.engine.pod.PRE_STOP_SECONDS", seconds)
        found = bench.api.objects[DEPLOYMENTS.plural][Key("a", "llama-serve")]
        annotations = {**found["metadata"]["annotations"], "goodput.dev/render-revision": revision}
        bench.api.put(DEPLOYMENTS, {**found, "metadata": {**found["metadata"], "annotations": annotations}})
        bench.api.writes.clear()
        await bench.tick(2)
        assert bench.condition("UpdateAvailable") == told
        await bench.tick(5)
        assert _status_writes(bench) == 1, bench.api.writes


def _template(bench: Any) -> dict[str, Any]:
    found: dict[str, Any] = bench.api.objects[DEPLOYMENTS.plural][Key("a", "llama-serve")]["spec"]["template"]
    return found


@pytest.mark.parametrize("ready", [True, False], ids=["serves", "never ready"])
async def test_a_mended_setting_reaches_pods_that_never_served_and_is_told_for_others(
    bench: Any, new_bench: Callable[..., Any], ready: bool
) -> None:
    """An operator with a longer start-up time takes over: pods that serve stay, those that never did come anew."""
    bench.apply(bench.model())
    await bench.tick()
    bench.play_kubelet(ready=ready)
    await bench.tick(3)
    before = _template(bench)
    second = new_bench(bench.api, startup_timeout_seconds=7200)
    second.now = bench.now
    await second.start()
    await second.tick(3)
    if ready:
        assert _template(bench) == before
        assert bench.condition("UpdateAvailable") == ("True", "RenderingChanged")
    else:
        probe = _template(bench)["spec"]["containers"][0]["startupProbe"]
        assert probe["failureThreshold"] * probe["periodSeconds"] == 7260
        assert bench.condition("UpdateAvailable") == ("False", "UpToDate")
    bench.api.writes.clear()
    await second.tick(3)
    assert [write for write in bench.api.writes if write[1] == "Deployment"] == []
    await second.stop()


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


async def test_routers_that_wait_for_their_successors_find_engines_meanwhile(bench: Any) -> None:
    """An earlier operator gave routers another account: it goes with the last of them, not with the first."""
    bench.apply(bench.model(engine={"update": "Automatic"}))
    await bench.tick()
    routers, binding = Key("a", "llama-router"), Key("a", "llama-router")
    deployment = bench.api.objects[DEPLOYMENTS.plural][routers]
    annotations = deployment["metadata"]["annotations"]
    text = annotations["goodput.dev/template"].replace(
        '"serviceAccountName":"llama-router"', '"serviceAccountName":"x"'
    )
    annotations = {**annotations, "goodput.dev/template": text, "goodput.dev/render-revision": "1"}
    template = orjson.loads(text)
    bench.api.put(
        DEPLOYMENTS,
        {
            **deployment,
            "metadata": {**deployment["metadata"], "annotations": annotations},
            "spec": {**deployment["spec"], "template": template},
        },
    )
    bound = bench.api.objects[ROLE_BINDINGS.plural][binding]
    bench.api.put(ROLE_BINDINGS, {**bound, "subjects": [{**bound["subjects"][0], "name": "x"}]})
    bench.play_kubelet()
    await bench.tick(4)

    def accounts() -> list[str]:
        subjects = bench.api.objects[ROLE_BINDINGS.plural][binding]["subjects"]
        names = sorted(subject["name"] for subject in subjects)
        assert all(Key("a", name) in bench.api.objects[SERVICE_ACCOUNTS.plural] for name in names)
        return names

    assert bench.api.objects[DEPLOYMENTS.plural][routers]["spec"]["template"] != template
    assert accounts() == ["llama-router", "x"]
    bench.play_kubelet()
    await bench.tick(3)
    assert accounts() == ["llama-router"]
    assert Key("a", "x") not in bench.api.objects[SERVICE_ACCOUNTS.plural]
