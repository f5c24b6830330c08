"""Status of SLOs and GPUTypes: who uses them, what there is. Written when it changed, and not often."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from goodput.adapters.kinds import GPU_TYPES, SLOS, Resource
from goodput.adapters.kube import KubeApi
from goodput.adapters.kube_errors import KubeError, NotFound
from goodput.api import SLO, GPUType
from goodput.api.conditions import Condition as WrittenCondition
from goodput.api.conditions import merge_conditions
from goodput.api.model import slo_in
from goodput.domain.conditions import Condition, ConditionReason, ConditionStatus, ConditionType
from goodput.domain.identity import Key
from goodput.domain.observed import GpuSupply, Snapshot
from goodput.domain.percent import percent
from goodput.domain.plan import Plan
from goodput.perfmodel.gpus import built_in_gpu_types
from goodput.runtime.entries import Entry, Kept
from goodput.runtime.supply import fault_of
from goodput_controllers.figures import LEAST_CHANGE, attainment_figure
from goodput_controllers.status_text import rfc3339
from goodput_controllers.world import World

log = logging.getLogger(__name__)

GPU_QUIET_SECONDS = 60.0
ATTAINMENT_QUIET_SECONDS = 300.0
FIRST_BACKOFF_SECONDS = 1.0
LAST_BACKOFF_SECONDS = 120.0


@dataclass(slots=True)
class _Written:
    signature: tuple[object, ...] = ()
    at: float = float("-inf")
    attainment: float | None = None
    # Of writes that failed since.
    backoff_seconds: float = 0.0
    retry_at: float = float("-inf")

    def failed(self, now: float) -> None:
        """Take note of a write that failed: the next one waits, longer each time."""
        self.backoff_seconds = min(max(2.0 * self.backoff_seconds, FIRST_BACKOFF_SECONDS), LAST_BACKOFF_SECONDS)
        self.retry_at = now + self.backoff_seconds


@dataclass(slots=True)
class SideStatus:
    """Keeps what was written, so that nothing is written twice."""

    api: KubeApi
    world: World
    leading: Callable[[], bool]
    # The highest priority that SLOs of a namespace give; None: any.
    most_priority: Callable[[str], int | None] = field(default=lambda namespace: None)
    _slos: dict[Key, _Written] = field(default_factory=dict)
    _types: dict[Key, _Written] = field(default_factory=dict)

    def clear(self) -> None:
        """Believe nothing of what was written: another leader may have written since."""
        self._slos.clear()
        self._types.clear()

    async def write(self, snapshot: Snapshot, plan: Plan, now: float) -> None:
        """Write what changed; an error is logged, and the object that it came from waits."""
        await self._write_slos(snapshot, plan, now)
        await self._write_types(snapshot.supply, now)

    async def _write_slos(self, snapshot: Snapshot, plan: Plan, now: float) -> None:
        users: dict[Key, int] = {}
        good: dict[Key, tuple[float, int]] = {}
        figures = {model.key: model.figures for model in plan.models}
        for view in snapshot.models:
            slo = view.intent.slo
            if not self._may_use(view.intent.key, slo):
                # Whoever names an SLO that is not theirs changes nothing of what its owner sees.
                continue
            users[slo] = users.get(slo, 0) + 1
            figure = figures.get(view.intent.key)
            if figure is not None and figure.attainment_lower is not None and figure.attainment_upper is not None:
                share = (figure.attainment_lower + figure.attainment_upper) / 2
                met, count = good.get(slo, (0.0, 0))
                good[slo] = (met + share * figure.attainment_requests, count + figure.attainment_requests)
        for slo in self._named_by_unread():
            users[slo] = users.get(slo, 0) + 1
        for entry in self.world.slos.entries():
            count = users.get(entry.key, 0)
            condition = _slo_condition(entry, count, self.most_priority(entry.key.namespace))
            total, requests = good.get(entry.key, (0.0, 0))
            average = total / requests if requests else None
            written = self._slos.setdefault(entry.key, _Written())
            signature = (entry.uid, entry.generation, count, condition.status, condition.reason, condition.message)
            old = entry.value.status if entry.value is not None else None
            if written.signature == () and old is not None and old.conditions:
                self._adopt(written, entry, old.users, old.conditions[0], now)
            if signature == written.signature and not _moved(written, average, requests, now):
                continue
            status: dict[str, Any] = {"users": count}
            if average is not None:
                status["attainment"] = percent(average)
            if await self._apply(SLOS, self.world.slos, entry, written, status=status, condition=condition, now=now):
                self._slos[entry.key] = _Written(signature, now, average)

    def _named_by_unread(self) -> Iterator[Key]:
        """The SLO of each Model that was never read as a whole: its pods, if it has some, serve on under it."""
        for entry in self.world.models.entries():
            named = slo_in(entry.unread) if entry.value is None else None
            if named is not None:
                slo = Key(named.namespace or entry.key.namespace, named.name)
                if self._may_use(entry.key, slo):
                    yield slo

    def _may_use(self, model: Key, slo: Key) -> bool:
        entry = self.world.slos.get(slo)
        if entry is None or entry.value is None:
            # Of one that was never valid its own namespace is all that is known.
            return model.namespace == slo.namespace
        return entry.value.allows(model.namespace)

    async def _write_types(self, supply: Iterable[GpuSupply], now: float) -> None:
        by_type: Mapping[str, GpuSupply] = {item.type: item for item in supply}
        built_in = frozenset(gpu.name for gpu in built_in_gpu_types())
        for entry in self.world.gpu_types.entries():
            name = entry.key.name
            there = by_type.get(name, GpuSupply(type=name, nodes=0, installed=0, used=0))
            condition = _type_condition(entry, there, name in built_in)
            counts = (there.nodes, there.installed, there.used, there.free)
            signature = (entry.uid, entry.generation, condition.status, condition.reason, *counts, condition.message)
            written = self._types.setdefault(entry.key, _Written())
            old = entry.value.status if entry.value is not None else None
            if written.signature == () and old is not None and old.conditions:
                known = (old.nodes, old.installed, old.used, old.free)
                ready = old.conditions[0]
                seen = (entry.uid, old.observed_generation, ready.status, ready.reason, *known, ready.message)
                written.signature, written.at = seen, now - GPU_QUIET_SECONDS
            if signature == written.signature:
                continue
            if signature[:4] == written.signature[:4] and now - written.at < GPU_QUIET_SECONDS:
                continue
            status = dict(zip(("nodes", "installed", "used", "free"), counts, strict=True))
            kept = self.world.gpu_types
            if await self._apply(GPU_TYPES, kept, entry, written, status=status, condition=condition, now=now):
                self._types[entry.key] = _Written(signature, now)

    @staticmethod
    def _adopt(written: _Written, entry: Entry[SLO], users: int | None, ready: WrittenCondition, now: float) -> None:
        written.signature = (entry.uid, ready.observed_generation, users, ready.status, ready.reason, ready.message)
        written.at = now

    async def _apply(
        self,
        resource: Resource,
        kept: Kept[Any],
        entry: Entry[SLO] | Entry[GPUType],
        written: _Written,
        *,
        status: dict[str, Any],
        condition: Condition,
        now: float,
    ) -> bool:
        if not self.leading() or now < written.retry_at:
            return False
        value = entry.value
        old = value.status.conditions if value is not None and value.status is not None else ()
        merged = merge_conditions(old, [condition], generation=entry.generation, now=rfc3339(now))
        metadata: dict[str, Any] = {"name": entry.key.name, "uid": entry.uid}
        if entry.key.namespace:
            metadata["namespace"] = entry.key.namespace
        manifest = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": metadata,
            "status": {
                **status,
                "observedGeneration": entry.generation,
                "conditions": [item.to_dict() for item in merged],
            },
        }
        started = time.monotonic()
        try:
            kept.put(await self.api.apply(manifest, resource, subresource="status"))
        except NotFound:
            return False
        except KubeError as error:
            log.warning("status of %s %s: %s", resource.kind, entry.key, error)
            written.failed(now)
            return False
        log.debug("status of %s %s written in %.3f s", resource.kind, entry.key, time.monotonic() - started)
        return True


def _moved(written: _Written, share: float | None, requests: int, now: float) -> bool:
    if now - written.at < ATTAINMENT_QUIET_SECONDS or share is None:
        return False
    if written.attainment is None:
        return True
    # Of a share near 1 the misses are the figure: 99 % and 95 % differ by a factor of five.
    figure = attainment_figure(share, requests)
    misses = 1.0 - written.attainment
    return abs(share - written.attainment) > max(LEAST_CHANGE * max(misses, 0.01), 3.0 * figure.error)


def _slo_condition(entry: Entry[SLO], users: int, most_priority: int | None) -> Condition:
    if entry.error is not None:
        return Condition(
            ConditionType.READY, ConditionStatus.FALSE, ConditionReason.INVALID_SPEC, str(entry.error)[:1000]
        )
    cut = ""
    if entry.value is not None and most_priority is not None and entry.value.spec.priority > most_priority:
        cut = (
            f"; its priority counts as {most_priority}, the highest that the operator lets SLOs of namespace "
            f"{entry.key.namespace} give (limits.priority of its chart)"
        )
    reason, text = (ConditionReason.IN_USE, "in use") if users else (ConditionReason.UNUSED, "no Model uses it")
    return Condition(ConditionType.READY, ConditionStatus.TRUE, reason, f"{text}{cut}")


def _type_condition(entry: Entry[GPUType], there: GpuSupply, built_in: bool) -> Condition:
    fault = fault_of(entry, built_in)
    if fault:
        return Condition(ConditionType.READY, ConditionStatus.FALSE, ConditionReason.INVALID_SPEC, fault[:1000])
    if not there.nodes:
        return Condition(
            ConditionType.READY,
            ConditionStatus.FALSE,
            ConditionReason.NO_NODES,
            there.note or "no ready, schedulable node carries its labels and its resource: see spec.nodeSelector",
        )
    text = f"nodes carry this type; {there.note}" if there.note else "nodes carry this type"
    return Condition(ConditionType.READY, ConditionStatus.TRUE, ConditionReason.MATCHES_NODES, text[:1000])
