"""What is in the cluster, and what happened to pods and Deployments: every number of replicas ever asked for.

Watched, not polled: a test may look as often as it likes.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubernetes import config
from kubernetes.client import Configuration

from goodput.adapters.kinds import DEPLOYMENTS, MODELS, NODES, OWNED, POD_MONITORS, PODS, SLOS
from goodput.adapters.kube import KubeClient
from goodput.adapters.kube_connection import Connection, connect
from goodput.adapters.objects import Object
from goodput.adapters.reflector import Reflector
from goodput.domain.identity import Key

_OURS = "app.kubernetes.io/managed-by=goodput"


@dataclass(frozen=True, slots=True)
class Raw:
    """An object as it is."""

    version: int
    manifest: Object


@dataclass(slots=True)
class Seen:
    """One pod, from its creation to its end."""

    name: str
    namespace: str
    pool: str
    uid: str
    created_at: float
    gone_at: float | None = None
    ready_at: float | None = None
    deleted_at: float | None = None


@dataclass(slots=True)
class Recorder:
    """Watches while `run` runs."""

    connection: Connection
    pods: dict[str, Seen] = field(default_factory=dict)
    replicas: dict[tuple[str, str], list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    _stores: dict[str, Reflector[Raw]] = field(init=False)

    def __post_init__(self) -> None:
        api = KubeClient(self.connection)
        changed = {PODS: self._pod, DEPLOYMENTS: self._deployment}
        self._stores = {
            resource.plural: Reflector(
                api,
                resource,
                _raw,
                changed=changed.get(resource),
                label_selector="" if resource in (MODELS, SLOS, NODES) else _OURS,
                relist_seconds=3600,
            )
            for resource in (PODS, NODES, MODELS, SLOS, *OWNED)
            if resource is not POD_MONITORS
        }

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.gather(*(store.run() for store in self._stores.values()))

    def objects(self, namespace: str) -> list[Object]:
        """Ours in a namespace, with its Models and SLOs; without pods."""
        return [
            raw.manifest
            for plural, store in self._stores.items()
            if plural != PODS.plural
            for key, raw in store.items()
            if key.namespace == namespace
        ]

    def get(self, plural: str, namespace: str, name: str) -> Object | None:
        """One object as it is now."""
        raw = self._stores[plural].get(Key(namespace, name))
        return None if raw is None else raw.manifest

    def pod_objects(self, namespace: str) -> list[Object]:
        """Pods as they are now."""
        return [raw.manifest for key, raw in self._stores[PODS.plural].items() if key.namespace == namespace]

    def present(self, namespace: str, pool: str = "serve") -> list[Seen]:
        """Pods that exist and are not being deleted."""
        return [
            pod
            for pod in self.pods.values()
            if pod.namespace == namespace and pod.pool == pool and pod.gone_at is None and pod.deleted_at is None
        ]

    def ready(self, namespace: str, pool: str = "serve") -> list[Seen]:
        """Those of them that are ready."""
        return [pod for pod in self.present(namespace, pool) if pod.ready_at is not None]

    def ever(self, namespace: str, pool: str = "serve") -> list[Seen]:
        """Every pod that there was."""
        return [pod for pod in self.pods.values() if pod.namespace == namespace and pod.pool == pool]

    def asked(self, namespace: str, deployment: str, since: float = 0.0) -> list[int]:
        """Each number of replicas that was asked for after an instant, in order."""
        return [count for at, count in self.replicas[namespace, deployment] if at > since]

    def turns(self, namespace: str, deployment: str) -> list[int]:
        """The same without the steps on the way: [1, 2, 3, 1] is [1, 3, 1], up and down once."""
        found: list[int] = []
        for count in self.asked(namespace, deployment):
            if len(found) > 1 and (found[-1] - found[-2]) * (count - found[-1]) > 0:
                found.pop()
            found.append(count)
        return found

    def replicas_now(self, namespace: str, deployment: str) -> int | None:
        """The number that is asked for now."""
        found = self.get(DEPLOYMENTS.plural, namespace, deployment)
        return None if found is None else int(found["spec"]["replicas"])

    def _pod(self, _: Key, before: Raw | None, after: Raw | None) -> None:
        manifest = (after or before or _NOTHING).manifest
        metadata = manifest["metadata"]
        now = time.time()
        uid = str(metadata["uid"])
        if before is not None and before.manifest["metadata"]["uid"] != uid:
            self.pods[str(before.manifest["metadata"]["uid"])].gone_at = now
        pod = self.pods.get(uid)
        if pod is None:
            pool = metadata["labels"].get("goodput.dev/pool", "")
            pod = self.pods[uid] = Seen(metadata["name"], metadata["namespace"], pool, uid, now)
        if after is None:
            pod.gone_at = now
            return
        if metadata.get("deletionTimestamp") and pod.deleted_at is None:
            pod.deleted_at = now
        ready = any(
            each["type"] == "Ready" and each["status"] == "True" for each in manifest["status"].get("conditions", ())
        )
        pod.ready_at = (pod.ready_at or now) if ready else None

    def _deployment(self, key: Key, _: Raw | None, after: Raw | None) -> None:
        if after is None:
            return
        count = int(after.manifest["spec"]["replicas"])
        known = self.replicas[key.namespace, key.name]
        if not known or known[-1][1] != count:
            known.append((time.time(), count))


def _raw(manifest: dict[str, Any]) -> Raw:
    return Raw(int(manifest["metadata"]["resourceVersion"]), manifest)


_NOTHING = Raw(0, {"metadata": {"uid": "", "name": "", "namespace": "", "labels": {}}, "status": {}})


async def connect_to(kubeconfig: Path) -> Connection:
    """A session of the administrator of a world."""
    configuration = Configuration()
    config.load_kube_config(config_file=str(kubeconfig), client_configuration=configuration)
    return await connect(configuration, "goodput-e2e")
