"""A change of checkpoint, precision or speculation meets a canary and the author's check before it meets users."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from faults.crashes import Sweep
from faults.fixtures import Bench
from faults.fleet import ENGINE, settled
from faults.prometheus import MODEL
from fleets import Fleet
from goodput_world.world import World

_JUDGE = """
import json, os, sys, time, urllib.request
seen = {"token": os.path.exists("/var/run/secrets/kubernetes.io/serviceaccount/token")}
for who in ("CANARY", "INCUMBENT"):
    served = os.environ[f"GOODPUT_{who}_MODEL"]
    body = json.dumps({"model": served, "prompt": "to be or not", "max_tokens": 4}).encode()
    request = urllib.request.Request(
        os.environ[f"GOODPUT_{who}_URL"] + "/v1/completions", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        seen[who] = json.load(answer)["choices"][0]["text"]
with open("/dev/termination-log", "w") as log:
    json.dump(seen, log)
time.sleep(float(sys.argv[1]))
sys.exit(int(sys.argv[2]))
"""


def _check(seconds: float, code: int) -> dict[str, Any]:
    """A check that asks canary and incumbent, takes so long, and ends with this exit code."""
    command = ["python3", "-c", _JUDGE, str(seconds), str(code)]
    return _job([{"name": "judge", "image": "busybox:1.37", "command": command}])


def _job(containers: list[dict[str, Any]]) -> dict[str, Any]:
    return {"jobTemplate": {"spec": {"activeDeadlineSeconds": 120, "template": {"spec": {"containers": containers}}}}}


def _args(deployment: dict[str, Any]) -> list[str]:
    found: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    return found


async def _rolled_out(fleet: Fleet, word: str) -> None:
    """Wait until what serves has this argument, and serves."""

    async def rendered() -> bool:
        return word in _args(await fleet.deployment())

    await fleet.cluster.wait_for(rendered, what=f"{word} among the arguments", timeout_seconds=60)
    await fleet.wait_serving()


async def _none_left(fleet: Fleet) -> None:
    async def gone() -> bool:
        names = await fleet.cluster.kubectl(
            *("get", "deployments,services,networkpolicies,jobs", "-n", fleet.namespace, "-o", "name"),
            *("-l", f"goodput.dev/model={fleet.name}"),
        )
        return "canary" not in names and "check" not in names and not await fleet.pods("canary")

    await fleet.cluster.wait_for(gone, what="canary and Job are gone", timeout_seconds=60)


async def _decision(fleet: Fleet, action: str, rule: str) -> dict[str, Any]:
    async def told() -> dict[str, Any] | None:
        last: dict[str, Any] = (await fleet.object())["status"].get("lastDecision", {})
        return last if (last.get("action"), last.get("rule")) == (action, rule) else None

    found: dict[str, Any] = await fleet.cluster.wait_for(told, what=f"{action} by {rule}", timeout_seconds=90)
    return found


async def _as_it_was(fleet: Fleet) -> None:
    """Wait until what serves is the shared Model as it was made: going back takes no check."""

    async def back() -> bool:
        return "--revision" not in _args(await fleet.deployment())

    await fleet.cluster.wait_for(back, what="no revision among the arguments", timeout_seconds=60)
    await fleet.wait_serving()
    await fleet.wait_none_terminating()


@pytest_asyncio.fixture(loop_scope="session")
async def fleet(served: Fleet) -> AsyncIterator[Fleet]:
    """The shared Model; what a test changed is undone before the next one looks at its pods."""
    await _as_it_was(served)
    yield served
    await served.patch({"revision": None, "precision": None, "qualityCheck": None})
    await _as_it_was(served)


@pytest_asyncio.fixture(loop_scope="session")
async def users(fleet: Fleet) -> AsyncIterator[list[str]]:
    """Users who ask all the time; what went wrong for them."""
    wrong: list[str] = []

    async def ask() -> None:
        while True:
            try:
                await fleet.complete(served="shared")
            except (aiohttp.ClientError, TimeoutError) as error:
                wrong.append(repr(error))
            await asyncio.sleep(0.2)

    asking = asyncio.create_task(ask())
    yield wrong
    asking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asking


async def test_a_checked_change_reaches_users_and_nobody_else_reached_its_canary(
    fleet: Fleet, world: World, users: list[str]
) -> None:
    """The Job talks to canary and incumbent; another pod does not get at the canary; users notice nothing."""
    await fleet.patch({"revision": "v2", "qualityCheck": _check(12, 0)})
    await fleet.wait_condition("Reconciling", "True", "CanaryStarting", text="spec.revision: unset -> v2")
    await fleet.wait_condition("Reconciling", "True", "QualityCheckRunning")
    assert "v2" not in _args(await fleet.deployment())
    (canary,) = await fleet.pods("canary")
    assert canary["status"]["phase"] == "Running"
    assert canary["metadata"]["name"] not in await fleet.running(), "routers know of it"
    (job,) = await world.list_objects("jobs", namespace=fleet.namespace)
    of_canaries = "goodput.dev/pool=canary"
    (service,) = await world.list_objects("services", namespace=fleet.namespace, selector=of_canaries)
    assert await _visit(fleet, f"http://{service['metadata']['name']}.{fleet.namespace}.svc/v1/models") != "200"
    assert (await fleet.object())["status"]["poolSummary"] == "1x l40s, canary 1x l40s"
    report = json.loads(await _report(fleet, "check"))
    assert report == {"token": False, "CANARY": " token" * 4, "INCUMBENT": " token" * 4}
    await _decision(fleet, "Promote", "CheckPassed")
    await _rolled_out(fleet, "v2")
    await _none_left(fleet)
    events = json.loads(await world.kubectl("get", "events", "-n", fleet.namespace, "-o", "json"))["items"]
    assert {"ChangeAsked", "CanaryReady", "CheckPassed"} <= {event["reason"] for event in events}
    assert job["metadata"]["name"].startswith("shared-check-")
    assert users == []


async def test_a_check_that_fails_leaves_the_pods_that_serve(fleet: Fleet, world: World, users: list[str]) -> None:
    """`Stalled` names the Job, whose pod is there; undone, nothing is left, and no pod was touched."""
    before = await fleet.uids("serve")
    await fleet.patch({"precision": {"weights": "fp8"}, "qualityCheck": _check(0, 3)})
    told = await fleet.wait_condition(
        "Stalled", "True", "QualityCheckFailed", text="spec.precision.weights: unset -> fp8"
    )
    (job,) = await world.list_objects("jobs", namespace=fleet.namespace)
    assert job["metadata"]["name"] in told["message"]
    assert (await fleet.condition("Ready"))["status"] == "True"
    assert json.loads(await _report(fleet, "check"))["CANARY"] == " token" * 4
    assert await fleet.uids("serve") == before
    await fleet.patch({"precision": None})
    await fleet.wait_condition("Stalled", "False", "NotStalled")
    await _none_left(fleet)
    assert await fleet.uids("serve") == before
    assert users == []


async def test_without_a_check_it_says_that_nobody_checked(fleet: Fleet, world: World) -> None:
    """The canary has to answer; then users get the change, with a Warning."""
    await fleet.patch({"revision": "v3"})
    await fleet.wait_condition("Reconciling", "True", "CanaryStarting", text="nobody checks its quality")
    told = await _decision(fleet, "Promote", "Unchecked")
    assert "nobody checked the quality" in told["message"]
    await _rolled_out(fleet, "v3")
    await _none_left(fleet)
    events = json.loads(await world.kubectl("get", "events", "-n", fleet.namespace, "-o", "json"))["items"]
    assert {event["type"] for event in events if event["reason"] == "Unchecked"} == {"Warning"}


async def test_a_model_deleted_while_it_is_judged_leaves_nothing(fleet: Fleet, world: World) -> None:
    """Canary, Job and their pods go with it, and nothing hangs."""
    judged = Fleet(world, fleet.namespace, "judged")
    one = {"minReplicas": 1, "maxReplicas": 1}
    await judged.apply(servedName="judged", gpuTypes=["l40s"], scaling=one)
    await judged.wait_serving()
    await judged.patch({"revision": "v2", "qualityCheck": _check(90, 0)})
    await judged.wait_condition("Reconciling", "True", "QualityCheckRunning")
    await world.kubectl("delete", "model.goodput.dev", "judged", "-n", fleet.namespace, "--timeout=30s")
    await _none_left(judged)

    async def none() -> bool:
        return await judged.pods() == []

    await world.wait_for(none, what="no pod is left", timeout_seconds=60)


async def _report(fleet: Fleet, pool: str, *, name: str = "") -> str:
    """What a pod that ended has to say: of a pool of the Model, or of this name."""

    async def said() -> str | None:
        pods = await fleet.cluster.list_objects("pods", namespace=fleet.namespace)
        for pod in pods:
            if name == pod["metadata"]["name"] or pod["metadata"].get("labels", {}).get("goodput.dev/pool") == pool:
                states = [each["state"].get("terminated") for each in pod["status"].get("containerStatuses", [])]
                if states and states[0]:
                    return str(states[0]["message"])
        return None

    report: str = await fleet.cluster.wait_for(said, what=f"the report of {name or pool}", timeout_seconds=60)
    return report


_VISIT = """
import sys, urllib.request
try:
    with urllib.request.urlopen(sys.argv[1], timeout=5) as answer:
        seen = str(answer.status)
except OSError as error:
    seen = repr(error)
with open("/dev/termination-log", "w") as log:
    log.write(seen)
"""


async def _visit(fleet: Fleet, url: str) -> str:
    """What a pod of the same namespace gets at `url`."""
    container = {
        "name": "main",
        "image": "busybox:1.37",
        "command": ["python3", "-c", _VISIT, url],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    security = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"restartPolicy": "Never", "securityContext": security, "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stranger"}, "spec": spec}
    await fleet.cluster.apply(pod, namespace=fleet.namespace)
    seen = await _report(fleet, "", name="stranger")
    await fleet.cluster.kubectl("delete", "pod", "stranger", "-n", fleet.namespace, "--wait=false")
    return seen


# --- a crash after each write -----------------------------------------------------------------------------------------


def _revision(objects: list[dict[str, Any]]) -> bool:
    engine = next(item for item in objects if item["metadata"]["name"] == ENGINE and item["kind"] == "Deployment")
    return "v2" in _args(engine)


def _jobs(objects: list[dict[str, Any]]) -> int:
    return sum(1 for item in objects if item["kind"] == "Job")


def _canaries(objects: list[dict[str, Any]]) -> int:
    return sum(1 for item in objects if item["metadata"]["name"].startswith(f"{MODEL}-canary"))


def _refused(objects: list[dict[str, Any]]) -> bool:
    model = next(item for item in objects if item["kind"] == "Model")
    conditions = model.get("status", {}).get("conditions", ())
    return any(each["type"] == "Stalled" and each["reason"] == "QualityCheckFailed" for each in conditions)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("passes", [True, False], ids=["passes", "fails"])
async def test_a_change_survives_a_crash_after_each_write(bench: Bench, passes: bool) -> None:
    """The same objects in the end; one canary ever; and a refused change never gets a pod among those that serve."""
    check = _job([{"name": "judge", "image": "busybox:1.37", "command": ["true" if passes else "false"]}])

    def done(objects: list[dict[str, Any]]) -> bool:
        if _canaries(objects):
            return False
        if passes:
            return settled(objects, 2) and _revision(objects) and not _jobs(objects)
        return _refused(objects) and _jobs(objects) == 1 and not _revision(objects)

    sweep = Sweep(
        bench,
        "gate-passes" if passes else "gate-fails",
        act=lambda namespace: bench.person.edit(namespace, MODEL, revision="v2", qualityCheck=check),
        done=done,
        before=lambda objects: settled(objects, 2),
        spec={"scaling": {"minReplicas": 2}},
        requests_per_second=1.0,
        most=30,
    )
    await sweep.run()
    assert len(sweep.crashed) >= 8, f"only {len(sweep.crashed)} of {sweep.writes} were reached"
    for namespace in [sweep.namespaces[0], *sweep.crashed]:
        assert set(bench.recorder.asked(namespace, ENGINE)) == {2}, f"{namespace}: replicas changed"
        engines = bench.recorder.ever(namespace)
        assert len(engines) == (4 if passes else 2), f"{namespace}: {len(engines)} engine pods were made"
        canaries = bench.recorder.ever(namespace, "canary")
        assert len(canaries) == 1, f"{namespace}: {len(canaries)} canaries were made"
        judged = bench.recorder.ever(namespace, "check")
        assert len(judged) == 1, f"{namespace}: {len(judged)} pods judged it"
