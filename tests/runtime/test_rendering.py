"""From what an author wrote to what is rendered: with nothing added that Kubernetes would drop again."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.placements import placement

from goodput.api import Model
from goodput.domain.identity import Key
from goodput.domain.intent import ModelIntent, Objective
from goodput.resources.compare import compare
from goodput.resources.inputs import KubeObject, RenderSettings
from goodput.resources.render import render_model
from goodput.runtime.rendering import render_input, render_settings
from goodput.runtime.settings import Settings

SETTINGS = RenderSettings(engine_image="vllm/vllm-openai:v0.33.0", router_image="goodput-router:0.1.17")
PLACEMENT = placement(price_per_hour=None)


def _deployments(spec: dict[str, Any], settings: RenderSettings = SETTINGS) -> dict[str, KubeObject]:
    """Deployments of a Model with this in its spec, by name."""
    head = {"metadata": {"namespace": "team", "name": "chat", "uid": "u", "generation": 1}}
    model = Model.parse({**head, "spec": {"model": "meta-llama/Llama-3.1-8B-Instruct", "slo": "chat", **spec}})
    intent = ModelIntent(
        key=Key("team", "chat"),
        uid="u",
        generation=1,
        model=model.spec.model,
        served_name=model.served_name,
        slo=Key("team", "chat"),
        objective=Objective(ttft_seconds=0.5, tpot_seconds=0.05, e2e_seconds=None),
        architecture=None,
    )
    render = render_input(model, intent, PLACEMENT, replicas=2, settings=settings)
    objects = render_model(render, {}).objects
    return {item["metadata"]["name"]: item for item in objects if item["kind"] == "Deployment"}


def _volumes(**read_only: bool) -> dict[str, Any]:
    return {
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data", **read_only}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data", **read_only}],
    }


def _user_part(deployment: KubeObject) -> dict[str, Any]:
    pod = deployment["spec"]["template"]["spec"]
    return {
        "volumes": [volume for volume in pod["volumes"] if volume["name"] == "data"],
        "volumeMounts": [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "data"],
    }


@pytest.mark.parametrize("read_only", [{}, {"readOnly": True}, {"readOnly": False}], ids=["unset", "true", "false"])
def test_volumes_are_rendered_as_written_and_compare_equal(read_only: dict[str, bool]) -> None:
    """No default of ours is added, and an API server that drops a false leaves nothing to write again."""
    deployment = _deployments({"template": _volumes(**read_only)})["chat-serve"]
    assert _user_part(deployment) == _volumes(**read_only)
    stored = copy.deepcopy(deployment)
    part = _user_part(stored)
    for item in (part["volumes"][0]["persistentVolumeClaim"], part["volumeMounts"][0]):
        if not item.get("readOnly"):
            item.pop("readOnly", None)
    assert compare(stored, deployment) is None


def test_affinity_is_rendered_as_written() -> None:
    """Lists that the author left out are not written as empty ones: a newer schema has more of them."""
    term = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    deployment = _deployments({"template": {"affinity": {"nodeAffinity": required}}})["chat-serve"]
    assert deployment["spec"]["template"]["spec"]["affinity"] == {"nodeAffinity": required}


DEFAULTS = render_settings(
    Settings(
        prometheus_url="http://prometheus",
        default_credentials_secret="hub",
        default_credentials_key="token",
        default_image_pull_secrets=("registry", "mirror"),
    ),
    pod_monitor=False,
)


def _secrets(deployment: KubeObject) -> tuple[dict[str, str] | None, list[str]]:
    """(reference of HF_TOKEN, names of the pull Secrets)."""
    pod = deployment["spec"]["template"]["spec"]
    env = {item["name"]: item for item in pod["containers"][0]["env"]}
    token = env["HF_TOKEN"]["valueFrom"]["secretKeyRef"] if "HF_TOKEN" in env else None
    return token, [item["name"] for item in pod.get("imagePullSecrets", ())]


OWN_TOKEN = {"credentials": {"secretRef": {"name": "own"}}}
OWN_PULL = {"imagePullSecrets": [{"name": "mine"}]}


@pytest.mark.parametrize(
    ("spec", "token", "pull"),
    [
        pytest.param({}, {"name": "hub", "key": "token"}, ["registry", "mirror"], id="nothing of its own"),
        pytest.param(OWN_TOKEN, {"name": "own", "key": "HF_TOKEN"}, ["registry", "mirror"], id="a token of its own"),
        pytest.param(OWN_PULL, {"name": "hub", "key": "token"}, ["mine"], id="pull Secrets of its own"),
        pytest.param({"model": "pvc://weights/x"}, None, ["registry", "mirror"], id="a claim, which needs no token"),
    ],
)
def test_secrets_that_a_model_does_not_name_are_the_settings_own(
    spec: dict[str, Any], token: dict[str, str] | None, pull: list[str]
) -> None:
    """The token goes to engines, pull Secrets to engines and routers; what the author named wins, field by field."""
    found = _deployments(spec, DEFAULTS)
    assert _secrets(found["chat-serve"]) == (token, pull)
    assert _secrets(found["chat-router"]) == (None, pull)


def test_without_defaults_there_are_no_secrets() -> None:
    """Neither a variable nor a reference that names nothing."""
    for deployment in _deployments({}).values():
        assert _secrets(deployment) == (None, [])
