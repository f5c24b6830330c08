"""Objects that hypothesis makes from the CRD schemas: whatever the API server takes, the operator copes with."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from bad_input.strict import assert_unshaken
from fleets import LLAMA, Fleet, slo
from goodput.api.kinds import KINDS
from goodput.api.schema import Kind
from goodput_world.waiting import wait_for
from goodput_world.world import World
from schema_objects import objects

COUNTS = {"Model": 200, "SLO": 150, "GPUType": 150}
NAMESPACE = "made-up"
_AT_ONCE = 8
_TOLD_SECONDS = 60.0
# Each look lists some hundred objects.
_LOOK_SECONDS = 2.0


def _examples(kind: Kind, count: int) -> list[dict[str, Any]]:
    """`count` objects of `kind`, the same at every run; half of the Models name a known model and an SLO of theirs."""
    made: list[dict[str, Any]] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(objects(kind, "made-up"), st.booleans())
    def collect(raw: dict[str, Any], deep: bool) -> None:
        spec = dict(raw["spec"])
        if kind.kind == "Model" and deep:
            spec |= {"slo": "chat", "model": LLAMA, "servedName": f"made-up-{len(made)}"}
            for name in ("architecture", "gpuTypes", "revision", "parallelism"):
                spec.pop(name, None)
        name = f"made-up-{kind.short_names[0]}-{len(made)}"
        where = {"namespace": NAMESPACE} if kind.namespaced else {}
        made.append({**raw, "metadata": {"name": name, **where}, "spec": spec})

    collect()
    return made[:count]


def _create(world: World, kind: Kind, raw: dict[str, Any]) -> int:
    """HTTP status of its creation."""
    where = f"/namespaces/{NAMESPACE}" if kind.namespaced else ""
    _, url, headers, body, *_ = world.api.param_serialize(
        "POST",
        f"/apis/{kind.group}/{kind.version}{where}/{kind.plural}",
        query_params=[("fieldValidation", "Strict")],
        header_params={"Content-Type": "application/json", "Accept": "application/json"},
        body=json.loads(json.dumps(raw)),
        auth_settings=["BearerToken"],
    )
    response = world.api.call_api("POST", url, headers, body)
    response.read()
    return int(response.status)


async def _until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    await wait_for(condition, what=what, timeout_seconds=_TOLD_SECONDS, poll_seconds=_LOOK_SECONDS)


async def test_nothing_that_the_schema_admits_shakes_the_operator(strict: World, healthy: Fleet) -> None:
    """500 objects beside a healthy Model, and their deletion: each is answered by a status, nothing is unforeseen."""
    await strict.create_namespace(NAMESPACE)
    # A made-up Model may ask for thousands of replicas: the pods of this namespace are bounded, as anywhere.
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "pods"},
        "spec": {"hard": {"pods": "40"}},
    }
    await strict.apply([slo(), quota], namespace=NAMESPACE)
    before = await healthy.uids()
    made = [(kind, raw) for kind in KINDS for raw in _examples(kind, COUNTS[kind.kind])]
    assert Counter(kind.kind for kind, _ in made) == COUNTS
    gate = asyncio.Semaphore(_AT_ONCE)

    async def create(kind: Kind, raw: dict[str, Any]) -> int:
        async with gate:
            return await asyncio.to_thread(_create, strict, kind, raw)

    answers = await asyncio.gather(*(create(kind, raw) for kind, raw in made))
    accepted = Counter(kind.kind for (kind, _), status in zip(made, answers, strict=True) if status == 201)
    assert set(answers) <= {201, 422}, Counter(answers)
    assert all(accepted[kind] >= count // 10 for kind, count in COUNTS.items()), f"refused too often: {accepted}"

    async def all_told() -> bool:
        """Every one of them has a status of its present generation."""
        for kind in KINDS:
            where = NAMESPACE if kind.namespaced else None
            found = await strict.list_objects(f"{kind.plural}.{kind.group}", namespace=where)
            untold = [
                each["metadata"]["name"]
                for each in found
                if not any(
                    condition.get("observedGeneration") == each["metadata"]["generation"]
                    for condition in each.get("status", {}).get("conditions", ())
                )
            ]
            if untold:
                raise AssertionError(f"{len(untold)} of {len(found)} {kind.plural} without a status: {untold[:5]}")
        return True

    await _until(all_told, "a status on every object")
    placed = await strict.list_objects("deployments", namespace=NAMESPACE, selector="goodput.dev/pool=serve")
    assert len(placed) >= 10, f"only {len(placed)} of them came as far as pods"
    await assert_unshaken(strict)
    assert (await healthy.condition("Ready")).get("status") == "True"
    assert await healthy.uids() == before, "the healthy Model keeps its pods"
    await strict.kubectl("delete", "models", "--all", "-n", NAMESPACE, "--wait=false")

    async def forgotten() -> bool:
        return (await strict.get("slo", "chat", namespace=NAMESPACE))["status"]["users"] == 0

    await _until(forgotten, "an SLO that no Model uses any more")
    types = [raw["metadata"]["name"] for kind, raw in made if not kind.namespaced]
    await strict.kubectl("delete", "gputypes", *types, "--ignore-not-found", "--wait=false")
    await strict.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    replicas = (await healthy.deployment())["spec"]["replicas"] + 1
    await healthy.patch({"scaling": {"minReplicas": replicas}})
    await healthy.wait_serving(replicas)
    assert before < await healthy.uids(), "the healthy Model scales, and keeps what it had"
    await assert_unshaken(strict)
