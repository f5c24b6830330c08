"""Keeps kopf going. It ends by one HTTP 401, 404 or 409, or one error in a watch: that must not end the process.

Before it starts again our own kinds are listed, so that nothing is missed meanwhile, and no kopf starts without their
CRDs: it would look for them once, and watch nothing for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import kopf

from goodput.adapters.kinds import GPU_TYPES, MODELS, SLOS
from goodput.adapters.kube_connection import Connection
from goodput.adapters.kube_errors import KubeError, NotFound, Unavailable
from goodput.domain.errors import GoodputError
from goodput.runtime.metrics import Metrics
from goodput_controllers import kopf_shell
from goodput_controllers.world import World

log = logging.getLogger(__name__)

# kopf lists a kind before it watches it: thousands of objects take their time.
FIRST_WATCH_SECONDS = 180.0
# The server ends a watch after 10 minutes, and kopf makes a new one.
NEXT_WATCH_SECONDS = 900.0
CHECK_SECONDS = 5.0
# A kopf that watched everything for so long is well.
STEADY_SECONDS = 30.0
# One that was not for so long, while the API server answers others, may be helped by a new process.
DEAD_SECONDS = 300.0


class NotWatching(GoodputError):
    """kopf runs, and does not watch what it should."""


class _Watches:
    """Notes which watches kopf makes, on the session that is lent to it."""

    def __init__(self, paths: list[str]) -> None:
        self._due = dict.fromkeys(paths, time.monotonic() + FIRST_WATCH_SECONDS)
        self._missing = set(paths)

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        response = await handler(request)
        if response.status == 200 and "watch" in request.url.query:
            # The address of a server may have a path of its own.
            for path in self._due:
                if request.url.path.endswith(path):
                    self._due[path] = time.monotonic() + NEXT_WATCH_SECONDS
                    self._missing.discard(path)
        return response

    @property
    def complete(self) -> bool:
        """Whether each was made at least once."""
        return not self._missing

    def overdue(self) -> list[str]:
        """What should have been watched again by now."""
        now = time.monotonic()
        return [path for path, due in self._due.items() if due < now]


@dataclass(slots=True)
class Supervisor:
    """Starts kopf, and starts it again, until `stop` is set; one that runs goes on until `drained` is."""

    world: World
    namespaces: tuple[str, ...]
    stop: asyncio.Event
    drained: asyncio.Event
    relist: Callable[[], Awaitable[None]]
    metrics: Metrics
    _failing_since: float | None = None

    def problem(self) -> str:
        """For the liveness probe."""
        if self._failing_since is None or time.monotonic() - self._failing_since <= DEAD_SECONDS:
            return ""
        return f"kopf ends again and again for {time.monotonic() - self._failing_since:.0f} s"

    async def run(self, connection: Connection, started: Callable[[], None]) -> None:
        """Serve; `started` is called each time that kopf took the signals.

        Raises:
            Exception: kopf ended by a fault of a program, its or ours.
        """
        pauses = iter(kopf_shell.EndlessBackoff())
        while True:
            try:
                await self._serve(connection, started)
                return
            except Exception as error:
                if not _may_pass(error):
                    raise
                log.warning("kopf ended and is started again: %s", _told(error))
            self.metrics.errors.labels("kopf").inc()
            if self._failing_since is None:
                self._failing_since = time.monotonic()
                pauses = iter(kopf_shell.EndlessBackoff())
            if not await unless_set(self.stop, self._recover(pauses)):
                return

    async def _serve(self, connection: Connection, started: Callable[[], None]) -> None:
        began = time.monotonic()
        watches = _Watches(self._paths())
        # kopf closes the session that it is given.
        lent = connection.lend(watches)
        serving = asyncio.create_task(
            kopf_shell.run(self.world, lent, self.namespaces, self.drained, started), name="one run of kopf"
        )
        try:
            while not serving.done():
                await asyncio.wait([serving], timeout=CHECK_SECONDS)
                overdue = watches.overdue()
                if overdue and not serving.done():
                    raise NotWatching(f"no watch of {', '.join(overdue)}")
                if watches.complete and time.monotonic() - began > STEADY_SECONDS:
                    self._failing_since = None
            serving.result()
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            with contextlib.suppress(aiohttp.ClientError):
                await lent.close()

    async def _recover(self, pauses: Iterator[float]) -> None:
        while True:
            await asyncio.sleep(next(pauses))
            try:
                await self.relist()
                return
            except KubeError as error:
                log.warning("kopf waits until our own kinds can be listed: %s", error)
                if isinstance(error, NotFound | Unavailable):
                    # Neither a CRD nor the API server comes back by a restart of ours.
                    self._failing_since = None

    def _paths(self) -> list[str]:
        return [
            resource.path(namespace)
            for resource in (MODELS, SLOS, GPU_TYPES)
            for namespace in ((self.namespaces if resource.namespaced else ()) or (None,))
        ]


async def unless_set(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Do some work; False if `stop` was set before its end, in which case it is cancelled."""
    if stop.is_set():
        work.close()
        return False
    doing, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((doing, stopping), return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            return False
        doing.result()
        return True
    finally:
        doing.cancel()
        stopping.cancel()
        await asyncio.gather(doing, stopping, return_exceptions=True)


def _may_pass(error: Exception) -> bool:
    """Whether it comes of what the API server answered, or did not: kopf has errors of its own for most of that."""
    ours = isinstance(error, NotWatching | aiohttp.ClientError | OSError | json.JSONDecodeError)
    return ours or type(error).__module__.startswith("kopf.")


def _told(error: Exception) -> str:
    """What happened: kopf asks for other credentials, and there are none, whatever ends its session."""
    if isinstance(error, kopf.LoginError):
        return "its request was answered with HTTP 401, or its session was closed"
    return f"{type(error).__name__}: {error}"
