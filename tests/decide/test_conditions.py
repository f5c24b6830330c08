"""Conditions: why pods wait, and what is told where two things are wrong."""

import pytest
from msgspec.structs import replace
from tests.decide.builders import CHAT, START, one, pod
from tests.decide.test_replicas import loaded, missed, steady

from goodput.domain.conditions import Condition, ConditionReason, ConditionStatus, ConditionType
from goodput.domain.intent import Problem
from goodput.domain.observed import PodState
from goodput.domain.plan import ModelPlan

NO_GPU = "0/4 nodes are available: 1 node(s) were unschedulable, 3 Insufficient nvidia.com/gpu."
NO_MEMORY = "0/4 nodes are available: 4 Insufficient memory."
TAINTED = "0/4 nodes are available: 4 node(s) had untolerated taint {team: research}."
# The name of a resource is no proof that it lacks.
GPU_TAINTED = "0/4 nodes are available: 4 node(s) had untolerated taint {nvidia.com/gpu: present}."


def found(plan: ModelPlan, kind: ConditionType) -> Condition:
    return next(each for each in plan.conditions if each.type is kind)


def waiting(*said: str, problems: tuple[Problem, ...] = ()) -> ModelPlan:
    """One pod serves; one is Pending for each thing that the scheduler said."""
    pods = tuple(
        pod(f"new-{index}", PodState.PENDING, created_at=START, trouble="Unschedulable", trouble_message=words)
        for index, words in enumerate(said)
    )
    return one(loaded(2.0, 1, extra=pods, problems=problems), steady(2.0, 1 + len(said)))


@pytest.mark.parametrize("words", [NO_MEMORY, TAINTED, GPU_TAINTED])
def test_pods_that_wait_for_something_else_are_not_told_to_lack_gpus(words):
    """Memory, taints: the scheduler's own words, and no number of GPUs."""
    told = found(waiting(words, words), ConditionType.PLACED)
    assert (told.status, told.reason) == (ConditionStatus.FALSE, ConditionReason.PODS_REFUSED)
    assert words in told.message
    assert "2 pods are Pending" in told.message
    assert "GPUs" not in told.message


def test_pods_that_lack_gpus_are_counted_beside_others():
    """Two lack a GPU and one lacks memory: two GPUs are missing."""
    told = found(waiting(NO_GPU, NO_MEMORY, NO_GPU), ConditionType.PLACED)
    assert (told.status, told.reason) == (ConditionStatus.FALSE, ConditionReason.INSUFFICIENT_GPUS)
    assert told.message.startswith("2 pods are Pending: 2 GPUs l40s are missing")
    assert NO_MEMORY in told.message


TYPE_GONE = Problem(
    type=ConditionType.PLACED,
    reason=ConditionReason.GPU_TYPE_NOT_FOUND,
    message="spec.gpuTypes: nope is no type",
    fatal=False,
)
SLO_GONE = Problem(
    type=ConditionType.STALLED,
    reason=ConditionReason.SLO_DELETED,
    message="spec.slo: SLO chat was deleted",
    fatal=False,
)
REFUSED = replace(SLO_GONE, reason=ConditionReason.API_REFUSED, message="the API server refused a write")


def test_a_problem_beside_a_healthy_model_is_told():
    """One of two GPU types does not exist, the SLO was deleted: it runs on, and both are named."""
    plan = waiting(problems=(TYPE_GONE, SLO_GONE))
    placed, stalled = found(plan, ConditionType.PLACED), found(plan, ConditionType.STALLED)
    assert placed == Condition(ConditionType.PLACED, ConditionStatus.TRUE, TYPE_GONE.reason, TYPE_GONE.message)
    assert stalled == Condition(ConditionType.STALLED, ConditionStatus.TRUE, SLO_GONE.reason, SLO_GONE.message)


def test_a_problem_does_not_hide_that_gpus_are_missing():
    """Missing GPUs by number come first, the type that does not exist after them."""
    told = found(waiting(NO_GPU, problems=(TYPE_GONE,)), ConditionType.PLACED)
    assert (told.status, told.reason) == (ConditionStatus.FALSE, ConditionReason.INSUFFICIENT_GPUS)
    assert "1 GPUs l40s are missing" in told.message
    assert TYPE_GONE.message in told.message


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [("CrashLoopBackOff", ConditionReason.CRASH_LOOP), ("OOMKilled", ConditionReason.OUT_OF_MEMORY)],
)
def test_a_problem_does_not_hide_that_pods_fail(trouble, reason):
    """Pods crash while the SLO is gone."""
    bad = pod("bad", PodState.FAILED, trouble=trouble)
    told = found(one(loaded(2.0, 1, extra=(bad,), problems=(SLO_GONE,)), steady(2.0, 2)), ConditionType.STALLED)
    assert (told.status, told.reason) == (ConditionStatus.TRUE, reason)
    assert SLO_GONE.message in told.message


def test_of_two_problems_none_hides_the_other():
    """The first gives the reason."""
    told = found(waiting(problems=(SLO_GONE, REFUSED)), ConditionType.STALLED)
    assert told.reason is SLO_GONE.reason
    assert told.message == f"{SLO_GONE.message}; {REFUSED.message}"


def test_a_problem_of_the_same_reason_names_the_field_first():
    """The kubelet lacks a Secret, and the problem says which field names it."""
    said = 'secret "hub" not found'
    field = f"spec.credentials.secretRef: {said}: create it"
    problem = replace(SLO_GONE, reason=ConditionReason.SECRET_NOT_FOUND, message=field)
    bad = pod("bad", PodState.FAILED, trouble="CreateContainerConfigError", trouble_message=said)
    told = found(one(loaded(2.0, 1, extra=(bad,), problems=(problem,)), steady(2.0, 2)), ConditionType.STALLED)
    assert told.reason is ConditionReason.SECRET_NOT_FOUND
    assert told.message.startswith(field)
    assert "1 of 2 pods fail" in told.message


def test_a_fatal_problem_is_what_is_told():
    """Nothing is decided then, whatever else is wrong."""
    fatal = replace(SLO_GONE, reason=ConditionReason.SLO_NOT_FOUND, message="spec.slo: there is no chat", fatal=True)
    told = found(waiting(NO_GPU, problems=(fatal,)), ConditionType.STALLED)
    assert (told.reason, told.message) == (fatal.reason, fatal.message)


def test_rare_misses_and_a_strict_slo_are_told_as_they_are():
    """0.04 to 0.08 % miss an SLO that allows 0.05 %: neither of them reads as 100 %."""
    memory = steady(20.0, 1)
    memory = replace(memory, samples=missed(memory.samples, 0.0004))
    told = found(one(loaded(20.0, 1, objective=replace(CHAT, attainment=0.9995)), memory), ConditionType.SLO_MET)
    assert "99.92% to 99.96% of" in told.message
    assert told.message.endswith("met the SLO of 99.95%")


def test_what_scales_the_routers_is_told_after_everything_else():
    """It holds up no engine: their number is decided, and what keeps their pods away comes first."""
    model = loaded(12.0, 2)
    fought = replace(model.router, foreign_scaler="HorizontalPodAutoscaler r", spec_replicas=4)
    plan = one(replace(model, router=fought), steady(12.0, 2))
    told = found(plan, ConditionType.STALLED)
    assert (told.status, told.reason) == (ConditionStatus.TRUE, ConditionReason.SCALER_CONFLICT)
    assert "HorizontalPodAutoscaler r also writes the replicas of Deployment llama-8b-router" in told.message
    assert "(4) is kept" in told.message
    assert plan.decision.changes
    refused = one(replace(model, router=fought, pool=replace(model.pool, pods_refused="quota")), steady(12.0, 2))
    assert found(refused, ConditionType.STALLED).reason is ConditionReason.PODS_REFUSED
