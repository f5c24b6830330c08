"""The reflectors of everything that is not ours to define: pods, nodes, our children and foreign autoscalers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from goodput.adapters.kinds import (
    AUTOSCALERS,
    DEPLOYMENTS,
    JOBS,
    NODES,
    OWNED,
    POD_MONITORS,
    PODS,
    SCALED_OBJECTS,
    Resource,
)
from goodput.adapters.kube import KubeApi
from goodput.adapters.records import (
    DeploymentRecord,
    NodeRecord,
    OwnedObject,
    PodRecord,
    ScalerRecord,
    deployment_record,
    job_record,
    node_record,
    owned_object,
    pod_record,
    scaler_record,
)
from goodput.adapters.reflector import Reflector
from goodput.domain.identity import LABEL_MANAGED_BY, MANAGED_BY, Key
from goodput_controllers.world import World

# A reflector that gave no sign of life for this long is broken: bookmarks come every minute.
DEAD_SECONDS = 180.0


class Cluster:
    """All reflectors; `run` keeps them going."""

    def __init__(
        self, api: KubeApi, world: World, *, namespaces: tuple[str, ...] = (), relist_seconds: float = 900.0
    ) -> None:
        ours = f"{LABEL_MANAGED_BY}={MANAGED_BY}"

        def reflector(resource: Resource, keep: Any, changed: Any, **options: Any) -> Reflector[Any]:
            return Reflector(
                api,
                resource,
                keep,
                changed=changed,
                namespaces=namespaces if resource.namespaced else (),
                relist_seconds=relist_seconds,
                **options,
            )

        # Pods of all namespaces, whichever are served: a GPU that is held elsewhere is not free.
        self.pods: Reflector[PodRecord] = Reflector(
            api, PODS, pod_record, changed=world.pod_changed, relist_seconds=relist_seconds
        )
        self.nodes: Reflector[NodeRecord] = reflector(NODES, node_record, self._node_changed)
        records: dict[Resource, Any] = {DEPLOYMENTS: deployment_record, JOBS: job_record}
        self.owned: dict[str, Reflector[OwnedObject]] = {
            resource.plural: reflector(
                resource,
                records.get(resource) or partial(owned_object, kind=resource.kind),
                partial(world.owned_changed, resource.plural),
                label_selector=ours,
                optional=resource is POD_MONITORS,
            )
            for resource in OWNED
        }
        self.autoscalers: Reflector[ScalerRecord] = reflector(
            AUTOSCALERS, partial(scaler_record, kind=AUTOSCALERS.kind), world.touched, optional=True
        )
        self.scaled_objects: Reflector[ScalerRecord] = reflector(
            SCALED_OBJECTS, partial(scaler_record, kind=SCALED_OBJECTS.kind), world.touched, optional=True
        )
        self._world = world
        # Another number each time that nodes changed in what matters.
        self.nodes_version = 0
        # None until `run`: an operator that waits for its CRDs has begun to watch nothing, and is alive.
        self._begun_at: float | None = None

    def _node_changed(self, _: Key, before: NodeRecord | None, after: NodeRecord | None) -> None:
        if (
            before is None
            or after is None
            or (before.ready, before.cordoned, before.gpus, before.labels, before.taints)
            != (after.ready, after.cordoned, after.gpus, after.labels, after.taints)
        ):
            self.nodes_version += 1
            self._world.touched()

    def reflectors(self) -> Iterator[Reflector[Any]]:
        yield self.pods
        yield self.nodes
        yield from self.owned.values()
        yield self.autoscalers
        yield self.scaled_objects

    @property
    def synced(self) -> bool:
        return all(reflector.synced for reflector in self.reflectors())

    def unsynced(self) -> list[str]:
        """Kinds that were not listed yet, with why."""
        return [
            f"{reflector.resource.plural}{f' ({reflector.problem})' if reflector.problem else ''}"
            for reflector in self.reflectors()
            if not reflector.synced
        ]

    def silent(self) -> list[str]:
        """Kinds whose watch is dead although the API server answers others."""
        if self._begun_at is None:
            return []
        now, begun_at = time.monotonic(), self._begun_at
        return [
            reflector.resource.plural
            for reflector in self.reflectors()
            if not reflector.absent
            and not reflector.problem
            and now - max(begun_at, reflector.last_activity) > DEAD_SECONDS
        ]

    def deployment(self, key: Key) -> DeploymentRecord | None:
        record = self.owned[DEPLOYMENTS.plural].get(key)
        return record if isinstance(record, DeploymentRecord) else None

    @property
    def has_pod_monitors(self) -> bool:
        monitors = self.owned[POD_MONITORS.plural]
        return monitors.synced and not monitors.absent

    def scalers(self) -> dict[Key, str]:
        """By Deployment: the autoscaler object that targets it."""
        return {
            scaler.target: f"{scaler.kind} {scaler.name}"
            for scalers in (self.scaled_objects, self.autoscalers)
            for scaler in scalers.values()
        }

    async def run(self) -> None:
        """Reflect until cancelled."""
        self._begun_at = time.monotonic()
        await asyncio.gather(*(reflector.run() for reflector in self.reflectors()))
