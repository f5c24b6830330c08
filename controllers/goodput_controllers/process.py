"""The operator process: builds its parts, starts them in order, ends them in order.

Nothing is decided before every store is in sync, nothing written without the Lease. SIGTERM ends the loop first, waits
for writes in flight, then gives the Lease up. A part that dies ends the process: its pod restarts.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from goodput.adapters.events import EventRecorder
from goodput.adapters.kinds import GPU_TYPES, MODELS, SLOS, Resource
from goodput.adapters.kube import KubeApi, KubeClient
from goodput.adapters.kube_connection import connect, load_configuration
from goodput.adapters.kube_errors import KubeError, NotFound
from goodput.adapters.lease import Lease
from goodput.adapters.ledger_files import LedgerFiles
from goodput.adapters.ledger_writer import LedgerWriter
from goodput.adapters.prometheus import PrometheusSettings, PrometheusTelemetry
from goodput.adapters.telemetry import Telemetry
from goodput.decide import Policy, decide
from goodput.domain.errors import GoodputError
from goodput.domain.identity import Key
from goodput.runtime import server
from goodput.runtime.entries import Kept
from goodput.runtime.metrics import Metrics
from goodput.runtime.recorder import Recorder
from goodput.runtime.settings import Settings
from goodput_controllers.applying import Applier
from goodput_controllers.cluster import Cluster
from goodput_controllers.config_maps import ConfigMapCache
from goodput_controllers.crds import compare_crds
from goodput_controllers.loop import Decide, FleetLoop
from goodput_controllers.memories import Memories
from goodput_controllers.observe import Observer
from goodput_controllers.reconcile import Reconciler
from goodput_controllers.rollout import Rollouts
from goodput_controllers.side_status import SideStatus
from goodput_controllers.status import StatusBook
from goodput_controllers.status_writer import StatusWriter
from goodput_controllers.supervisor import Supervisor, unless_set
from goodput_controllers.telling import Teller
from goodput_controllers.world import Remembered, World, slo_key

log = logging.getLogger(__name__)

# The loop is dead if no pass ended for this many ticks (and stores are in sync).
DEAD_TICKS = 12.0
CRD_RETRY_SECONDS = 5.0
# With the time to drain and to give up the Lease this stays well below the grace period of the chart (45 s).
SHELL_END_SECONDS = 8.0


def policy_of(settings: Settings) -> Policy:
    """The constants of the laws, with what the administrator set."""
    return Policy(
        tick_seconds=settings.tick_seconds,
        scrape_seconds=settings.scrape_seconds,
        startup_timeout_seconds=settings.startup_timeout_seconds,
        max_gpus_per_namespace=settings.max_gpus_per_namespace,
        max_cost_per_hour_per_namespace=settings.max_cost_per_hour_per_namespace,
    )


def ledger_of(settings: Settings) -> Ledger | None:
    """What keeps the ledger, if one is to be kept."""
    if not settings.ledger_dir:
        return None
    files = LedgerFiles(
        Path(settings.ledger_dir),
        settings.identity,
        most_bytes=settings.ledger_megabytes * 1_000_000,
        most_seconds=settings.ledger_days * 86_400.0,
    )
    writer = LedgerWriter(files)
    return Ledger(Recorder(writer.put, settings.tick_seconds), writer)


@dataclass(frozen=True, slots=True)
class Ledger:
    """Makes lines, and writes them."""

    recorder: Recorder
    writer: LedgerWriter

    def close(self) -> None:
        """Write what there is: no pass follows."""
        self.recorder.flush()
        self.writer.close()


class PartEnded(GoodputError):
    """A part of the process ended by itself."""


@dataclass(slots=True)
class Operator:
    """All parts of one process over one API."""

    settings: Settings
    api: KubeApi
    telemetry: Telemetry
    metrics: Metrics
    decide: Decide = decide
    world: World = field(default_factory=World)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    # Nothing is written any more: what still runs may end.
    drained: asyncio.Event = field(default_factory=asyncio.Event)
    cluster: Cluster = field(init=False)
    lease: Lease = field(init=False)
    loop: FleetLoop = field(init=False)
    reconciler: Reconciler = field(init=False)
    config_maps: ConfigMapCache = field(init=False)
    shell: Supervisor = field(init=False)
    ledger: Ledger | None = field(init=False)
    problem: str = "starting"

    def __post_init__(self) -> None:
        settings, api, world = self.settings, self.api, self.world
        self.cluster = Cluster(api, world, namespaces=settings.namespaces, relist_seconds=settings.relist_seconds)
        self.lease = Lease(api, settings.lease_namespace, settings.lease_name, settings.identity)
        self.config_maps = ConfigMapCache(api, changed=world.touched)
        self.shell = Supervisor(
            world, settings.namespaces, self.stop, self.drained, relist=self._relist_once, metrics=self.metrics
        )
        observer = Observer(world, self.cluster, self.config_maps, settings)
        memories = Memories(self.cluster)
        applier = Applier(api, world, self.cluster, leading=self.leading, limit=asyncio.Semaphore(settings.concurrency))
        book = StatusBook()
        teller = Teller(EventRecorder(api, settings.identity, leading=self.leading), self.metrics)
        self.reconciler = Reconciler(
            observer=observer,
            applier=applier,
            memories=memories,
            book=book,
            statuses=StatusWriter(api, world, self.cluster, book, teller, leading=self.leading),
            teller=teller,
            metrics=self.metrics,
            settings=settings,
            side=SideStatus(api, world, leading=self.leading, most_priority=settings.most_priority),
            rollouts=Rollouts(policy_of(settings)),
        )
        self.ledger = ledger_of(settings)
        self.loop = FleetLoop(
            observer=observer,
            telemetry=self.telemetry,
            memories=memories,
            reconciler=self.reconciler,
            metrics=self.metrics,
            policy=policy_of(settings),
            decide=self.decide,
            leading=self.leading,
            term=lambda: self.lease.term,
            unsynced=self.unsynced,
            refresh=self._refresh,
            note=self.ledger.recorder.note if self.ledger is not None else None,
        )

    def leading(self) -> bool:
        """Whether this process may write."""
        return not self.settings.leader_election or self.lease.leading

    def unsynced(self) -> str:
        """What the loop still waits for ('' if nothing)."""
        kinds = [name for name, kept in self._kept().items() if not kept.synced]
        return ", ".join([*kinds, *self.cluster.unsynced()])

    def not_ready(self) -> str:
        """For the readiness probe: standing by in sync is ready."""
        missing = self.unsynced()
        return f"not in sync: {missing}" if missing else self.problem

    def not_alive(self) -> str:
        """For the liveness probe."""
        silent = self.cluster.silent()
        if silent:
            return f"no sign of life from the watches of {', '.join(silent)}"
        shell = self.shell.problem()
        if shell:
            return shell
        age = time.monotonic() - self.loop.last_pass_at
        if self.loop.last_pass_at and not self.unsynced() and age > DEAD_TICKS * self.settings.tick_seconds:
            return f"no pass of the loop for {age:.0f} s"
        return ""

    def exposition(self) -> bytes:
        """Metrics as text."""
        self.metrics.leader.set(1 if self.leading() else 0)
        now = time.monotonic()
        for reflector in self.cluster.reflectors():
            plural = reflector.resource.plural
            self.metrics.reflector_objects.labels(plural).set(len(reflector))
            self.metrics.reflector_lag.labels(plural).set(0 if reflector.absent else now - reflector.last_activity)
        for plural, kept in self._kept().items():
            self.metrics.reflector_objects.labels(plural).set(len(kept))
        return self.metrics.render()

    async def run(self, shell: Coroutine[Any, Any, None] | None = None) -> None:
        """Run until `stop` is set or a part dies; `shell` feeds Models, SLOs and GPUTypes (kopf, or a test).

        Raises:
            Exception: of the part that died.
        """
        prepared = False
        try:
            prepared = await unless_set(self.stop, self._prepare())
        finally:
            if not prepared and shell is not None:
                shell.close()
        if prepared:
            await self._run_parts(shell)

    async def _prepare(self) -> None:
        await self._list_ours()
        await compare_crds(self.api)

    async def _run_parts(self, shell: Coroutine[Any, Any, None] | None) -> None:
        parts = {
            "reflectors": self.cluster.run(),
            "lease": self.lease.run() if self.settings.leader_election else self.stop.wait(),
            "loop": self.loop.run(),
            "anti-entropy": self._relist_ours(),
            "garbage": self._settle_memory(),
        }
        tasks = [asyncio.create_task(part, name=name) for name, part in parts.items()]
        stopping = asyncio.create_task(self.stop.wait(), name="stop")
        fed = asyncio.create_task(shell, name="kopf") if shell is not None else None
        watched = {*tasks, stopping, *([fed] if fed else [])}
        self.problem = ""
        try:
            done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            for task in () if self.stop.is_set() else done:
                log.error("%s ended", task.get_name())
                task.result()
                raise PartEnded(f"{task.get_name()} ended although it should run for ever")
        finally:
            await self._end(tasks, fed)
            stopping.cancel()

    async def _end(self, tasks: list[asyncio.Task[Any]], fed: asyncio.Task[None] | None) -> None:
        self.stop.set()
        loop = next(task for task in tasks if task.get_name() == "loop")
        loop.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await loop
        await self.reconciler.drain()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.settings.leader_election:
            await self.lease.release()
        if self.ledger is not None:
            await asyncio.to_thread(self.ledger.close)
        self.drained.set()
        if fed is not None:
            await asyncio.wait([fed], timeout=SHELL_END_SECONDS)
            fed.cancel()

    def _kept(self) -> dict[str, Kept[Any]]:
        return {
            MODELS.plural: self.world.models,
            SLOS.plural: self.world.slos,
            GPU_TYPES.plural: self.world.gpu_types,
        }

    async def _list_ours(self) -> None:
        """Read our kinds once; a missing CRD is waited for, and said."""
        while True:
            try:
                await self._relist_once()
                return
            except NotFound as error:
                log.error("the CRDs of goodput.dev are not installed: install crds/ (%s)", error)
            except KubeError as error:
                log.warning("cannot read our own kinds: %s", error)
            await asyncio.sleep(CRD_RETRY_SECONDS)

    async def _relist_ours(self) -> None:
        """Compare with a fresh list now and then: an event that kopf never got, or a deletion that it missed."""
        while True:
            await asyncio.sleep(self.settings.relist_seconds)
            try:
                await self._relist_once()
            except KubeError as error:
                log.warning("cannot list our own kinds again: %s", error)

    async def _relist_once(self) -> None:
        for resource, kept in ((SLOS, self.world.slos), (GPU_TYPES, self.world.gpu_types), (MODELS, self.world.models)):
            items: list[dict[str, Any]] = []
            versions = []
            for namespace in self._namespaces(resource):
                listed = "0"
                async for page, newest in self.api.pages(resource, namespace):
                    items += page
                    listed = newest
                versions.append(int(listed or 0))
            # Of several lists the oldest counts: it knows least.
            if kept.replace_all(items, str(min(versions))):
                self.world.touched()

    def _namespaces(self, resource: Resource) -> tuple[str | None, ...]:
        return self.settings.namespaces if resource.namespaced and self.settings.namespaces else (None,)

    async def _refresh(self) -> None:
        """What a pass needs and no watch delivers: ConfigMaps that Models name, SLOs gone or spoilt before our time."""
        wanted = []
        remembered: dict[Key, Remembered] = {}
        for entry in self.world.models.entries():
            model = entry.value
            if model is None:
                continue
            architecture = model.spec.architecture
            if architecture is not None and architecture.config_map_ref is not None:
                wanted.append(Key(entry.key.namespace, architecture.config_map_ref.name))
            slo = Key(model.slo_namespace, model.spec.slo.name)
            read = self.world.slos.get(slo)
            if read is None or read.value is None:
                known = self.world.remembered_slos.get(entry.key)
                if known is None or known.uid != entry.uid or slo_key(known.slo) != slo:
                    last = self.loop.memories.last_slo(entry.key, entry.uid)
                    known = Remembered(entry.uid, last) if last is not None else None
                if known is not None:
                    remembered[entry.key] = known
        self.world.remembered_slos = remembered
        await self.config_maps.refresh(wanted)

    async def _settle_memory(self) -> None:
        """Once in sync, the stores are most of the heap and stay: keep the collector from walking them.

        Until then it would walk a heap that only grows, again and again: a third of the time to be in sync.
        """
        gc.disable()
        while self.unsynced():  # noqa: ASYNC110 - many stores, and no hurry
            await asyncio.sleep(0.5)
        log.info("in sync", extra={"data": {r.resource.plural: len(r) for r in self.cluster.reflectors()}})
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)
        gc.enable()
        await asyncio.Event().wait()


async def run_operator(settings: Settings, layer: Callable[[KubeApi], KubeApi] | None = None) -> None:
    """The whole process over a real cluster, until SIGTERM or SIGINT.

    `layer` wraps the API that all parts use (kopf, which only reads, has its own way to the server).

    Raises:
        kubernetes.config.ConfigException: there is no cluster to talk to.
        OSError: the listening address is taken.
    """
    stop = asyncio.Event()
    _take_signals(stop)
    release = version("goodput-operator")
    metrics = Metrics(release)
    connection = await connect(load_configuration(), f"goodput-operator/{release}")
    client = KubeClient(connection, observer=lambda verb, kind, result: metrics.writes.labels(verb, kind, result).inc())
    telemetry = PrometheusTelemetry(
        PrometheusSettings(settings.prometheus_url, settings.prometheus_token_file, settings.prometheus_ca_file)
    )
    operator = Operator(settings, layer(client) if layer is not None else client, telemetry, metrics, stop=stop)
    runner = await server.serve(
        settings.listen_host,
        settings.listen_port,
        metrics=operator.exposition,
        ready=operator.not_ready,
        live=operator.not_alive,
    )
    try:
        await operator.run(operator.shell.run(connection, started=partial(_take_signals, stop)))
    finally:
        await runner.cleanup()
        telemetry.close()
        await connection.close()


def _take_signals(stop: asyncio.Event) -> None:
    """Let signals end the loop first and kopf last.

    As the first process of a container it would not be ended by any signal that has no handler.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
