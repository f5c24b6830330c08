"""A crash after each write of a change ends in the same state as no crash at all, object by object (DESIGN 9.3)."""

from __future__ import annotations

from typing import Any

import pytest

from faults.crashes import Sweep
from faults.fixtures import Bench
from faults.fleet import ENGINE, HIGH, LOW, create_fleet, settled
from faults.prometheus import MODEL
from goodput.adapters.kinds import MODELS

pytestmark = pytest.mark.timeout(240)


def _runs(replicas: int) -> Any:
    return lambda objects: settled(objects, replicas)


def _owners_are_there(bench: Bench, namespace: str) -> None:
    uid = bench.recorder.get(MODELS.plural, namespace, MODEL)["metadata"]["uid"]  # type: ignore[index]
    for item in bench.recorder.objects(namespace):
        if item["kind"] not in ("Model", "SLO"):
            owners = [owner["uid"] for owner in item["metadata"].get("ownerReferences", ())]
            assert owners == [uid], f"{namespace}: {item['kind']} {item['metadata']['name']} is owned by {owners}"


async def test_creation_survives_a_crash_after_each_write(bench: Bench) -> None:
    """A Model that is created while its operator crashes after the n-th write: the same objects, one pod ever."""
    sweep = Sweep(
        bench, "create", act=lambda namespace: create_fleet(bench.person, namespace), done=_runs(1),
        requests_per_second=LOW,
    )  # fmt: skip
    await sweep.run()
    assert len(sweep.crashed) >= 12, f"only {len(sweep.crashed)} of {sweep.writes} were reached"
    for namespace in [sweep.namespaces[0], *sweep.crashed]:
        _owners_are_there(bench, namespace)
        pods = bench.recorder.ever(namespace)
        assert len(pods) == 1, f"{namespace}: {len(pods)} engine pods were made where one was asked for"


async def test_scale_up_survives_a_crash_after_each_write(bench: Bench) -> None:
    """A scale-up from 1 to 3 under a crash after the n-th write: 3 replicas, never more, and the first pod lives on."""

    async def more_load(namespace: str) -> None:
        bench.prometheus.load(namespace, HIGH)

    sweep = Sweep(
        bench, "up", act=more_load, done=_runs(3), before=_runs(1), requests_per_second=LOW, most=16
    )  # fmt: skip
    await sweep.run()
    assert len(sweep.crashed) >= 3, f"only {len(sweep.crashed)} of {sweep.writes} were reached"
    for namespace in [sweep.namespaces[0], *sweep.crashed]:
        asked = bench.recorder.asked(namespace, ENGINE)
        assert asked == sorted(asked), f"{namespace}: replicas fell on the way up: {asked}"
        assert max(asked) == 3, f"{namespace}: scaled twice: {asked}"
        pods = bench.recorder.ever(namespace)
        assert len(pods) == 3, f"{namespace}: {len(pods)} pods were made for 3 replicas"
        assert all(pod.deleted_at is None for pod in pods), f"{namespace}: a pod was lost"


async def test_roll_out_survives_a_crash_after_each_write(bench: Bench) -> None:
    """New engine arguments under a crash after the n-th write: each pod is replaced once, and no revision twice."""
    sweep = Sweep(
        bench,
        "roll",
        act=lambda namespace: bench.person.edit(namespace, MODEL, engine={"args": ["--seed=7"]}),
        done=lambda objects: settled(objects, 2) and _arguments(objects),
        before=_runs(2),
        spec={"scaling": {"minReplicas": 2}},
        requests_per_second=LOW,
        most=12,
    )
    await sweep.run()
    assert len(sweep.crashed) >= 2, f"only {len(sweep.crashed)} of {sweep.writes} were reached"
    for namespace in [sweep.namespaces[0], *sweep.crashed]:
        assert set(bench.recorder.asked(namespace, ENGINE)) == {2}, f"{namespace}: replicas changed in a roll-out"
        pods = bench.recorder.ever(namespace)
        assert len(pods) == 4, f"{namespace}: {len(pods)} pods were made, 2 for each revision are needed"
        routers = bench.recorder.ever(namespace, "router")
        assert len(routers) == 1, f"{namespace}: the router was replaced although nothing of it changed"


def _arguments(objects: list[dict[str, Any]]) -> bool:
    engine = next(item for item in objects if item["metadata"]["name"] == ENGINE and item["kind"] == "Deployment")
    container = engine["spec"]["template"]["spec"]["containers"][0]
    return "--seed=7" in (*container.get("command", ()), *container.get("args", ()))


async def test_scale_down_survives_a_crash_after_each_write(bench: Bench) -> None:
    """A scale-down from 3 to 1 under a crash after the n-th write: 1 replica, and exactly two pods go."""

    async def less_load(namespace: str) -> None:
        bench.prometheus.load(namespace, LOW)

    sweep = Sweep(bench, "down", act=less_load, done=_runs(1), before=_runs(3), requests_per_second=HIGH, most=16)
    await sweep.run()
    assert len(sweep.crashed) >= 3, f"only {len(sweep.crashed)} of {sweep.writes} were reached"
    for namespace in [sweep.namespaces[0], *sweep.crashed]:
        pods = bench.recorder.ever(namespace)
        assert len(pods) == 3, f"{namespace}: {len(pods)} pods were made for 3 replicas"
        left = [pod for pod in pods if pod.deleted_at is None]
        assert len(left) == 1, f"{namespace}: {len(left)} pods are left"


async def test_removal_of_the_router_survives_a_crash_after_each_write(bench: Bench) -> None:
    """`routing.mode: None` under a crash after the n-th write: what the router needed goes, engines stay."""
    sweep = Sweep(
        bench,
        "prune",
        act=lambda namespace: bench.person.edit(namespace, MODEL, routing={"mode": "None"}),
        done=lambda objects: settled(objects, 1) and not any("router" in item["metadata"]["name"] for item in objects),
        before=_runs(1),
        requests_per_second=LOW,
        most=20,
    )
    await sweep.run()
    assert len(sweep.crashed) >= 4, f"only {len(sweep.crashed)} of {sweep.writes} were reached"
    for namespace in [sweep.namespaces[0], *sweep.crashed]:
        _owners_are_there(bench, namespace)
        assert not bench.recorder.present(namespace, "router"), f"{namespace}: a router pod is left"


async def test_deletion_survives_a_crash_after_each_write(bench: Bench) -> None:
    """A Model that is deleted under a crash after the n-th write leaves nothing behind, and nothing comes back."""
    sweep = Sweep(
        bench,
        "delete",
        act=lambda namespace: bench.person.delete(MODELS, namespace, MODEL),
        done=lambda objects: [item["kind"] for item in objects] == ["SLO"],
        before=_runs(1),
        requests_per_second=LOW,
        most=4,
    )
    await sweep.run()
    for namespace in [sweep.namespaces[0], *sweep.crashed]:
        assert not bench.recorder.present(namespace), f"{namespace}: an engine pod is left"
        pods = bench.recorder.ever(namespace)
        assert len(pods) == 1, f"{namespace}: a deleted Model got {len(pods) - 1} more pods"
