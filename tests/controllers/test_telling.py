"""Every change of replicas is told once, whatever its writes meet; what was told is what status shows."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import pytest

from goodput.adapters.fakes import failing
from goodput.adapters.kinds import DEPLOYMENTS, EVENTS, Resource
from goodput.adapters.kube_errors import Conflict, KubeError, Refused, Unavailable
from goodput.domain.identity import Key
from goodput_controllers import loop as loop_module

ENGINE = Key("a", "llama-serve")


async def served(bench: Any, **spec: Any) -> None:
    bench.apply(bench.model(**spec))
    await bench.tick()
    bench.play_kubelet()
    await bench.tick(2)
    bench.api.objects[EVENTS.plural].clear()


def events(bench: Any) -> list[str]:
    """Actions of the events so far."""
    return [item["action"] for item in bench.api.objects[EVENTS.plural].values()]


def counted(bench: Any, action: str) -> float:
    return sum(
        sample.value
        for metric in bench.operator.metrics.decisions.collect()
        for sample in metric.samples
        if sample.name.endswith("_total") and sample.labels["action"] == action
    )


def once(kind: str, error: Exception, times: int = 1) -> Callable[[str, Resource, str], None]:
    left = [times]

    def fault(verb: str, resource: Resource, _: str) -> None:
        if verb == "apply" and resource.kind == kind and left[0]:
            left[0] -= 1
            raise error

    return fault


@pytest.mark.parametrize(
    "error",
    [Conflict("somebody was first", 409), Unavailable("away", 503), Refused("not now", 403), RuntimeError("boom")],
    ids=["conflict", "unavailable", "refused", "unexpected"],
)
async def test_a_change_that_came_about_later_is_told_once(bench: Any, error: KubeError) -> None:
    """The first tries fail: nothing is told of what did not happen; then one event, one count, and status shows it."""
    await served(bench)
    before = bench.status()["lastDecision"]
    bench.api.fault = once("Deployment", error, times=2)
    bench.law.wanted["llama"] = 3
    await bench.tick()
    assert bench.replicas() == 1
    assert (events(bench).count("ScaleUp"), counted(bench, "ScaleUp")) == (0, 0)
    assert bench.status()["lastDecision"] == before

    await bench.tick(4, seconds=130.0)
    assert bench.replicas() == 3
    assert (events(bench).count("ScaleUp"), counted(bench, "ScaleUp")) == (1, 1)
    assert (bench.status()["lastDecision"]["from"], bench.status()["lastDecision"]["to"]) == (1, 3)
    (event,) = [item for item in bench.api.objects[EVENTS.plural].values() if item["action"] == "ScaleUp"]
    assert bench.status()["lastDecision"]["id"] in event["note"]


@pytest.mark.parametrize("lost", ["its answer", "a later write"])
async def test_a_change_in_a_pass_that_failed_is_told(bench: Any, lost: str) -> None:
    """Its answer was lost, or a later write of the pass failed: it is told once all the same."""
    await served(bench)
    original = bench.api.apply
    left = [1]

    async def apply(manifest: dict[str, Any], resource: Resource, *, subresource: str = "") -> dict[str, Any]:
        answer: dict[str, Any] = await original(manifest, resource, subresource=subresource)
        if lost == "its answer" and manifest["metadata"]["name"] == ENGINE.name and resource is DEPLOYMENTS and left[0]:
            left[0] = 0
            raise Unavailable("the connection broke", 0)
        return answer

    bench.api.apply = apply
    if lost == "a later write":
        # The router is no longer wanted, and its objects cannot be deleted.
        bench.apply(bench.model(routing={"mode": "None"}))
        bench.api.fault = failing("delete", times=1, error=Unavailable("503", 503))
    bench.law.wanted["llama"] = 3
    await bench.tick()
    assert bench.replicas() == 3
    assert counted(bench, "ScaleUp") == 0
    await bench.tick(3)
    assert (events(bench).count("ScaleUp"), counted(bench, "ScaleUp")) == (1, 1)
    assert (bench.status()["lastDecision"]["from"], bench.status()["lastDecision"]["to"]) == (1, 3)


async def test_a_change_that_never_came_about_is_not_told(bench: Any) -> None:
    """Somebody else's number stays, and the law is content with it: 1 -> 3 is in no event and not in status."""
    await served(bench)
    original = bench.api.apply

    async def apply(manifest: dict[str, Any], resource: Resource, *, subresource: str = "") -> dict[str, Any]:
        if resource is DEPLOYMENTS and manifest["metadata"]["name"] == ENGINE.name:
            changed = copy.deepcopy(bench.api.objects[DEPLOYMENTS.plural][ENGINE])
            changed["spec"]["replicas"] = 9
            bench.api.put(DEPLOYMENTS, changed)
            bench.law.wanted["llama"] = 9
        answer: dict[str, Any] = await original(manifest, resource, subresource=subresource)
        return answer

    bench.api.apply = apply
    bench.law.wanted["llama"] = 3
    await bench.tick()
    bench.api.apply = original
    await bench.tick(3)
    assert bench.replicas() == 9
    assert "ScaleUp" not in events(bench)
    assert bench.status()["lastDecision"]["to"] != 3


def hang_status_writes(bench: Any, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Writes of status hang until the event is set, and passes hardly wait for them."""
    monkeypatch.setattr(loop_module, "WRITES_SECONDS", 0.02)
    hanging = asyncio.Event()
    original = bench.api.apply

    async def apply(manifest: dict[str, Any], resource: Resource, *, subresource: str = "") -> dict[str, Any]:
        if subresource and not hanging.is_set():
            await hanging.wait()
        answer: dict[str, Any] = await original(manifest, resource, subresource=subresource)
        return answer

    bench.api.apply = apply
    return hanging


async def test_a_change_decided_while_an_older_task_ran_is_told(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The status write of an earlier pass hangs while 1 -> 3 is decided: it happens after that, and is told."""
    await served(bench)
    hanging = hang_status_writes(bench, monkeypatch)
    bench.law.wanted["llama"] = 2
    await bench.operator.loop.run_once()
    bench.now += 10
    for _ in range(2):
        bench.law.wanted["llama"] = 5
        await bench.operator.loop.run_once()
        bench.now += 10
    assert bench.replicas() == 2
    hanging.set()
    await bench.operator.reconciler.drain()
    assert bench.status()["lastDecision"]["to"] == 2
    await bench.tick(2)
    assert bench.replicas() == 5
    assert counted(bench, "ScaleUp") == 2
    assert bench.status()["lastDecision"]["to"] == 5


async def test_advice_is_written_although_the_first_write_failed(bench: Any) -> None:
    """The status of a Model that only advises is away once: the next tick writes what was advised."""
    await served(bench)
    bench.law.advises = True
    bench.law.wanted["llama"] = 3
    bench.api.fault = failing("apply-status", times=1, error=Unavailable("503", 503))
    await bench.tick()
    assert bench.status()["lastDecision"]["action"] != "AdviseUp"
    await bench.tick()
    assert bench.status()["lastDecision"]["action"] == "AdviseUp"
    assert bench.status()["lastDecision"]["to"] == 3
    assert bench.replicas() == 1
    assert events(bench) == ["AdviseUp"]
    bench.api.writes.clear()
    await bench.tick(5)
    assert bench.api.writes == []


async def test_advice_that_came_during_a_slow_write_is_written(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was advised while another status was on its way is not taken for written."""
    await served(bench)
    hanging = hang_status_writes(bench, monkeypatch)
    bench.law.advises = True
    for wanted in (3, 4):
        bench.law.wanted["llama"] = wanted
        await bench.operator.loop.run_once()
        bench.now += 10
    hanging.set()
    await bench.operator.reconciler.drain()
    assert bench.status()["lastDecision"]["to"] == 3
    await bench.tick()
    assert bench.status()["lastDecision"]["to"] == 4


async def test_advice_that_nobody_wrote_is_written_by_a_new_process(bench: Any, new_bench: Callable[..., Any]) -> None:
    """A status that says something else than what is advised is not taken for right; one that says it is left."""
    await served(bench)
    await bench.stop()
    for wanted, writes in ((3, ["Model/status"]), (3, []), (4, ["Model/status"])):
        bench.api.writes.clear()
        later = new_bench(bench.api)
        later.now = bench.now = bench.now + 60
        later.law.advises = True
        later.law.wanted["llama"] = wanted
        await later.start()
        await later.tick(2)
        await later.stop()
        assert [kind for _, kind, _ in bench.api.writes if kind != "Event"] == writes
        assert later.status()["lastDecision"]["to"] == wanted


def warnings(bench: Any) -> list[tuple[str, str]]:
    """Condition and reason of the warnings so far."""
    return [(e["action"], e["reason"]) for e in bench.api.objects[EVENTS.plural].values() if e["type"] == "Warning"]


@pytest.mark.parametrize(
    ("spec", "broken", "reason"),
    [
        pytest.param({"slo": "nobody"}, False, "SLONotFound", id="nothing to serve under"),
        pytest.param({"scaling": {"minReplicas": 5, "maxReplicas": 2}}, False, "InvalidSpec", id="never valid"),
        pytest.param({}, True, "InternalError", id="never decided"),
    ],
)
async def test_what_is_wrong_with_a_new_model_is_told_once(
    bench: Any, new_bench: Callable[..., Any], spec: dict[str, Any], broken: bool, reason: str
) -> None:
    """Its author sees one event, however long it stays, and whoever takes over says nothing again."""
    bench.law.broken = {"llama"} if broken else set()
    bench.apply(bench.model(**spec))
    await bench.tick(3)
    assert bench.condition("Stalled") == ("True", reason)
    assert warnings(bench) == [("Stalled", reason)]
    await bench.stop()

    bench.api.objects[EVENTS.plural].clear()
    later = new_bench(bench.api)
    later.law.broken = bench.law.broken
    later.now = bench.now
    await later.start()
    await later.tick(3)
    assert warnings(later) == []
    later.law.broken = set()
    later.apply(later.model())
    await later.tick(2)
    later.play_kubelet()
    await later.tick(2)
    assert later.condition("Stalled")[0] == "False"
    later.apply(later.model(**spec))
    later.law.broken = bench.law.broken
    await later.tick(2)
    assert [told for told in warnings(later) if told[0] == "Stalled"] == [("Stalled", reason)], "again, so told again"
    await later.stop()
