"""Every object is one that Kubernetes knows: typed models, names, labels, Pod Security, order and ownership."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes import client

from goodput.api.model import MAX_MODEL_NAME
from goodput.domain.identity import LABEL_MANAGED_BY, LABEL_MODEL, LABEL_POOL, LABEL_REVISION, Key
from goodput.domain.intent import RoutingMode
from goodput.resources.inputs import KubeObject, ObjectKey, RenderInput
from goodput.resources.kinds.memory import memory_config_map
from goodput.resources.render import object_key, render_model

Make = Callable[..., RenderInput]
Objects = Callable[[RenderInput], dict[ObjectKey, KubeObject]]

TYPES = {
    "ConfigMap": client.V1ConfigMap,
    "Deployment": client.V1Deployment,
    "NetworkPolicy": client.V1NetworkPolicy,
    "PodDisruptionBudget": client.V1PodDisruptionBudget,
    "Role": client.V1Role,
    "RoleBinding": client.V1RoleBinding,
    "Service": client.V1Service,
    "ServiceAccount": client.V1ServiceAccount,
}
LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?")
DNS_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


def _routed_and_direct(make_render: Make) -> list[RenderInput]:
    rich = {
        "template": {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]
                    }
                }
            },
            "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}],
            "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
        },
        "image_pull_secrets": ("registry",),
    }
    return [make_render(**rich), make_render(routing=RoutingMode.NONE)]


def _prune(value: Any) -> Any:
    """`value` without what is None, as the API server would get it."""
    if isinstance(value, dict):
        return {key: _prune(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_prune(item) for item in value]
    return value


def test_objects_survive_the_typed_models(make_render: Make) -> None:
    """The client's models, which drop what they do not know, give back every field that we render."""
    for render in _routed_and_direct(make_render):
        objects = [*render_model(render, {}).objects, memory_config_map(render.intent, "{}")]
        for item in objects:
            typed = TYPES[item["kind"]].from_dict(item)
            assert typed is not None
            assert _prune(client.ApiClient().sanitize_for_serialization(typed)) == item


def test_every_object_is_owned_and_labelled(make_render: Make) -> None:
    """Objects go with their Model, which never waits for them, and carry the labels by which we find them."""
    for render in _routed_and_direct(make_render):
        for item in render_model(make_render(render, pod_monitor=True), {}).objects:
            (owner,) = item["metadata"]["ownerReferences"]
            assert owner["controller"] is True
            assert "blockOwnerDeletion" not in owner
            assert (owner["kind"], owner["uid"]) == ("Model", render.intent.uid)
            assert item["metadata"]["namespace"] == render.intent.key.namespace
            assert item["metadata"]["labels"][LABEL_MANAGED_BY] == "goodput"
            assert item["metadata"]["labels"][LABEL_MODEL] == render.intent.key.name


def test_what_a_pod_needs_comes_first(make_render: Make) -> None:
    """Accounts and rights precede the Deployments that use them; the engine's is the last that starts pods."""
    kinds = [item["kind"] for item in render_model(make_render(), {}).objects]
    first_deployment = kinds.index("Deployment")
    for kind in ("ServiceAccount", "Role", "RoleBinding", "NetworkPolicy", "PodDisruptionBudget", "Service"):
        assert max(index for index, found in enumerate(kinds) if found == kind) < first_deployment
    assert kinds[-1] == "Deployment"


@pytest.mark.parametrize("length", [1, 34, MAX_MODEL_NAME])
def test_names_and_labels_are_valid(length: int, make_render: Make) -> None:
    """Up to the longest name, every name is a DNS label and every label value a label value."""
    render = make_render(key=Key("team-a", "m" * length), pod_monitor=True)
    objects = [*render_model(render, {}).objects, memory_config_map(render.intent, "{}")]
    assert len({object_key(item) for item in objects}) == len(objects)
    for item in objects:
        assert DNS_LABEL.fullmatch(item["metadata"]["name"]), item["metadata"]["name"]
        template = item.get("spec", {}).get("template", {"metadata": {}})
        for value in {**item["metadata"]["labels"], **template["metadata"].get("labels", {})}.values():
            assert LABEL_VALUE.fullmatch(value), value


def test_pods_pass_restricted_pod_security(make_render: Make, rendered_of: Objects) -> None:
    """Every pod meets the restricted standard, and has a read-only root besides."""
    pods = [
        item["spec"]["template"]["spec"]
        for render in _routed_and_direct(make_render)
        for item in rendered_of(render).values()
        if item["kind"] == "Deployment"
    ]
    assert len(pods) == 3
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        assert pod["enableServiceLinks"] is False
        for volume in pod["volumes"]:
            assert set(volume) - {"name"} <= {"emptyDir", "persistentVolumeClaim", "secret"}
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["readOnlyRootFilesystem"] is True
            assert "hostPort" not in str(container["ports"])


def test_selectors_are_stable_and_match_their_pods(make_render: Make, rendered_of: Objects) -> None:
    """A Deployment's selector is immutable: model and pool alone, and its pods carry them beside their revision."""
    for item in rendered_of(make_render()).values():
        if item["kind"] == "Deployment":
            selector = item["spec"]["selector"]["matchLabels"]
            assert set(selector) == {LABEL_MODEL, LABEL_POOL}
            labels = item["spec"]["template"]["metadata"]["labels"]
            assert selector.items() <= labels.items()
            assert re.fullmatch("[0-9a-f]{10}", labels[LABEL_REVISION])


def test_replicas_are_always_written(make_render: Make, rendered_of: Objects) -> None:
    """Left out by their only owner, the API server would make them 1: also 0 is a number."""
    for replicas in (0, 1, 17):
        objects = rendered_of(make_render(replicas=replicas))
        assert objects["Deployment", "llama-8b-serve"]["spec"]["replicas"] == replicas
        assert objects["Deployment", "llama-8b-router"]["spec"]["replicas"] == 2


@pytest.mark.parametrize(("routing", "pool"), [(RoutingMode.ROUTER, "router"), (RoutingMode.NONE, "serve")])
def test_the_service_leads_to_named_ports(
    routing: RoutingMode, pool: str, make_render: Make, rendered_of: Objects
) -> None:
    """Port 80 reaches the routers, or without them the engines, by a port name that those pods have."""
    objects = rendered_of(make_render(routing=routing))
    spec = objects["Service", "llama-8b"]["spec"]
    assert spec["selector"] == {LABEL_MODEL: "llama-8b", LABEL_POOL: pool}
    deployment = objects["Deployment", f"llama-8b-{pool}"]
    ports = {port["name"] for port in deployment["spec"]["template"]["spec"]["containers"][0]["ports"]}
    assert spec["ports"][0]["targetPort"] in ports


def test_routers_may_see_pods_and_engines_nothing(make_render: Make, rendered_of: Objects) -> None:
    """The router's account has get, list and watch on pods of its namespace; the engine's has no token at all."""
    objects = rendered_of(make_render())
    assert objects["Role", "llama-8b-router"]["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    ]
    (subject,) = objects["RoleBinding", "llama-8b-router"]["subjects"]
    router = objects["Deployment", "llama-8b-router"]["spec"]["template"]["spec"]
    assert subject["name"] == router["serviceAccountName"] == "llama-8b-router"
    engine = objects["Deployment", "llama-8b-serve"]["spec"]["template"]["spec"]
    assert engine["serviceAccountName"] == "llama-8b-serve"
    assert engine["automountServiceAccountToken"] is False
    assert objects["ServiceAccount", "llama-8b-serve"]["automountServiceAccountToken"] is False


def test_engines_are_closed_but_for_their_port(make_render: Make, rendered_of: Objects) -> None:
    """Routers of this Model and scrapers reach port 8000; named scrapers close it to the rest of the cluster."""
    open_policy = rendered_of(make_render())["NetworkPolicy", "llama-8b-serve"]["spec"]
    assert open_policy["ingress"][0]["from"][1:] == [{"namespaceSelector": {}}]
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    closed = rendered_of(make_render(metrics_from=(peer,)))["NetworkPolicy", "llama-8b-serve"]["spec"]
    (rule,) = closed["ingress"]
    routers = {"podSelector": {"matchLabels": {LABEL_MODEL: "llama-8b", LABEL_POOL: "router"}}}
    assert rule == {"from": [routers, peer], "ports": [{"port": 8000, "protocol": "TCP"}]}
    direct = rendered_of(make_render(routing=RoutingMode.NONE, metrics_from=(peer,)))
    assert "from" not in direct["NetworkPolicy", "llama-8b-serve"]["spec"]["ingress"][0]
    assert ("NetworkPolicy", "llama-8b-router") not in direct


def test_pod_monitors_carry_our_labels_where_their_kind_exists(make_render: Make, rendered_of: Objects) -> None:
    """Without the CRD there is none; with it, both pools are scraped by port name and labelled by model and pool."""
    assert not [kind for kind, _ in rendered_of(make_render()) if kind == "PodMonitor"]
    objects = rendered_of(make_render(pod_monitor=True, scrape_seconds=7))
    for pool, port in (("serve", "http"), ("router", "metrics")):
        spec = objects["PodMonitor", f"llama-8b-{pool}"]["spec"]
        assert spec["podTargetLabels"] == [LABEL_MODEL, LABEL_POOL, LABEL_REVISION]
        assert spec["podMetricsEndpoints"] == [{"port": port, "path": "/metrics", "interval": "7s"}]
