"""The kopf shell: serves our three kinds with low-level event handlers that leave nothing on anybody's objects.

The handlers validate and store, and mark the fleet dirty; nothing else. No change handlers (they leave an annotation),
no deletion handlers, timers or daemons (they leave a finalizer), no peering, no CRD scanning.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import kopf

from goodput.adapters.kinds import GPU_TYPES, MODELS, SLOS, Resource
from goodput.adapters.kube_connection import Connection
from goodput.adapters.objects import key_of, version_of
from goodput.runtime.entries import Kept
from goodput_controllers.world import World

LAST_BACKOFF_SECONDS = 15.0
# Each of the three steps in which kopf ends takes at most this long.
END_SECONDS = 2.0
KOPF_FOLDER = Path(kopf.__file__).parent


class NullDiff(kopf.DiffBaseStorage):
    """Remembers nothing: only change handlers need a difference, and we have none."""

    def build(self, *, body: Any, extra_fields: Any = None) -> Any:
        return {}

    def fetch(self, *, body: Any) -> None:
        return None

    def store(self, *, body: Any, patch: Any, essence: Any) -> None:
        return None


class NullProgress(kopf.ProgressStorage):
    """Remembers nothing: handlers that cannot fail have no progress."""

    def fetch(self, *, key: Any, body: Any) -> None:
        return None

    def store(self, *, key: Any, record: Any, body: Any, patch: Any) -> None:
        return None

    def purge(self, *, key: Any, body: Any, patch: Any) -> None:
        return None

    def touch(self, *, body: Any, patch: Any, value: Any) -> None:
        return None

    def clear(self, *, essence: Any) -> Any:
        return essence


class EndlessBackoff:
    """Retry for ever, with jitter: kopf's own list ends, and the operator with it, after a minute of HTTP 503."""

    def __iter__(self) -> Iterator[float]:
        pause = 0.5
        while True:
            yield random.uniform(0.5, 1.0) * pause
            pause = min(LAST_BACKOFF_SECONDS, 2 * pause)


def settings() -> kopf.OperatorSettings:
    """Settings of kopf that leave user objects alone and outlive any outage."""
    options = kopf.OperatorSettings()
    options.peering.standalone = True
    options.scanning.disabled = True
    options.posting.enabled = False
    options.watching.server_timeout = 600
    options.watching.connect_timeout = 10
    options.watching.inactivity_timeout = 70
    options.networking.connect_timeout = 10
    options.networking.request_timeout = 30
    options.networking.error_backoffs = EndlessBackoff()
    options.persistence.finalizer = "goodput.dev/finalizer"
    options.persistence.diffbase_storage = NullDiff()
    options.persistence.progress_storage = NullProgress()
    options.execution.max_workers = 2
    # After this time kopf would kill the process, which outlives it. The kubelet ends what hangs.
    options.process.ultimate_exiting_timeout = None
    return options


def registry(world: World, connection: Connection) -> kopf.OperatorRegistry:
    """Handlers that fill `world`."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers)
    def login(**_: Any) -> kopf.AiohttpSession:
        return kopf.AiohttpSession(server=connection.server, aiohttp_session=connection.session)

    def serve(resource: Resource, kept: Kept[Any]) -> None:
        @kopf.on.event(
            resource.group, resource.version, resource.plural, id=f"see-{resource.plural}", registry=handlers
        )
        async def see(event: Any, **_: Any) -> None:
            take(world, kept, event["type"], dict(event["object"]))

    serve(MODELS, world.models)
    serve(SLOS, world.slos)
    serve(GPU_TYPES, world.gpu_types)
    return handlers


def take(world: World, kept: Kept[Any], kind: str | None, manifest: dict[str, Any]) -> None:
    """Store one object; wake the loop unless only its status changed."""
    key = key_of(manifest)
    before = kept.get(key)
    if kind == "DELETED":
        if kept.remove(key, manifest["metadata"]["uid"], version_of(manifest)):
            world.touched()
        return
    if kept.put(manifest):
        after = kept.get(key)
        if before is None or after is None or (before.uid, before.generation) != (after.uid, after.generation):
            world.touched()


async def run(
    world: World,
    connection: Connection,
    namespaces: tuple[str, ...],
    stop: asyncio.Event,
    started: Callable[[], None],
) -> None:
    """Serve until `stop` is set; `started` is called once kopf took the signals, so that they can be taken back.

    kopf closes the session that it is given. Its own `run_tasks` would in the end cancel every task that is younger
    than it is: writes in flight, requests for metrics, the loop's reading.
    """
    asyncio.get_running_loop().set_exception_handler(_tell)
    tasks = await kopf.spawn_tasks(
        registry=registry(world, connection),
        settings=settings(),
        standalone=True,
        clusterwide=not namespaces,
        namespaces=namespaces,
        stop_flag=stop,
    )
    done: set[asyncio.Task[Any]] = set()
    try:
        started()
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        # When one watcher fails, kopf leaves the others running. They go first: once the session is closed, they would
        # wait for another one.
        await _cancel([task for task in _tasks_of_kopf() if task not in tasks and _is_guarded(task)])
        await _cancel(tasks)
        await _cancel(_tasks_of_kopf())
    for task in done:
        task.result()


async def _cancel(tasks: Collection[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        ended, _ = await asyncio.wait(tasks, timeout=END_SECONDS)
        for task in ended:
            # What they died of is known, or comes of the end.
            if not task.cancelled():
                task.exception()


def _tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What asyncio does, but for watches of kopf that died.

    Several may die of one thing: kopf logs each at once, and takes the error of the first one only. Of the others
    asyncio would tell again, whenever they are collected.
    """
    died = context.get("future")
    if isinstance(died, asyncio.Task) and _is_guarded(died) and KOPF_FOLDER in _file(died).parents:
        return
    loop.default_exception_handler(context)


def _tasks_of_kopf() -> list[asyncio.Task[Any]]:
    """By their code: before Python 3.12 a task does not tell its context."""
    return [task for task in asyncio.all_tasks() if KOPF_FOLDER in _file(task).parents]


def _file(task: asyncio.Task[Any]) -> Path:
    code = getattr(task.get_coro(), "cr_code", None)
    return Path(code.co_filename if code is not None else "")


def _is_guarded(task: asyncio.Task[Any]) -> bool:
    """Whether it runs for ever: kopf calls the wrapper of such tasks a guard."""
    return getattr(task.get_coro(), "__name__", "") == "guard"
