"""apply: write what differs, by server-side apply, one Model at a time; nothing where nothing differs.

Order of writes of one Model: its memory before a change of replicas (a crash in between then decides again from what
runs, and remembers that it scaled), costs of victims before replicas fall, what pods need before the Deployment.
An engine Deployment is written only while it asks for the replicas that the decision was made from, and against the
resourceVersion that says so: a decision from an old state meets a Conflict and is made anew.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from goodput.adapters.kinds import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    JOBS,
    MODELS,
    OWNED,
    POD_MONITORS,
    PODS,
    ROLE_BINDINGS,
    SERVICES,
    Resource,
    resource_of,
)
from goodput.adapters.kube import KubeApi
from goodput.adapters.kube_errors import Conflict, KubeError, NotFound
from goodput.adapters.objects import Object
from goodput.adapters.records import DELETION_COST, DeploymentRecord, OwnedObject, OwnPod
from goodput.domain.errors import GoodputError
from goodput.domain.identity import Key
from goodput.domain.intent import ModelIntent
from goodput.domain.plan import ChangePlan, ModelPlan
from goodput.resources import names
from goodput.resources.compare import compare
from goodput.resources.inputs import RenderInput
from goodput.resources.meta import short_hash
from goodput.resources.render import render_model
from goodput.runtime.rendering import RenderKey, render_key
from goodput_controllers.cluster import Cluster
from goodput_controllers.world import World

log = logging.getLogger(__name__)

# How long to wait until our own reflector shows the costs of victims.
VICTIMS_SEEN_SECONDS = 5.0
_RESOURCES = {resource.plural: resource for resource in OWNED}


class NotLeading(GoodputError):
    """Leadership was lost: nothing more may be written."""


class NameTaken(GoodputError):
    """An object of a name that we need exists and belongs to somebody else."""


class StillThere(GoodputError):
    """An object of a former Model of this name is still being deleted: try again."""


class VictimsUnseen(GoodputError):
    """The reflector does not show the costs that were written: replicas must not fall yet."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one apply did: `written` objects, and the update that a roll-out would bring (None: unknown or none)."""

    written: int = 0
    update_available: str | None = None
    memory_written: bool = False
    withheld: bool = False  # engine pods were asked to be others, and there was no room for that


@dataclass(slots=True)
class _Settled:
    """State in which nothing differed: what was rendered from, and the live objects that were compared."""

    key: RenderKey
    contents: dict[tuple[str, Key], bytes]
    update_available: str | None
    # Changes of owned objects that were seen when the contents were found as they are.
    changes: int


@dataclass(slots=True)
class Applier:
    """Writes objects of Models; keeps what it verified, so that an unchanged Model costs nothing."""

    api: KubeApi
    world: World
    cluster: Cluster
    leading: Callable[[], bool]
    limit: asyncio.Semaphore
    _settled: dict[Key, _Settled] = field(default_factory=dict)
    # What was found and what was asked for when a write changed nothing: something keeps it as it is (a port that
    # somebody added, a webhook), and the same write would change nothing again.
    _futile: dict[tuple[str, Key], tuple[bytes, str]] = field(default_factory=dict)

    def forget(self, present: set[Key]) -> None:
        """Drop what is known of Models that are gone."""
        for key in self._settled.keys() - present:
            del self._settled[key]
        for plural, key in [item for item in self._futile if self.cluster.owned[item[0]].get(item[1]) is None]:
            del self._futile[plural, key]

    def settled(self, key: Key, render: RenderKey) -> str | None:
        """Whether nothing can differ: the update text ('' if none) if so, None if it must be looked at."""
        known = self._settled.get(key)
        if known is None or known.key != render:
            return None
        changes = self.world.changes_of(render.uid)
        if changes == known.changes:
            return known.update_available or ""
        owned = {item for item in self.world.owned_by(render.uid) if not _is_memory(item, key)}
        if owned != known.contents.keys():
            return None
        for (plural, name), content in known.contents.items():
            record = self.cluster.owned[plural].get(name)
            if record is None or record.content != content:
                return None
        known.changes = changes
        return known.update_available or ""

    async def apply(
        self, render: RenderInput, plan: ModelPlan, memory: Callable[[], Object], *, remember: bool = False
    ) -> Outcome:
        """Write what differs for one Model; with `remember` its memory first, even if replicas stay.

        Raises:
            NotLeading: another operator took over.
            Conflict: the engine Deployment is not, or no longer, what was decided from.
            NameTaken, StillThere: see there.
            KubeError: the API server did not take a write.
        """
        intent = render.intent
        changes = self.world.changes_of(intent.uid)
        engine = Key(intent.key.namespace, names.engine(intent.key.name))
        before = self._mine(DEPLOYMENTS, engine, intent.uid)
        _check_decided_from(plan, before)
        if before is None:
            await self._still_there(intent)
        looked_at = (
            (DEPLOYMENTS, names.engine(intent.key.name)),
            (DEPLOYMENTS, names.router(intent.key.name)),
            (SERVICES, names.service(intent.key.name)),
            (ROLE_BINDINGS, names.router(intent.key.name)),
            *(_of_change(intent, plan.change) if plan.change is not None else ()),
        )
        existing = {
            (resource.kind, name): record.manifest()
            for resource, name in looked_at
            if (record := self._mine(resource, Key(intent.key.namespace, name), intent.uid)) is not None
        }
        rendered = render_model(render, existing)
        # Many Models may be rendered one after the other (a new operator): let the Lease be renewed in between.
        await asyncio.sleep(0)
        written = 0
        now = before.replicas if isinstance(before, DeploymentRecord) else None
        scales = now != render.replicas
        if scales or remember:
            written += await self.write_memory(render.intent, memory)
        if now is not None and render.replicas < now and plan.pool is not None:
            written += await self._mark_victims(plan.pool.victims, intent.key)
        contents: dict[tuple[str, Key], bytes] = {}
        for manifest in rendered.objects:
            resource = resource_of(manifest)
            key = Key(intent.key.namespace, manifest["metadata"]["name"])
            record = self._mine(resource, key, intent.uid)
            guarded = resource is DEPLOYMENTS and key == engine
            if guarded:
                # Much may have waited since: for other writes, for costs of victims.
                _check_decided_from(plan, record)
            if await self._write(resource, key, manifest, record, guard=guarded):
                written += 1
            after = self.cluster.owned[resource.plural].get(key)
            if after is not None:
                contents[resource.plural, key] = after.content
        written += await self._prune(intent.key, intent.uid, set(contents))
        if written == 0:
            key_of_render = render_key(
                intent,
                render.placement,
                replicas=render.replicas,
                settings=render.settings,
                terms=render.terms,
                change=render.change,
            )
            self._settled[intent.key] = _Settled(key_of_render, contents, rendered.update_available, changes)
        else:
            self._settled.pop(intent.key, None)
        return Outcome(
            written, rendered.update_available, memory_written=scales or remember, withheld=rendered.withheld
        )

    async def _still_there(self, intent: ModelIntent) -> None:
        """Raise Conflict if the Model is gone: a deletion between our list and kopf's is told by no event."""
        key = intent.key
        try:
            found = await self.api.get(MODELS, key.namespace, key.name)
        except NotFound:
            self.world.models.remove(key, intent.uid)
            raise Conflict(f"Model {key} is gone") from None
        if found["metadata"]["uid"] != intent.uid or "deletionTimestamp" in found["metadata"]:
            self.world.models.put(found)
            raise Conflict(f"Model {key} is another one by now, or on its way out")

    async def write_memory(self, intent: ModelIntent, memory: Callable[[], Object]) -> bool:
        """Write the memory of a Model if it differs from what the API server has."""
        manifest = memory()
        key = Key(intent.key.namespace, manifest["metadata"]["name"])
        record = self._mine(CONFIG_MAPS, key, intent.uid)
        return await self._write(CONFIG_MAPS, key, manifest, record, guard=False)

    def _mine(self, resource: Resource, key: Key, uid: str) -> OwnedObject | None:
        record: OwnedObject | None = self.cluster.owned[resource.plural].get(key)
        return record if record is not None and record.owner_uid == uid and not record.deleting else None

    async def _write(
        self, resource: Resource, key: Key, manifest: Object, record: OwnedObject | None, *, guard: bool
    ) -> bool:
        if resource is POD_MONITORS and not self.cluster.has_pod_monitors:
            return False
        if record is not None:
            difference = compare(record.manifest(), manifest)
            if difference is None:
                return False
            attempt = record.content, short_hash(manifest)
            if self._futile.get((resource.plural, key)) == attempt:
                return False
            # Where, not what: values of environment variables are nobody's business.
            where = difference.partition(": ")[0]
            log.debug("%s %s differs at %s", resource.kind, key, where)
            if guard:
                metadata = {**manifest["metadata"], "resourceVersion": str(record.version)}
                manifest = {**manifest, "metadata": metadata}
        else:
            found = await self._ours(resource, key, manifest)
            if found and resource is JOBS:
                # Nothing of it can be changed.
                return False
            if found and guard:
                # Decided as if nothing ran, from an old list or before its event came: replicas would fall.
                raise Conflict(f"{resource.kind} {key} exists already")
        async with self.limit:
            self._check_leading()
            try:
                answer = await self.api.apply(manifest, resource)
            except Conflict:
                await self._refresh(resource, key)
                raise
        self.cluster.owned[resource.plural].assume(answer)
        if record is not None and answer["metadata"]["resourceVersion"] == str(record.version):
            log.info("%s %s stays as it is although it differs at %s", resource.kind, key, where)
            self._futile[resource.plural, key] = attempt
            return False
        self._futile.pop((resource.plural, key), None)
        return True

    async def _ours(self, resource: Resource, key: Key, manifest: Object) -> bool:
        """Whether it exists already. A forced apply would take over what somebody else made: look first.

        Raises:
            NameTaken, StillThere: it is not ours, or no longer.
        """
        try:
            found = await self.api.get(resource, key.namespace, key.name)
        except NotFound:
            return False
        ours = manifest["metadata"]["ownerReferences"][0]["uid"]
        owners = {owner.get("uid"): owner for owner in found["metadata"].get("ownerReferences") or ()}
        deleting = "deletionTimestamp" in found["metadata"]
        if ours in owners and not deleting:
            self.cluster.owned[resource.plural].assume(found)
            return True
        other = next((entry.key for entry in self.world.models.entries() if entry.uid in owners), None)
        if other is not None and not deleting:
            raise NameTaken(
                f"metadata.name: {resource.kind} {key.name} belongs to Model {other.name} of this namespace: choose "
                "another name for this Model"
            )
        if deleting or any(owner.get("apiVersion") == MODELS.api_version for owner in owners.values()):
            raise StillThere(f"{resource.kind} {key.name} of a former Model of this name is still being deleted")
        raise NameTaken(
            f"metadata.name: {resource.kind} {key.name} exists in this namespace and is not Goodput's: delete or "
            "rename it, or choose another name for this Model"
        )

    async def _refresh(self, resource: Resource, key: Key) -> None:
        """After a Conflict: learn the present state without waiting for its event."""
        try:
            self.cluster.owned[resource.plural].assume(await self.api.get(resource, key.namespace, key.name))
        except NotFound:
            self.cluster.owned[resource.plural].forget(key)
        except KubeError as error:
            log.info("%s %s cannot be read after a conflict: %s", resource.kind, key, error)

    async def _mark_victims(self, victims: tuple[tuple[str, int], ...], model: Key) -> int:
        """Write pod-deletion-cost on pods, and wait until our reflector has seen all of them."""
        costs = dict(victims)
        written = 0
        for pod in self.world.pods_of(model):
            wanted = costs.get(pod.key.name, 0)
            if pod.key.name not in costs and not pod.deletion_cost_set:
                continue
            if pod.deletion_cost == wanted and pod.deletion_cost_set:
                continue
            patch: Object = {"metadata": {"annotations": {DELETION_COST: str(wanted)}}}
            async with self.limit:
                self._check_leading()
                try:
                    await self.api.merge(PODS, pod.key.namespace, pod.key.name, patch)
                except NotFound:
                    continue
            written += 1
        give_up_at = time.monotonic() + VICTIMS_SEEN_SECONDS
        while not self._costs_seen(costs, model):
            if time.monotonic() > give_up_at:
                raise VictimsUnseen("the costs of the pods to go were not seen back in time")
            await asyncio.sleep(0.02)
        return written

    def _costs_seen(self, costs: dict[str, int], model: Key) -> bool:
        present: dict[str, OwnPod] = {pod.key.name: pod for pod in self.world.pods_of(model)}
        return all(name not in present or present[name].deletion_cost == cost for name, cost in costs.items())

    async def _prune(self, model: Key, uid: str, desired: set[tuple[str, Key]]) -> int:
        """Delete objects of this Model that are no longer rendered (a router after routing.mode None)."""
        deleted = 0
        for plural, key in sorted(self.world.owned_by(uid)):
            if (plural, key) in desired or _is_memory((plural, key), model):
                continue
            record = self.cluster.owned[plural].get(key)
            if record is None or record.deleting:
                continue
            async with self.limit:
                self._check_leading()
                try:
                    await self.api.delete(_RESOURCES[plural], key.namespace, key.name, uid=record.uid)
                except NotFound:
                    self.cluster.owned[plural].forget(key)
                    continue
            log.info("deleted %s %s: no longer part of the Model", record.kind, key)
            deleted += 1
        return deleted

    def _check_leading(self) -> None:
        if not self.leading():
            raise NotLeading("leadership was lost")


def _check_decided_from(plan: ModelPlan, record: OwnedObject | None) -> None:
    """Raise Conflict if the engine asks for other replicas than those that the decision was made from."""
    there = record.replicas if isinstance(record, DeploymentRecord) else 0
    decided_from = plan.decision.from_replicas
    if there != decided_from:
        raise Conflict(
            f"the Deployment of {plan.key} asks for {there} replicas, not for {decided_from} as decided from"
        )


def _of_change(intent: ModelIntent, change: ChangePlan) -> tuple[tuple[Resource, str], ...]:
    name = intent.key.name
    return (DEPLOYMENTS, names.canary(name)), (JOBS, names.check(name, change.id))


def _is_memory(item: tuple[str, Key], model: Key) -> bool:
    return item == (CONFIG_MAPS.plural, Key(model.namespace, names.memory(model.name)))
