"""What one operator does to a cluster, pass by pass, on an API in memory."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Callable
from typing import Any

import pytest

from goodput.adapters.fakes import FakeKube, failing
from goodput.adapters.kinds import CONFIG_MAPS, DEPLOYMENTS, MODELS, SERVICES, SLOS, Resource
from goodput.adapters.kube_errors import KubeError, Refused, SchemaOutdated, Unavailable
from goodput.domain.identity import Key


def kinds(api: FakeKube) -> list[str]:
    return [kind for _, kind, _ in api.writes]


async def served(bench: Any, name: str = "llama", **spec: Any) -> None:
    """A Model whose pods run, in a steady state."""
    bench.apply(bench.model(name, **spec))
    await bench.tick()
    bench.play_kubelet()
    await bench.tick(3)
    bench.api.writes.clear()


async def test_a_model_becomes_a_fleet(bench: Any, make_model: Callable[..., dict[str, Any]]) -> None:
    """One pass creates everything, memory before and pods' needs ahead of the Deployment; then it is Ready."""
    bench.apply(make_model())
    await bench.tick()
    written = kinds(bench.api)
    assert written.index("ConfigMap") < written.index("ServiceAccount") < written.index("Deployment")
    assert written.index("Service") < written.index("Deployment")
    assert bench.condition("Ready") == ("False", "Starting")
    assert bench.condition("Stalled") == ("False", "NotStalled")

    bench.play_kubelet()
    await bench.tick()

    assert bench.condition("Ready") == ("True", "Serving")
    assert bench.status()["replicas"] == "1/1"
    assert bench.status()["poolSummary"] == "1x l40s"


async def test_steady_state_writes_nothing(bench: Any) -> None:
    """With nothing to change, ten minutes of passes write nothing, although messages and believed capacities move."""
    await served(bench)
    # Ten-minute figures appear in status once.
    await bench.tick(38)
    assert kinds(bench.api) == ["Model/status"]
    bench.api.writes.clear()
    await bench.tick(60)
    assert [write for write in bench.api.writes if write[1] != "ConfigMap"] == []
    assert len(bench.api.writes) <= 1


async def test_nothing_lands_on_users_objects(bench: Any) -> None:
    """The Model keeps its spec, annotations and finalizers: only status is written."""
    await served(bench)
    found = bench.api.objects[MODELS.plural][Key("a", "llama")]
    assert "finalizers" not in found["metadata"]
    assert "annotations" not in found["metadata"]
    assert found["metadata"]["generation"] == 1


async def test_scale_down_marks_victims_before_replicas_fall(bench: Any) -> None:
    """Costs are on the victims and seen back before the Deployment is written; the cheapest pods go."""
    await served(bench, scaling={"minReplicas": 3})
    bench.law.wanted["llama"] = 1
    await bench.tick()
    written = kinds(bench.api)
    assert written.count("Pod") == 2
    assert max(i for i, kind in enumerate(written) if kind == "Pod") < written.index("Deployment")
    assert written[0] == "ConfigMap"
    assert bench.replicas() == 1


async def test_unseen_costs_keep_replicas(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the reflector does not show the costs, replicas do not fall."""
    from goodput_controllers import applying

    await served(bench, scaling={"minReplicas": 3})
    monkeypatch.setattr(applying, "VICTIMS_SEEN_SECONDS", 0.05)
    bench.api.dropped = lambda item: "owner" in item["metadata"]
    bench.law.wanted["llama"] = 1
    await bench.tick()
    assert bench.replicas() == 3


async def test_replicas_are_never_left_out(bench: Any) -> None:
    """Every apply of an engine Deployment carries replicas: left out by their owner they would become 1."""
    await served(bench, scaling={"minReplicas": 4})
    applied = bench.api._applied[DEPLOYMENTS.plural, Key("a", "llama-serve"), ""]
    assert applied["spec"]["replicas"] == 4


async def test_a_decision_from_an_old_state_is_made_anew(bench: Any) -> None:
    """The Deployment is written against the version that was decided from: a stale view meets a Conflict."""
    await served(bench, scaling={"minReplicas": 2})
    # Somebody else writes, and our watch does not tell us.
    bench.api.dropped = lambda item: item.get("kind") == "Deployment"
    changed = copy.deepcopy(bench.api.objects[DEPLOYMENTS.plural][Key("a", "llama-serve")])
    changed["spec"]["replicas"] = 9
    bench.api.put(DEPLOYMENTS, changed)
    bench.law.wanted["llama"] = 3
    await bench.tick()
    assert bench.replicas() == 9
    assert bench.operator.cluster.deployment(Key("a", "llama-serve")).replicas == 9
    await bench.tick()
    assert bench.replicas() == 3


@pytest.mark.parametrize("wanted", [2, 4])
async def test_a_change_while_a_pass_writes_is_decided_anew(bench: Any, wanted: int) -> None:
    """Somebody scales while the memory is written, and our watch tells so: that number stays, however new its version.

    No later write of the pass may rest on a count that it did not decide from.
    """
    await served(bench, scaling={"minReplicas": 3})
    original = bench.api.apply

    async def apply(manifest: dict[str, Any], resource: Resource, *, subresource: str = "") -> dict[str, Any]:
        answer: dict[str, Any] = await original(manifest, resource, subresource=subresource)
        if resource is CONFIG_MAPS:
            changed = copy.deepcopy(bench.api.objects[DEPLOYMENTS.plural][Key("a", "llama-serve")])
            changed["spec"]["replicas"] = 9
            bench.api.put(DEPLOYMENTS, changed)
            while bench.operator.cluster.deployment(Key("a", "llama-serve")).replicas != 9:
                await asyncio.sleep(0.005)
        return answer

    bench.api.apply = apply
    bench.law.wanted["llama"] = wanted
    await bench.tick()
    assert bench.replicas() == 9
    assert bench.operator.world.dirty.is_set()
    bench.api.apply = original
    await bench.tick()
    assert bench.replicas() == wanted


async def test_a_change_between_decision_and_writes_is_decided_anew(bench: Any) -> None:
    """Somebody scales after the snapshot and before the writes begin: nothing is written for the old decision."""
    await served(bench, scaling={"minReplicas": 3})
    law = bench.operator.loop.decide

    def decide(*args: Any) -> Any:
        plan = law(*args)
        changed = copy.deepcopy(bench.api.objects[DEPLOYMENTS.plural][Key("a", "llama-serve")])
        changed["spec"]["replicas"] = 9
        bench.operator.cluster.owned[DEPLOYMENTS.plural].assume(bench.api.put(DEPLOYMENTS, changed))
        return plan

    bench.operator.loop.decide = decide
    bench.law.wanted["llama"] = 1
    await bench.tick()
    assert bench.replicas() == 9
    assert kinds(bench.api) == []


async def test_drift_is_mended(bench: Any) -> None:
    """A field of ours that somebody changed comes back; a foreign field stays."""
    await served(bench)
    service = copy.deepcopy(bench.api.objects[SERVICES.plural][Key("a", "llama")])
    service["spec"]["ports"][0]["port"] = 81
    service["metadata"].setdefault("annotations", {})["theirs"] = "kept"
    bench.api.put(SERVICES, service)
    await bench.tick()
    mended = bench.api.objects[SERVICES.plural][Key("a", "llama")]
    assert mended["spec"]["ports"][0]["port"] == 80
    assert mended["metadata"]["annotations"]["theirs"] == "kept"
    assert kinds(bench.api) == ["Service"]


async def test_what_no_longer_belongs_goes(bench: Any, make_model: Callable[..., dict[str, Any]]) -> None:
    """routing.mode None removes the router's objects and nothing else."""
    await served(bench)
    bench.apply(make_model(routing={"mode": "None"}))
    await bench.tick(2)
    assert set(bench.api.objects[DEPLOYMENTS.plural]) == {Key("a", "llama-serve")}
    assert set(bench.api.objects[CONFIG_MAPS.plural]) == {Key("a", "llama-goodput")}
    assert Key("a", "llama") in bench.api.objects[SERVICES.plural]


async def test_a_foreign_object_is_left_alone(bench: Any, make_model: Callable[..., dict[str, Any]]) -> None:
    """An object that is not ours is not taken over: NameConflict, until it goes."""
    theirs = {"kind": "Service", "metadata": {"name": "llama", "namespace": "a"}, "spec": {"mine": True}}
    bench.api.put(SERVICES, theirs)
    bench.apply(make_model())
    await bench.tick()
    assert bench.api.objects[SERVICES.plural][Key("a", "llama")]["spec"] == {"mine": True}
    assert bench.condition("Stalled") == ("True", "NameConflict")
    assert Key("a", "llama-serve") not in bench.api.objects[DEPLOYMENTS.plural]

    bench.api.remove(SERVICES, Key("a", "llama"))
    await bench.tick(3, seconds=130.0)

    assert Key("a", "llama-serve") in bench.api.objects[DEPLOYMENTS.plural]
    assert bench.condition("Stalled") == ("False", "NotStalled")


async def test_a_broken_neighbour_holds_nobody_up(
    bench: Any, make_model: Callable[..., dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    """A Model that the law stumbles over is named in log and status; the other one scales."""
    await served(bench, "sound")
    bench.apply(make_model("sick"))
    bench.law.broken = {"sick"}
    bench.law.wanted["sound"] = 3
    with caplog.at_level(logging.ERROR):
        await bench.tick()
    assert bench.replicas("sound") == 3
    assert bench.condition("Stalled", "sick")[0] == "True"
    assert "ZeroDivisionError" in caplog.text


async def test_a_refused_write_is_told_and_retried(bench: Any, make_model: Callable[..., dict[str, Any]]) -> None:
    """What the API server refuses becomes Stalled=APIRefused with its words, and passes once it is accepted."""
    bench.apply(make_model())
    bench.api.fault = refusing("Service", Refused("no such policy", 403))
    await bench.tick()
    assert bench.condition("Stalled") == ("True", "APIRefused")
    bench.api.fault = None
    await bench.tick(3, seconds=130.0)
    assert bench.condition("Stalled") == ("False", "NotStalled")


@pytest.mark.parametrize("paused", [False, True], ids=["settled", "paused"])
async def test_a_refused_write_that_is_no_longer_wanted_is_no_problem(bench: Any, paused: bool) -> None:
    """More replicas were refused, and are not wanted any more, or not now: nothing is stalled then."""
    await served(bench)
    bench.api.fault = refusing("Deployment", Refused("no such policy", 403))
    bench.law.wanted["llama"] = 3
    await bench.tick(2)
    assert bench.condition("Stalled") == ("True", "APIRefused")
    if paused:
        bench.apply(bench.model(paused=True))
    else:
        bench.law.wanted["llama"] = 1
    await bench.tick(2)
    assert bench.condition("Stalled")[1] != "APIRefused"
    assert not bench.operator.reconciler._backoffs


async def test_an_unexpected_error_is_told_and_retried(
    bench: Any, make_model: Callable[..., dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    """An error that nobody foresaw is logged with its traceback, shown, and does not end the loop."""
    bench.apply(make_model())
    bench.api.fault = refusing("Service", RuntimeError("boom"))
    with caplog.at_level(logging.ERROR):
        await bench.tick()
    assert "Traceback" in caplog.text
    assert bench.condition("Stalled")[0] == "True"
    bench.api.fault = None
    await bench.tick(3, seconds=130.0)
    assert bench.condition("Stalled") == ("False", "NotStalled")


async def test_an_old_crd_still_gets_conditions(bench: Any, make_model: Callable[..., dict[str, Any]]) -> None:
    """If the CRD lacks a field of status, what it knows is written and the rest is logged."""
    bench.apply(make_model())
    calls: list[str] = []

    def fault(verb: str, resource: Resource, _: str) -> None:
        if verb == "apply-status" and resource is MODELS:
            calls.append(verb)
            if len(calls) == 1:
                raise SchemaOutdated("status.pools: field not declared in schema", 500)

    bench.api.fault = fault
    await bench.tick()
    assert set(bench.status()) == {"conditions", "observedGeneration"}


async def test_without_the_lease_nothing_is_written(bench: Any, make_model: Callable[..., dict[str, Any]]) -> None:
    """A process that does not lead decides and writes nothing; one that loses the Lease stops between two writes."""
    bench.operator.settings = bench.operator.settings.__class__(
        **{
            **{f: getattr(bench.operator.settings, f) for f in bench.operator.settings.__slots__},
            "leader_election": True,
        }
    )
    bench.apply(make_model())
    await bench.tick(2)
    assert bench.api.writes == []


async def test_status_survives_an_api_server_that_is_away(bench: Any) -> None:
    """Writes that fail for a while are done afterwards, and nothing is lost."""
    await served(bench)
    bench.api.fault = failing("apply", "apply-status", times=5, error=Unavailable("503", 503))
    bench.law.wanted["llama"] = 2
    await bench.tick(8, seconds=130.0)
    assert bench.replicas() == 2
    assert bench.status()["replicas"] == "1/2"


@pytest.mark.parametrize(
    "error",
    [Refused("no such policy", 403), Unavailable("webhook timed out", 500)],
    ids=["refused", "unavailable"],
)
async def test_a_memory_that_cannot_be_written_hides_no_condition(bench: Any, error: KubeError) -> None:
    """The hourly write of the memory is refused: conditions are written all the same, and it is tried again later."""
    await served(bench)
    asked: list[str] = []

    def fault(verb: str, resource: Resource, name: str) -> None:
        if verb == "apply" and resource is CONFIG_MAPS:
            asked.append(name)
            raise error

    kept = copy.deepcopy(bench.api.objects[CONFIG_MAPS.plural][Key("a", "llama-goodput")])
    bench.api.put(CONFIG_MAPS, {**kept, "data": {}})
    bench.api.fault = fault
    bench.now += 3700.0
    await bench.tick(6)
    assert asked == ["llama-goodput"]
    bench.telemetry.error = "gone"
    bench.operator.loop._read_at = float("-inf")
    await bench.tick()
    assert bench.condition("MetricsFresh") == ("False", "PrometheusUnreachable")
    await bench.tick(12)
    assert len(asked) == 2

    bench.api.fault = None
    bench.api.writes.clear()
    await bench.tick(13)
    assert kinds(bench.api).count("ConfigMap") == 1


async def test_a_write_that_fails_hides_no_condition(bench: Any) -> None:
    """More replicas cannot be written: the condition that flips meanwhile is."""
    await served(bench)
    bench.api.fault = refusing("Deployment", Unavailable("webhook timed out", 500))
    bench.law.wanted["llama"] = 3
    bench.telemetry.error = "gone"
    bench.operator.loop._read_at = float("-inf")
    await bench.tick()
    assert bench.replicas() == 1
    assert bench.condition("MetricsFresh") == ("False", "PrometheusUnreachable")


async def test_serves_on_by_a_deleted_slo(bench: Any, new_bench: Callable[..., Any]) -> None:
    """An SLO that was deleted is still used, also by an operator that starts later, and the status says so."""
    await served(bench)
    bench.api.remove(SLOS, Key("a", "chat"))
    await bench.tick()
    assert bench.condition("Stalled") == ("True", "SLODeleted")
    await bench.stop()

    second = new_bench(bench.api)
    await second.start()
    await second.tick(2)

    (view,) = second.law.snapshots[-1].models
    assert view.intent.objective is not None
    assert view.intent.objective.ttft_seconds == 0.5
    await second.stop()


async def test_serves_on_by_the_last_valid_text_of_an_slo(bench: Any, new_bench: Callable[..., Any]) -> None:
    """One that cannot be read any more is as one that was deleted, but not for who never used it."""
    await served(bench)
    wrong = {**bench.api.objects[SLOS.plural][Key("a", "chat")], "spec": {"ttft": "10 parsecs"}}
    bench.apply(wrong)
    await bench.tick()
    assert bench.condition("Stalled") == ("True", "SLONotFound")
    await bench.stop()

    second = new_bench(bench.api)
    await second.start()
    second.apply(second.model("stranger"))
    await second.tick(2)

    served_on, stranger = (view.intent for view in second.law.snapshots[-1].models)
    assert served_on.objective is not None
    assert served_on.objective.ttft_seconds == 0.5
    (told,) = served_on.problems
    assert not told.fatal
    assert "spec.ttft" in told.message
    assert "serving on by its last valid objectives" in told.message
    assert second.replicas() == 1
    assert stranger.objective is None
    await second.stop()


async def test_a_restarted_operator_writes_nothing_and_remembers(bench: Any, new_bench: Callable[..., Any]) -> None:
    """A second process finds everything as it should be: no write, and memory from the ConfigMap."""
    await served(bench, scaling={"minReplicas": 2})
    await bench.stop()
    second = new_bench(bench.api)
    second.now = bench.now
    await second.start()
    await second.tick(3)
    assert second.api.writes == []
    assert second.operator.loop.memories._memories[Key("a", "llama")].born_at == 1_000_000.0
    await second.stop()


def refusing(kind: str, error: Exception) -> Callable[[str, Resource, str], None]:
    def fault(verb: str, resource: Resource, _: str) -> None:
        if verb == "apply" and resource.kind == kind:
            raise error

    return fault


@pytest.mark.parametrize("crash_at", range(1, 18))
async def test_a_crash_after_any_write_ends_in_the_same_state(
    crash_at: int, new_bench: Callable[..., Any], make_model: Callable[..., dict[str, Any]]
) -> None:
    """Killed after the n-th write of creating and scaling up, a new process brings about the same objects."""

    async def fleet(crash_after: int | None) -> dict[str, Any]:
        bench = new_bench()
        bench.furnish()
        bench.apply(make_model(scaling={"minReplicas": 2}))
        await bench.start()
        if crash_after is not None:
            bench.api.fault = dying(bench.api, crash_after)
            await bench.tick()
            await bench.stop()
            bench.api.fault = None
            bench = new_bench(bench.api)
            await bench.start()
        await bench.tick()
        bench.play_kubelet()
        await bench.tick(2)
        await bench.stop()
        return {
            plural: {str(key): rest(item) for key, item in items.items()}
            for plural, items in bench.api.objects.items()
            if plural not in ("events", "configmaps", "models", "slos")
        }

    assert await fleet(crash_at) == await fleet(None)


def dying(api: FakeKube, after: int) -> Callable[[str, Resource, str], None]:
    """After so many writes nothing gets through any more, as if the process were dead."""

    def fault(verb: str, resource: Resource, _: str) -> None:
        if verb.startswith(("apply", "create", "patch", "delete")) and len(api.writes) >= after:
            raise Unavailable("dead")

    return fault


def rest(item: dict[str, Any]) -> dict[str, Any]:
    """Without what differs from run to run."""
    changing = ("uid", "resourceVersion", "ownerReferences", "generation")
    metadata = {k: v for k, v in item["metadata"].items() if k not in changing}
    return {k: v for k, v in item.items() if k not in ("metadata", "status")} | {"metadata": metadata}
