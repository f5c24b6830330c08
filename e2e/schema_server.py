"""The API server with our CRDs, asked what it would do with a manifest. Fixtures to import: `any_cluster`, `server`."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import yaml
from kubernetes.client import ApiClient

from goodput.api.kinds import KINDS
from goodput_world.cluster import Cluster

_KINDS = {kind.kind: kind for kind in KINDS}


class Server:
    """Dry-run creations as kubectl sends them: strict about unknown fields, YAML as the user wrote it."""

    def __init__(self, api: ApiClient, namespace: str) -> None:
        self._api = api
        self.namespace = namespace

    def create(self, manifest: str) -> tuple[int, dict[str, Any]]:
        """HTTP status and answer; nothing is stored."""
        raw = yaml.safe_load(manifest)
        kind = _KINDS[raw["kind"]]
        where = f"/namespaces/{raw['metadata'].get('namespace', self.namespace)}" if kind.namespaced else ""
        _, url, headers, body, *_ = self._api.param_serialize(
            "POST",
            f"/apis/{kind.group}/{kind.version}{where}/{kind.plural}",
            query_params=[("dryRun", "All"), ("fieldValidation", "Strict")],
            header_params={"Content-Type": "application/yaml", "Accept": "application/json"},
            body=manifest,
            auth_settings=["BearerToken"],
        )
        response = self._api.call_api("POST", url, headers, body)
        return response.status, json.loads(response.read())


@pytest.fixture(scope="module")
def any_cluster(request: pytest.FixtureRequest) -> Cluster:
    """The embedded world, or the cluster that KUBECONFIG names: schemas need no nodes."""
    found: Cluster = request.getfixturevalue("cluster" if os.environ.get("E2E_CLUSTER") == "existing" else "world")
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server(any_cluster: Cluster) -> AsyncIterator[Server]:
    """Its API server, with our CRDs and an empty namespace."""
    await any_cluster.install_crds()
    name = f"e2e-schema-{secrets.token_hex(4)}"
    await any_cluster.kubectl("create", "namespace", name)
    yield Server(any_cluster.api, name)
    await any_cluster.kubectl("delete", "namespace", name, "--wait=false")
