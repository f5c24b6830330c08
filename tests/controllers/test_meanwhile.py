"""What happens to a Model while something is being written for it: later passes, its end, another one of its name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from goodput.adapters.kinds import EVENTS, MODELS, Resource
from goodput.decide import Policy
from goodput.domain.decision import Action, Decision, Rule
from goodput.domain.identity import Key
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import Snapshot
from goodput.domain.plan import Plan
from goodput_controllers import loop as loop_module

LLAMA = Key("a", "llama")


class Slow:
    """Holds up each write that `of` picks until it is let go; lets steps of a change be decided."""

    def __init__(self, bench: Any, monkeypatch: pytest.MonkeyPatch, of: Callable[[Resource, str], bool]) -> None:
        self.bench, self.of = bench, of
        self.go = asyncio.Event()
        self.waiting = 0
        self.rule: Rule | None = None
        self.offered = 0.0
        bench.operator.loop.decide = self._decide
        monkeypatch.setattr(loop_module, "WRITES_SECONDS", 0.02)
        monkeypatch.setattr(bench.api, "create", self._held_up(bench.api.create, resource_at=0))
        monkeypatch.setattr(bench.api, "apply", self._held_up(bench.api.apply, resource_at=1))

    def _held_up(self, write: Callable[..., Any], resource_at: int) -> Callable[..., Any]:
        async def slow(*given: Any, **options: Any) -> Any:
            if self.of(given[resource_at], str(options.get("subresource", ""))):
                self.waiting += 1
                await self.go.wait()
            return await write(*given, **options)

        return slow

    def _decide(self, snapshot: Snapshot, memory: Mapping[Key, LoopMemory], policy: Policy, now: float) -> Plan:
        plan: Plan = self.bench.law(snapshot, memory, policy, now)
        rule, self.rule = self.rule, None
        models = []
        for model in plan.models:
            figures = replace(model.figures, offered_delta=self.offered, good_upper_delta=self.offered)
            models.append(replace(model, figures=figures, step=_step(now, rule) if rule is not None else None))
        return Plan(models=tuple(models))

    async def look(self) -> None:
        """One pass, which does not wait for what hangs."""
        await self.bench.operator._relist_once()
        await self.bench.settle()
        await self.bench.operator.loop.run_once()
        self.bench.now += 10.0

    async def let_go(self) -> None:
        self.go.set()
        await self.bench.operator.reconciler.drain()


def _step(now: float, rule: Rule) -> Decision:
    return Decision(
        model=LLAMA,
        pool="serve",
        at=now,
        action=Action.START_CANARY if rule is Rule.CHANGE_ASKED else Action.DROP,
        rule=rule,
        from_replicas=1,
        to_replicas=1,
        wanted_replicas=1,
        detail=f"step {rule}",
    )


def events(bench: Any) -> list[str]:
    return [event["reason"] for event in bench.api.objects[EVENTS.plural].values()]


async def served(bench: Any) -> None:
    bench.apply(bench.model())
    await bench.tick()
    bench.play_kubelet()
    await bench.tick(3)


async def test_a_step_decided_while_another_is_told_is_told_as_well(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event of the first one hangs; a later pass decides the second; both are told, and each once."""
    await served(bench)
    slow = Slow(bench, monkeypatch, lambda resource, _: resource is EVENTS)
    slow.rule = Rule.CHANGE_ASKED
    await slow.look()
    slow.rule = Rule.CHANGE_UNDONE
    await slow.look()
    assert Rule.CHANGE_ASKED not in events(bench)
    await slow.let_go()
    await bench.tick(2)
    assert [reason for reason in events(bench) if reason.startswith("Change")] == ["ChangeAsked", "ChangeUndone"]
    assert bench.status()["lastDecision"]["rule"] == "ChangeUndone"


async def test_a_model_that_goes_while_a_step_is_told(
    bench: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is done for it any more, and nothing stumbles."""
    await served(bench)
    slow = Slow(bench, monkeypatch, lambda resource, _: resource is EVENTS)
    slow.rule = Rule.CHANGE_ASKED
    await slow.look()
    bench.api.remove(MODELS, LLAMA)
    await slow.look()
    await slow.let_go()
    assert events(bench).count("ChangeAsked") == 0
    assert "unexpected error" not in caplog.text


async def test_one_of_the_same_name_is_told_of_anew(bench: Any) -> None:
    """Deleted and made again between two passes: what was written for the former one is not in the status of this."""
    bench.apply(bench.model(slo="nope"))
    await bench.tick()
    assert bench.condition("Stalled") == ("True", "SLONotFound")
    bench.api.remove(MODELS, LLAMA)
    bench.apply(bench.model(slo="nope"))
    assert bench.status() == {}
    await bench.tick()
    assert bench.condition("Stalled") == ("True", "SLONotFound")


async def test_one_of_the_same_name_does_not_wait_for_writes_of_the_former(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They hang, and are given up with it."""
    await served(bench)
    slow = Slow(bench, monkeypatch, lambda resource, _: resource is EVENTS)
    slow.rule = Rule.CHANGE_ASKED
    await slow.look()
    slow.of = lambda *_: False
    bench.api.remove(MODELS, LLAMA)
    bench.apply(bench.model())
    await slow.look()
    await slow.look()
    assert bench.status()["observedGeneration"] == 1


async def test_who_leads_no_longer_ends_what_hangs(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be written later, beside what the next leader writes."""
    await served(bench)
    slow = Slow(bench, monkeypatch, lambda resource, _: resource is EVENTS)
    slow.rule = Rule.CHANGE_ASKED
    await slow.look()
    bench.operator.loop.leading = lambda: False
    await slow.look()
    await slow.let_go()
    assert "ChangeAsked" not in events(bench)


async def test_figures_that_move_while_status_is_written_are_written_later(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write says what was counted when it was made: what came meanwhile is not in status yet."""
    slow = Slow(bench, monkeypatch, lambda *_: False)
    await served(bench)
    slow.of = lambda _, subresource: subresource == "status"
    slow.offered = 10.0
    while not slow.waiting:
        await slow.look()
    slow.offered = 1000.0
    for _ in range(5):
        await slow.look()
    await slow.let_go()
    assert bench.status()["demand"]["requestsPerSecond"] == "0.90"
    # As much as was counted until the write ended.
    slow.offered = 160.0
    await bench.tick(32)
    assert bench.status()["demand"]["requestsPerSecond"] == "15"
