"""Wait for something to become true, and say what was seen when it does not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from goodput_world.errors import WaitTimeout

T = TypeVar("T")

_POLL_SECONDS = 0.25


async def wait_for(
    condition: Callable[[], Awaitable[T | None]],
    *,
    what: str,
    timeout_seconds: float = 60.0,
    poll_seconds: float = _POLL_SECONDS,
) -> T:
    """The first truthy value of `condition`, a coroutine function.

    An exception of the condition counts as "not yet" and is shown if time runs out. Raises WaitTimeout then.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        seen: object
        try:
            value = await condition()
            if value:
                return value
            seen = value
        except Exception as error:
            seen = error
            if time.monotonic() >= deadline:
                raise WaitTimeout(f"{what}: not after {timeout_seconds:g} s; last seen: {error!r}") from error
        if time.monotonic() >= deadline:
            raise WaitTimeout(f"{what}: not after {timeout_seconds:g} s; last seen: {seen!r}")
        await asyncio.sleep(poll_seconds)
