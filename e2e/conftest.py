"""Fixtures of the end-to-end tests: one world for the session, a namespace for each test.

E2E_CLUSTER=existing with KUBECONFIG runs them against that cluster instead; what needs simulated nodes is then skipped.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Generator
from pathlib import Path

import pytest
import pytest_asyncio

from faults.fixtures import bench, fault_bench  # noqa: F401 - fixtures
from fleets import LLAMA, Fleet, model, slo
from goodput_world.binaries import ensure
from goodput_world.cluster import REPOSITORY, Cluster
from goodput_world.errors import BinaryError
from goodput_world.existing import ExistingCluster
from goodput_world.world import World, WorldConfig, default_plant

_HERE = Path(__file__).resolve().parent
_EXISTING = os.environ.get("E2E_CLUSTER") == "existing"
_BUILD = pytest.StashKey["subprocess.Popen[bytes]"]()
_BUILT = pytest.StashKey[bool]()


def _is_e2e(item: pytest.Item) -> bool:
    return _HERE in item.path.parents


# Files that share the session's world, in the order in which they leave it as the next needs it: what asks for a world
# without an operator or with idle GPUs comes first, what restarts the simulated nodes comes last.
_ORDER = (
    "test_world.py",
    "test_bad_input_schema.py",
    "test_schema_agreement.py",
    "test_serving_first_model.py",
    "test_serving_upgrade.py",
    "test_serving_states.py",
    "test_quality_gate.py",
    "test_gitops.py",
    "test_drain_streams.py",
    "test_steady_state.py",
    "test_rendered_objects.py",
    "test_agent.py",
    "test_agent_lifecycle.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is here `e2e`, on the session's event loop: the world lives as long as the session does."""
    for item in filter(_is_e2e, items):
        item.add_marker(pytest.mark.e2e)
        if pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
    place = {name: index for index, name in enumerate(_ORDER)}
    items.sort(key=lambda item: place.get(item.path.name, len(_ORDER)) if _is_e2e(item) else -1)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the world's programs in the background while the unit tests, which come first, run."""
    needs_world = any(_is_e2e(item) for item in session.items) and not _EXISTING
    first = os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0"
    if not needs_world or not first or session.config.option.collectonly:
        return
    log = REPOSITORY / "build" / "binaries.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("wb") as output:
        session.config.stash[_BUILD] = subprocess.Popen(
            [sys.executable, "-m", "goodput_world.binaries"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": str(_HERE)},
        )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Before the first end-to-end test wait for that build, outside of any test's time limit."""
    if _is_e2e(item) and not _EXISTING and _BUILT not in item.config.stash:
        item.config.stash[_BUILT] = True
        capture = item.config.pluginmanager.getplugin("capturemanager")
        # Waits for the background build, whose lock it needs, or builds, and shows how that gets on. An error is raised
        # again where a world needs the program.
        with capture.global_and_fixture_disabled(), contextlib.suppress(BinaryError):
            ensure()
    return (yield)


def pytest_unconfigure(config: pytest.Config) -> None:
    """A build that still runs ends with the session; what it has compiled is kept."""
    process = config.stash.get(_BUILD, None)
    if process is not None and process.poll() is None:
        process.terminate()
        process.wait()


def session_world(directory: Path) -> WorldConfig:
    """A world that reacts quickly; what is about times at the chart's defaults starts one of its own.

    Engines of Qwen3-14B are slow (about 90 ms a token), so that a stream is long without being many bytes.
    """
    monitoring = {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
    slow = {**default_plant(), "mbu": 0.22}
    return WorldConfig(
        operator=None,
        directory=directory,
        startup_seconds=3.0,
        scrape_interval_seconds=2.0,
        chart_values={"tickSeconds": 2, "scrapeSeconds": 2, "metricsFrom": [{"namespaceSelector": monitoring}]},
        agent_options={"plants": {"Qwen/Qwen3-14B": slow}},
    )


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def world() -> AsyncIterator[World]:
    """The embedded world with nodes and Prometheus, without Goodput: its own API server, for every test."""
    if _EXISTING:
        pytest.skip("needs the embedded world: simulated nodes, and a control plane that can be broken")
    directory = REPOSITORY / "build" / "e2e" / f"world-{os.getpid()}"
    async with World(session_world(directory)) as running:
        yield running


# A fixture that runs on the loop cannot ask for another one there: these two, which do not, choose before.
@pytest.fixture(scope="session")
def _embedded(request: pytest.FixtureRequest) -> World | None:
    """The embedded world, None with a cluster that exists."""
    embedded: World | None = None if _EXISTING else request.getfixturevalue("world")
    return embedded


@pytest.fixture(scope="session")
def _anywhere(request: pytest.FixtureRequest) -> Cluster:
    """Where namespaces are made: the embedded world, with or without Goodput, or the cluster that exists."""
    found: Cluster = request.getfixturevalue("cluster" if _EXISTING else "world")
    return found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster(_embedded: World | None) -> AsyncIterator[Cluster]:
    """Any cluster with Goodput's CRDs and chart: the embedded world, or the one that KUBECONFIG names."""
    if _embedded is not None:
        await _embedded.install_crds()
        await _embedded.install_operator()
        yield _embedded
        return
    async with ExistingCluster() as existing:
        await existing.install_crds()
        await existing.install_chart({})
        yield existing


@pytest_asyncio.fixture(loop_scope="session")
async def namespace(request: pytest.FixtureRequest, _anywhere: Cluster) -> AsyncIterator[str]:
    """A fresh namespace that enforces restricted Pod Security; deleted afterwards, without waiting."""
    where = _anywhere
    name = _namespace_name(request.node.name)
    await where.create_namespace(name)
    yield name
    await where.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")


SHARED_SPEC = {
    "model": LLAMA,
    "slo": "chat",
    "servedName": "shared",
    "gpuTypes": ["l40s"],
    "scaling": {"minReplicas": 1, "maxReplicas": 1},
}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def _shared_fleet(cluster: Cluster) -> AsyncIterator[Fleet]:
    fleet = Fleet(cluster, "e2e-shared", "shared")
    await cluster.create_namespace(fleet.namespace)
    await cluster.apply([slo(), model(fleet.name, **SHARED_SPEC)], namespace=fleet.namespace)
    yield fleet
    await cluster.kubectl("delete", "namespace", fleet.namespace, "--wait=false")


@pytest_asyncio.fixture(loop_scope="session")
async def served(_shared_fleet: Fleet) -> Fleet:
    """A Model that serves with one replica, the same for many tests, as it was made whatever the last one did to it."""
    await _shared_fleet.cluster.apply(slo(), namespace=_shared_fleet.namespace)
    await _shared_fleet.reset(SHARED_SPEC)
    return _shared_fleet


_names_given: dict[str, int] = {}


def _namespace_name(test: str) -> str:
    """A DNS label from a test's name, unique in this session and, on a shared cluster, among sessions."""
    label = "".join(letter if letter.isalnum() else "-" for letter in test.lower().removeprefix("test_"))[:40].strip(
        "-"
    )
    _names_given[label] = _names_given.get(label, 0) + 1
    return f"e2e-{label}-{os.getpid()}-{_names_given[label]}"
