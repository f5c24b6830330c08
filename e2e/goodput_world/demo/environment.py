"""Where the demo runs: the embedded world, or a cluster that KUBECONFIG names."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from goodput_world.audit import AuditLog
from goodput_world.cluster import RELEASE, SYSTEM_NAMESPACE, Cluster
from goodput_world.demo.settings import ENGINE_START_SECONDS, PLANT_FILE, DemoSettings
from goodput_world.errors import CommandFailed
from goodput_world.existing import ExistingCluster
from goodput_world.world import World, WorldConfig


@dataclass(frozen=True, slots=True)
class Environment:
    """A cluster with Goodput installed. Without a world there is no audit log to count writes in."""

    cluster: Cluster
    prometheus_url: str | None
    audit: AuditLog | None
    speed: float
    check_alive: Callable[[], None]


@asynccontextmanager
async def environment(settings: DemoSettings, progress: Callable[[str], None]) -> AsyncIterator[Environment]:
    """The environment while it is there. Leaving it ends every process that it started."""
    if settings.existing:
        async with ExistingCluster() as cluster:
            await _install(cluster, progress)
            await cluster.create_namespace(settings.namespace)
            try:
                yield Environment(cluster, settings.prometheus_url, None, 1.0, lambda: None)
            finally:
                progress(f"deleting namespace {settings.namespace}; the CRDs and the chart stay")
                await cluster.kubectl("delete", "namespace", settings.namespace, "--wait=false")
        return
    config = WorldConfig(
        plant=json.loads(PLANT_FILE.read_text(encoding="utf-8")),
        startup_seconds=ENGINE_START_SECONDS,
        directory=settings.directory / "world",
    )
    async with World(config, progress=progress) as world:
        yield Environment(world, world.prometheus_url, world.audit, config.speed, world.raise_if_dead)


async def _install(cluster: Cluster, progress: Callable[[str], None]) -> None:
    """Install Goodput where it is not: a release that is there keeps its version and its values."""
    try:
        await cluster.helm("status", RELEASE, "--namespace", SYSTEM_NAMESPACE)
    except CommandFailed:
        progress("installing the CRDs and the chart with its default values")
        await cluster.install_crds()
        await cluster.install_chart({})
