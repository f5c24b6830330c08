"""Reflectors keep what the API server has, whatever happens to their watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from goodput.adapters import reflector as reflector_module
from goodput.adapters.fakes import FakeKube, failing
from goodput.adapters.kinds import POD_MONITORS, SERVICES, Resource
from goodput.adapters.kube_errors import NotFound, Unavailable
from goodput.adapters.reflector import Reflector
from goodput.domain.identity import Key


@dataclass(frozen=True)
class Named:
    version: int
    port: int


def keep(manifest: dict[str, Any]) -> Named | None:
    port = manifest["spec"].get("port")
    return Named(int(manifest["metadata"]["resourceVersion"]), port) if port else None


def service(name: str, port: int | None = 80) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "a"}, "spec": {"port": port}}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector_module, "FIRST_BACKOFF_SECONDS", 0.005)
    monkeypatch.setattr(reflector_module, "LAST_BACKOFF_SECONDS", 0.01)


@asynccontextmanager
async def running(reflector: Reflector[Named]) -> AsyncIterator[Reflector[Named]]:
    task = asyncio.create_task(reflector.run())
    try:
        yield reflector
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


def stored(reflector: Reflector[Named]) -> dict[str, int]:
    return {key.name: record.port for key, record in reflector.items()}


async def test_lists_in_pages_then_watches() -> None:
    """Objects of every page and every later event are in the store; what `keep` refuses is not."""
    api = FakeKube()
    for name in ("one", "two", "three", "four", "five"):
        api.put(SERVICES, service(name))
    api.put(SERVICES, service("dull", None))
    async with running(Reflector(api, SERVICES, keep)) as reflector:
        await until(lambda: reflector.synced)
        assert set(stored(reflector)) == {"one", "two", "three", "four", "five"}

        api.put(SERVICES, service("six", 81))
        api.put(SERVICES, service("one", 82))
        api.remove(SERVICES, Key("a", "two"))

        await until(lambda: stored(reflector) == {"one": 82, "three": 80, "four": 80, "five": 80, "six": 81})


async def test_relist_after_expiry_drops_ghosts() -> None:
    """An object that went while the history was lost goes from the store, and its absence is told."""
    api = FakeKube()
    api.put(SERVICES, service("stays"))
    api.put(SERVICES, service("ghost"))
    told: list[tuple[str, bool]] = []
    reflector = Reflector(api, SERVICES, keep, changed=lambda key, _, after: told.append((key.name, after is None)))
    async with running(reflector):
        await until(lambda: len(reflector) == 2)
        # The deletion is never sent, and the next watch begins after the history that has it.
        api.dropped = lambda _: True
        api.remove(SERVICES, Key("a", "ghost"))
        api.dropped = lambda _: False
        api.oldest_version = 10_000_000
        api.put(SERVICES, service("other"))
        await until(lambda: set(stored(reflector)) == {"stays", "other"} or api.oldest_version == 0)
        api.oldest_version = 0

        await until(lambda: set(stored(reflector)) == {"stays", "other"})
    assert ("ghost", True) in told


async def test_lost_events_heal_by_relist() -> None:
    """Events that the watch never delivered are found by the periodic list."""
    api = FakeKube()
    api.put(SERVICES, service("old"))
    api.dropped = lambda item: item["metadata"]["name"] == "lost"
    async with running(Reflector(api, SERVICES, keep, relist_seconds=0.05)) as reflector:
        await until(lambda: reflector.synced)
        api.put(SERVICES, service("lost"))
        # Any event ends the watch once a relist is due.
        await asyncio.sleep(0.08)
        api.put(SERVICES, service("tick"))

        await until(lambda: "lost" in stored(reflector))


async def test_survives_a_server_that_is_away() -> None:
    """Failing lists and watches are retried for ever, and the problem is named meanwhile."""
    api = FakeKube()
    api.put(SERVICES, service("one"))
    api.fault = failing("list", "watch", times=7, error=Unavailable("503", 503))
    async with running(Reflector(api, SERVICES, keep)) as reflector:
        await until(lambda: reflector.synced)
        api.put(SERVICES, service("two"))
        await until(lambda: set(stored(reflector)) == {"one", "two"})
        assert reflector.problem == ""


async def test_a_missing_optional_kind_is_no_problem() -> None:
    """An optional kind that the cluster lacks counts as in sync, empty and absent."""
    api = FakeKube()
    api.fault = failing("list", times=1, error=NotFound("404", 404))
    async with running(Reflector(api, POD_MONITORS, keep, optional=True)) as reflector:
        await until(lambda: reflector.absent)
        assert reflector.synced
        assert not reflector.problem


async def test_our_own_write_counts_before_its_event() -> None:
    """What a write answered is in the store at once, and an older event does not undo it."""
    api = FakeKube()
    old = api.put(SERVICES, service("one", 80))
    async with running(Reflector(api, SERVICES, keep)) as reflector:
        await until(lambda: reflector.synced)
        new = api.put(SERVICES, service("one", 81))
        reflector.assume(new)
        assert stored(reflector) == {"one": 81}

        reflector.assume(old)

        assert stored(reflector) == {"one": 81}


class DeletingMeanwhile(FakeKube):
    """Between two pages of a list, whoever reads it deletes an object."""

    between: Callable[[], None] = staticmethod(lambda: None)

    async def pages(
        self, resource: Resource, namespace: str | None = None, label_selector: str = ""
    ) -> AsyncIterator[tuple[list[dict[str, Any]], str]]:
        async for page in super().pages(resource, namespace, label_selector):
            yield page
            self.between()


async def test_our_own_deletion_during_a_relist_ends_nothing() -> None:
    """What is gone from the store before the last page is no ghost of this list, and the others are still found."""
    api = DeletingMeanwhile()
    for name in ("one", "two", "three"):
        api.put(SERVICES, service(name))
    reflector = Reflector(api, SERVICES, keep)
    await reflector._list(None)
    api.remove(SERVICES, Key("a", "two"))
    api.put(SERVICES, service("later"))
    api.between = lambda: reflector.forget(Key("a", "two"))  # type: ignore[method-assign]
    await reflector._list(None)
    assert set(stored(reflector)) == {"one", "three", "later"}
