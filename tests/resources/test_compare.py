"""Drift is found, and nothing else: defaults of the API server and fields of other writers are no difference."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from goodput.domain.intent import RoutingMode
from goodput.resources.compare import compare
from goodput.resources.inputs import KubeObject, ObjectKey, Rendered, RenderInput
from goodput.resources.render import object_key, render_model, stale

ENGINE = ("Deployment", "llama-8b-serve")

Make = Callable[..., RenderInput]
Stored = Callable[[Rendered], dict[ObjectKey, KubeObject]]


def test_what_was_applied_is_not_different(make_render: Make, stored: Stored) -> None:
    """With the defaults that an API server adds, every object equals what we render: nothing is written."""
    rendered = render_model(make_render(pod_monitor=True), {})
    existing = stored(rendered)
    assert {object_key(item): compare(existing[object_key(item)], item) for item in rendered.objects} == dict.fromkeys(
        existing
    )


def test_an_absent_object_differs(make_render: Make) -> None:
    """None is what a missing object reads as."""
    assert compare(None, render_model(make_render(), {}).objects[0]) == "does not exist"


@pytest.mark.parametrize(
    ("have", "want"),
    [
        pytest.param(RoutingMode.ROUTER, RoutingMode.NONE, id="routers alone were let in"),
        pytest.param(RoutingMode.NONE, RoutingMode.ROUTER, id="everybody was let in"),
    ],
)
def test_who_is_let_in_is_compared_as_a_whole(have: RoutingMode, want: RoutingMode, make_render: Make) -> None:
    """A peer list too many shuts out users, though each field that we render is there."""
    policy = ("NetworkPolicy", "llama-8b-serve")
    first, second = (
        {object_key(item): item for item in render_model(make_render(routing=routing), {}).objects}[policy]
        for routing in (have, want)
    )
    assert (compare(first, second) or "").startswith("spec.ingress[0]: have")
    assert compare(first, copy.deepcopy(first)) is None


def test_a_peer_is_compared_as_a_whole(make_render: Make) -> None:
    """A selector beside the one that we render narrows it."""
    policy = ("NetworkPolicy", "llama-8b-serve")
    want = {object_key(item): item for item in render_model(make_render(), {}).objects}[policy]
    have = copy.deepcopy(want)
    have["spec"]["ingress"][0]["from"][1]["podSelector"] = {"matchLabels": {"app": "prometheus"}}
    assert (compare(have, want) or "").startswith("spec.ingress[0].from[1]: have")


def _set(item: Any, path: tuple[Any, ...], value: Any) -> None:
    for step in path[:-1]:
        item = item[step]
    if value is None:
        del item[path[-1]]
    else:
        item[path[-1]] = value


SPEC = ("spec", "template", "spec")
DRIFTS: list[tuple[tuple[Any, ...], Any, str]] = [
    (("spec", "replicas"), 7, "spec.replicas: have 7, want 2"),
    (("spec", "replicas"), None, "spec.replicas: missing, want 2"),
    (("metadata", "labels", "goodput.dev/model"), "other", "metadata.labels.goodput.dev/model: have 'other'"),
    (("metadata", "ownerReferences"), [], "metadata.ownerReferences[11111111-2222-3333-4444-555555555555]: missing"),
    ((*SPEC, "containers", 0, "image"), "x", "spec.template.spec.containers[vllm].image: have 'x'"),
    ((*SPEC, "containers", 0, "args", 3), "x", "spec.template.spec.containers[vllm].args[3]: have 'x'"),
    ((*SPEC, "containers", 0, "args"), [], "spec.template.spec.containers[vllm].args: have []"),
    ((*SPEC, "containers", 0, "env"), [], "spec.template.spec.containers[vllm].env[HOME]: missing"),
    ((*SPEC, "automountServiceAccountToken"), True, "spec.template.spec.automountServiceAccountToken: have True"),
    ((*SPEC, "nodeSelector", "extra"), "x", "spec.template.spec.nodeSelector: have"),
    ((*SPEC, "containers", 0, "resources", "requests", "memory"), "11Gi", "have '11Gi', want '10Gi'"),
    ((*SPEC, "terminationGracePeriodSeconds"), "340", "have '340', want 340"),
]


@pytest.mark.parametrize(("path", "value", "want"), DRIFTS)
def test_a_difference_is_named(path: tuple[Any, ...], value: Any, want: str, make_render: Make, stored: Stored) -> None:
    """The text gives the path, what is there and what should be."""
    rendered = render_model(make_render(), {})
    existing = stored(rendered)[ENGINE]
    _set(existing, path, value)
    difference = compare(existing, {object_key(item): item for item in rendered.objects}[ENGINE])
    assert difference is not None
    assert want in difference


def test_additions_of_others_are_left_alone(make_render: Make, stored: Stored) -> None:
    """An injected side-car, label, variable or volume belongs to whoever wrote it."""
    rendered = render_model(make_render(), {})
    existing = stored(rendered)[ENGINE]
    existing["metadata"]["labels"]["argocd.example.com/x"] = "y"
    pod = existing["spec"]["template"]["spec"]
    pod["containers"].insert(0, {"name": "proxy", "image": "proxy"})
    pod["containers"][1]["env"].append({"name": "INJECTED", "value": "1"})
    pod["volumes"].insert(0, {"name": "proxy", "emptyDir": {}})
    assert compare(existing, {object_key(item): item for item in rendered.objects}[ENGINE]) is None


@pytest.mark.parametrize(("have", "want"), [("1", "1000m"), ("1Gi", "1024Mi"), ("2", "2")])
def test_quantities_are_equal_by_value(have: str, want: str) -> None:
    """The API server writes quantities its own way."""
    assert compare({"limits": {"cpu": have}}, {"limits": {"cpu": want}}) is None
    assert compare({"emptyDir": {"sizeLimit": have}}, {"emptyDir": {"sizeLimit": want}}) is None
    assert compare({"limits": {"cpu": "3"}}, {"limits": {"cpu": want}}) is not None


def test_empty_and_absent_are_the_same() -> None:
    """The API server drops empty maps and lists."""
    assert compare({}, {"a": {}, "b": [], "c": {"d": 1}}) == "c: missing, want {'d': 1}"


def test_false_is_left_out_like_what_is_empty() -> None:
    """Of a field that is either true or absent, the API server keeps no false: writing it again would never end."""
    mounted = {"volumeMounts": [{"name": "a", "mountPath": "/a", "readOnly": False}]}
    assert compare({"volumeMounts": [{"name": "a", "mountPath": "/a"}]}, mounted) is None
    assert compare({"volumeMounts": [{"name": "a", "mountPath": "/a", "readOnly": True}]}, mounted) is not None


def _falses(item: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    parts = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
    return [path] if item is False else [found for key, part in parts for found in _falses(part, (*path, key))]


def test_a_false_of_ours_that_somebody_removes_is_a_difference(make_render: Make, stored: Stored) -> None:
    """Whether tokens are mounted or privileges may grow: there, absent means another thing than false."""
    rendered = render_model(make_render(), {})
    places = [(object_key(item), item, path) for item in rendered.objects for path in _falses(item)]
    assert {path[-1] for _, _, path in places} == {
        "allowPrivilegeEscalation",
        "automountServiceAccountToken",
        "enableServiceLinks",
    }
    for key, item, path in places:
        existing = stored(rendered)[key]
        _set(existing, path, None)
        difference = compare(existing, item)
        assert difference is not None
        assert f"{path[-1]}: missing, want False" in difference


def test_comparing_changes_nothing(make_render: Make, stored: Stored) -> None:
    """Neither side is written to."""
    rendered = render_model(make_render(), {})
    existing = stored(rendered)[ENGINE]
    desired = {object_key(item): item for item in rendered.objects}[ENGINE]
    before = copy.deepcopy((existing, desired))
    compare(existing, desired)
    assert (existing, desired) == before


def test_objects_of_a_router_that_was_switched_off_are_stale(make_render: Make) -> None:
    """What `routing.mode: None` no longer has is named for deletion; the loop's memory never is."""
    routed = render_model(make_render(pod_monitor=True), {})
    keys = [*(object_key(item) for item in routed.objects), ("ConfigMap", "llama-8b-goodput")]
    direct = render_model(make_render(pod_monitor=True, routing=RoutingMode.NONE), {})
    assert stale(keys, "llama-8b", routed.objects) == ()
    assert set(stale(keys, "llama-8b", direct.objects)) == {
        ("Deployment", "llama-8b-router"),
        ("NetworkPolicy", "llama-8b-router"),
        ("PodDisruptionBudget", "llama-8b-router"),
        ("PodMonitor", "llama-8b-router"),
        ("Role", "llama-8b-router"),
        ("RoleBinding", "llama-8b-router"),
        ("ServiceAccount", "llama-8b-router"),
    }
