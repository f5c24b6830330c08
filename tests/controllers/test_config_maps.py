"""ConfigMaps that Models refer to: an API server that hangs over them holds up nobody else."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from goodput.adapters.fakes import FakeKube, failing
from goodput.adapters.kinds import CONFIG_MAPS, Resource
from goodput.adapters.kube_errors import KubeError, Refused, Unavailable
from goodput.domain.errors import Unread
from goodput.domain.identity import Key
from goodput_controllers import config_maps as config_maps_module
from goodput_controllers.config_maps import ConfigMapCache

ONE = Key("a", "one")
LLAMA = json.dumps(
    {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
    }
)


def text_of(name: str, text: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "a"}, "data": {"config.json": text}}


async def test_config_maps_that_hang_hold_up_no_neighbour(bench: Any) -> None:
    """Three Models wait for theirs; the pass ends within seconds, the fourth scales, and none is asked for twice."""
    asked: list[str] = []
    released = asyncio.Event()
    original = bench.api.get

    async def get(resource: Resource, namespace: str | None, name: str) -> dict[str, Any]:
        if resource is CONFIG_MAPS and name.startswith("arch"):
            asked.append(name)
            await released.wait()
        found: dict[str, Any] = await original(resource, namespace, name)
        return found

    bench.api.get = get
    for name in ("x", "y", "z"):
        reference = {"configMapRef": {"name": f"arch-{name}", "key": "config.json"}}
        bench.apply(bench.model(name, architecture=reference))
    bench.apply(bench.model("neighbour"))
    await bench.operator._relist_once()
    await bench.settle()
    began = time.monotonic()
    await bench.operator.loop.run_once()
    assert time.monotonic() - began < config_maps_module.WAIT_SECONDS + 2.0
    await bench.tick()
    bench.law.wanted["neighbour"] = 3
    began = time.monotonic()
    await bench.tick()
    # What still hangs is not waited for again.
    assert time.monotonic() - began < config_maps_module.WAIT_SECONDS
    assert bench.replicas("neighbour") == 3
    assert sorted(asked) == ["arch-x", "arch-y", "arch-z"]
    bench.operator.world.dirty.clear()
    released.set()
    async with asyncio.timeout(5):
        await bench.operator.world.dirty.wait()


async def test_only_so_many_are_fetched_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fleet that refers to hundreds does not ask for them all together."""
    monkeypatch.setattr(config_maps_module, "WAIT_SECONDS", 0.05)
    api = FakeKube()
    running = 0

    async def get(resource: Resource, namespace: str | None, name: str) -> dict[str, Any]:
        nonlocal running
        running += 1
        await asyncio.Event().wait()
        return {}

    api.get = get  # type: ignore[method-assign]
    await ConfigMapCache(api, changed=lambda *_: None).refresh(Key("a", f"c{number}") for number in range(50))
    assert running == config_maps_module.FETCHES_AT_ONCE


async def test_what_cannot_be_read_stays_and_is_asked_for_later() -> None:
    """After an error the last text is served, and the server has half a minute of peace."""
    clock = [1000.0]
    api = FakeKube()
    api.put(CONFIG_MAPS, text_of("one", "old"))
    cache = ConfigMapCache(api, changed=lambda *_: None, monotonic=lambda: clock[0])
    await cache.refresh([ONE])
    api.put(CONFIG_MAPS, text_of("one", "new"))
    api.fault = failing("get", times=1, error=Unavailable("503", 503))
    clock[0] += config_maps_module.REFRESH_SECONDS
    for _ in range(2):
        await cache.refresh([ONE])
        assert cache.text("a", "one", "config.json") == "old"
        clock[0] += config_maps_module.RETRY_SECONDS - 1
    await cache.refresh([ONE])
    assert cache.text("a", "one", "config.json") == "new"


async def test_what_nobody_refers_to_any_more_is_dropped() -> None:
    """A Model that goes takes the text of its ConfigMap along."""
    api = FakeKube()
    api.put(CONFIG_MAPS, text_of("one", "x"))
    cache = ConfigMapCache(api, changed=lambda *_: None)
    await cache.refresh([ONE])
    assert cache.text("a", "one", "config.json") == "x"
    await cache.refresh([])
    with pytest.raises(Unread, match="not read yet"):
        cache.text("a", "one", "config.json")


@pytest.mark.parametrize(
    "error", [Refused('configmaps "one" is forbidden: not for you', 403), Unavailable("the server is away", 503)]
)
async def test_what_cannot_be_read_is_not_told_to_be_absent(bench: Any, error: KubeError) -> None:
    """The author would create what is there. Once it can be read, the Model is served."""
    bench.api.put(CONFIG_MAPS, text_of("one", LLAMA))
    bench.api.fault = failing("get", times=1, error=error)
    bench.apply(bench.model(architecture={"configMapRef": {"name": "one"}}))
    await bench.tick()
    assert bench.condition("Stalled") == ("True", "ConfigMapUnreadable")
    message = next(c["message"] for c in bench.status()["conditions"] if c["type"] == "Stalled")
    assert message == f"spec.architecture.configMapRef: ConfigMap one cannot be read, and is tried again: {error}"
    bench.operator.config_maps._fetched[ONE].due_at = 0.0
    await bench.tick()
    assert bench.condition("Stalled") == ("False", "NotStalled")


async def test_what_is_absent_is_told_to_be(bench: Any) -> None:
    """The API server said so."""
    bench.apply(bench.model(architecture={"configMapRef": {"name": "one"}}))
    await bench.tick()
    assert bench.condition("Stalled") == ("True", "ConfigMapNotFound")
