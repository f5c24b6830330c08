"""kopf ends by answers that pass: it is started again, and the process goes on."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import aiohttp
import kopf
import pytest
from aiohttp import web
from tests.controllers.api_server import KINDS, ApiServer, refusal, serving

from goodput.adapters.kinds import MODELS
from goodput.adapters.kube_connection import Connection
from goodput.adapters.kube_errors import KubeError, NotFound, Refused, Unavailable
from goodput.runtime.metrics import Metrics
from goodput_controllers import kopf_shell
from goodput_controllers import supervisor as supervisor_module
from goodput_controllers.supervisor import Supervisor
from goodput_controllers.world import World

FAILURE = {"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "leader changed"}}


class Bed:
    """A supervisor, what it lists, and how often kopf was started."""

    def __init__(self, namespaces: tuple[str, ...] = ()) -> None:
        self.lists = 0
        self.starts = 0
        self.error: KubeError | None = None
        self.metrics = Metrics("test")
        self.supervisor = Supervisor(
            World(), namespaces, asyncio.Event(), asyncio.Event(), relist=self._relist, metrics=self.metrics
        )

    async def _relist(self) -> None:
        self.lists += 1
        if self.error is not None:
            raise self.error

    def _started(self) -> None:
        self.starts += 1

    def start(self, connection: Connection) -> asyncio.Task[None]:
        return asyncio.create_task(self.supervisor.run(connection, self._started))

    async def end(self, running: asyncio.Task[None]) -> None:
        self.supervisor.stop.set()
        self.supervisor.drained.set()
        async with asyncio.timeout(5):
            await running


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "CHECK_SECONDS", 0.02)


@pytest.mark.parametrize(
    ("verb", "answer"),
    [(verb, code) for verb in ("list", "watch") for code in (401, 404, 409)] + [("watch", "an error in the stream")],
)
async def test_kopf_outlives_an_answer_that_passes(verb: str, answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It is started anew with a session of its own, its signals are taken back, and what was missed is listed."""
    server = ApiServer()
    faults = 0

    def fault(request: web.Request) -> web.Response | dict[str, Any] | None:
        nonlocal faults
        wanted = request.path.endswith(MODELS.plural) and ("watch" in request.query) == (verb == "watch")
        if not wanted or faults:
            return None
        faults += 1
        return refusal(answer) if isinstance(answer, int) else FAILURE

    server.fault = fault
    bed = Bed()
    async with serving(server) as connection:
        running = bed.start(connection)
        await until(lambda: bed.starts == 2 and len(server.watched) == len(KINDS))
        assert not running.done()
        assert bed.lists == 1
        assert b'goodput_model_errors_total{step="kopf"} 1.0' in bed.metrics.render()
        (told,) = [record.getMessage() for record in caplog.records if record.name == supervisor_module.__name__]
        assert (str(answer) if isinstance(answer, int) else "leader changed") in told
        await bed.end(running)
        assert not connection.session.closed


@pytest.mark.parametrize("answer", [401, 409])
async def test_watches_that_end_together_leave_no_error_behind(answer: int, caplog: pytest.LogCaptureFixture) -> None:
    """kopf looks at the first one only; each has been told of, and asyncio does not tell of it again much later."""
    server = ApiServer()
    refused: set[str] = set()

    def fault(request: web.Request) -> web.Response | None:
        if "watch" not in request.query or request.path in refused:
            return None
        refused.add(request.path)
        return refusal(answer)

    server.fault = fault
    bed = Bed()
    async with serving(server) as connection:
        running = bed.start(connection)
        await until(lambda: bed.starts > 1 and len(server.watched) == len(KINDS))
        await bed.end(running)
    del running
    gc.collect()
    asyncio.get_running_loop().call_exception_handler({"message": "what is not of kopf"})
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == ["what is not of kopf"]


async def test_a_kopf_that_found_no_kinds_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Discovery lagged behind the CRDs: kopf looks once, and would watch nothing for ever."""
    monkeypatch.setattr(supervisor_module, "FIRST_WATCH_SECONDS", 1.0)
    server = ApiServer()
    server.known.remove(MODELS.plural)
    bed = Bed()
    async with serving(server) as connection:
        running = bed.start(connection)
        await until(lambda: len(server.watched) == len(KINDS) - 1)
        server.known.add(MODELS.plural)
        await until(lambda: bed.starts > 1 and len(server.watched) == len(KINDS))
        await bed.end(running)


async def test_each_namespace_is_watched() -> None:
    """Watches are expected of each namespace that is served."""
    server = ApiServer()
    bed = Bed(namespaces=("a", "b"))
    async with serving(server) as connection:
        running = bed.start(connection)
        await until(lambda: len(server.watched) == 5)
        assert sorted(server.watched) == sorted(bed.supervisor._paths())
        await bed.end(running)


@pytest.fixture
async def connection() -> Any:
    async with aiohttp.ClientSession() as session:
        yield Connection("http://127.0.0.1:1", session)


def kopf_dies(monkeypatch: pytest.MonkeyPatch, error: Exception) -> list[float]:
    """Of this error at once, each time; when it was started."""
    starts = []

    async def run(*_: Any) -> None:
        starts.append(asyncio.get_running_loop().time())
        raise error

    monkeypatch.setattr(kopf_shell, "run", run)
    return starts


async def test_a_fault_of_the_program_ends_it(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would come again, and says that something is wrong here."""
    kopf_dies(monkeypatch, ZeroDivisionError("a mistake"))
    with pytest.raises(ZeroDivisionError):
        await Bed().start(connection)


async def test_kopf_is_not_started_without_its_crds(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are waited for, and that is no reason to end the process."""
    monkeypatch.setattr(supervisor_module, "DEAD_SECONDS", 0.0)
    monkeypatch.setattr(kopf_shell, "EndlessBackoff", lambda: [0.01] * 1000)
    starts = kopf_dies(monkeypatch, kopf.LoginError("refused"))
    bed = Bed()
    bed.error = NotFound("no such kind", 404)
    running = bed.start(connection)
    await until(lambda: bed.lists > 5)
    assert len(starts) == 1
    assert bed.supervisor.problem() == ""
    bed.error = None
    await until(lambda: len(starts) > 1)
    await bed.end(running)


@pytest.mark.parametrize(
    ("error", "dead"), [(None, True), (Refused("unauthorised", 401), True), (Unavailable("gone", 503), False)]
)
async def test_a_kopf_that_never_comes_back_is_dead(
    error: KubeError | None, dead: bool, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while, unless the API server is what is missing."""
    monkeypatch.setattr(kopf_shell, "EndlessBackoff", lambda: [0.01] * 1000)
    monkeypatch.setattr(supervisor_module, "DEAD_SECONDS", 0.3)
    kopf_dies(monkeypatch, kopf.LoginError("refused"))
    bed = Bed()
    bed.error = error
    running = bed.start(connection)
    await until(lambda: bed.lists > 3)
    assert bed.supervisor.problem() == ""
    await asyncio.sleep(0.4)
    assert (bed.supervisor.problem() != "") == dead
    await bed.end(running)


async def test_a_kopf_that_is_well_again_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """What went wrong before it watched everything for a while is forgotten."""
    monkeypatch.setattr(supervisor_module, "STEADY_SECONDS", 0.3)
    monkeypatch.setattr(supervisor_module, "DEAD_SECONDS", 0.0)
    bed = Bed()
    bed.supervisor._failing_since = 0.0
    assert bed.supervisor.problem() != ""
    server = ApiServer()
    async with serving(server) as connection:
        running = bed.start(connection)
        await until(lambda: bed.supervisor.problem() == "")
        assert len(server.watched) == len(KINDS)
        await bed.end(running)


async def test_a_stop_ends_the_wait_for_a_restart(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, before anything is drained: no kopf is started any more."""
    monkeypatch.setattr(kopf_shell, "EndlessBackoff", lambda: [60.0])
    starts = kopf_dies(monkeypatch, kopf.LoginError("refused"))
    bed = Bed()
    running = bed.start(connection)
    await until(lambda: len(starts) == 1)
    bed.supervisor.stop.set()
    async with asyncio.timeout(1):
        await running
    assert len(starts) == 1


async def test_the_probe_asks_the_supervisor(new_bench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """What it says ends the process, by its liveness probe."""
    operator = new_bench().operator
    assert operator.not_alive() == ""
    monkeypatch.setattr(Supervisor, "problem", lambda _: "kopf is gone")
    assert operator.not_alive() == "kopf is gone"
