"""SIGTERM and SIGINT end the process at any time, also one that waits for its cluster."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from aiohttp import web
from kubernetes.client import Configuration
from tests.controllers.api_server import ApiServer, refusal, serving

from goodput.adapters.kinds import CRDS, MODELS, Resource
from goodput.adapters.kube_errors import NotFound
from goodput.runtime.settings import Settings
from goodput_controllers import process as process_module

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@pytest.fixture
def ignored() -> Iterator[list[int]]:
    """Signals that reach nobody, as in the first process of a container."""
    reached: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        reached.append(number)

    before = {number: signal.signal(number, note) for number in SIGNALS}
    yield reached
    for number, handler in before.items():
        signal.signal(number, handler)


def lacks_crds(request: web.Request) -> web.Response | None:
    return refusal(404) if MODELS.group in request.path else None


def is_down(_: web.Request) -> web.Response | None:
    return refusal(503)


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("fault", [lacks_crds, is_down])
async def test_a_process_that_waits_for_its_cluster_ends_at_once(
    number: int, fault: Callable[[web.Request], Any], ignored: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither CRDs that are not there nor an API server that does not answer hold it up."""
    server = ApiServer()
    asked = asyncio.Event()

    def seen(request: web.Request) -> Any:
        asked.set()
        return fault(request)

    server.fault = seen
    async with serving(server) as connection:
        configuration = Configuration()
        configuration.host = connection.server
        monkeypatch.setattr(process_module, "load_configuration", lambda: configuration)
        settings = Settings(prometheus_url="", listen_host="127.0.0.1", listen_port=0)
        running = asyncio.create_task(process_module.run_operator(settings))
        async with asyncio.timeout(5):
            await asked.wait()
            os.kill(os.getpid(), number)
            await running
    assert ignored == []


async def test_signals_are_ours_also_after_kopf_was_started_again(
    ignored: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """kopf takes them each time that it starts: the first to end must be the loop all the same."""
    server = ApiServer()
    refused = 0

    def fault(request: web.Request) -> web.Response | None:
        nonlocal refused
        if refused or "watch" not in request.query or not request.path.endswith(MODELS.plural):
            return None
        refused += 1
        return refusal(401)

    server.fault = fault
    async with serving(server) as connection:
        configuration = Configuration()
        configuration.host = connection.server
        monkeypatch.setattr(process_module, "load_configuration", lambda: configuration)
        settings = Settings(prometheus_url="", listen_host="127.0.0.1", listen_port=0, leader_election=False)
        running = asyncio.create_task(process_module.run_operator(settings))
        async with asyncio.timeout(10):
            while MODELS.path() not in server.watched:
                await asyncio.sleep(0.02)
            os.kill(os.getpid(), signal.SIGTERM)
            await running
    assert refused == 1
    assert ignored == []


async def test_a_stop_ends_the_comparison_of_crds(new_bench: Callable[..., Any]) -> None:
    """Between the first list and the start of the parts, as well."""
    bench = new_bench()
    hangs = asyncio.Event()

    async def get(resource: Resource, *_: Any) -> Any:
        assert resource is CRDS
        hangs.set()
        await asyncio.Event().wait()

    bench.api.get = get
    running = asyncio.create_task(bench.operator.run())
    async with asyncio.timeout(5):
        await hangs.wait()
        bench.operator.stop.set()
        await running


@pytest.mark.parametrize("missing", [False, True])
async def test_who_is_stopped_before_the_start_starts_nothing(new_bench: Callable[..., Any], missing: bool) -> None:
    """No request, no Lease, no shell; and no error."""
    bench = new_bench(leader_election=True, lease_namespace="system")
    asked: list[str] = []

    def fault(verb: str, _: Resource, __: str) -> None:
        asked.append(verb)
        if missing:
            raise NotFound("no such kind", 404)

    async def shell() -> None:
        asked.append("shell")

    bench.api.fault = fault
    bench.operator.stop.set()
    async with asyncio.timeout(5):
        await bench.operator.run(shell())
    assert asked == []
    assert bench.api.writes == []
