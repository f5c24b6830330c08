"""A change of checkpoint, precision or speculation in a fake cluster, by the laws themselves, write by write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from goodput.adapters.kinds import CONFIG_MAPS, DEPLOYMENTS, JOBS, NODES, PODS, SERVICES
from goodput.decide import decide
from goodput.decide.change import HANDOVER_SECONDS
from goodput.domain.identity import Key

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
QWEN = "Qwen/Qwen2.5-7B-Instruct"
CHECK = {
    "jobTemplate": {"spec": {"template": {"spec": {"containers": [{"name": "eval", "image": "evals:7"}]}}}},
}
ENGINE, CANARY = Key("a", "llama-serve"), Key("a", "llama-canary")


class Gate:
    """One Model of one replica that serves, and what happens to it."""

    def __init__(self, bench: Any) -> None:
        self.bench = bench
        self.api = bench.api
        bench.operator.loop.decide = decide

    async def serve(self, **spec: Any) -> None:
        """Two replicas that serve."""
        self.bench.apply(self.model(LLAMA, **spec))
        await self.bench.tick()
        await self.play()

    @staticmethod
    def model(model: str, **spec: Any) -> dict[str, Any]:
        scaling = {"minReplicas": 2, "maxReplicas": 2, **spec.pop("scaling", {})}
        return {
            "kind": "Model",
            "metadata": {"name": "llama", "namespace": "a"},
            "spec": {"model": model, "slo": "chat", "servedName": "llama", "gpuTypes": ["l40s"], "scaling": scaling}
            | spec,
        }

    async def ask(self, model: str = QWEN, **spec: Any) -> None:
        """Edit the Model, and let the operator look."""
        self.bench.apply(self.model(model, **spec))
        await self.bench.tick()

    async def play(self, *, ready: bool = True) -> None:
        """Let nodes do what is asked of them, and the operator see it."""
        self._replace_pods()
        for key in [key for key, pod in self.api.objects[PODS.plural].items() if not self._owner(pod)]:
            self.api.remove(PODS, key)
        self.bench.play_kubelet(ready=ready)
        await self.bench.tick(2)

    def _owner(self, pod: dict[str, Any]) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.api.objects[DEPLOYMENTS.plural].get(Key("a", pod["metadata"]["owner"]))
        return found

    def _replace_pods(self) -> None:
        """Pods of another template go at once."""
        for key, pod in list(self.api.objects[PODS.plural].items()):
            owner = self._owner(pod)
            if owner is not None and owner["spec"]["template"]["metadata"]["labels"] != pod["metadata"]["labels"]:
                self.api.remove(PODS, key)

    def end_check(self, kind: str, **words: str) -> None:
        """The Job controller says how the check ended."""
        (job,) = self.jobs
        condition = {"type": kind, "status": "True", **words}
        self.api.put(JOBS, {**job, "status": {"conditions": [condition]}})

    @property
    def jobs(self) -> list[dict[str, Any]]:
        return list(self.api.objects[JOBS.plural].values())

    @property
    def canary(self) -> dict[str, Any] | None:
        return self.api.objects[DEPLOYMENTS.plural].get(CANARY)  # type: ignore[no-any-return]

    @property
    def served(self) -> str:
        """The checkpoint that users meet."""
        engine = self.api.objects[DEPLOYMENTS.plural][ENGINE]
        return str(engine["spec"]["template"]["spec"]["containers"][0]["args"][0])

    @property
    def stage(self) -> tuple[str, str]:
        """Action and rule of the last decision."""
        last = self.bench.status()["lastDecision"]
        return last["action"], last["rule"]

    def message(self, kind: str) -> str:
        return str(next(c for c in self.bench.status()["conditions"] if c["type"] == kind)["message"])

    def events(self) -> list[str]:
        return [event["reason"] for event in self.api.objects["events"].values()]


@pytest.fixture
async def gate(bench: Any) -> AsyncIterator[Gate]:
    """A Model with a check that serves."""
    made = Gate(bench)
    await made.serve(qualityCheck=CHECK)
    assert (made.served, bench.replicas()) == (LLAMA, 2)
    return made


async def test_a_change_is_checked_before_users_meet_it(gate: Gate) -> None:
    """Canary, Job, success, roll-out; then nothing of it is left but the decision."""
    await gate.ask(qualityCheck=CHECK)
    assert gate.stage == ("StartCanary", "ChangeAsked")
    assert gate.canary is not None
    assert gate.jobs == []
    assert gate.bench.condition("Reconciling") == ("True", "CanaryStarting")
    assert f"spec.model: {LLAMA} -> {QWEN}" in gate.message("Reconciling")
    await gate.play()
    assert gate.stage == ("CheckQuality", "CanaryReady")
    assert gate.bench.condition("Reconciling") == ("True", "QualityCheckRunning")
    assert gate.bench.condition("Ready") == ("True", "Serving")
    assert [(pool["role"], pool["desired"]) for pool in gate.bench.status()["pools"]] == [
        ("Aggregated", 2),
        ("Canary", 1),
    ]
    assert gate.bench.status()["poolSummary"] == "1x l40s, canary 1x l40s"
    assert gate.served == LLAMA
    gate.end_check("Complete")
    await gate.bench.tick()
    assert gate.stage == ("Promote", "CheckPassed")
    assert gate.canary is None, "its GPU is what the roll-out needs"
    assert gate.served == LLAMA, "as long as the canary's pod is there"
    await gate.play()
    assert gate.served == QWEN
    await gate.play()
    assert gate.jobs == []
    assert [key.name for key in gate.api.objects[SERVICES.plural]] == ["llama"]
    assert gate.bench.condition("Reconciling") == ("False", "Settled")
    gate.api.writes.clear()
    await gate.bench.tick(3)
    assert gate.api.writes == []


@pytest.mark.parametrize("reason", ["BackoffLimitExceeded", "DeadlineExceeded"])
async def test_a_check_that_fails_leaves_what_serves(gate: Gate, reason: str) -> None:
    """The Job and its log stay, the canary goes, the condition names the Job and what to do, and that is the end."""
    await gate.ask(qualityCheck=CHECK)
    await gate.play()
    (job,) = gate.jobs
    gate.end_check("Failed", reason=reason, message="Job has reached its limit")
    await gate.bench.tick(2)
    await gate.play()
    assert gate.stage == ("Refuse", "CheckFailed")
    assert gate.canary is None
    assert gate.jobs[0]["metadata"]["uid"] == job["metadata"]["uid"]
    assert gate.bench.condition("Stalled") == ("True", "QualityCheckFailed")
    told = gate.message("Stalled")
    assert job["metadata"]["name"] in told
    assert reason in told
    assert "undo the change" in told
    assert gate.bench.condition("Ready") == ("True", "Serving")
    assert gate.served == LLAMA
    assert "CheckFailed" in gate.events()
    gate.api.writes.clear()
    await gate.bench.tick(5)
    assert gate.api.writes == []


async def test_undoing_a_refused_change_ends_it(gate: Gate) -> None:
    """Nothing is stalled any more, nothing is left, and no pod that serves was touched."""
    before = gate.api.objects[DEPLOYMENTS.plural][ENGINE]["spec"]
    await gate.ask(qualityCheck=CHECK)
    await gate.play()
    gate.end_check("Failed")
    await gate.bench.tick()
    await gate.ask(LLAMA, qualityCheck=CHECK)
    await gate.play()
    assert gate.stage == ("Drop", "ChangeUndone")
    assert gate.bench.condition("Stalled") == ("False", "NotStalled")
    assert gate.jobs == []
    assert gate.api.objects[DEPLOYMENTS.plural][ENGINE]["spec"] == before


async def test_another_edit_of_the_check_asks_again(gate: Gate) -> None:
    """A refused change is judged anew by another Job, and so is what was edited while it was judged."""
    await gate.ask(qualityCheck=CHECK)
    await gate.play()
    first = gate.jobs[0]["metadata"]["name"]
    gate.end_check("Failed")
    await gate.bench.tick()
    other = {"jobTemplate": {"spec": {**CHECK["jobTemplate"]["spec"], "backoffLimit": 1}}}  # type: ignore[dict-item]
    await gate.ask(qualityCheck=other)
    await gate.play()
    (second,) = [job["metadata"]["name"] for job in gate.jobs]
    assert second != first
    assert gate.bench.condition("Stalled") == ("False", "NotStalled")
    await gate.ask(qualityCheck=other, precision={"weights": "fp8"})
    assert gate.jobs == [], "that Job judged something else"
    await gate.play()
    (third,) = [job["metadata"]["name"] for job in gate.jobs]
    assert third not in (first, second)
    assert gate.served == LLAMA


async def test_without_a_check_it_says_that_nobody_checked(bench: Any) -> None:
    """The canary must get ready; then users get it, and a Warning says what nobody did."""
    gate = Gate(bench)
    await gate.serve()
    await gate.ask()
    assert gate.stage == ("StartCanary", "ChangeAsked")
    assert "nobody checks its quality" in gate.message("Reconciling")
    await gate.play(ready=False)
    assert gate.served == LLAMA
    for key, pod in list(gate.api.objects[PODS.plural].items()):
        if pod["metadata"]["owner"] == CANARY.name:
            gate.api.remove(PODS, key)
    await gate.play()
    assert gate.stage == ("Promote", "Unchecked")
    assert "nobody checked the quality" in gate.bench.status()["lastDecision"]["message"]
    assert gate.jobs == []
    await gate.play()
    assert gate.served == QWEN
    assert "Unchecked" in gate.events()


async def test_going_back_takes_no_check(gate: Gate) -> None:
    """What served before the last change may serve again at once: an operator in a hurry is no time for a canary."""
    await gate.ask(qualityCheck=CHECK)
    await gate.play()
    gate.end_check("Complete")
    await gate.bench.tick()
    await gate.play()
    await gate.play()
    assert gate.served == QWEN
    await gate.ask(LLAMA, qualityCheck=CHECK)
    assert (gate.served, gate.canary) == (LLAMA, None)
    assert gate.stage == ("Promote", "ServedBefore")


async def test_a_canary_needs_a_free_gpu_and_says_how_many(gate: Gate) -> None:
    """Without one nothing is created or taken away; as soon as there is one, it starts.

    Here every pod holds a GPU: two engines and a router.
    """
    node = gate.api.objects[NODES.plural][Key("", "n1")]
    gate.api.put(NODES, {**node, "status": {**node["status"], "allocatable": {"nvidia.com/gpu": "3"}}})
    await gate.ask(qualityCheck=CHECK)
    await gate.bench.tick()
    assert gate.canary is None
    assert gate.bench.condition("Stalled") == ("True", "RolloutBlocked")
    assert "the canary needs 1 more free GPUs l40s (1 a replica, 0 free)" in gate.message("Stalled")
    assert (gate.served, gate.bench.replicas()) == (LLAMA, 2)
    gate.api.put(NODES, {**node, "status": {**node["status"], "allocatable": {"nvidia.com/gpu": "4"}}})
    await gate.bench.tick()
    assert gate.canary is not None
    assert gate.bench.condition("Stalled") == ("False", "NotStalled")


@pytest.mark.parametrize(("granted", "starts"), [(2, False), (3, True)])
async def test_a_canary_counts_in_what_a_namespace_may_hold(
    new_bench: Callable[..., Any], granted: int, starts: bool
) -> None:
    """Two replicas and a canary are three GPUs."""
    bench = new_bench(max_gpus_per_namespace=granted)
    bench.furnish()
    await bench.start()
    gate = Gate(bench)
    await gate.serve()
    await gate.ask()
    assert (gate.canary is not None) is starts
    if not starts:
        assert "the canary needs 1 more GPUs than the 2 that namespace a may hold" in gate.message("Stalled")
    await bench.stop()


@pytest.mark.parametrize(("replicas_worth", "starts"), [(2.5, False), (3.1, True)])
async def test_a_canary_counts_in_what_a_model_may_cost(bench: Any, replicas_worth: float, starts: bool) -> None:
    """Two replicas and a canary cost three."""
    gate = Gate(bench)
    await gate.serve()
    each = float(bench.status()["costPerHour"].lstrip("~")) / 2
    most = {"maxCostPerHour": f"{each * replicas_worth:.4f}"}
    await gate.ask(scaling=most)
    assert (gate.canary is not None) is starts
    if not starts:
        assert "spec.scaling.maxCostPerHour" in gate.message("Stalled")
        return
    await gate.play(ready=False)
    assert float(bench.status()["costPerHour"].lstrip("~")) == pytest.approx(each * 3, abs=0.01)


async def test_a_new_model_and_one_that_never_served_have_nothing_to_compare(bench: Any) -> None:
    """The mended name of a checkpoint reaches pods that never were ready at once."""
    gate = Gate(bench)
    bench.apply(gate.model(LLAMA, qualityCheck=CHECK))
    await bench.tick()
    await gate.play(ready=False)
    await gate.ask(QWEN, qualityCheck=CHECK)
    assert (gate.served, gate.canary, gate.jobs) == (QWEN, None, [])


@pytest.mark.parametrize("spec", [{"paused": True}, {"scaling": {"mode": "Advise"}}], ids=["paused", "advise"])
async def test_where_nothing_is_to_change_nothing_does(gate: Gate, spec: dict[str, Any]) -> None:
    """Neither the canary nor the roll-out; afterwards the change goes its way."""
    await gate.ask(qualityCheck=CHECK, **spec)
    gate.api.writes.clear()
    await gate.bench.tick(3)
    await gate.play()
    kinds = {kind for _, kind, _ in gate.api.writes}
    assert kinds <= {"Model/status", "ConfigMap", "Event"}
    assert (gate.served, gate.canary) == (LLAMA, None)
    await gate.ask(qualityCheck=CHECK)
    assert gate.canary is not None


async def test_what_else_is_edited_waits_with_the_change_and_scales_at_once(gate: Gate) -> None:
    """Replicas that serve follow their bounds meanwhile, with the template that they have."""
    template = gate.api.objects[DEPLOYMENTS.plural][ENGINE]["spec"]["template"]
    more = {"minReplicas": 3, "maxReplicas": 3}
    await gate.ask(qualityCheck=CHECK, engine={"args": ["--seed", "7"]}, scaling=more)
    await gate.play()
    engine = gate.api.objects[DEPLOYMENTS.plural][ENGINE]["spec"]
    assert engine["replicas"] == 3
    assert engine["template"] == template
    assert gate.bench.condition("Placed")[0] == "True"


async def test_edits_that_say_nothing_of_quality_roll_out_as_ever(gate: Gate) -> None:
    """No canary for a seed, an image or a label."""
    await gate.ask(LLAMA, qualityCheck=CHECK, engine={"args": ["--seed", "7"], "image": "vllm/vllm-openai:v0.32.0"})
    assert gate.canary is None
    container = gate.api.objects[DEPLOYMENTS.plural][ENGINE]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "vllm/vllm-openai:v0.32.0"


async def test_a_canary_that_does_not_get_ready_is_given_up(gate: Gate) -> None:
    """Long after an engine should have answered: its GPU is given back, and the change is refused."""
    await gate.ask(qualityCheck=CHECK)
    await gate.play(ready=False)
    await gate.bench.tick(2, seconds=1300.0)
    await gate.bench.tick()
    assert gate.stage == ("Refuse", "CanaryFailed")
    assert gate.bench.condition("Stalled") == ("True", "CanaryFailed")
    assert gate.canary is None
    assert gate.jobs == []
    await gate.bench.tick(3, seconds=100.0)
    assert gate.canary is None, "it is remembered"


async def test_the_pods_of_a_canary_that_hang_do_not_hold_up_the_roll_out(gate: Gate) -> None:
    """After a while it rolls out beside them."""
    await gate.ask(qualityCheck=CHECK)
    await gate.play()
    gate.end_check("Complete")
    await gate.bench.tick(2)
    assert gate.served == LLAMA
    await gate.bench.tick(2, seconds=HANDOVER_SECONDS)
    assert gate.served == QWEN


@pytest.mark.parametrize("lost", [False, True], ids=["remembered", "memory lost"])
@pytest.mark.parametrize("passes", [False, True], ids=["fails", "passes"])
async def test_another_operator_ends_what_one_began(
    gate: Gate, new_bench: Callable[..., Any], passes: bool, lost: bool
) -> None:
    """From the objects and the memory in the cluster, at whatever stage it takes over."""
    await gate.ask(qualityCheck=CHECK)
    await gate.play()
    await gate.bench.stop()
    if lost:
        gate.api.remove(CONFIG_MAPS, Key("a", "llama-goodput"))
    gate.end_check("Complete" if passes else "Failed")
    second = new_bench(gate.api)
    second.now = gate.bench.now
    await second.start()
    taken = Gate(second)
    await second.tick(2)
    for _ in range(3):
        await taken.play()
    assert taken.served == (QWEN if passes else LLAMA)
    assert taken.canary is None
    assert len(taken.jobs) == (0 if passes else 1)
    await second.stop()


async def test_nobody_but_the_check_reaches_a_canary(gate: Gate) -> None:
    """What users call selects other pods, and its own policy lets in the pods of the check."""
    await gate.ask(qualityCheck=CHECK)
    await gate.play()
    labels = gate.api.objects[DEPLOYMENTS.plural][CANARY]["spec"]["template"]["metadata"]["labels"]
    for plural in ("services", "poddisruptionbudgets", "deployments", "networkpolicies"):
        for key, item in gate.api.objects[plural].items():
            spec = item["spec"]
            selector = spec.get("selector") or spec.get("podSelector") or {}
            selector = selector.get("matchLabels", selector)
            selects = selector.items() <= labels.items()
            assert selects is key.name.startswith(CANARY.name), f"{plural} {key}"
    policy = gate.api.objects["networkpolicies"][CANARY]["spec"]["ingress"][0]["from"]
    check = gate.jobs[0]["spec"]["template"]["metadata"]["labels"]
    assert len(policy) == 1
    assert policy[0]["podSelector"]["matchLabels"].items() <= check.items()


async def test_an_edit_while_telemetry_is_read_is_decided_before_it_is_rendered(gate: Gate) -> None:
    """What was decided of the Model as it was lets nothing through of the one that it is."""
    read = gate.bench.telemetry.read

    async def edited(wanted: Any) -> Any:
        gate.bench.apply(gate.model(LLAMA, revision="v2", qualityCheck=CHECK))
        await gate.bench.operator._relist_once()
        return await read(wanted)

    def args() -> list[str]:
        engine = gate.api.objects[DEPLOYMENTS.plural][ENGINE]
        found: list[str] = engine["spec"]["template"]["spec"]["containers"][0]["args"]
        return found

    # What else there is to write makes this pass render.
    gate.api.remove(SERVICES, Key("a", "llama"))
    gate.bench.telemetry.read = edited
    gate.bench.operator.loop._read_at = float("-inf")
    await gate.bench.tick()
    assert "v2" not in args()
    gate.bench.telemetry.read = read
    await gate.bench.tick(2)
    assert "v2" not in args()
    assert gate.canary is not None
    assert Key("a", "llama") in gate.api.objects[SERVICES.plural]
