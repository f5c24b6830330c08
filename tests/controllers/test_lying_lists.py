"""What an operator does that is shown an old list, or not shown what is there (DESIGN section 9, invariant 3)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from goodput.adapters.fakes import FakeKube
from goodput.adapters.kinds import DEPLOYMENTS, MODELS, Resource
from goodput.adapters.objects import Object
from goodput.domain.identity import Key


class LaggingKube(FakeKube):
    """Lists of Deployments answer `old` while it is set; watches of them tell nothing then."""

    def __init__(self) -> None:
        super().__init__()
        self.old: list[tuple[list[Object], str]] | None = None

    async def pages(
        self, resource: Resource, namespace: str | None = None, label_selector: str = ""
    ) -> AsyncIterator[tuple[list[Object], str]]:
        if resource is DEPLOYMENTS and self.old is not None:
            for page in self.old:
                yield page
            return
        async for page in super().pages(resource, namespace, label_selector):
            yield page

    async def list_deployments(self) -> list[tuple[list[Object], str]]:
        return [page async for page in super().pages(DEPLOYMENTS)]


async def served(bench: Any, replicas: int) -> None:
    bench.furnish()
    bench.apply(bench.model(scaling={"minReplicas": 1}))
    await bench.start()
    bench.law.wanted["llama"] = 1
    await bench.tick()
    bench.play_kubelet()
    await bench.tick()
    bench.law.wanted["llama"] = replicas
    await bench.tick()
    bench.play_kubelet()
    await bench.tick()


async def test_an_operator_that_starts_from_a_list_without_its_deployment_keeps_replicas(
    new_bench: Callable[..., Any],
) -> None:
    """It would place the Model anew, at its minimum; the Deployment that exists says otherwise, and wins."""
    api = LaggingKube()
    empty = await api.list_deployments()
    first = new_bench(api)
    await served(first, 3)
    await first.stop()
    assert first.replicas() == 3

    api.old = empty
    api.dropped = lambda item: "goodput.dev/pool" in item["metadata"].get("labels", {})
    second = new_bench(api)
    second.now = first.now
    second.law.wanted.clear()  # the law of a Model that is new: its minimum, which is 1
    api.writes.clear()
    await second.start()
    await second.tick(1)

    assert second.replicas() == 3, api.writes
    # From then on it knows.
    second.law.wanted["llama"] = 3
    await second.tick(2)
    assert second.replicas() == 3
    await second.stop()


async def test_an_operator_that_starts_from_an_old_list_does_not_write_from_it(new_bench: Callable[..., Any]) -> None:
    """The list shows 1 replica where 3 run: a write from it meets the version of the object and is not made."""
    api = LaggingKube()
    first = new_bench(api)
    first.furnish()
    first.apply(first.model())
    await first.start()
    await first.tick()
    first.play_kubelet()
    await first.tick()
    old = await api.list_deployments()
    first.law.wanted["llama"] = 3
    await first.tick()
    first.play_kubelet()
    await first.tick()
    await first.stop()

    api.old = old
    api.dropped = lambda item: item["metadata"]["name"] == "llama-serve"
    second = new_bench(api)
    second.now = first.now
    second.law.wanted["llama"] = 2  # up from the 1 that the list shows, down from the 3 that run
    await second.start()
    await second.tick(1)

    assert second.replicas() == 3, api.writes
    await second.stop()


async def test_a_relist_from_the_past_takes_nothing_away(bench: Any) -> None:
    """An object that is newer than the list stays in the store, and goes with a list that is newer than it."""
    bench.apply(bench.model())
    await bench.tick()
    deployments = bench.operator.cluster.owned[DEPLOYMENTS.plural]
    key = Key("a", "llama-serve")
    assert deployments.get(key) is not None

    class Old:
        def __init__(self, version: int) -> None:
            self.version = version

        async def pages(self, *_: object) -> AsyncIterator[tuple[list[Object], str]]:
            yield [], str(self.version)

    present = deployments.get(key).version
    deployments._api = Old(present - 1)
    await deployments._list(None)
    assert deployments.get(key) is not None
    deployments._api = Old(present + 1)
    await deployments._list(None)
    assert deployments.get(key) is None


async def test_nothing_is_made_for_a_model_that_no_event_told_the_end_of(bench: Any) -> None:
    """A Model that goes between our list and kopf's is in the store for ever, but gets no objects."""
    bench.apply(bench.model())
    await bench.operator._relist_once()
    bench.api.remove(MODELS, Key("a", "llama"))
    bench.api.writes.clear()
    await bench.settle()
    await bench.operator.loop.run_once()
    await bench.operator.reconciler.drain()

    made = [write for write in bench.api.writes if write[1] != "SLO/status"]
    assert made == []
    assert bench.operator.world.models.get(Key("a", "llama")) is None
