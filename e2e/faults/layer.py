"""A layer over the operator's API in its own process: counts writes, ends the process after one, falsifies reads."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goodput.adapters.kinds import LEASES, Resource
from goodput.adapters.kube import KubeApi
from goodput.adapters.objects import Object

KILLED = 137
"""Exit code of a process that ended after its n-th write."""


@dataclass(frozen=True, slots=True)
class Script:
    """What goes wrong. Files in `directory` switch faults on while they exist."""

    directory: Path
    crash_after: int | None = None
    """End the process, as SIGKILL would, once the API server has taken this many writes but Leases."""

    @property
    def writes(self) -> Path:
        """One JSON line per write that the API server took."""
        return self.directory / "writes.jsonl"

    @property
    def deaf(self) -> Path:
        """While it exists, watches of pods, nodes and children deliver nothing: their events are lost for ever."""
        return self.directory / "deaf"

    @property
    def stale(self) -> Path:
        """While it exists, lists answer what they answered before it did."""
        return self.directory / "stale"


class FaultyApi:
    """`KubeApi` over another one."""

    def __init__(self, api: KubeApi, script: Script) -> None:
        """Faults as `script` says."""
        self._api = api
        self._script = script
        self._written = 0
        self._lists: dict[tuple[str, str | None, str], list[tuple[list[Object], str]]] = {}

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        """As it is."""
        return await self._api.get(resource, namespace, name)

    async def pages(
        self, resource: Resource, namespace: str | None = None, label_selector: str = ""
    ) -> AsyncIterator[tuple[list[Object], str]]:
        """The present list, or an old one."""
        key = (resource.plural, namespace, label_selector)
        if self._script.stale.exists() and key in self._lists:
            for page in self._lists[key]:
                yield page
            return
        pages = []
        async for page in self._api.pages(resource, namespace, label_selector):
            pages.append(page)
            yield page
        self._lists[key] = pages

    async def watch(
        self, resource: Resource, namespace: str | None, resource_version: str, label_selector: str = ""
    ) -> AsyncIterator[Object]:
        """Events, less those that are lost."""
        async for event in self._api.watch(resource, namespace, resource_version, label_selector):
            if self._script.deaf.exists() and event.get("type") != "BOOKMARK":
                continue
            yield event

    async def apply(self, manifest: Object, resource: Resource, *, subresource: str = "") -> Object:
        """Counted."""
        answer = await self._api.apply(manifest, resource, subresource=subresource)
        self._count("apply", resource, manifest["metadata"]["name"], subresource)
        return answer

    async def merge(
        self, resource: Resource, namespace: str | None, name: str, patch: Object, *, subresource: str = ""
    ) -> Object:
        """Counted."""
        answer = await self._api.merge(resource, namespace, name, patch, subresource=subresource)
        self._count("patch", resource, name, subresource)
        return answer

    async def create(self, resource: Resource, manifest: Object) -> Object:
        """Counted."""
        answer = await self._api.create(resource, manifest)
        self._count("create", resource, answer["metadata"]["name"])
        return answer

    async def replace(self, resource: Resource, manifest: Object) -> Object:
        """Counted."""
        answer = await self._api.replace(resource, manifest)
        self._count("update", resource, manifest["metadata"]["name"])
        return answer

    async def delete(
        self, resource: Resource, namespace: str | None, name: str, *, uid: str = "", resource_version: str = ""
    ) -> None:
        """Counted."""
        await self._api.delete(resource, namespace, name, uid=uid, resource_version=resource_version)
        self._count("delete", resource, name)

    def _count(self, verb: str, resource: Resource, name: str, subresource: str = "") -> None:
        if resource is LEASES:
            return
        self._written += 1
        kind = f"{resource.kind}/{subresource}" if subresource else resource.kind
        line: dict[str, Any] = {"at": time.time(), "verb": verb, "kind": kind, "name": name}
        with self._script.writes.open("a") as file:
            file.write(json.dumps(line) + "\n")
        if self._written == self._script.crash_after:
            os._exit(KILLED)
