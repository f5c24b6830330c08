"""What status says of a Model that the laws stumble over, and of one that cannot be read, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from goodput.adapters.kinds import DEPLOYMENTS, MODELS, SLOS
from goodput.adapters.kube_errors import Unavailable
from goodput.decide import decide
from goodput.domain.identity import Key
from goodput.domain.observed import Snapshot
from goodput.domain.plan import Plan


async def served(bench: Any) -> None:
    bench.apply(bench.model())
    await bench.tick()
    bench.play_kubelet()
    await bench.tick(2)


async def test_a_served_model_that_cannot_be_decided_serves_on(bench: Any) -> None:
    """Broken, sound, broken again: Ready stays True all the while, Stalled comes, goes and comes."""
    await served(bench)
    before = bench.status()
    for _ in range(2):
        bench.law.broken = {"llama"}
        await bench.tick(2)
        assert bench.condition("Stalled") == ("True", "InternalError")
        assert bench.condition("Ready") == ("True", "Serving")
        assert bench.condition("Reconciling")[0] == "False"
        rest = [{**s, "conditions": [], "observedGeneration": 0} for s in (bench.status(), before)]
        assert rest[0] == rest[1]

        bench.law.broken = set()
        await bench.tick(2)
        assert bench.condition("Stalled") == ("False", "NotStalled")
        assert bench.condition("Ready") == ("True", "Serving")


async def test_a_new_model_that_cannot_be_decided(bench: Any) -> None:
    """Nothing is known of it but that; once it can be, it is served."""
    bench.law.broken = {"llama"}
    bench.apply(bench.model())
    await bench.tick()
    assert bench.condition("Stalled") == ("True", "InternalError")
    assert bench.condition("Ready") == ("Unknown", "FirstSeen")
    assert bench.condition("Reconciling")[0] == "False"
    bench.law.broken = set()
    await bench.tick(2)
    assert bench.condition("Stalled") == ("False", "NotStalled")


@pytest.mark.parametrize("kind", ["invalid", "undecided"])
@pytest.mark.parametrize("why", ["stands by", "away"])
async def test_what_could_not_be_told_is_told_in_the_next_pass(
    bench: Any, make_model: Callable[..., dict[str, Any]], kind: str, why: str
) -> None:
    """A write that did not happen does not count as one."""
    bench.law.broken = {"undecided"}
    bounds = {"minReplicas": 5, "maxReplicas": 2} if kind == "invalid" else {}
    bench.apply(make_model(kind, scaling=bounds))
    statuses = bench.operator.reconciler.statuses
    leading = statuses.leading
    if why == "away":
        bench.api.fault = lambda verb, *_: _away(verb)
    else:
        statuses.leading = lambda: False
    await bench.tick()
    assert not bench.status(kind)
    bench.api.fault = None
    statuses.leading = leading
    await bench.tick()
    assert bench.condition("Stalled", kind)[0] == "True"


def _away(verb: str) -> None:
    if verb == "apply-status":
        raise Unavailable("503", 503)


EDITED: dict[str, Any] = {"scaling": {"minReplicas": 5, "maxReplicas": 2}}


@pytest.fixture
async def restarted(bench: Any, new_bench: Callable[..., Any]) -> Any:
    """Another operator, over a Model that serves and was edited to what cannot be read while none was there."""
    await served(bench)
    await bench.stop()
    _edit(bench, **EDITED)
    made = new_bench(bench.api)
    made.now = bench.now
    await made.start()
    yield made
    await made.stop()


def _edit(bench: Any, **spec: Any) -> None:
    found = bench.api.objects[MODELS.plural][Key("a", "llama")]
    bench.api.put(MODELS, {**found, "spec": {**found["spec"], **spec}})


def _message(bench: Any, kind: str) -> str:
    return str(next(c["message"] for c in bench.status()["conditions"] if c["type"] == kind))


async def test_what_runs_and_cannot_be_read_goes_on_unmanaged(restarted: Any) -> None:
    """Nobody says that nothing was started, nor that it serves; the field that is to be mended is named."""
    deployment = restarted.api.objects["deployments"][Key("a", "llama-serve")]
    restarted.api.writes.clear()
    await restarted.tick(3)
    for kind in ("Ready", "SLOMet", "MetricsFresh"):
        assert restarted.condition(kind) == ("Unknown", "NotManaged")
        assert "not managed until spec.scaling.minReplicas is mended" in _message(restarted, kind)
    assert restarted.condition("Stalled") == ("True", "InvalidSpec")
    assert "its pods go on as they are" in _message(restarted, "Stalled")
    assert restarted.condition("Reconciling")[0] == "False"
    assert restarted.status()["replicas"] == "1/1"
    assert [write[1] for write in restarted.api.writes if write[1] != "SLO/status"] == ["Model/status", "Event"]
    assert restarted.api.objects["deployments"][Key("a", "llama-serve")] == deployment


async def test_what_goes_on_unmanaged_is_a_user_of_its_slo(restarted: Any) -> None:
    """Its pods serve under it; of one whose spec.slo cannot be read nobody knows the SLO."""
    await restarted.tick(2)

    def users() -> int:
        return int(restarted.api.objects[SLOS.plural][Key("a", "chat")]["status"]["users"])

    assert users() == 1
    _edit(restarted, slo=[])
    await restarted.tick()
    assert users() == 0
    _edit(restarted, slo={"name": "chat"})
    await restarted.tick()
    assert users() == 1


def under(bench: Any, granted: int, broken: str = "") -> None:
    """Let the real laws decide, which stumble over a Model of that name, with so many GPUs for each namespace."""

    def law(snapshot: Snapshot, *rest: Any) -> Plan:
        if broken in {view.intent.key.name for view in snapshot.models}:
            raise ZeroDivisionError
        return decide(snapshot, *rest)

    bench.operator.loop.decide = law
    bench.operator.loop.policy = replace(bench.operator.loop.policy, max_gpus_per_namespace=granted)


def asked_for(bench: Any, name: str) -> int:
    deployment = bench.api.objects[DEPLOYMENTS.plural].get(Key("a", f"{name}-serve"))
    return 0 if deployment is None else int(deployment["spec"]["replicas"])


@pytest.mark.parametrize(("granted", "want"), [(1, 0), (2, 1)])
async def test_what_goes_on_unmanaged_holds_what_its_namespace_may_hold(
    restarted: Any, make_model: Callable[..., dict[str, Any]], granted: int, want: int
) -> None:
    """One GPU of what is granted is in use: another Model of the namespace gets the rest."""
    under(restarted, granted)
    restarted.apply(make_model("other", servedName="other"))
    await restarted.tick(2)
    assert asked_for(restarted, "other") == want
    assert asked_for(restarted, "llama") == 1


async def test_what_cannot_be_decided_holds_what_its_namespace_may_hold(
    bench: Any, make_model: Callable[..., dict[str, Any]]
) -> None:
    """The laws stumble over one: its GPU is still in use."""
    await served(bench)
    under(bench, 1, broken="llama")
    bench.apply(make_model("other", servedName="other"))
    await bench.tick(2)
    assert bench.condition("Stalled") == ("True", "InternalError")
    assert (asked_for(bench, "llama"), asked_for(bench, "other")) == (1, 0)


async def test_a_mended_one_is_managed_again(restarted: Any) -> None:
    """It serves, and says so."""
    await restarted.tick()
    _edit(restarted, scaling={"minReplicas": 1})
    await restarted.tick(2)
    assert restarted.condition("Ready") == ("True", "Serving")
    assert restarted.condition("Stalled") == ("False", "NotStalled")


async def test_one_whose_pods_went_meanwhile_says_that_nothing_runs(restarted: Any) -> None:
    """Somebody deleted its Deployment: nothing brings it back."""
    await restarted.tick()
    restarted.api.remove(DEPLOYMENTS, Key("a", "llama-serve"))
    await restarted.tick()
    assert restarted.condition("Ready") == ("False", "NoReplicaReady")
    assert restarted.condition("MetricsFresh") == ("Unknown", "NoPods")
