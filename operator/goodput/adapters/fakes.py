"""In-memory stand-ins for the ports: a Kubernetes API that merges and versions, and telemetry that is told what to say.

The fake API knows resourceVersions, watches, apply as a deep merge (what a sole owner leaves out goes), uid and
resourceVersion preconditions, and faults on demand. It has no schemas, no defaulting and no controllers: what depends
on those is tested on a real API server.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from goodput.adapters.kinds import Resource
from goodput.adapters.kube_errors import Conflict, Expired, KubeError, NotFound
from goodput.adapters.objects import Object
from goodput.adapters.telemetry import Reading, Wanted
from goodput.domain.identity import Key
from goodput.domain.observed import ModelTelemetry

# (verb, resource, name) before a request is served; may raise.
Fault = Callable[[str, Resource, str], None]


class FakeKube:
    """`KubeApi` in memory; `writes` lists every successful write as (verb, kind, namespace/name)."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[Key, Object]] = defaultdict(dict)
        self.writes: list[tuple[str, str, str]] = []
        self.fault: Fault | None = None
        # Watch events before this version are gone.
        self.oldest_version = 0
        self.dropped: Callable[[Object], bool] = lambda _: False
        self._versions = itertools.count(1)
        self._uids = itertools.count(1)
        self._log: list[tuple[int, str, str, Object]] = []
        self._woken = asyncio.Event()
        self._applied: dict[tuple[str, Key, str], Object] = {}

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        self._check("get", resource, name)
        return copy.deepcopy(self._find(resource, Key(namespace or "", name)))

    async def pages(
        self, resource: Resource, namespace: str | None = None, label_selector: str = ""
    ) -> AsyncIterator[tuple[list[Object], str]]:
        self._check("list", resource, "")
        found = [
            copy.deepcopy(item)
            for key, item in sorted(self.objects[resource.plural].items())
            if (namespace is None or key.namespace == namespace) and _matches(item, label_selector)
        ]
        version = str(self._last_version())
        for start in range(0, max(1, len(found)), 2):
            yield found[start : start + 2], version

    async def watch(
        self, resource: Resource, namespace: str | None, resource_version: str, label_selector: str = ""
    ) -> AsyncIterator[Object]:
        self._check("watch", resource, "")
        seen = int(resource_version)
        while True:
            if seen < self.oldest_version:
                raise Expired("too old resource version", 410)
            self._check("watching", resource, "")
            self._woken.clear()
            for version, plural, kind, item in [entry for entry in self._log if entry[0] > seen]:
                seen = version
                ours = namespace is None or item["metadata"].get("namespace") == namespace
                if plural == resource.plural and ours and _matches(item, label_selector) and not self.dropped(item):
                    yield {"type": kind, "object": copy.deepcopy(item)}
            await self._woken.wait()

    async def apply(self, manifest: Object, resource: Resource, *, subresource: str = "") -> Object:
        metadata = manifest["metadata"]
        key = Key(metadata.get("namespace") or "", metadata["name"])
        self._check(f"apply-{subresource}" if subresource else "apply", resource, key.name)
        before = self.objects[resource.plural].get(key)
        if before is None:
            if subresource:
                raise NotFound(f"{resource.kind} {key} not found", 404)
            after: Object = {}
        else:
            self._preconditions(before, metadata.get("uid", ""), metadata.get("resourceVersion", ""))
            after = copy.deepcopy(before)
        identity = (resource.plural, key, subresource)
        _drop(after, self._applied.get(identity, {}), manifest)
        _merge(after, {name: value for name, value in manifest.items() if not subresource or name == "status"})
        self._applied[identity] = copy.deepcopy(manifest)
        if before is not None and _content(before) == _content(after):
            return copy.deepcopy(before)
        self.writes.append(("apply", resource.kind + (f"/{subresource}" if subresource else ""), str(key)))
        return self._store(resource, key, before, after)

    async def merge(
        self, resource: Resource, namespace: str | None, name: str, patch: Object, *, subresource: str = ""
    ) -> Object:
        self._check("patch", resource, name)
        key = Key(namespace or "", name)
        before = self._find(resource, key)
        after = copy.deepcopy(before)
        _merge(after, patch)
        self.writes.append(("patch", resource.kind, str(key)))
        return self._store(resource, key, before, after)

    async def create(self, resource: Resource, manifest: Object) -> Object:
        key = Key(manifest["metadata"].get("namespace") or "", manifest["metadata"]["name"])
        self._check("create", resource, key.name)
        if key in self.objects[resource.plural]:
            raise Conflict(f"{resource.kind} {key} already exists", 409, "AlreadyExists")
        self.writes.append(("create", resource.kind, str(key)))
        return self._store(resource, key, None, copy.deepcopy(manifest))

    async def replace(self, resource: Resource, manifest: Object) -> Object:
        key = Key(manifest["metadata"].get("namespace") or "", manifest["metadata"]["name"])
        self._check("update", resource, key.name)
        before = self._find(resource, key)
        self._preconditions(before, "", manifest["metadata"].get("resourceVersion", ""))
        self.writes.append(("update", resource.kind, str(key)))
        return self._store(resource, key, before, copy.deepcopy(manifest))

    async def delete(
        self, resource: Resource, namespace: str | None, name: str, *, uid: str = "", resource_version: str = ""
    ) -> None:
        self._check("delete", resource, name)
        key = Key(namespace or "", name)
        before = self._find(resource, key)
        self._preconditions(before, uid, resource_version)
        self.writes.append(("delete", resource.kind, str(key)))
        self.remove(resource, key)

    # --- what tests do to the cluster ---------------------------------------------------------------------------------

    def put(self, resource: Resource, manifest: Object) -> Object:
        """Create or replace an object as somebody else, and tell watchers."""
        key = Key(manifest["metadata"].get("namespace") or "", manifest["metadata"]["name"])
        before = self.objects[resource.plural].get(key)
        return self._store(resource, key, before, copy.deepcopy(manifest))

    def remove(self, resource: Resource, key: Key) -> None:
        """Delete an object at once, and tell watchers."""
        item = self.objects[resource.plural].pop(key)
        item["metadata"]["resourceVersion"] = str(next(self._versions))
        self._tell(resource, "DELETED", item)

    def _check(self, verb: str, resource: Resource, name: str) -> None:
        if self.fault is not None:
            self.fault(verb, resource, name)

    def _find(self, resource: Resource, key: Key) -> Object:
        found = self.objects[resource.plural].get(key)
        if found is None:
            raise NotFound(f"{resource.kind} {key} not found", 404)
        return found

    @staticmethod
    def _preconditions(item: Object, uid: str, version: str) -> None:
        metadata = item["metadata"]
        if uid and metadata["uid"] != uid:
            raise Conflict("Precondition failed: UID in precondition", 409)
        if version and metadata["resourceVersion"] != version:
            raise Conflict("the object has been modified", 409)

    def _store(self, resource: Resource, key: Key, before: Object | None, after: Object) -> Object:
        metadata = after["metadata"]
        metadata["uid"] = before["metadata"]["uid"] if before else metadata.get("uid") or f"uid-{next(self._uids)}"
        metadata.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        changed = before is None or before.get("spec") != after.get("spec")
        generation = before["metadata"].get("generation", 1) if before else 0
        metadata["generation"] = generation + 1 if changed else generation
        metadata["resourceVersion"] = str(next(self._versions))
        self.objects[resource.plural][key] = after
        self._tell(resource, "ADDED" if before is None else "MODIFIED", after)
        return copy.deepcopy(after)

    def _tell(self, resource: Resource, kind: str, item: Object) -> None:
        version = int(item["metadata"]["resourceVersion"])
        self._log.append((version, resource.plural, kind, copy.deepcopy(item)))
        self._woken.set()

    def _last_version(self) -> int:
        return self._log[-1][0] if self._log else 0


class FakeTelemetry:
    """`Telemetry` that answers what it was given."""

    def __init__(self, models: Mapping[Key, ModelTelemetry] | None = None, error: str = "") -> None:
        self.models = dict(models or {})
        self.error = error
        self.asked: list[tuple[Wanted, ...]] = []

    async def read(self, wanted: Sequence[Wanted]) -> Reading:
        self.asked.append(tuple(wanted))
        return Reading(error=self.error) if self.error else Reading(models=dict(self.models))


def failing(*verbs: str, times: int, error: KubeError) -> Fault:
    """A fault that fails the first `times` requests of these verbs."""
    left = itertools.count()

    def fault(verb: str, _: Resource, __: str) -> None:
        if verb in verbs and next(left) < times:
            raise error

    return fault


def _matches(item: Object, selector: str) -> bool:
    labels = item["metadata"].get("labels") or {}
    return all(labels.get(part.split("=")[0]) == part.split("=")[1] for part in selector.split(",") if part)


def _content(item: Object) -> Any:
    metadata = {key: value for key, value in item["metadata"].items() if key not in ("resourceVersion", "generation")}
    return {**item, "metadata": metadata}


def _merge(target: Any, source: Any) -> None:
    for name, value in source.items():
        if name == "resourceVersion":
            continue
        if value is None:
            target.pop(name, None)
        elif isinstance(value, dict) and isinstance(target.get(name), dict):
            _merge(target[name], value)
        else:
            target[name] = copy.deepcopy(value)


def _drop(target: Any, before: Any, now: Any) -> None:
    """Remove what our last apply named and this one does not."""
    for name, value in before.items():
        if name not in now:
            target.pop(name, None)
        elif isinstance(value, dict) and isinstance(now[name], dict) and isinstance(target.get(name), dict):
            _drop(target[name], value, now[name])
