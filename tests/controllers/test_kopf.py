"""kopf itself against an API server: what it leaves alone when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from tests.controllers.api_server import KINDS, ApiServer, serving

from goodput.adapters.kinds import MODELS
from goodput_controllers import kopf_shell
from goodput_controllers.world import World

FAILURE = {"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "leader changed"}}
# After this event of theirs watches end, and are made again.
NOTHING = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "5"}}}


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("fails", [False, True], ids=["stopped", "failed"])
async def test_kopf_ends_nothing_but_its_own(fails: bool) -> None:
    """Told to end, or ended by an error of one watch: tasks that began after it go on, none of its own is left."""
    server = ApiServer()
    event = NOTHING

    def fault(request: web.Request) -> dict[str, Any] | None:
        return event if "watch" in request.query and request.path.endswith(MODELS.plural) else None

    server.fault = fault
    async with serving(server) as connection:
        stop = asyncio.Event()
        serves = asyncio.create_task(kopf_shell.run(World(), connection.lend(), (), stop, lambda: None))
        await until(lambda: len(server.watched) == len(KINDS) - 1)
        write = asyncio.create_task(asyncio.sleep(60.0), name="a write")
        if fails:
            event = FAILURE
        else:
            stop.set()
        async with asyncio.timeout(2.0):
            await asyncio.wait([serves])
        assert (serves.exception() is not None) == fails
        assert not write.done()
        assert kopf_shell._tasks_of_kopf() == []
        write.cancel()
