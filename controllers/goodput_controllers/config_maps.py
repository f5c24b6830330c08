"""ConfigMaps that Models refer to: fetched when first needed and again every minute, never watched."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from goodput.adapters.kinds import CONFIG_MAPS
from goodput.adapters.kube import KubeApi
from goodput.adapters.kube_errors import KubeError, NotFound
from goodput.domain.identity import Key

REFRESH_SECONDS = 60.0


@dataclass(slots=True)
class _Fetched:
    at: float
    data: dict[str, str] | None


class ConfigMapCache:
    """Texts of ConfigMaps by key; what cannot be read now stays as it was last read."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._fetched: dict[Key, _Fetched] = {}

    async def refresh(self, wanted: Iterable[Key]) -> None:
        """Fetch what is new or old, drop what is not wanted any more."""
        keys = set(wanted)
        for key in self._fetched.keys() - keys:
            del self._fetched[key]
        now = time.monotonic()
        for key in sorted(keys):
            known = self._fetched.get(key)
            if known is not None and now - known.at < REFRESH_SECONDS:
                continue
            try:
                found = await self._api.get(CONFIG_MAPS, key.namespace, key.name)
                self._fetched[key] = _Fetched(now, {str(k): str(v) for k, v in (found.get("data") or {}).items()})
            except NotFound:
                # A missing one is looked for soon again: its author is about to create it.
                self._fetched[key] = _Fetched(now - REFRESH_SECONDS + 5.0, None)
            except KubeError:
                continue

    def text(self, namespace: str, name: str, entry: str) -> str | None:
        """Text of one entry; '' if the ConfigMap lacks it, None if there is no such ConfigMap."""
        known = self._fetched.get(Key(namespace, name))
        if known is None or known.data is None:
            return None
        return known.data.get(entry, "")
