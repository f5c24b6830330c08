"""What an operator believes that leads, stands by and leads again; and what it publishes meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from goodput.adapters.fakes import FakeTelemetry
from goodput.adapters.kinds import DEPLOYMENTS, MODELS, SLOS, Resource
from goodput.adapters.kube_errors import Refused
from goodput.adapters.telemetry import Reading, Wanted
from goodput.domain.identity import Key
from goodput_controllers import loop as loop_module

SERIES = b'goodput_replicas_desired{model="llama"'
CONDITION = b"goodput_models_condition{"


@pytest.fixture
async def pair(new_bench: Callable[..., Any]) -> Any:
    """Two operators over one cluster, the first of which leads a Model that serves."""
    first = new_bench()
    first.furnish()
    second = new_bench(first.api)
    for bench in (first, second):
        bench.operator.loop.leading = bench.operator.reconciler.statuses.leading = lambda bench=bench: bench.leads
    second.leads = False
    await first.start()
    await second.start()
    first.apply(first.model(scaling={"minReplicas": 2}))
    await first.tick()
    first.play_kubelet()
    await first.tick(3)
    yield first, second
    await first.stop()
    await second.stop()


def lead(leader: Any, other: Any) -> None:
    leader.leads, other.leads = True, False
    leader.now = max(leader.now, other.now)


async def test_what_another_leader_wrote_is_what_counts(pair: Any) -> None:
    """A leads, B writes another status, A leads again: it sees that its own is no longer there, and writes it."""
    first, second = pair
    lead(second, first)
    second.law.broken = {"llama"}
    await first.tick()
    await second.tick()
    assert second.condition("Stalled") == ("True", "InternalError")

    lead(first, second)
    await second.tick()
    await first.tick()
    assert first.condition("Stalled") == ("False", "NotStalled")


async def test_a_leadership_that_ended_between_two_passes_has_ended(pair: Any) -> None:
    """A process that stood still lost the Lease, and has it again before it looks: another led meanwhile."""
    first, second = pair
    first.operator.loop.term = lambda: first.term
    first.term = 1
    await first.tick()
    lead(second, first)
    second.law.broken = {"llama"}
    await second.tick()
    assert second.condition("Stalled") == ("True", "InternalError")

    lead(first, second)
    first.term = 2
    await first.tick()
    assert first.condition("Stalled") == ("False", "NotStalled")


async def test_whoever_leads_again_writes_nothing_where_all_is_right(pair: Any) -> None:
    """A, B, A over a fleet at rest: no write at all."""
    first, second = pair
    first.api.writes.clear()
    for leader, other in ((second, first), (first, second)):
        lead(leader, other)
        await other.tick()
        await leader.tick(3)
    assert first.api.writes == []


async def test_an_invalid_model_that_another_leader_saw_mended_is_told_again(pair: Any) -> None:
    """What was said under an earlier leadership is gone: the same edit is told of once more."""
    first, second = pair
    bad = first.model("bad", scaling={"minReplicas": 5, "maxReplicas": 2})
    first.apply(bad)
    await first.tick()
    assert first.condition("Stalled", "bad") == ("True", "InvalidSpec")
    lead(second, first)
    await first.tick()
    found = first.api.objects[MODELS.plural][Key("a", "bad")]
    first.api.put(MODELS, {**found, "status": {}})

    lead(first, second)
    await first.tick()
    assert first.condition("Stalled", "bad") == ("True", "InvalidSpec")


async def test_a_failure_of_an_earlier_leadership_is_not_believed(pair: Any) -> None:
    """What was refused then is tried at once, not when its back-off ends."""
    first, second = pair

    def fault(verb: str, resource: Resource, _: str) -> None:
        if verb == "apply" and resource is DEPLOYMENTS:
            raise Refused("no such policy", 403)

    first.api.fault = fault
    first.law.wanted["llama"] = 3
    await first.tick(5)
    assert first.condition("Stalled") == ("True", "APIRefused")
    first.api.fault = None
    lead(second, first)
    await first.tick(seconds=0.0)
    lead(first, second)
    await first.tick(seconds=0.0)
    assert first.replicas() == 3


async def test_who_stands_by_publishes_nothing_of_models(pair: Any) -> None:
    """Two processes that both showed a Model's figures would be added up."""
    first, second = pair
    assert SERIES in first.operator.exposition()
    assert CONDITION in first.operator.exposition()
    lead(second, first)
    await first.tick()
    await second.tick()
    assert SERIES not in first.operator.exposition()
    assert CONDITION not in first.operator.exposition()
    assert SERIES in second.operator.exposition()


async def test_a_reading_of_an_earlier_leadership_is_not_used(pair: Any) -> None:
    """What Prometheus said then says nothing of now."""
    first, second = pair
    first.telemetry.error = "gone"
    first.operator.loop._read_at = float("-inf")
    await first.tick()
    assert first.law.snapshots[-1].telemetry_error == "gone"
    lead(second, first)
    await first.tick()
    first.telemetry.error = ""
    lead(first, second)
    await first.tick()
    assert first.law.snapshots[-1].telemetry_error == ""


class LateTelemetry(FakeTelemetry):
    """Answers after some time, each time."""

    seconds = 0.2

    async def read(self, wanted: Sequence[Wanted]) -> Reading:
        await asyncio.sleep(self.seconds)
        return await super().read(wanted)


async def test_a_takeover_with_a_slow_prometheus_writes_nothing(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is told that metrics are missing only because the first reading takes its time."""
    first, second = pair
    monkeypatch.setattr(loop_module, "READING_SECONDS", 0.05)
    second.operator.loop.telemetry = LateTelemetry()
    first.api.writes.clear()
    lead(second, first)
    await first.tick()
    await second.tick(3)
    assert first.api.writes == []
    assert [snapshot.telemetry_error for snapshot in second.law.snapshots] == [""] * 3


async def test_later_passes_do_not_wait_for_a_slow_prometheus(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first reading of a leadership is waited for."""
    first, _ = pair
    monkeypatch.setattr(loop_module, "READING_SECONDS", 0.05)
    slow = first.operator.loop.telemetry = LateTelemetry()
    slow.seconds = 60.0
    first.operator.loop._read_at -= 10.0
    async with asyncio.timeout(2.0):
        await first.tick()
    assert first.law.snapshots[-1].telemetry_error == ""


async def test_the_status_of_an_slo_is_looked_at_again(pair: Any) -> None:
    """What was written of it under an earlier leadership may be gone."""
    first, second = pair
    lead(second, first)
    await first.tick()
    key = Key("a", "chat")
    first.api.put(SLOS, {**first.api.objects[SLOS.plural][key], "status": {}})
    lead(first, second)
    await first.tick()
    assert first.api.objects[SLOS.plural][key]["status"]["users"] == 1
