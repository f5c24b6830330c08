"""Secrets and ConfigMaps as pods see them, read from the API server and kept for a moment."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable, Mapping
from typing import Any

from goodput_world.agent.kubeapi import Api

_KEEP_SECONDS = 1.0
"""A roll-out starts many pods at once; they share one read."""
_PATHS = {"Secret": "secrets", "ConfigMap": "configmaps"}


class ObjectSource:
    """Reads Secrets and ConfigMaps; each read is shared for a second."""

    def __init__(self, api: Api) -> None:
        """Nothing is read before it is asked for."""
        self._api = api
        self._kept: dict[tuple[str, str, str], tuple[float, dict[str, bytes] | None]] = {}

    async def data(self, kind: str, namespace: str, name: str) -> dict[str, bytes] | None:
        """The decoded data of a Secret or ConfigMap, None when it does not exist."""
        key = (kind, namespace, name)
        kept = self._kept.get(key)
        now = time.monotonic()
        if kept is not None and now - kept[0] < _KEEP_SECONDS:
            return kept[1]
        obj = await self._api.get_or_none(f"/api/v1/namespaces/{namespace}/{_PATHS[kind]}/{name}")
        value = None if obj is None else _decoded(kind, obj)
        self._kept[key] = (now, value)
        return value

    async def texts(
        self, namespace: str, wanted: Iterable[tuple[str, str]]
    ) -> dict[tuple[str, str], dict[str, str] | None]:
        """(kind, name) -> data as text, for environment variables."""
        found: dict[tuple[str, str], dict[str, str] | None] = {}
        for kind, name in wanted:
            data = await self.data(kind, namespace, name)
            found[kind, name] = (
                None if data is None else {key: value.decode(errors="replace") for key, value in data.items()}
            )
        return found


def _decoded(kind: str, obj: Mapping[str, Any]) -> dict[str, bytes]:
    data: Mapping[str, str] = obj.get("data") or {}
    if kind == "Secret":
        return {key: base64.b64decode(value) for key, value in data.items()}
    binary: Mapping[str, str] = obj.get("binaryData") or {}
    return {
        **{key: value.encode() for key, value in data.items()},
        **{key: base64.b64decode(value) for key, value in binary.items()},
    }


def env_references(container: Mapping[str, Any]) -> set[tuple[str, str]]:
    """The (kind, name) of every Secret and ConfigMap that a container's environment refers to."""
    found = set()
    for source in container.get("envFrom") or ():
        for field, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            if field in source:
                found.add((kind, source[field].get("name", "")))
    for variable in container.get("env") or ():
        source = variable.get("valueFrom") or {}
        for field, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
            if field in source:
                found.add((kind, source[field].get("name", "")))
    return found
