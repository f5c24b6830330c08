"""The same change, made once undisturbed and once with a crash after each of its writes, all side by side."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from faults.fixtures import Bench
from faults.fleet import create_fleet, difference, normalised
from faults.layer import KILLED
from faults.operators import OperatorProcess
from faults.prometheus import FakePrometheus

AT_ONCE = 5
"""Operators that run at the same time: two cores carry them."""
_QUIET_POLLS = 6

Done = Callable[[list[dict[str, Any]]], bool]
Act = Callable[[str], Awaitable[object]]


@dataclass(slots=True)
class Sweep:
    """One change under crashes. `namespaces[0]` is the undisturbed run; the n-th crashes after its n-th write."""

    bench: Bench
    name: str
    act: Act
    done: Done
    before: Done | None = None
    """What is there before the change; None: the change starts from nothing (`act` creates the fleet)."""
    spec: dict[str, object] = field(default_factory=dict)
    requests_per_second: float = 0.0
    most: int = 24
    writes: list[str] = field(default_factory=list)
    crashed: list[str] = field(default_factory=list)
    started_at: float = 0.0

    @property
    def namespaces(self) -> list[str]:
        """Of the undisturbed run and of each crash."""
        return [f"{self.name}-{index}" for index in range(self.most + 1)]

    @property
    def prometheus(self) -> FakePrometheus:
        """Of the bench."""
        return self.bench.prometheus

    async def run(self) -> None:
        """Make the change everywhere; then an operator that lives brings every namespace to its end."""
        for namespace in self.namespaces:
            self.prometheus.load(namespace, self.requests_per_second)
        if self.before is not None:
            await _each(self.namespaces, lambda namespace: create_fleet(self.bench.person, namespace, **self.spec))
            async with self._common("before"):
                await self._all(self.namespaces, self.before, "before the change")
        reference = self.namespaces[0]
        self.writes = await self._undisturbed(reference)
        assert self.writes, f"{self.name}: the change wrote nothing"
        assert len(self.writes) <= self.most, f"{self.name}: room for {self.most} crashes, and it wrote {self.writes}"
        disturbed = self.namespaces[1 : len(self.writes) + 1]
        await _each(disturbed, self._crash)
        async with self._common("after"):
            await self._all(disturbed, self.done, "after the crash")
            expected = normalised(self.bench.recorder.objects(reference), reference)
            for namespace in disturbed:
                await self._equal(expected, namespace)

    @contextlib.asynccontextmanager
    async def _common(self, when: str) -> AsyncIterator[OperatorProcess]:
        operator = await self.bench.operators.start(f"{self.name}-{when}", prometheus_url=self.prometheus.url())
        try:
            # Only one that has seen everything, and led, can have judged it.
            await self.bench.until(lambda: _led(operator), f"{self.name}: the operator leads and is in sync")
            yield operator
            assert operator.alive, f"the operator died:\n{operator.log_tail()}"
        finally:
            assert await operator.stop() == 0, f"it did not end well:\n{operator.log_tail()}"

    async def _undisturbed(self, namespace: str) -> list[str]:
        operator = await self.bench.operators.start(
            f"{namespace}-undisturbed", namespace, prometheus_url=self.prometheus.url()
        )
        try:
            await self._ready(operator)
            await self.act(namespace)
            await self._all([namespace], self.done, "undisturbed")
            await self._quiet(operator)
            return [f"{write['verb']} {write['kind']} {write['name']}" for write in operator.writes()]
        finally:
            await operator.stop()

    async def _crash(self, namespace: str) -> None:
        after = int(namespace.rsplit("-", 1)[1])
        operator = await self.bench.operators.start(
            f"{namespace}-crash", namespace, prometheus_url=self.prometheus.url(), crash_after=after
        )
        try:
            await self._ready(operator)
            await self.act(namespace)

            async def over() -> bool:
                return not operator.alive or self.done(self.bench.recorder.objects(namespace))

            await self.bench.until(over, f"{namespace}: a crash, or the end of the change")
            # The last writes of a change (a condition, an event) may come after its end.
            if await operator.ended(3.0):
                assert operator.exit_code == KILLED, f"exit code {operator.exit_code}:\n{operator.log_tail()}"
                self.crashed.append(namespace)
        finally:
            operator.kill()

    async def _ready(self, operator: OperatorProcess) -> None:
        """A change of what is there happens before the eyes of its operator, else it would see the end of it only."""

        async def looking() -> bool:
            return await _led(operator) or not operator.alive

        if self.before is not None:
            await self.bench.until(looking, f"{self.name}: the operator leads and is in sync")

    async def _all(self, namespaces: list[str], done: Done, when: str) -> None:
        for namespace in namespaces:

            async def over(namespace: str = namespace) -> bool:
                return done(self.bench.recorder.objects(namespace))

            await self.bench.until(over, f"{namespace} {when}", timeout_seconds=90.0)

    async def _quiet(self, operator: OperatorProcess) -> None:
        counts: list[int] = []

        async def quiet() -> bool:
            counts.append(len(operator.writes()))
            return len(counts) > _QUIET_POLLS and len(set(counts[-_QUIET_POLLS:])) == 1

        await self.bench.until(quiet, f"{self.name}: no more writes")

    async def _equal(self, expected: dict[str, object], namespace: str) -> None:
        lines: list[str] = []

        async def equal() -> bool:
            seen = normalised(self.bench.recorder.objects(namespace), namespace)
            lines[:] = difference(expected, seen)
            return not lines

        try:
            await self.bench.until(equal, f"{namespace} ends as the undisturbed run", timeout_seconds=20.0)
        except AssertionError as error:
            write = self.writes[int(namespace.rsplit("-", 1)[1]) - 1]
            raise AssertionError(f"a crash after `{write}` ends differently:\n" + "\n".join(lines)) from error


async def _led(operator: OperatorProcess) -> bool:
    log = operator.log_text()
    return "in sync" in log and "acquired the lease" in log


async def _each(namespaces: list[str], work: Callable[[str], Awaitable[object]]) -> None:
    limit = asyncio.Semaphore(AT_ONCE)

    async def limited(namespace: str) -> None:
        async with limit:
            await work(namespace)

    async with asyncio.TaskGroup() as group:
        for namespace in namespaces:
            group.create_task(limited(namespace))
