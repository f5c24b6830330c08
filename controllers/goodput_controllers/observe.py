"""observe: one consistent Snapshot from the stores, and what telemetry to ask for. No I/O here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from goodput.adapters.kinds import DEPLOYMENTS, JOBS, SERVICES
from goodput.adapters.records import DeploymentRecord, JobRecord, OwnPod
from goodput.adapters.telemetry import Reading, Wanted
from goodput.api import Model
from goodput.domain.change import CheckView
from goodput.domain.identity import CANARY_POOL, ROUTER_POOL, SERVE_POOL, Key
from goodput.domain.intent import Carrier, GpuType, ModelIntent, Problem, RoutingMode
from goodput.domain.observed import (
    NO_CANARY,
    GpuSupply,
    ModelView,
    PodState,
    PodView,
    PoolView,
    Snapshot,
    Tally,
    Undecided,
)
from goodput.perfmodel.gpus import built_in_gpu_types
from goodput.resources import names
from goodput.resources.kinds.service import pool_of
from goodput.runtime.carriers import Carried, carried
from goodput.runtime.entries import Entry
from goodput.runtime.intents import Surroundings, intent_of
from goodput.runtime.settings import Settings
from goodput.runtime.supply import fault_of, gpu_types_of, supply_of
from goodput_controllers.cluster import Cluster
from goodput_controllers.config_maps import ConfigMapCache
from goodput_controllers.world import World

# A field manager that wrote replicas longer ago than this has stopped scaling (a person did it once).
FOREIGN_SCALER_SECONDS = 600.0
# A ready pod is expected in Prometheus after this many scrape intervals: discovery, scrape, and one that was missed.
SCRAPES_UNTIL_EXPECTED = 3.0
# Two pods that ended so soon after they were made are rejected again and again; a single one, or one that ended later,
# was evicted or lost its node, and another takes its place.
REJECTED_SECONDS = 600.0
_POOLS = (SERVE_POOL, ROUTER_POOL, CANARY_POOL)


@dataclass(frozen=True, slots=True)
class _Pods:
    """Pods of one Model by pool, and what they were read from."""

    pods: tuple[OwnPod, ...]
    nodes_version: int
    views: Mapping[str, tuple[PodView, ...]]
    tallies: Mapping[str, Tally]
    ended: tuple[OwnPod, ...]


@dataclass(slots=True)
class Observer:
    """Reads the stores of one process."""

    world: World
    cluster: Cluster
    config_maps: ConfigMapCache
    settings: Settings
    # Problems that writing found, by Model; they are part of what is known of it.
    apply_problems: dict[Key, tuple[Problem, ...]] = field(default_factory=dict)
    # What was read last, with everything that it was read from: most passes find nothing new for most Models and pods.
    _intents: dict[Key, tuple[tuple[object, ...], ModelIntent | None]] = field(default_factory=dict)
    _views: dict[Key, tuple[OwnPod, bool, PodView]] = field(default_factory=dict)
    _pods: dict[Key, _Pods] = field(default_factory=dict)
    _scalers: dict[Key, str] = field(default_factory=dict)
    _carried: Carried = field(default_factory=lambda: carried((), ()))
    _carried_from: tuple[object, ...] = ()
    _checks: dict[str, tuple[CheckView, ...]] = field(default_factory=dict)

    def intents(self, types: tuple[GpuType, ...]) -> dict[Key, ModelIntent]:
        """Every Model that was ever valid."""
        served_names = self._served_names()
        deleted = frozenset(key.name for key in self.world.gpu_types.deleted_keys())
        type_names = frozenset(gpu.name for gpu in types)
        faults = self._gpu_type_faults()
        found: dict[Key, ModelIntent] = {}
        known: dict[Key, tuple[tuple[object, ...], ModelIntent | None]] = {}
        for entry in self.world.models.entries():
            runs_on = self._gpu_type_of(entry)
            around = Surroundings(
                settings=self.settings,
                slo=self._slo(entry),
                gpu_types=type_names,
                gpu_type_faults=faults,
                served_names=served_names.get(entry.key.namespace, {}),
                config_map_text=self.config_maps.text,
                pods=tuple([pod for pod in self.world.pods_of(entry.key) if pod.trouble and pod.state is not None]),
                deleted_gpu_type=runs_on if runs_on in deleted else "",
                unknown_gpu_type=runs_on if runs_on not in type_names else "",
                apply_problems=self.apply_problems.get(entry.key, ()),
            )
            read_from = _read_from(entry, around)
            before = self._intents.get(entry.key)
            if before is not None and before[0] == read_from and not _reads_config_map(entry):
                intent = before[1]
            else:
                intent = intent_of(entry, around)
            known[entry.key] = read_from, intent
            if intent is not None:
                found[entry.key] = intent
        self._intents = known
        return found

    def gpu_types(self) -> tuple[GpuType, ...]:
        """Built-in types, those of GPUType objects, and deleted ones on which something still runs.

        Each with the labels by which this cluster's nodes carry it, and the price that counts there.
        """
        kept = self.world.gpu_types
        gone = [entry for key in kept.deleted_keys() if (entry := kept.get(key)) is not None]
        entries = [*kept.entries(), *gone]
        read_from = (
            self.cluster.nodes_version,
            *[(entry.key, entry.uid, entry.version, entry.deleted) for entry in entries],
        )
        if read_from != self._carried_from:
            types = gpu_types_of(built_in_gpu_types(), entries)
            self._carried = carried(types, self.cluster.nodes.values())
            self._carried_from = read_from
        return self._carried.types

    def forget_unused(self) -> None:
        """Drop deleted SLOs that no Model names, and deleted GPUTypes on which nothing runs.

        Who does not lead must do so as well: a Model that comes later would be placed by what is long gone.
        """
        slos, types = self.world.slos, self.world.gpu_types
        deleted = slos.deleted_keys()
        if deleted:
            models = [entry.value for entry in self.world.models.entries() if entry.value is not None]
            named = {Key(model.slo_namespace, model.spec.slo.name) for model in models}
            for key in deleted:
                if key not in named:
                    slos.forget_deleted(key)
        deleted = types.deleted_keys()
        if deleted:
            in_use = {record.placement.gpu_type for record in self._engines() if record.placement is not None}
            for key in deleted:
                if key.name not in in_use:
                    types.forget_deleted(key)

    def _engines(self) -> Iterator[DeploymentRecord]:
        for record in self.cluster.owned[DEPLOYMENTS.plural].values():
            if isinstance(record, DeploymentRecord):
                yield record

    def supply(self) -> tuple[GpuSupply, ...]:
        """GPUs of each type, after `gpu_types` has looked at nodes."""
        nodes = {node.name for those in self._carried.nodes.values() for node in those}
        return supply_of(self._carried, {name: self.world.used_on(name) for name in nodes})

    def wanted(self, intents: Mapping[Key, ModelIntent], now: float) -> list[Wanted]:
        """What to ask Prometheus for."""
        expected_after = SCRAPES_UNTIL_EXPECTED * self.settings.scrape_seconds
        wanted = []
        for key, intent in sorted(intents.items()):
            pods = self._pods_of(key)
            engines = pods.views[SERVE_POOL]
            wanted.append(
                Wanted(
                    key=key,
                    objective=intent.objective,
                    pods=pods.tallies[SERVE_POOL].names,
                    serving=tuple(
                        [
                            pod.name
                            for pod in engines
                            if pod.state is PodState.READY
                            and pod.ready_at is not None
                            and now - pod.ready_at > expected_after
                        ]
                    ),
                    routers=pods.tallies[ROUTER_POOL].names,
                    routed=intent.routing is RoutingMode.ROUTER,
                )
            )
        return wanted

    def snapshot(
        self,
        intents: Mapping[Key, ModelIntent],
        types: tuple[GpuType, ...],
        supply: tuple[GpuSupply, ...],
        reading: Reading | None,
        now: float,
    ) -> Snapshot:
        """Everything that a decision may look at."""
        self._scalers = self.cluster.scalers()
        self._checks = self._checks_of_models()
        models = tuple([self._view(intents[key], reading, now) for key in sorted(intents)])
        if len(self._views) > 2 * len(self.cluster.pods):
            # Mostly pods that are gone.
            self._views.clear()
        for key in self._pods.keys() - intents.keys():
            del self._pods[key]
        error = "Prometheus was not asked yet" if reading is None else reading.error
        return Snapshot(
            models=models,
            undecided=self._undecided(intents),
            gpu_types=types,
            supply=supply,
            strangers=self._carried.strangers,
            telemetry_error=error,
        )

    def _undecided(self, intents: Mapping[Key, ModelIntent]) -> tuple[Undecided, ...]:
        """Models that run and of which nothing was ever read by this process, by what they run on."""
        found: dict[Key, tuple[PoolView, ...]] = {}
        for record in self._engines():
            key = Key(record.key.namespace, record.model)
            if key not in intents and record.pool in (SERVE_POOL, CANARY_POOL) and not record.deleting:
                found[key] = (*found.get(key, ()), _as_rendered(record.pool, record))
        return tuple([Undecided(key=key, pools=found[key]) for key in sorted(found)])

    def _view(self, intent: ModelIntent, reading: Reading | None, now: float) -> ModelView:
        key = intent.key
        pods = self._pods_of(key)
        serve = Key(key.namespace, names.engine(key.name))
        router = Key(key.namespace, names.router(key.name))
        canary = Key(key.namespace, names.canary(key.name))
        telemetry = reading.models.get(key) if reading is not None and not reading.error else None
        engines = self._pool(SERVE_POOL, serve, pods, intent, now)
        routers = self._pool(ROUTER_POOL, router, pods, intent, now)
        return ModelView(
            intent=intent,
            pool=engines,
            router=routers,
            routers_bypassed=(
                intent.routing is RoutingMode.ROUTER
                and engines.ready > 0
                and not routers.ready
                and self._users_reach_engines(intent)
            ),
            telemetry=telemetry,
            canary=self._pool(CANARY_POOL, canary, pods, intent, now),
            checks=self._checks.get(intent.uid, ()),
        )

    def _users_reach_engines(self, intent: ModelIntent) -> bool:
        record = self.cluster.owned[SERVICES.plural].get(Key(intent.key.namespace, names.service(intent.key.name)))
        return record is not None and record.owner_uid == intent.uid and pool_of(record.manifest()) == SERVE_POOL

    def _pods_of(self, model: Key) -> _Pods:
        """Pods of a Model as they were last time, if neither they nor any node changed since."""
        pods, nodes = self.world.pods_of(model), self.cluster.nodes_version
        known = self._pods.get(model)
        if known is not None and known.pods is pods and known.nodes_version == nodes:
            return known
        views = {
            name: tuple([self._pod(pod, pod.state) for pod in pods if pod.state is not None and pod.pool == name])
            for name in _POOLS
        }
        tallies = {name: Tally.of(those) for name, those in views.items()}
        ended = tuple([pod for pod in pods if pod.state is None])
        found = self._pods[model] = _Pods(pods, nodes, views, tallies, ended)
        return found

    def _pool(self, name: str, key: Key, pods: _Pods, intent: ModelIntent, now: float) -> PoolView:
        record = self.cluster.deployment(key)
        views = pods.views[name]
        if record is None or record.owner_uid != intent.uid or record.deleting:
            if not views and name == CANARY_POOL:
                return NO_CANARY
            return PoolView(name=name, exists=False, pods=views, tallied=pods.tallies[name])
        return _as_rendered(
            name,
            record,
            foreign_scaler=self._foreign_scaler(key, record, now) or None,
            pods_refused=record.pods_refused or _rejected(name, record, pods, now),
            pods=views,
            tallied=pods.tallies[name],
        )

    def _checks_of_models(self) -> dict[str, tuple[CheckView, ...]]:
        """Jobs by the uid of the Model that owns them, those that are being deleted left out."""
        found: dict[str, tuple[CheckView, ...]] = {}
        for record in self.cluster.owned[JOBS.plural].values():
            if isinstance(record, JobRecord) and not record.deleting:
                check = CheckView(
                    change=record.change,
                    name=record.key.name,
                    ended=record.ended,
                    succeeded=record.succeeded,
                    message=record.message,
                )
                found[record.owner_uid] = (*found.get(record.owner_uid, ()), check)
        return found

    def _pod(self, pod: OwnPod, state: PodState) -> PodView:
        node = self.cluster.nodes.get(Key("", pod.node)) if pod.node else None
        lost = bool(pod.node) and (node is None or not node.ready or node.cordoned)
        known = self._views.get(pod.key)
        if known is not None and known[0] is pod and known[1] == lost:
            return known[2]
        view = PodView(
            name=pod.key.name,
            uid=pod.uid,
            pool=pod.pool,
            revision=pod.revision,
            state=state,
            node=pod.node or None,
            created_at=pod.created_at,
            ready_at=pod.ready_at,
            restarts=pod.restarts,
            trouble=pod.trouble,
            trouble_message=pod.trouble_message,
            deletion_cost=pod.deletion_cost,
            node_lost=lost,
        )
        self._views[pod.key] = pod, lost, view
        return view

    def _foreign_scaler(self, key: Key, record: DeploymentRecord, now: float) -> str:
        scaler = self._scalers.get(key, "")
        if scaler:
            return scaler
        foreign = record.foreign_scaler
        if foreign is None or (not foreign.applies and now - foreign.at > FOREIGN_SCALER_SECONDS):
            return ""
        return f"field manager {foreign.manager}"

    def _slo(self, entry: Entry[Model]) -> Entry | None:  # type: ignore[type-arg]
        if entry.value is None:
            return None
        return self.world.slo_of(entry.key, Key(entry.value.slo_namespace, entry.value.spec.slo.name))

    def _gpu_type_faults(self) -> dict[str, str]:
        built_in = frozenset(gpu.name for gpu in built_in_gpu_types())
        faults = {
            entry.key.name: fault_of(entry, entry.key.name in built_in) for entry in self.world.gpu_types.entries()
        }
        return {name: fault for name, fault in faults.items() if fault}

    def _gpu_type_of(self, model: Entry[Model]) -> str:
        """The type that this Model runs on ('' if it does not)."""
        record = self.cluster.deployment(Key(model.key.namespace, names.engine(model.key.name)))
        if record is None or record.owner_uid != model.uid or record.placement is None:
            return ""
        return record.placement.gpu_type

    def _served_names(self) -> dict[str, dict[str, Key]]:
        """By namespace: who serves a name.

        Of several that ask for it, the one whose engines have it already keeps it, else the one that was there first.
        """
        claims: dict[tuple[str, str], list[Entry[Model]]] = {}
        for entry in self.world.models.entries():
            if entry.value is not None:
                claims.setdefault((entry.key.namespace, entry.value.served_name), []).append(entry)
        holders: dict[str, dict[str, Key]] = {}
        for (namespace, name), entries in claims.items():
            first = entries[0] if len(entries) == 1 else min(entries, key=self._standing)
            holders.setdefault(namespace, {})[name] = first.key
        return holders

    def _standing(self, entry: Entry[Model]) -> tuple[bool, str, Key]:
        """Who comes first of Models that ask for one name."""
        record = self.cluster.deployment(Key(entry.key.namespace, names.engine(entry.key.name)))
        serves = record.served_name if record is not None and record.owner_uid == entry.uid else ""
        model = entry.value
        return (
            model is None or serves != model.served_name,
            model.metadata.creation_timestamp if model is not None else "",
            entry.key,
        )


def _as_rendered(name: str, record: DeploymentRecord, **seen: Any) -> PoolView:
    """A pool as its Deployment has it, with what else is `seen` of it."""
    placement = record.placement
    return PoolView(
        name=name,
        exists=True,
        spec_replicas=record.replicas,
        revision=record.revision,
        rolling_out=record.rolling_out,
        gpu_type=placement.gpu_type if placement else "",
        tensor_parallel=placement.tensor_parallel if placement else 1,
        pipeline_parallel=placement.pipeline_parallel if placement else 1,
        carrier=Carrier(placement.resource_name, placement.node_selector) if placement else None,
        placement=placement,
        serving=record.serving,
        change=record.change,
        **seen,
    )


def _read_from(entry: Entry[Model], around: Surroundings) -> tuple[object, ...]:
    """Everything that an intent depends on, but texts of ConfigMaps; entries are replaced when they change."""
    slo = around.slo
    return (
        (entry.uid, entry.version, entry.generation, str(entry.error)),
        None if slo is None else (slo.uid, slo.version, slo.deleted, str(slo.error)),
        around.gpu_types,
        around.gpu_type_faults,
        around.served_names.get(entry.value.served_name) if entry.value is not None else None,
        around.pods,
        around.deleted_gpu_type,
        around.unknown_gpu_type,
        around.apply_problems,
    )


def _rejected(pool: str, record: DeploymentRecord, pods: _Pods, now: float) -> str:
    """Why nodes reject the pods of a pool again and again, so that too few get ready; '' if they do not."""
    lately = [
        pod
        for pod in pods.ended
        if pod.pool == pool and pod.revision == record.revision and now - pod.created_at < REJECTED_SECONDS
    ]
    if len(lately) < 2 or sum(1 for view in pods.views[pool] if view.state is PodState.READY) >= record.replicas:
        return ""
    last = max(lately, key=lambda pod: (pod.created_at, pod.key))
    text = f"{len(lately)} ended within minutes, {last.key.name}: {last.trouble}"
    return f"{text} ({last.trouble_message})" if last.trouble_message else text


def _reads_config_map(entry: Entry[Model]) -> bool:
    model = entry.value
    architecture = model.spec.architecture if model is not None else None
    return architecture is not None and architecture.config_map_ref is not None
