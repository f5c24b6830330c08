"""Models ready to be rendered, and the objects that an API server would have of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs
from tests.placements import placement

from goodput.domain.identity import Key
from goodput.domain.intent import ModelIntent, Objective
from goodput.domain.plan import Placement
from goodput.resources.inputs import KubeObject, ObjectKey, Rendered, RenderInput, RenderSettings, Terms
from goodput.resources.render import object_key, render_model

INTENT_FIELDS = frozenset(ModelIntent.__struct_fields__)
PLACEMENT_FIELDS = frozenset(Placement.__struct_fields__)
SETTINGS_FIELDS = frozenset(RenderSettings.__dataclass_fields__)
TERMS_FIELDS = frozenset(Terms.__dataclass_fields__)


def _smallest() -> RenderInput:
    """The smallest Model, placed on one L40S."""
    intent = ModelIntent(
        key=Key("team-a", "llama-8b"),
        uid="11111111-2222-3333-4444-555555555555",
        generation=1,
        model="meta-llama/Llama-3.1-8B-Instruct",
        served_name="meta-llama/Llama-3.1-8B-Instruct",
        slo=Key("team-a", "chat"),
        objective=Objective(ttft_seconds=0.5, tpot_seconds=0.05, e2e_seconds=None),
        architecture=None,
    )
    settings = RenderSettings(engine_image="vllm/vllm-openai:v0.33.0", router_image="goodput-router:0.1.17")
    return RenderInput(intent=intent, placement=placement(), replicas=2, settings=settings)


@pytest.fixture
def make_render() -> Callable[..., RenderInput]:
    """`make_render(field=value, ...)`: the smallest Model, with fields of its parts or of itself changed."""

    def build(base: RenderInput | None = None, /, **changes: Any) -> RenderInput:
        render = base or _smallest()
        # A field of both an intent and a placement means the placement: pods are rendered from what was decided.
        placement = {key: changes.pop(key) for key in list(changes) if key in PLACEMENT_FIELDS}
        intent = {key: changes.pop(key) for key in list(changes) if key in INTENT_FIELDS}
        settings = {key: changes.pop(key) for key in list(changes) if key in SETTINGS_FIELDS}
        terms = {key: changes.pop(key) for key in list(changes) if key in TERMS_FIELDS}
        return replace(
            render,
            intent=structs.replace(render.intent, **intent),
            placement=structs.replace(render.placement, **placement),
            settings=replace(render.settings, **settings),
            terms=replace(render.terms, **terms),
            **changes,
        )

    return build


@pytest.fixture
def stored() -> Callable[[Rendered], dict[ObjectKey, KubeObject]]:
    """What an API server returns after these objects were applied: with defaults and fields of other writers."""

    def build(rendered: Rendered) -> dict[ObjectKey, KubeObject]:
        result = {object_key(item): copy.deepcopy(item) for item in rendered.objects}
        for item in result.values():
            item["metadata"] |= {"uid": "some-uid", "resourceVersion": "7", "generation": 1}
            template = item.get("spec", {}).get("template")
            if template is not None:
                template["metadata"]["creationTimestamp"] = None
                template["spec"] |= {"dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default"}
                for container in template["spec"]["containers"]:
                    container["imagePullPolicy"] = "IfNotPresent"
                    container["terminationMessagePath"] = "/dev/termination-log"
        return result

    return build


@pytest.fixture
def rendered_of() -> Callable[[RenderInput], dict[ObjectKey, KubeObject]]:
    """The objects of a Model that does not exist yet, by kind and name."""
    return lambda render: {object_key(item): item for item in render_model(render, {}).objects}
