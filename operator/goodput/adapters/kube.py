"""A small asynchronous Kubernetes API: objects are plain dictionaries, writes are server-side applies.

Reads and idempotent writes are retried with jitter until a deadline, writes for a few seconds only; what is left is one
of the errors of `kube_errors`. There is no typed model in between: a typed client drops fields that it does not know.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol

import aiohttp
import orjson

from goodput.adapters.kinds import Resource
from goodput.adapters.kube_connection import Connection
from goodput.adapters.kube_errors import KubeError, Unavailable, error_of
from goodput.adapters.objects import Object
from goodput.adapters.shapes import decoded_event, decoded_page
from goodput.domain.identity import FIELD_MANAGER

# (verb, kind, result): result is "ok" or the error's class name.
Observer = Callable[[str, str, str], None]

REQUEST_DEADLINE_SECONDS = 30.0
# Whoever writes has looked once whether it leads: the last attempt of a write begins before another one may lead (the
# Lease lasts 5 s longer than its holder takes it to), and its answer is waited for until here, for slow webhooks.
WRITE_ATTEMPTS_SECONDS = 5.0
WRITE_DEADLINE_SECONDS = 9.0
# The server sends a bookmark about once a minute; a watch that is silent for longer is dead.
WATCH_SILENCE_SECONDS = 70.0
WATCH_SERVER_SECONDS = 600
LIST_CHUNK = 500
FIRST_BACKOFF_SECONDS = 0.2
LAST_BACKOFF_SECONDS = 5.0


class KubeApi(Protocol):
    """What the rest of Goodput may ask of a cluster."""

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object: ...

    def pages(
        self, resource: Resource, namespace: str | None = None, label_selector: str = ""
    ) -> AsyncIterator[tuple[list[Object], str]]: ...

    def watch(
        self, resource: Resource, namespace: str | None, resource_version: str, label_selector: str = ""
    ) -> AsyncIterator[Object]: ...

    async def apply(self, manifest: Object, resource: Resource, *, subresource: str = "") -> Object: ...

    async def merge(
        self, resource: Resource, namespace: str | None, name: str, patch: Object, *, subresource: str = ""
    ) -> Object: ...

    async def create(self, resource: Resource, manifest: Object) -> Object: ...

    async def replace(self, resource: Resource, manifest: Object) -> Object: ...

    async def delete(
        self, resource: Resource, namespace: str | None, name: str, *, uid: str = "", resource_version: str = ""
    ) -> None: ...


class KubeClient:
    """`KubeApi` over HTTP."""

    def __init__(
        self,
        connection: Connection,
        observer: Observer | None = None,
        *,
        deadline_seconds: float = REQUEST_DEADLINE_SECONDS,
    ) -> None:
        self._connection = connection
        self._observer = observer
        self._deadline_seconds = deadline_seconds

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        """One object.

        Raises:
            NotFound: there is none of this name.
        """
        return await self._send("GET", "get", resource, resource.path(namespace, name))

    async def pages(
        self, resource: Resource, namespace: str | None = None, label_selector: str = ""
    ) -> AsyncIterator[tuple[list[Object], str]]:
        """All objects, a page at a time, each with the resource version of the list.

        Raises:
            Expired: the list took longer than the server keeps its history; start again.
        """
        query = {"limit": str(LIST_CHUNK)}
        if label_selector:
            query["labelSelector"] = label_selector
        while True:
            page = await self._send("GET", "list", resource, resource.path(namespace), query=query)
            metadata = page.get("metadata") or {}
            items: list[Object] = page.get("items") or []
            for item in items:
                # The server leaves these out of the items of a list: without them a listed object would never equal
                # what we render, and would be written again on every pass.
                item["apiVersion"], item["kind"] = resource.api_version, resource.kind
            yield items, str(metadata.get("resourceVersion") or "")
            if not metadata.get("continue"):
                return
            query["continue"] = metadata["continue"]

    async def watch(
        self, resource: Resource, namespace: str | None, resource_version: str, label_selector: str = ""
    ) -> AsyncIterator[Object]:
        """Events after a resource version, bookmarks included, until the server ends the stream.

        Raises:
            Expired: the version is too old; list again.
            Unavailable: the stream broke, or was silent for longer than bookmarks take.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_SERVER_SECONDS),
            "resourceVersion": resource_version,
        }
        if label_selector:
            query["labelSelector"] = label_selector
        what = f"watch {resource.plural}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=WATCH_SILENCE_SECONDS)
        url = self._connection.server + resource.path(namespace)
        try:
            async with self._connection.session.get(url, params=query, timeout=timeout) as response:
                if response.status != 200:
                    raise error_of(response.status, _decoded(await response.read()), what)
                async for line in _lines(response):
                    event = decoded_event(resource, line)
                    if event.get("type") == "ERROR":
                        status = event.get("object") or {}
                        raise error_of(int(status.get("code") or 500), status, what)
                    yield event
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"{what}: {type(error).__name__}: {error}") from error

    async def apply(self, manifest: Object, resource: Resource, *, subresource: str = "") -> Object:
        """Server-side apply of a manifest as our field manager, taking over the fields that it names.

        Raises:
            Conflict: the manifest carries a resourceVersion or uid that is not the present one.
            SchemaOutdated: the CRD lacks a field of it.
        """
        metadata = manifest["metadata"]
        return await self._send(
            "PATCH",
            f"apply-{subresource}" if subresource else "apply",
            resource,
            resource.path(metadata.get("namespace"), metadata["name"], subresource),
            query={"fieldManager": FIELD_MANAGER, "force": "true"},
            body=manifest,
            content_type="application/apply-patch+yaml",
        )

    async def merge(
        self, resource: Resource, namespace: str | None, name: str, patch: Object, *, subresource: str = ""
    ) -> Object:
        """JSON merge patch, for a few fields of objects that are not rendered by us."""
        return await self._send(
            "PATCH",
            "patch",
            resource,
            resource.path(namespace, name, subresource),
            query={"fieldManager": FIELD_MANAGER},
            body=patch,
            content_type="application/merge-patch+json",
        )

    async def create(self, resource: Resource, manifest: Object) -> Object:
        """Create; a Conflict says that it exists."""
        path = resource.path(manifest["metadata"].get("namespace"))
        return await self._send("POST", "create", resource, path, query={"fieldManager": FIELD_MANAGER}, body=manifest)

    async def replace(self, resource: Resource, manifest: Object) -> Object:
        """Replace the object of the resourceVersion that the manifest carries, within a short deadline."""
        metadata = manifest["metadata"]
        path = resource.path(metadata.get("namespace"), metadata["name"])
        query = {"fieldManager": FIELD_MANAGER}
        return await self._send("PUT", "update", resource, path, query=query, body=manifest, deadline_seconds=5.0)

    async def delete(
        self, resource: Resource, namespace: str | None, name: str, *, uid: str = "", resource_version: str = ""
    ) -> None:
        """Delete in the background, only while uid and resourceVersion (where given) are still the same."""
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        body: Object = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {key: value for key, value in preconditions.items() if value},
        }
        await self._send("DELETE", "delete", resource, resource.path(namespace, name), body=body)

    async def _send(
        self,
        method: str,
        verb: str,
        resource: Resource,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
        deadline_seconds: float | None = None,
    ) -> Object:
        what = f"{verb} {resource.plural} {path}"
        started = time.monotonic()
        give_up_at = last_attempt_at = started + (deadline_seconds or self._deadline_seconds)
        if method != "GET":
            give_up_at = min(give_up_at, started + WRITE_DEADLINE_SECONDS)
            last_attempt_at = min(give_up_at, started + WRITE_ATTEMPTS_SECONDS)
        payload = None if body is None else orjson.dumps(body)
        backoff = FIRST_BACKOFF_SECONDS
        while True:
            try:
                answer = await self._once(
                    method,
                    path,
                    what=what,
                    query=query,
                    payload=payload,
                    content_type=content_type,
                    connect_by=last_attempt_at,
                    give_up_at=give_up_at,
                    listed=resource if verb == "list" else None,
                )
            except Unavailable as error:
                # Full jitter: many Models that failed together must not come back together.
                pause = max(error.retry_after_seconds, random.uniform(0.5, 1.0) * backoff)
                if time.monotonic() + pause >= last_attempt_at:
                    self._observe(verb, resource, error)
                    raise
                await asyncio.sleep(pause)
                backoff = min(LAST_BACKOFF_SECONDS, 2 * backoff)
            except KubeError as error:
                self._observe(verb, resource, error)
                raise
            else:
                self._observe(verb, resource, None)
                return answer

    async def _once(
        self,
        method: str,
        path: str,
        *,
        what: str,
        query: Mapping[str, str] | None,
        payload: bytes | None,
        content_type: str,
        connect_by: float,
        give_up_at: float,
        listed: Resource | None = None,
    ) -> Object:
        now = time.monotonic()
        timeout = aiohttp.ClientTimeout(
            total=max(0.1, give_up_at - now), connect=max(0.1, connect_by - now), sock_connect=10
        )
        headers = {"Content-Type": content_type} if payload is not None else {}
        try:
            async with self._connection.session.request(
                method,
                self._connection.server + path,
                params=query,
                data=payload,
                headers=headers,
                timeout=timeout,
            ) as response:
                content = _decoded(await response.read(), listed)
                if response.status < 300 and isinstance(content, dict):
                    return content
                wait = response.headers.get("Retry-After", "")
                raise error_of(response.status, content, what, float(wait) if wait.isdigit() else 0.0)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"{what}: {type(error).__name__}: {error}") from error

    def _observe(self, verb: str, resource: Resource, error: KubeError | None) -> None:
        if self._observer is not None:
            self._observer(verb, resource.kind, "ok" if error is None else type(error).__name__)


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Lines of any length (a line reader with a limit refuses large objects)."""
    rest = b""
    async for chunk in response.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line


def _decoded(content: bytes, listed: Resource | None = None) -> Any:
    try:
        return orjson.loads(content) if listed is None else decoded_page(listed, content)
    except orjson.JSONDecodeError:
        return content.decode(errors="replace")[:500]
