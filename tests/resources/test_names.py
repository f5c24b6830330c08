"""No two Models of a namespace want one name, whatever they are called."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
from tests.placements import placement

from goodput.api.model import MAX_MODEL_NAME, Model
from goodput.domain.identity import Key
from goodput.domain.plan import ChangePlan, CheckRun
from goodput.resources import names
from goodput.resources.inputs import KubeObject, ObjectKey, Rendered, RenderInput
from goodput.resources.kinds.memory import memory_config_map
from goodput.resources.render import object_key, render_model

Make = Callable[..., RenderInput]
CHANGE = "0123456789"
CHECK = {"backoffLimit": 0, "activeDeadlineSeconds": 60, "template": {"spec": {"containers": []}}}
SUFFIXES = ("serve", "router", "canary", "check", f"check-{CHANGE}", "goodput", "goodput-serve", "canary-router")


def _objects(make_render: Make, name: str) -> list[KubeObject]:
    change = ChangePlan(id=CHANGE, held=True, canary=placement(), check=CheckRun.RUN)
    render = make_render(key=Key("team-a", name), change=change, check=CHECK, pod_monitor=True)
    return [*render_model(render, {}).objects, memory_config_map(render.intent, "{}")]


def _is_a_model(name: str) -> bool:
    manifest = {"metadata": {"name": name, "namespace": "team-a"}, "spec": {"model": "a/b1", "slo": "chat"}}
    return Model.parse(manifest).metadata.name == name


def test_no_two_models_want_one_name(make_render: Make) -> None:
    """Of names that end in what we append, too: each is one that the API lets through."""
    found: dict[str, set[ObjectKey]] = {}
    # As far as a Model may be called as the Service of a canary is.
    alike = names.canary_service("llama")[:MAX_MODEL_NAME]
    for name in ("llama", alike, *(f"llama-{suffix}" for suffix in SUFFIXES)):
        assert _is_a_model(name)
        objects = _objects(make_render, name)
        found[name] = {object_key(item) for item in objects}
        assert len(found[name]) == len(objects)
    for one, other in combinations(found, 2):
        assert not found[one] & found[other], f"{one} and {other}"


@pytest.mark.parametrize("length", range(1, MAX_MODEL_NAME + 1))
def test_the_service_of_a_canary_is_called_as_no_model_may_be(length: int) -> None:
    """It is a DNS label all the same, with another name for each Model."""
    name = names.canary_service("m" * length)
    assert MAX_MODEL_NAME < len(name) <= 63
    assert name.replace("-", "a").isalnum()
    assert not name.endswith("-")
    assert name != names.canary_service("n" * length)


def test_routers_that_run_keep_the_account_that_they_have(
    make_render: Make, stored: Callable[[Rendered], dict[ObjectKey, KubeObject]]
) -> None:
    """An earlier operator gave them another: it stays, with its rights, until the last of them is replaced."""
    earlier = stored(render_model(make_render(), {}))
    deployment = earlier["Deployment", "llama-8b-router"]
    annotations = deployment["metadata"]["annotations"]
    own = '"serviceAccountName":"llama-8b-router"'
    assert own in annotations["goodput.dev/template"]
    annotations["goodput.dev/template"] = annotations["goodput.dev/template"].replace(own, '"serviceAccountName":"x"')

    earlier["RoleBinding", "llama-8b-router"]["subjects"][0]["name"] = "x"

    def accounts(existing: dict[ObjectKey, KubeObject], **changes: Any) -> tuple[str, set[str]]:
        """That of the pods, and those that may find engines."""
        found = {object_key(item): item for item in render_model(make_render(**changes), existing).objects}
        bound = {subject["name"] for subject in found["RoleBinding", "llama-8b-router"]["subjects"]}
        assert all(("ServiceAccount", name) in found for name in bound)
        return found["Deployment", "llama-8b-router"]["spec"]["template"]["spec"]["serviceAccountName"], bound

    assert accounts(earlier) == ("x", {"x"})
    anew = {"image_pull_secrets": ("pull",)}
    assert accounts(earlier, **anew) == ("llama-8b-router", {"x", "llama-8b-router"})
    # Routers that wait for their successors, however long those take, find engines that start meanwhile.
    rolling = stored(render_model(make_render(**anew), earlier))
    assert accounts(rolling, **anew, routers_roll=True) == ("llama-8b-router", {"x", "llama-8b-router"})
    assert accounts(rolling, **anew) == ("llama-8b-router", {"llama-8b-router"})
