"""The chart as Helm renders it: objects that Kubernetes knows, restricted pods, exactly the rights that are used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kubernetes import client

from goodput.adapters.kinds import (
    AUTOSCALERS,
    CRDS,
    EVENTS,
    GPU_TYPES,
    LEASES,
    MODELS,
    NODES,
    OWNED,
    PODS,
    SCALED_OBJECTS,
    SLOS,
)
from goodput.domain.identity import Key
from goodput.domain.intent import ModelIntent
from goodput.resources.inputs import SecretKey
from goodput.resources.kinds.access import router_role
from goodput.runtime.rendering import render_settings
from goodput_controllers.main import main, settings_of

pytestmark = pytest.mark.e2e

Template = Callable[..., dict[tuple[str, str, str], dict[str, Any]]]

SYSTEM = "goodput-system"
EVERYTHING: dict[str, Any] = {
    "replicas": 2,
    "imagePullSecrets": [{"name": "registry"}],
    "image": {"digest": "sha256:" + "a" * 64},
    "prometheus": {
        "url": "https://prometheus.example.com",
        "tokenSecret": {"name": "token", "key": "t"},
        "caConfigMap": {"name": "ca", "key": "ca.crt"},
    },
    "allowedImages": ["vllm/*", "example.com/*"],
    "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
    "podMonitorLabels": {"team/release": "stack", "tier": ""},
    "limits": {"gpusPerNamespace": 8, "costPerHourPerNamespace": "12.5", "priority": {"*": -5, "platform": 100}},
    "watchNamespaces": ["team-a", "team-b"],
    "modelDefaults": {
        "credentials": {"secretName": "hub", "key": "token"},
        "imagePullSecrets": [{"name": "registry"}, {"name": "mirror"}],
    },
    "ledger": {"enabled": True, "claimName": "history", "days": 1.5},
    "logFormat": "plain",
    "serviceAccount": {"annotations": {"a": "b"}},
    "podLabels": {"team": "platform"},
    "podAnnotations": {"a": "b"},
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClass": {"create": True, "name": "goodput"},
    "networkPolicy": {"enabled": True},
}
TYPES = {
    "ClusterRole": client.V1ClusterRole,
    "ClusterRoleBinding": client.V1ClusterRoleBinding,
    "Deployment": client.V1Deployment,
    "NetworkPolicy": client.V1NetworkPolicy,
    "PodDisruptionBudget": client.V1PodDisruptionBudget,
    "PriorityClass": client.V1PriorityClass,
    "Role": client.V1Role,
    "RoleBinding": client.V1RoleBinding,
    "Service": client.V1Service,
    "ServiceAccount": client.V1ServiceAccount,
}
Rights = set[tuple[str, str, str]]


def _rights(role: dict[str, Any]) -> Rights:
    """(group, resource, verb) of every rule."""
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _verbs(resource: Any, *verbs: str, suffix: str = "") -> Rights:
    return {(resource.group, resource.plural + suffix, verb) for verb in verbs}


FLEET_WIDE: Rights = (
    _verbs(GPU_TYPES, "list", "watch")
    | _verbs(GPU_TYPES, "patch", suffix="/status")
    | _verbs(CRDS, "get")
    | _verbs(NODES, "list", "watch")
    | _verbs(PODS, "list", "watch")
)
IN_NAMESPACES: Rights = (
    _verbs(MODELS, "get", "list", "watch")
    | _verbs(SLOS, "list", "watch")
    | _verbs(MODELS, "patch", suffix="/status")
    | _verbs(SLOS, "patch", suffix="/status")
    | _verbs(PODS, "get", "list", "watch", "patch")
    | _verbs(EVENTS, "create", "patch")
    | _verbs(AUTOSCALERS, "list", "watch")
    | _verbs(SCALED_OBJECTS, "list", "watch")
).union(*(_verbs(resource, "get", "list", "watch", "create", "patch", "delete") for resource in OWNED))


def test_helm_lint_is_content(lint: Callable[[], str]) -> None:
    """No error and no warning."""
    assert lint() == ""


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_objects_survive_the_typed_models(values: dict[str, Any], template: Template) -> None:
    """Every object is one of Kubernetes, with no field that its type lacks."""
    for item in template(values).values():
        typed = TYPES[item["kind"]].from_dict(item)
        assert typed is not None
        assert client.ApiClient().sanitize_for_serialization(typed) == item


def test_the_operator_has_the_rights_that_it_uses(template: Template) -> None:
    """Exactly those of its reflectors and writes: no Secrets, no wildcard, no escalate, no finalizers."""
    objects = template()
    assert _rights(objects["ClusterRole", "", "goodput"]) == FLEET_WIDE | IN_NAMESPACES
    assert _rights(objects["Role", SYSTEM, "goodput-leader"]) == _verbs(LEASES, "create", "get", "update")
    rights = FLEET_WIDE | IN_NAMESPACES
    assert not {"*", "escalate", "bind", "impersonate"} & {verb for _, _, verb in rights}
    assert not {resource for _, resource, _ in rights if "*" in resource or "secrets" in resource}
    assert not {resource for _, resource, _ in rights if "finalizers" in resource}


@pytest.mark.parametrize(
    ("ledger", "volume"),
    [
        ({"enabled": True, "megabytes": 100}, {"emptyDir": {"sizeLimit": "200M"}}),
        ({"enabled": True, "claimName": "history"}, {"persistentVolumeClaim": {"claimName": "history"}}),
        ({"claimName": "history"}, None),
    ],
)
def test_the_ledger_is_on_a_volume_of_its_own(
    ledger: dict[str, Any], volume: dict[str, Any] | None, template: Template
) -> None:
    """Where it is kept, the operator is told the directory that is mounted; else there is neither."""
    pod = template({"ledger": ledger})["Deployment", SYSTEM, "goodput"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    found = next((each for each in pod["volumes"] if each["name"] == "ledger"), None)
    assert found == (None if volume is None else {"name": "ledger", **volume})
    assert mounts.get("ledger") == variables.get("GOODPUT_LEDGER_DIR")
    assert (volume is None) == ("GOODPUT_LEDGER_DIR" not in variables)


def test_watched_namespaces_bound_the_rights(template: Template) -> None:
    """With `watchNamespaces`, rights on objects of Models are Roles there. Elsewhere only the status of GPUTypes is
    written: Events are about Models.
    """
    objects = template(EVERYTHING)
    everywhere = _rights(objects["ClusterRole", "", "goodput"])
    assert everywhere == FLEET_WIDE
    written = {right for right in everywhere if right[2] not in ("get", "list", "watch")}
    assert written == _verbs(GPU_TYPES, "patch", suffix="/status")
    roles = {namespace for kind, namespace, _ in objects if kind == "Role"}
    assert roles == {SYSTEM, "team-a", "team-b"}
    for namespace in ("team-a", "team-b"):
        assert _rights(objects["Role", namespace, "goodput"]) == IN_NAMESPACES
        (subject,) = objects["RoleBinding", namespace, "goodput"]["subjects"]
        assert (subject["name"], subject["namespace"]) == ("goodput", SYSTEM)


def test_the_operator_holds_what_it_grants_to_routers() -> None:
    """Without `escalate`, the API server lets nobody grant a right that they lack."""
    intent = ModelIntent(
        key=Key("a", "b"),
        uid="u",
        generation=1,
        model="m",
        served_name="m",
        slo=Key("a", "s"),
        objective=None,
        architecture=None,
    )
    assert _rights(router_role(intent)) <= IN_NAMESPACES


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_the_operator_pod_is_restricted(values: dict[str, Any], template: Template) -> None:
    """It meets restricted Pod Security with a read-only root, and binds every volume that it mounts."""
    pod = template(values)["Deployment", SYSTEM, "goodput"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {m["name"] for m in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    ports = {port["name"] for port in container["ports"]}
    for probe in ("readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] in ports


def test_values_reach_the_operator(template: Template) -> None:
    """What an administrator sets stands in the environment of the operator."""
    (container,) = template(EVERYTHING)["Deployment", SYSTEM, "goodput"]["spec"]["template"]["spec"]["containers"]
    env = {item["name"]: item.get("value") for item in container["env"]}
    assert container["image"] == "goodput-operator@sha256:" + "a" * 64
    want = {
        "GOODPUT_PROMETHEUS_URL": "https://prometheus.example.com",
        "GOODPUT_PROMETHEUS_TOKEN_FILE": "/etc/goodput/prometheus-token/t",
        "GOODPUT_PROMETHEUS_CA_FILE": "/etc/goodput/prometheus-ca/ca.crt",
        "GOODPUT_ALLOWED_IMAGES": "vllm/*,example.com/*",
        "GOODPUT_METRICS_FROM": '[{"namespaceSelector":{"matchLabels":{"name":"monitoring"}}}]',
        "GOODPUT_POD_MONITOR_LABELS": "team/release=stack,tier=",
        "GOODPUT_NAMESPACES": "team-a,team-b",
        "GOODPUT_DEFAULT_CREDENTIALS_SECRET": "hub",
        "GOODPUT_DEFAULT_CREDENTIALS_KEY": "token",
        "GOODPUT_DEFAULT_IMAGE_PULL_SECRETS": "registry,mirror",
        "GOODPUT_MAX_GPUS_PER_NAMESPACE": "8",
        "GOODPUT_MAX_COST_PER_HOUR_PER_NAMESPACE": "12.5",
        "GOODPUT_MAX_PRIORITY": "*=-5,platform=100",
        "GOODPUT_JSON_LOGS": "false",
        "GOODPUT_LEASE_NAMESPACE": SYSTEM,
    }
    assert {name: env[name] for name in want} == want
    (container,) = template()["Deployment", SYSTEM, "goodput"]["spec"]["template"]["spec"]["containers"]
    env = {item["name"]: item.get("value") for item in container["env"]}
    assert env["GOODPUT_JSON_LOGS"] == "true"
    assert "GOODPUT_MAX_GPUS_PER_NAMESPACE" not in env
    assert not {name for name in env if name.startswith("GOODPUT_DEFAULT_") and name != "GOODPUT_DEFAULT_MODE"}


def test_defaults_of_models_reach_rendering(template: Template, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator, started with the environment of the chart, gives engines the token and pods the pull Secrets."""
    (container,) = template(EVERYTHING)["Deployment", SYSTEM, "goodput"]["spec"]["template"]["spec"]["containers"]
    for item in container["env"]:
        if item["name"].startswith("GOODPUT_") and "value" in item:
            monkeypatch.setenv(item["name"], item["value"])
    settings = render_settings(settings_of(main.make_context("goodput-operator", []).params), pod_monitor=False)
    assert settings.default_credentials == SecretKey(name="hub", key="token")
    assert settings.default_image_pull_secrets == ("registry", "mirror")
    assert settings.pod_monitor_labels == (("team/release", "stack"), ("tier", ""))


def test_the_operators_own_pod_monitor(template: Template) -> None:
    """It can be selected by label, and leaves the namespace that a metric of a Model names as it is."""
    values = {"metrics": {"podMonitor": True}, "podMonitorLabels": {"release": "stack", "app.kubernetes.io/name": "x"}}
    monitor = template(values)["PodMonitor", SYSTEM, "goodput"]
    assert monitor["metadata"]["labels"]["release"] == "stack"
    assert monitor["metadata"]["labels"]["app.kubernetes.io/name"] == "goodput"
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["honorLabels"] is True
    assert (
        "release"
        not in template({"metrics": {"podMonitor": True}})["PodMonitor", SYSTEM, "goodput"]["metadata"]["labels"]
    )


def test_a_second_replica_brings_a_budget(template: Template) -> None:
    """One replica must not block a node drain; of two, one stays."""
    assert ("PodDisruptionBudget", SYSTEM, "goodput") not in template()
    assert ("PodDisruptionBudget", SYSTEM, "goodput") in template({"replicas": 2})


def test_helm_refuses_what_the_schema_refuses(template: Template) -> None:
    """A misspelt value stops the installation and is named."""
    with pytest.raises(Exception, match="tickSecond"):
        template({"tickSecond": 10})


def test_every_object_carries_the_labels_of_helm(template: Template) -> None:
    """And none carries ours, by which the operator finds objects of Models."""
    for item in template(EVERYTHING).values():
        labels = item["metadata"]["labels"]
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert labels["app.kubernetes.io/instance"] == "goodput"
        assert labels["helm.sh/chart"] == "goodput-0.1.0"
