"""The few API calls of a node agent: get, create, patch, delete, and list+watch, over one HTTP session."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import random
import ssl
import tempfile
import urllib.parse
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import yaml

log = logging.getLogger(__name__)

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_RETRIED = {429, 500, 502, 503, 504}
_ATTEMPTS = 6


class ApiError(Exception):
    """The API server refused a request; `status` is the HTTP status, `reason` its machine-readable reason."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"HTTP {status} {reason}: {message}")
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the API server is and how to talk to it, from a kubeconfig."""

    server: str
    token: str | None
    ssl: ssl.SSLContext
    ca_pem: bytes

    @property
    def address(self) -> tuple[str, int]:
        """(host, port) of the server."""
        url = urllib.parse.urlsplit(self.server)
        return url.hostname or "127.0.0.1", url.port or 443


def _material(entry: Mapping[str, Any], name: str, folder: Path) -> bytes | None:
    if entry.get(f"{name}-data"):
        return base64.b64decode(entry[f"{name}-data"])
    if entry.get(name):
        return (folder / str(entry[name])).read_bytes()
    return None


def load_kubeconfig(path: Path) -> Endpoint:
    """The server, credentials and CA of the current context."""
    raw = yaml.safe_load(path.read_text())
    context = next(c["context"] for c in raw["contexts"] if c["name"] == raw["current-context"])
    cluster = next(c["cluster"] for c in raw["clusters"] if c["name"] == context["cluster"])
    user: Mapping[str, Any] = next((u["user"] for u in raw.get("users") or () if u["name"] == context.get("user")), {})
    ca_pem = _material(cluster, "certificate-authority", path.parent)
    trust = ssl.create_default_context(cadata=ca_pem.decode() if ca_pem else None)
    if cluster.get("insecure-skip-tls-verify"):
        trust.check_hostname = False
        trust.verify_mode = ssl.CERT_NONE
    certificate = _material(user, "client-certificate", path.parent)
    key = _material(user, "client-key", path.parent)
    if certificate and key:
        with tempfile.NamedTemporaryFile(suffix=".pem") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(certificate + b"\n" + key)
            file.flush()
            trust.load_cert_chain(file.name)
    token = user.get("token")
    if token is None and user.get("tokenFile"):
        token = (path.parent / user["tokenFile"]).read_text().strip()
    return Endpoint(cluster["server"].rstrip("/"), token, trust, ca_pem or b"")


class Api:
    """JSON requests to the API server; use as an async context manager."""

    def __init__(self, endpoint: Endpoint, user_agent: str = "goodput-world-agent") -> None:
        """No connection is made before the first request."""
        self.endpoint = endpoint
        self._user_agent = user_agent
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Api:
        headers = {"User-Agent": self._user_agent}
        if self.endpoint.token:
            headers["Authorization"] = f"Bearer {self.endpoint.token}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=64, ssl=self.endpoint.ssl), headers=headers
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        """The open session. Raises RuntimeError outside the context."""
        if self._session is None:
            raise RuntimeError("the API is used outside its `async with`")
        return self._session

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
        attempts: int = _ATTEMPTS,
    ) -> Any:
        """One request; connection errors, 429 and 5xx are tried again. Raises ApiError, aiohttp.ClientError."""
        data = None if body is None else orjson.dumps(body)
        for attempt in range(1, attempts + 1):
            wait = min(0.2 * 2**attempt, 5.0) * random.uniform(0.5, 1.0)
            try:
                async with self.session.request(
                    method,
                    self.endpoint.server + path,
                    data=data,
                    params=params,
                    headers={"Content-Type": content_type},
                    timeout=aiohttp.ClientTimeout(total=30),
                ) as response:
                    raw = await response.read()
                    if response.status < 400:
                        return orjson.loads(raw) if raw else {}
                    error = _error(response.status, raw)
                    if response.status not in _RETRIED or attempt == attempts:
                        raise error
                    wait = max(wait, float(response.headers.get("Retry-After") or 0))
            except (aiohttp.ClientError, TimeoutError):
                if attempt == attempts:
                    raise
            await asyncio.sleep(wait)
        raise AssertionError("unreachable")

    async def get(self, path: str, **options: Any) -> Any:
        """GET; raises ApiError (404 for what does not exist)."""
        return await self.request("GET", path, **options)

    async def get_or_none(self, path: str) -> Any:
        """GET, None for what does not exist."""
        try:
            return await self.request("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def post(self, path: str, body: Any, **options: Any) -> Any:
        """POST."""
        return await self.request("POST", path, body, **options)

    async def patch(self, path: str, body: Any, content_type: str = MERGE_PATCH) -> Any:
        """PATCH."""
        return await self.request("PATCH", path, body, content_type=content_type)

    async def delete(self, path: str, body: Any = None) -> Any:
        """DELETE."""
        return await self.request("DELETE", path, body)

    async def watch(self, path: str, params: Mapping[str, str]) -> AsyncIterator[tuple[str, Any]]:
        """The events of one watch request, until the server ends it. Raises ApiError, aiohttp.ClientError."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=400)
        async with self.session.get(self.endpoint.server + path, params=dict(params), timeout=timeout) as response:
            if response.status >= 400:
                raise _error(response.status, await response.read())
            pending = bytearray()
            async for chunk in response.content.iter_any():
                pending += chunk
                if b"\n" not in chunk:
                    continue
                *lines, rest = bytes(pending).split(b"\n")
                pending = bytearray(rest)
                for line in lines:
                    if line:
                        event = orjson.loads(line)
                        yield event["type"], event["object"]


def _error(status: int, raw: bytes) -> ApiError:
    try:
        body = orjson.loads(raw)
        return ApiError(status, body.get("reason") or "", body.get("message") or "")
    except (orjson.JSONDecodeError, AttributeError):
        return ApiError(status, "", raw[:200].decode(errors="replace"))


def key_of(obj: Mapping[str, Any]) -> str:
    """NAMESPACE/NAME, or NAME for what has no namespace."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


Handler = Callable[[str, Any], None]
"""(event "ADDED", "MODIFIED" or "DELETED", object); must not block."""


@dataclass(slots=True)
class Reflector:
    """A local copy of one resource, kept by list+watch. A relist diffs, so that no deletion is missed."""

    api: Api
    path: str
    handler: Handler
    params: Mapping[str, str] = field(default_factory=dict)
    items: dict[str, Any] = field(default_factory=dict)
    synced: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Follow the resource until cancelled."""
        version = ""
        while True:
            try:
                if not version:
                    version = await self._list()
                    self.synced.set()
                version = await self._follow(version)
            except ApiError as error:
                if error.status != 410:
                    log.warning("watch of %s: %s", self.path, error)
                    await asyncio.sleep(1)
                version = ""
            except (aiohttp.ClientError, TimeoutError, orjson.JSONDecodeError) as error:
                log.warning("watch of %s: %s", self.path, error)
                await asyncio.sleep(1)

    async def _list(self) -> str:
        listed = await self.api.get(self.path, params={**self.params, "resourceVersion": "0"})
        fresh = {key_of(obj): obj for obj in listed.get("items") or ()}
        for key in [key for key in self.items if key not in fresh]:
            self._dispatch("DELETED", self.items.pop(key))
        for key, obj in fresh.items():
            known = self.items.get(key)
            if known is None or known["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
                self._store("ADDED" if known is None else "MODIFIED", key, obj, known)
        return str(listed["metadata"]["resourceVersion"])

    async def _follow(self, version: str) -> str:
        params = {
            **self.params,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": "300",
        }
        async for kind, obj in self.api.watch(self.path, params):
            if kind == "ERROR":
                raise ApiError(int(obj.get("code") or 500), obj.get("reason") or "", obj.get("message") or "")
            version = str(obj["metadata"]["resourceVersion"])
            if kind == "BOOKMARK":
                continue
            key = key_of(obj)
            if kind == "DELETED":
                self.items.pop(key, None)
                self._dispatch(kind, obj)
            else:
                self._store(kind, key, obj, self.items.get(key))
        return version

    def _store(self, kind: str, key: str, obj: Any, known: Any) -> None:
        obj["metadata"].pop("managedFields", None)
        if known is not None and known["metadata"]["uid"] != obj["metadata"]["uid"]:
            self._dispatch("DELETED", known)
            kind = "ADDED"
        self.items[key] = obj
        self._dispatch(kind, obj)

    def _dispatch(self, kind: str, obj: Any) -> None:
        try:
            self.handler(kind, obj)
        except Exception:
            log.exception("handling %s of %s %s", kind, self.path, key_of(obj))
