"""Two operators at once, an API server that goes, refuses or lies: the fleet ends where it should (DESIGN 9.3)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
import pytest_asyncio

from faults.fixtures import OPERATORS, Bench
from faults.fleet import ENGINE, HIGH, LOW, create_fleet
from faults.operators import OperatorProcess, since, unix_now
from faults.proxy import StormProxy

pytestmark = pytest.mark.timeout(240)

TAKEOVER_SECONDS = 20.0
"""A Lease of 15 s that is looked at every 2 s, and a pass."""
STORM_SECONDS = 65.0
"""kopf's own patience ends after 59 s."""


@pytest_asyncio.fixture(scope="module", loop_scope="session", autouse=True)
async def storm(fault_bench: Bench) -> AsyncIterator[asyncio.Task[OperatorProcess]]:
    """An operator in a storm of HTTP 503 that lasts while the other tests run: the last one looks at it."""
    async with StormProxy(fault_bench.world.kubeconfig, fault_bench.world.directory) as proxy:
        task = asyncio.create_task(_ride_out(fault_bench, proxy))
        yield task
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _ride_out(bench: Bench, proxy: StormProxy) -> OperatorProcess:
    bench.prometheus.load("storm", LOW)
    await create_fleet(bench.person, "storm")
    operator = await bench.operators.start(
        "storm", "storm", prometheus_url=bench.prometheus.url(), kubeconfig=proxy.kubeconfig
    )
    await bench.settled("storm", replicas=1)
    proxy.storm(True)
    bench.prometheus.load("storm", HIGH)
    await asyncio.sleep(STORM_SECONDS)
    assert operator.alive, f"the operator died in a storm of HTTP 503:\n{operator.log_tail()}"
    assert proxy.refused > 10, "hardly anything was asked of the API server"
    assert bench.recorder.replicas_now("storm", ENGINE) == 1, "something was written through the storm"
    proxy.storm(False)
    # kopf and the reflectors back off to 15 s at most.
    await bench.settled("storm", replicas=3, timeout_seconds=60.0)
    return operator


async def _holder(bench: Bench, lease: str) -> str:
    found = await bench.person.get(f"/apis/coordination.k8s.io/v1/namespaces/{OPERATORS}/leases/{lease}")
    return (found or {}).get("spec", {}).get("holderIdentity") or ""


async def test_two_operators_write_as_one_and_each_takes_over(bench: Bench) -> None:
    """Only the leader writes; one that was frozen writes nothing when it wakes; one that was killed is replaced."""
    namespace, url = "two", bench.prometheus.url()
    users = {name: await bench.user(f"operator-{name}") for name in "ab"}
    bench.prometheus.load(namespace, LOW)
    await create_fleet(bench.person, namespace)
    begun = datetime.now(UTC)
    pair = {
        name: await bench.operators.start(
            f"two-{name}", namespace, prometheus_url=url, lease="two", kubeconfig=users[name][1], identity=name
        )
        for name in "ab"
    }
    await bench.settled(namespace, replicas=1)
    bench.prometheus.load(namespace, HIGH)
    await bench.settled(namespace, replicas=3)
    bench.prometheus.load(namespace, LOW)
    await bench.settled(namespace, replicas=1)
    # Both have been there for half a minute at least.
    await asyncio.sleep(max(0.0, 30.0 - (datetime.now(UTC) - begun).total_seconds()))
    leader = await _holder(bench, "two")
    standby = "b" if leader == "a" else "a"
    wrote = {
        name: list(bench.world.audit.writes(begun, datetime.now(UTC), users=[users[name][0]], exclude_resources=()))
        for name in "ab"
    }
    assert len(wrote[leader]) > 10, f"the leader {leader} wrote {len(wrote[leader])} times only"
    assert not wrote[standby], f"the standby wrote {wrote[standby]}"
    assert bench.recorder.turns(namespace, ENGINE) == [1, 3, 1], "replicas moved otherwise than the load did"

    pair[leader].freeze()
    frozen_at = unix_now()
    bench.prometheus.load(namespace, HIGH)

    async def taken_over(by: OperatorProcess = pair[standby], at: float = frozen_at) -> bool:
        return bool(since(by, at))

    await bench.until(taken_over, f"{standby} writes in place of {leader}")
    took = since(pair[standby], frozen_at)[0]["at"] - frozen_at
    assert took < TAKEOVER_SECONDS, f"the standby took over after {took:.1f} s"
    await bench.settled(namespace, replicas=3)
    pair[leader].thaw()
    bench.prometheus.load(namespace, LOW)
    await bench.settled(namespace, replicas=1)
    late = since(pair[leader], frozen_at)
    assert not late, f"the former leader woke up and wrote {late}"
    assert await _holder(bench, "two") == standby

    pair[standby].kill()
    killed_at = unix_now()
    bench.prometheus.load(namespace, HIGH)
    await bench.settled(namespace, replicas=3)
    took_again = since(pair[leader], killed_at)[0]["at"] - killed_at
    assert took_again < TAKEOVER_SECONDS, f"after kill -9 the other took over after {took_again:.1f} s"
    assert bench.recorder.turns(namespace, ENGINE) == [1, 3, 1, 3, 1, 3], "a takeover scaled by itself"
    print(f"takeover: {took:.1f} s from a frozen leader, {took_again:.1f} s from a killed one")
    await pair[leader].stop()


async def test_an_api_server_that_is_gone_for_ten_seconds(bench: Bench) -> None:
    """The operator lives on, no pod is lost, and what the load asked for meanwhile is there soon after."""
    namespace = "away"
    bench.prometheus.load(namespace, LOW)
    await create_fleet(bench.person, namespace)
    operator = await bench.operators.start("away", namespace, prometheus_url=bench.prometheus.url())
    await bench.settled(namespace, replicas=1)
    pid, before = operator.pid, {pod.uid for pod in bench.recorder.present(namespace)}
    bench.world.control_plane.kill_apiserver()
    bench.prometheus.load(namespace, HIGH)
    await asyncio.sleep(10.0)
    assert operator.alive, f"the operator died with the API server:\n{operator.log_tail()}"
    await bench.world.control_plane.restart_apiserver()
    back_at = time.monotonic()
    await bench.settled(namespace, replicas=3, timeout_seconds=60.0)
    print(f"API server gone for 10 s: 3 replicas {time.monotonic() - back_at:.1f} s after it was back")
    assert operator.alive
    assert operator.pid == pid, "the operator was restarted"
    assert bench.recorder.turns(namespace, ENGINE) == [1, 3], "replicas moved otherwise than the load did"
    assert before <= {pod.uid for pod in bench.recorder.ready(namespace)}, "the pod from before is gone"
    assert "Traceback" not in operator.log_text(), operator.log_tail(60)
    await operator.stop()


async def test_watches_that_lose_events_and_lists_from_the_past(bench: Bench) -> None:
    """Lost events and stale lists cause no scale-down and no second scale-up; a later list puts things right."""
    bench.prometheus.load("deaf", LOW)
    bench.prometheus.load("stale", LOW)
    operators = {}
    # The deaf one has time to count tokens of pods that it does not know of.
    for namespace, relist_seconds in (("deaf", 15.0), ("stale", 4.0)):
        await create_fleet(bench.person, namespace)
        operators[namespace] = await bench.operators.start(
            namespace, namespace, prometheus_url=bench.prometheus.url(), relist_seconds=relist_seconds
        )
    await bench.settled("deaf", "stale", replicas=1)
    # Deaf: the operator sees neither its three pods nor that the Deployment made them.
    deaf = operators["deaf"].launch.script.deaf
    deaf.touch()
    bench.prometheus.load("deaf", HIGH)
    bench.prometheus.load("stale", HIGH)
    await bench.settled("stale", replicas=3)
    # Stale: each list from now on is the last one taken while one replica ran, or hardly more.
    stale = operators["stale"].launch.script.stale
    stale.touch()

    async def three() -> bool:
        return len(bench.recorder.ready("deaf")) == 3

    await bench.until(three, "deaf: three pods are ready, whether or not the operator sees it")
    bad_from = unix_now()
    await asyncio.sleep(10.0)  # two lists and more
    for namespace in ("deaf", "stale"):
        assert bench.recorder.turns(namespace, ENGINE) == [1, 3], f"{namespace}: replicas moved on a lie"
        assert len(bench.recorder.ever(namespace)) == 3, f"{namespace}: a pod was lost or made for nothing"
    writes = [write for write in since(operators["stale"], bad_from) if write["kind"] != "Model/status"]
    assert not writes, f"stale lists caused writes: {writes}"
    deaf.unlink()
    stale.unlink()
    await bench.settled("deaf", "stale", replicas=3)
    bench.prometheus.load("deaf", LOW)
    bench.prometheus.load("stale", LOW)
    await bench.settled("deaf", "stale", replicas=1)
    for namespace, operator in operators.items():
        assert bench.recorder.turns(namespace, ENGINE) == [1, 3, 1]
        assert "Traceback" not in operator.log_text(), operator.log_tail(60)
        await operator.stop()


async def test_a_storm_of_503_longer_than_a_minute(bench: Bench, storm: asyncio.Task[OperatorProcess]) -> None:
    """The operator and kopf outlive 65 s in which the API server answers 503, and then do what was due."""
    operator = await storm
    assert operator.alive
    assert bench.recorder.turns("storm", ENGINE) == [1, 3], "replicas moved otherwise than the load did"
    assert await operator.stop() == 0, operator.log_tail()
