"""Models beside each other, and beside those who mean no good: nobody takes or learns what is another's."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from tests.placements import placement

from goodput.adapters.kinds import CONFIG_MAPS, DEPLOYMENTS, MODELS, SERVICE_ACCOUNTS, SLOS
from goodput.domain.identity import Key
from goodput.domain.plan import ChangePlan, CheckRun

SECRET = "hunter2-of-a-user"


def status_of(bench: Any, name: str, kind: str, namespace: str = "a") -> dict[str, Any]:
    conditions = bench.status(name, namespace)["conditions"]
    found: dict[str, Any] = next(condition for condition in conditions if condition["type"] == kind)
    return found


@pytest.mark.parametrize("pool", ["router", "serve", "canary", "goodput"])
async def test_a_model_named_as_an_object_of_another_lives_beside_it(bench: Any, pool: str) -> None:
    """Model a-serve shares no object with Model a, whose engine Deployment is called a-serve."""
    name = f"a-{pool}"
    bench.apply(bench.model("a"), bench.model(name))
    await bench.tick()
    bench.law.changes["a"] = ChangePlan(id="c1", held=True, canary=placement(), check=CheckRun.KEEP)
    await bench.tick(3)
    for each in ("a", name):
        assert status_of(bench, each, "Stalled")["status"] == "False", each
    owners = {
        (plural, str(key)): [owner["name"] for owner in item["metadata"].get("ownerReferences", ())]
        for plural, items in bench.api.objects.items()
        for key, item in items.items()
    }
    for of in ("serve", "router"):
        assert owners[DEPLOYMENTS.plural, f"a/a-{of}"] == ["a"]
        assert owners[DEPLOYMENTS.plural, f"a/{name}-{of}"] == [name]
    assert owners[DEPLOYMENTS.plural, "a/a-canary"] == ["a"]
    assert all(len(models) <= 1 for models in owners.values()), "no object has two Models"


async def test_an_object_with_a_made_up_owner_is_a_taken_name(bench: Any) -> None:
    """A kind Model of another group is no Model of ours: nobody waits for it to go."""
    forged = {"apiVersion": "example.com/v1", "kind": "Model", "name": "llama", "uid": "1"}
    bench.api.put(
        SERVICE_ACCOUNTS, {"metadata": {"name": "llama-serve", "namespace": "a", "ownerReferences": [forged]}}
    )
    bench.apply(bench.model())
    await bench.tick(3)
    assert status_of(bench, "llama", "Stalled")["reason"] == "NameConflict"


async def test_models_of_one_name_in_two_namespaces_are_two(bench: Any) -> None:
    """Each has its own Deployment, memory and metrics; the SLO of one is not the other's."""
    bench.apply({"kind": "SLO", "metadata": {"name": "chat", "namespace": "b"}, "spec": {"e2e": "9s"}})
    bench.apply(bench.model(), bench.model(namespace="b"))
    bench.law.wanted["llama"] = 2
    await bench.tick(3)
    assert {Key("a", "llama-serve"), Key("b", "llama-serve")} <= bench.api.objects[DEPLOYMENTS.plural].keys()
    objectives = {view.intent.key.namespace: view.intent.objective for view in bench.law.snapshots[-1].models}
    assert (objectives["a"].e2e_seconds, objectives["b"].e2e_seconds) == (None, 9.0)
    asked = {(wanted.key.namespace, wanted.key.name) for wanted in bench.telemetry.asked[-1]}
    assert asked == {("a", "llama"), ("b", "llama")}


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
async def test_values_of_environment_variables_stay_out_of_the_log(
    bench: Any, caplog: pytest.LogCaptureFixture, level: int
) -> None:
    """Neither a change of one nor a write that is refused shows it, not even to those who debug."""
    caplog.set_level(level)
    bench.apply(bench.model(engine={"env": [{"name": "MY_TOKEN", "value": SECRET + "-old"}]}))
    await bench.tick(3)
    bench.apply(bench.model(engine={"env": [{"name": "MY_TOKEN", "value": SECRET}]}))
    await bench.tick(3)
    deployment = bench.api.objects[DEPLOYMENTS.plural][Key("a", "llama-serve")]
    assert SECRET in json.dumps(deployment["spec"]), "the change arrived"
    assert not [record.getMessage() for record in caplog.records if SECRET in record.getMessage()]
    memory = bench.api.objects[CONFIG_MAPS.plural][Key("a", "llama-goodput")]
    assert SECRET not in json.dumps([memory, bench.status(), list(bench.api.objects["events"].values())])


async def test_a_memory_holds_what_its_model_needs_of_an_slo_alone(bench: Any, new_bench: Callable[..., Any]) -> None:
    """Other tenants, labels and annotations of the owner stay with the owner; the objectives serve on without it."""
    bench.api.put(
        SLOS,
        {
            "kind": "SLO",
            "metadata": {
                "name": "gold",
                "namespace": "platform",
                "labels": {"cost-center": SECRET},
                "annotations": {"note": SECRET},
            },
            "spec": {
                "ttft": "1s",
                "e2e": "20s",
                "attainment": "99%",
                "minRequests": 7,
                "priority": 5,
                "allowedNamespaces": ["rival", "a"],
            },
        },
    )
    bench.apply(bench.model(slo={"name": "gold", "namespace": "platform"}))
    await bench.tick(3)
    objective = bench.law.snapshots[-1].models[0].intent.objective
    text = bench.api.objects[CONFIG_MAPS.plural][Key("a", "llama-goodput")]["data"]["slo.json"]
    assert json.loads(text) == {
        "metadata": {"name": "gold", "namespace": "platform"},
        "spec": {
            "ttft": "1s",
            "e2e": "20s",
            "attainment": "99%",
            "minRequests": 7,
            "priority": 5,
            "allowedNamespaces": ["a"],
        },
    }
    await bench.stop()

    bench.api.remove(SLOS, Key("platform", "gold"))
    after = new_bench(bench.api)
    await after.start()
    await after.tick(2)
    assert after.law.snapshots[-1].models[0].intent.objective == objective
    assert (objective.attainment, objective.min_requests) == (0.99, 7)
    assert after.law.snapshots[-1].models[0].intent.priority == 5
    await after.stop()


async def test_who_may_not_use_an_slo_is_no_user_of_it(bench: Any) -> None:
    """Its owner sees the Models that it serves, and their attainment, whoever else names it."""
    shared = {
        "kind": "SLO",
        "metadata": {"name": "gold", "namespace": "platform"},
        "spec": {"ttft": "1s", "allowedNamespaces": ["a"]},
    }
    gold = {"name": "gold", "namespace": "platform"}
    bench.law.attainment = 0.9
    bench.apply(shared, bench.model("stranger", namespace="b", slo=gold))
    await bench.tick(2)

    def status() -> dict[str, Any]:
        found: dict[str, Any] = bench.api.objects[SLOS.plural][Key("platform", "gold")]["status"]
        return found

    assert (status()["users"], status()["conditions"][0]["reason"]) == (0, "Unused")
    assert "attainment" not in status()
    bench.apply(bench.model("guest", slo=gold))
    await bench.tick(2)
    assert (status()["users"], status()["conditions"][0]["reason"]) == (1, "InUse")


async def test_a_forged_memory_speaks_for_its_own_model_alone(bench: Any, new_bench: Callable[..., Any]) -> None:
    """Whoever may write ConfigMaps of one namespace cannot bring back an SLO of another one for everybody."""
    platform = {
        "kind": "SLO",
        "metadata": {"name": "gold", "namespace": "platform"},
        "spec": {"ttft": "1s", "allowedNamespaces": ["a", "b"]},
    }
    bench.apply(platform)
    bench.apply(bench.model("mine", slo={"name": "gold", "namespace": "platform"}))
    bench.apply(bench.model("theirs", namespace="b", slo={"name": "gold", "namespace": "platform"}))
    await bench.tick(3)
    await bench.stop()
    forged = bench.api.objects[CONFIG_MAPS.plural][Key("a", "mine-goodput")]
    forged["data"]["slo.json"] = forged["data"]["slo.json"].replace('"1s"', '"600s"')
    assert "600s" in forged["data"]["slo.json"]
    bench.api.put(CONFIG_MAPS, forged)
    bench.api.remove(SLOS, Key("platform", "gold"))
    after = new_bench(bench.api)
    await after.start()
    await after.tick(2)
    objectives = {view.intent.key.name: view.intent.objective for view in after.law.snapshots[-1].models}
    assert objectives["theirs"] is not None
    assert objectives["theirs"].ttft_seconds == 1.0, "served on by what its own memory says"
    assert {Key("a", "mine"), Key("b", "theirs")} <= bench.api.objects[MODELS.plural].keys()
    await after.stop()


@pytest.mark.parametrize(
    ("most", "want"),
    [((), 50), ((("*", 10),), 10), ((("*", 10), ("platform", 100)), 50), ((("platform", -5),), -5)],
    ids=["no limit", "a limit for all", "one of its own above it", "one of its own below it"],
)
async def test_a_priority_is_what_the_administrator_lets_the_namespace_of_its_slo_give(
    new_bench: Callable[..., Any], most: tuple[tuple[str, int], ...], want: int
) -> None:
    """Whoever may write an SLO writes any number: GPUs of others are not theirs to take by it. Its owner is told."""
    bench = new_bench(max_priority=most)
    shared = {
        "kind": "SLO",
        "metadata": {"name": "gold", "namespace": "platform"},
        "spec": {"ttft": "1s", "priority": 50, "allowedNamespaces": ["a"]},
    }
    bench.api.put(SLOS, shared)
    await bench.start()
    bench.apply(bench.model(slo={"name": "gold", "namespace": "platform"}))
    await bench.tick(3)
    assert bench.law.snapshots[-1].models[0].intent.priority == want
    (ready,) = bench.api.objects[SLOS.plural][Key("platform", "gold")]["status"]["conditions"]
    assert ready["reason"] == "InUse"
    assert (f"its priority counts as {want}" in ready["message"]) is (want != 50)
    await bench.stop()
