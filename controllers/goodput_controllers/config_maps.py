"""ConfigMaps that Models refer to: fetched when first needed and again every minute, never watched.

They are fetched beside the passes, which wait for them only shortly: one that hangs costs its own Model a later answer,
and the fleet nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from goodput.adapters.kinds import CONFIG_MAPS
from goodput.adapters.kube import KubeApi
from goodput.adapters.kube_errors import KubeError, NotFound
from goodput.domain.errors import Unread
from goodput.domain.identity import Key

log = logging.getLogger(__name__)

REFRESH_SECONDS = 60.0
# A missing one is looked for soon again: its author is about to create it.
MISSING_SECONDS = 5.0
RETRY_SECONDS = 30.0
# A pass waits this long for what it asked for; what comes later counts from the next pass on.
WAIT_SECONDS = 2.0
FETCHES_AT_ONCE = 8


@dataclass(slots=True)
class _Fetched:
    due_at: float
    data: dict[str, str] | None
    problem: str = ""  # why it could not be read the last time


class ConfigMapCache:
    """Texts of ConfigMaps by key; what cannot be read now stays as it was last read.

    `changed` is called after a fetch that its pass did not wait for.
    """

    def __init__(
        self, api: KubeApi, changed: Callable[..., None], *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._api = api
        self._changed = changed
        self._monotonic = monotonic
        self._fetched: dict[Key, _Fetched] = {}
        self._fetches: dict[Key, asyncio.Task[None]] = {}
        self._limit = asyncio.Semaphore(FETCHES_AT_ONCE)

    async def refresh(self, wanted: Iterable[Key]) -> None:
        """Fetch what is new or old, for a short while, and drop what is not wanted any more."""
        keys = set(wanted)
        for key in self._fetched.keys() - keys:
            del self._fetched[key]
        self._fetches = {key: fetch for key, fetch in self._fetches.items() if not fetch.done()}
        now = self._monotonic()
        started = []
        for key in sorted(keys - self._fetches.keys()):
            known = self._fetched.get(key)
            if known is None or now >= known.due_at:
                self._fetches[key] = asyncio.create_task(self._fetch(key), name=f"ConfigMap {key}")
                started.append(self._fetches[key])
        if started:
            _, late = await asyncio.wait(started, timeout=WAIT_SECONDS)
            for fetch in late:
                fetch.add_done_callback(self._changed)

    def text(self, namespace: str, name: str, entry: str) -> str | None:
        """Text of one entry; '' if the ConfigMap lacks it, None if there is no such ConfigMap.

        Raises:
            Unread: nobody knows.
        """
        known = self._fetched.get(Key(namespace, name))
        if known is None:
            raise Unread(f"ConfigMap {name} is not read yet: the API server has not answered")
        if known.data is not None:
            return known.data.get(entry, "")
        if known.problem:
            raise Unread(f"ConfigMap {name} cannot be read, and is tried again: {known.problem}")
        return None

    async def _fetch(self, key: Key) -> None:
        try:
            async with self._limit:
                found = await self._api.get(CONFIG_MAPS, key.namespace, key.name)
        except NotFound:
            self._fetched[key] = _Fetched(self._monotonic() + MISSING_SECONDS, None)
        except KubeError as error:
            log.warning("ConfigMap %s cannot be read: %s", key, error)
            known = self._fetched.get(key)
            data = known.data if known is not None else None
            self._fetched[key] = _Fetched(self._monotonic() + RETRY_SECONDS, data, str(error))
        else:
            texts = {str(name): str(text) for name, text in (found.get("data") or {}).items()}
            self._fetched[key] = _Fetched(self._monotonic() + REFRESH_SECONDS, texts)
