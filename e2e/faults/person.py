"""What a person does with a cluster, as cheaply as possible: kubectl costs a process each time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from goodput.adapters.kinds import MODELS, NAMESPACES, Resource, resource_of
from goodput.adapters.kube_connection import Connection

MANAGER = "person"


@dataclass(frozen=True, slots=True)
class Person:
    """The administrator of the world, by hand."""

    connection: Connection
    namespaces: list[str] = field(default_factory=list)
    """Those it made."""

    async def create(self, manifest: dict[str, Any], namespace: str = "") -> dict[str, Any]:
        """POST an object; raises AssertionError with the API server's words."""
        resource = NAMESPACES if manifest["kind"] == "Namespace" else resource_of(manifest)
        if resource is NAMESPACES:
            self.namespaces.append(manifest["metadata"]["name"])
        return await self._send("POST", resource.path(namespace or None), manifest, "application/json")

    async def patch(
        self, resource: Resource, namespace: str, name: str, patch: dict[str, Any], *, subresource: str = ""
    ) -> dict[str, Any]:
        """A JSON merge patch."""
        path = resource.path(namespace or None, name, subresource)
        return await self._send("PATCH", path, patch, "application/merge-patch+json")

    async def edit(self, namespace: str, name: str, **spec: Any) -> dict[str, Any]:
        """Change fields of a Model's spec."""
        return await self.patch(MODELS, namespace, name, {"spec": spec})

    async def delete(self, resource: Resource, namespace: str, name: str, *, propagation: str = "Background") -> None:
        """Delete an object, as kubectl does."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        await self._send("DELETE", resource.path(namespace or None, name), body, "application/json")

    async def get(self, path: str) -> dict[str, Any] | None:
        """GET any path; None where there is nothing."""
        async with self.connection.session.get(self.connection.server + path) as answer:
            if answer.status == 404:
                return None
            found: dict[str, Any] = orjson.loads(await answer.read())
            assert answer.status < 300, f"GET {path}: {found}"
            return found

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """POST to any path: a sub-resource, a kind that is not Goodput's."""
        return await self._send("POST", path, body, "application/json")

    async def _send(self, method: str, path: str, body: dict[str, Any], content_type: str) -> dict[str, Any]:
        async with self.connection.session.request(
            method,
            self.connection.server + path,
            params={} if method == "DELETE" else {"fieldManager": MANAGER},
            data=orjson.dumps(body),
            headers={"Content-Type": content_type},
        ) as answer:
            found: dict[str, Any] = orjson.loads(await answer.read())
            assert answer.status < 300, f"{method} {path}: HTTP {answer.status}: {found.get('message')}"
            return found
