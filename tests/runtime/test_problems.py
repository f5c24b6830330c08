"""Problems that reading a Model finds, each with the field that its author can change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from goodput.adapters.records import OwnPod
from goodput.api import SLO, Model
from goodput.domain.conditions import ConditionReason, ConditionType
from goodput.domain.identity import Key
from goodput.domain.intent import Problem
from goodput.domain.observed import PodState
from goodput.runtime.entries import Entry
from goodput.runtime.intents import Surroundings, intent_of
from goodput.runtime.settings import Settings

KEY = Key("team", "chat-model")
LLAMA = {"model": "meta-llama/Llama-3.1-8B-Instruct", "slo": "chat"}
GROUP = "goodput.dev/v1alpha1"
WAITING = OwnPod(
    version=1,
    key=Key("team", "chat-model-serve-0"),
    uid="pod",
    model=KEY.name,
    pool="serve",
    revision="r",
    state=PodState.FAILED,
    node="node",
    gpus=(),
    created_at=0.0,
    ready_at=None,
    restarts=0,
    trouble="CreateContainerConfigError",
    trouble_message="",
    deletion_cost=0,
    deletion_cost_set=False,
)


def _problems(spec: dict[str, Any], **around: Any) -> list[Problem]:
    head = {"metadata": {"namespace": "team", "name": KEY.name, "uid": "u", "generation": 1}}
    model = Model.parse({"apiVersion": GROUP, "kind": "Model", **head, "spec": spec})
    slo_head = {"metadata": {"namespace": "team", "name": "chat", "uid": "s", "generation": 1}}
    slo = SLO.parse({"apiVersion": GROUP, "kind": "SLO", **slo_head, "spec": {"ttft": "500ms"}})
    base = Surroundings(
        settings=Settings(prometheus_url="http://prometheus"),
        slo=Entry(Key("team", "chat"), "s", 1, 1, slo),
        gpu_types=frozenset({"l40s"}),
        gpu_type_faults={},
        served_names={},
        config_map_text=lambda *_: None,
    )
    intent = intent_of(Entry(KEY, "u", 1, 1, model), replace(base, **around))
    assert intent is not None
    return list(intent.problems)


@pytest.mark.parametrize(
    ("said", "reason", "field"),
    [
        ('secret "hub" not found', ConditionReason.SECRET_NOT_FOUND, "spec.credentials.secretRef"),
        ("couldn't find key HF_TOKEN in Secret team/hub", ConditionReason.SECRET_NOT_FOUND, "spec.credentials."),
        ("couldn't find key k in Secret team/keys", ConditionReason.SECRET_NOT_FOUND, "spec.engine.env[TEAM_KEY]"),
        ('secret "pulled" not found', ConditionReason.SECRET_NOT_FOUND, "spec.template"),
        ('configmap "files" not found', ConditionReason.CONFIGMAP_NOT_FOUND, "spec.template"),
    ],
)
def test_what_a_kubelet_misses_is_named_by_its_field(said: str, reason: ConditionReason, field: str) -> None:
    """A Secret or ConfigMap that is not there, or lacks the key, in the kubelet's own words."""
    variable = {"name": "TEAM_KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "k"}}}
    spec = {**LLAMA, "credentials": {"secretRef": {"name": "hub"}}, "engine": {"env": [variable]}}
    (problem,) = _problems(spec, pods=(replace(WAITING, trouble_message=said),))
    assert (problem.type, problem.reason, problem.fatal) == (ConditionType.STALLED, reason, False)
    assert problem.message.startswith(field)
    assert said in problem.message


@pytest.mark.parametrize("said", ['secret "shared" not found', "couldn't find key HF_TOKEN in Secret team/shared"])
def test_a_missing_default_secret_is_a_missing_secret(said: str) -> None:
    """The same condition as for a Secret that the Model names, and the field by which its author may name another."""
    settings = Settings(prometheus_url="", default_credentials_secret="shared")
    pods = (replace(WAITING, trouble_message=said),)
    (problem,) = _problems(LLAMA, pods=pods, settings=settings)
    assert (problem.type, problem.reason) == (ConditionType.STALLED, ConditionReason.SECRET_NOT_FOUND)
    assert problem.message.startswith("spec.credentials.secretRef (unset, so the operator's default): ")
    (own,) = _problems({**LLAMA, "credentials": {"secretRef": {"name": "hub"}}}, pods=pods, settings=settings)
    assert own.message.startswith("spec.template")


def test_other_trouble_is_no_missing_object() -> None:
    """A crash, and a configuration error of another kind."""
    assert not _problems(LLAMA, pods=(replace(WAITING, trouble_message="container has runAsNonRoot and runs as root"),))
    crashed = replace(WAITING, trouble="CrashLoopBackOff", trouble_message='secret "hub" not found')
    assert not _problems(LLAMA, pods=(crashed,))


SERVED = Settings(prometheus_url="http://prometheus", namespaces=("team", "other"))
PLATFORM = {**LLAMA, "slo": {"name": "chat", "namespace": "platform"}}


def test_an_slo_of_a_namespace_that_is_not_watched_cannot_be_seen() -> None:
    """To create it would change nothing: what stands in the way is named."""
    (problem,) = _problems(PLATFORM, slo=None, settings=SERVED)
    assert (problem.type, problem.reason, problem.fatal) == (
        ConditionType.STALLED,
        ConditionReason.SLO_NOT_FOUND,
        True,
    )
    assert "namespace platform is not among the operator's watchNamespaces" in problem.message
    assert "create" not in problem.message


@pytest.mark.parametrize(
    ("spec", "settings"),
    [
        (PLATFORM, Settings(prometheus_url="")),
        ({**LLAMA, "slo": {"name": "chat", "namespace": "other"}}, SERVED),
        (LLAMA, SERVED),
    ],
    ids=["all are watched", "watched", "its own"],
)
def test_an_slo_that_could_be_seen_is_to_be_created(spec: dict[str, Any], settings: Settings) -> None:
    """Where its namespace is watched, it is missing."""
    (problem,) = _problems(spec, slo=None, settings=settings)
    assert problem.reason is ConditionReason.SLO_NOT_FOUND
    assert "watchNamespaces" not in problem.message
    assert "create it" in problem.message


def test_an_slo_that_is_watched_no_longer_was_not_deleted() -> None:
    """After watchNamespaces became shorter, the Model serves on by what it remembers, and says why."""
    head = {"metadata": {"namespace": "platform", "name": "chat"}}
    spec = {"ttft": "500ms", "allowedNamespaces": ["team"]}
    last = SLO.parse({"apiVersion": GROUP, "kind": "SLO", **head, "spec": spec})
    remembered = Entry(Key("platform", "chat"), "", 0, 0, last, deleted=True)
    (problem,) = _problems(PLATFORM, slo=remembered, settings=SERVED)
    assert (problem.reason, problem.fatal) == (ConditionReason.SLO_NOT_FOUND, False)
    assert "is not among the operator's watchNamespaces" in problem.message
    assert problem.message.endswith("; serving on by its last objectives")
    (deleted,) = _problems(PLATFORM, slo=remembered)
    assert deleted.reason is ConditionReason.SLO_DELETED


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("not json", "spec.architecture.configMapRef: "),
        ("[1]", "spec.architecture.configMapRef: "),
        ('{"hidden_size": 4096}', "spec.architecture.num_hidden_layers: "),
    ],
)
def test_a_wrong_architecture_is_named_once(text: str, field: str) -> None:
    """The field is there, and its path is not told twice."""
    spec = {"model": "a/b", "slo": "chat", "architecture": {"configMapRef": {"name": "arch"}}}
    (problem,) = _problems(spec, config_map_text=lambda *_: text)
    assert problem.reason is ConditionReason.ARCHITECTURE_INVALID
    assert problem.message.startswith(field)
    assert problem.message.count("spec.architecture") == 1


CHECKED = {
    **LLAMA,
    "qualityCheck": {
        "jobTemplate": {"spec": {"template": {"spec": {"containers": [{"name": "eval", "image": "evals:7"}]}}}}
    },
}


@pytest.mark.parametrize(("allowed", "found"), [((), 0), (("evals:*",), 0), (("vllm/*",), 1)])
def test_the_image_of_a_check_must_be_allowed_as_well(allowed: tuple[str, ...], found: int) -> None:
    """What an administrator allows is all that Goodput starts."""
    problems = _problems(CHECKED, settings=Settings(prometheus_url="", allowed_images=allowed))
    assert len(problems) == found
    for problem in problems:
        assert problem.reason is ConditionReason.IMAGE_NOT_ALLOWED
        assert "spec.qualityCheck.jobTemplate: image of container eval: evals:7" in problem.message


def test_a_check_that_waits_for_a_secret_is_named() -> None:
    """By the field in which its author named it."""
    pod = replace(WAITING, pool="check", trouble_message='secret "hub" not found')
    (problem,) = _problems(CHECKED, pods=(pod,))
    assert (problem.reason, problem.fatal) == (ConditionReason.SECRET_NOT_FOUND, False)
    assert problem.message.startswith("spec.qualityCheck.jobTemplate: ")
