"""Nothing changes, so nothing is written: a constant load on a fixed spec, counted from the API server's audit log.

One minute is counted; STEADY_SECONDS=600 counts ten. `benchmarks/steady_state.py` does so at the chart's defaults.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fleets import Fleet, slo
from goodput_world.steady import SteadyLoad, steady_state
from goodput_world.world import World

COUNTED_SECONDS = float(os.environ.get("STEADY_SECONDS", "60"))
# Met with ease even where a busy machine slows the simulated engines: a miss would be a reason to scale.
EASY = {"ttft": "2s", "tpot": "200ms", "attainment": "90%"}
# Less than what the one replica carries, and more than what would be nothing to count.
LOAD = SteadyLoad(rate_rps=1.5, warm_up_seconds=45.0, counted_seconds=COUNTED_SECONDS)


@pytest_asyncio.fixture(loop_scope="session")
async def fleet(cluster: World, namespace: str) -> AsyncIterator[Fleet]:
    """One Model that serves."""
    await cluster.apply(slo(EASY), namespace=namespace)
    fleet = Fleet(cluster, namespace, "steady")
    await fleet.apply(servedName="steady", gpuTypes=["l40s"])
    await fleet.wait_serving()
    yield fleet


@pytest.mark.timeout(COUNTED_SECONDS + 300)
async def test_a_constant_load_causes_no_writes_but_leases(cluster: World, fleet: Fleet, tmp_path: Path) -> None:
    """Under a constant Poisson load the operator renews its Lease and writes nothing else, status once in 5 minutes.

    The load reaches the operator: the Model's metrics are fresh and its SLO is met all the while.
    """
    before = await fleet.object()
    result = await steady_state(cluster, fleet.namespace, fleet.name, LOAD, tmp_path)
    assert not result.too_many(), result.too_many()
    fresh = await fleet.condition("MetricsFresh")
    assert fresh.get("status") == "True", f"the operator must have seen the load: MetricsFresh is {fresh}"
    after = await fleet.object()
    assert after["metadata"]["generation"] == before["metadata"]["generation"], "the spec was changed"
    assert after["metadata"].get("annotations") == before["metadata"].get("annotations"), "annotations were written"
    assert result.replay.requests > 0.5 * LOAD.rate_rps * COUNTED_SECONDS, "the load was hardly sent"
    assert result.replay.lost == 0, result.replay.lost_by_outcome
