"""The canary of a change: one replica, a Service for the check alone, and the Job that judges it.

None of its pods carries the labels by which the users' Service, the routers, budgets and PodMonitors select.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from goodput.api.qualitycheck import CHECK_ENV_PREFIX
from goodput.domain.identity import CANARY_POOL, CHECK_POOL
from goodput.domain.plan import ChangePlan, CheckRun, Placement
from goodput.resources import meta, names
from goodput.resources.engine.deployment import REVISION_HISTORY, choose_template
from goodput.resources.inputs import Existing, KubeObject, RenderInput
from goodput.resources.security import container_security_context, pod_security_context
from goodput.resources.serving import ANNOTATION_CHANGE, serving_of

_JOB = "Job"


def canary_objects(render: RenderInput, existing: Existing) -> list[KubeObject]:
    """What exists for the change of `render` beside what serves, in the order to apply it; nothing without one."""
    change = render.change
    if change is None:
        return []
    objects: list[KubeObject] = []
    if change.canary is not None:
        model = render.intent.key.name
        objects = [
            _network_policy(render),
            _service(render),
            _deployment(render, change, change.canary, existing.get(("Deployment", names.canary(model)))),
        ]
    return [*objects, *_jobs(render, change, existing)]


def _deployment(
    render: RenderInput, change: ChangePlan, placement: Placement, existing: Mapping[str, Any] | None
) -> KubeObject:
    """One replica. Of a change that is edited the old canary goes first: it holds the GPUs."""
    intent = render.intent
    choice = choose_template(existing, replace(render, placement=placement, replicas=1), CANARY_POOL)
    deployment = meta.new_object("apps/v1", "Deployment", names.canary(intent.key.name), intent, CANARY_POOL)
    deployment["metadata"]["annotations"] = {**choice.annotations, ANNOTATION_CHANGE: change.id}
    deployment["spec"] = {
        "replicas": 1,
        "selector": {"matchLabels": meta.selector(intent.key.name, CANARY_POOL)},
        "strategy": {"type": "Recreate"},
        "progressDeadlineSeconds": render.settings.startup_timeout_seconds + 600,
        "revisionHistoryLimit": REVISION_HISTORY,
        "template": choice.template,
    }
    return deployment


def _service(render: RenderInput) -> KubeObject:
    intent = render.intent
    service = meta.new_object("v1", "Service", names.canary_service(intent.key.name), intent, CANARY_POOL)
    service["spec"] = {
        "type": "ClusterIP",
        "selector": meta.selector(intent.key.name, CANARY_POOL),
        "ports": [{"name": names.HTTP, "port": names.SERVICE_PORT, "targetPort": names.HTTP, "protocol": "TCP"}],
    }
    return service


def _network_policy(render: RenderInput) -> KubeObject:
    """For the pods of the check, and for scrapers that the settings name."""
    intent = render.intent
    policy = meta.new_object(
        "networking.k8s.io/v1", "NetworkPolicy", names.canary(intent.key.name), intent, CANARY_POOL
    )
    checks = {"podSelector": {"matchLabels": meta.selector(intent.key.name, CHECK_POOL)}}
    policy["spec"] = {
        "podSelector": {"matchLabels": meta.selector(intent.key.name, CANARY_POOL)},
        "policyTypes": ["Ingress"],
        "ingress": [
            {
                "from": [checks, *(dict(peer) for peer in render.settings.metrics_from)],
                "ports": [{"port": names.ENGINE_PORT, "protocol": "TCP"}],
            }
        ],
    }
    return policy


def _jobs(render: RenderInput, change: ChangePlan, existing: Existing) -> list[KubeObject]:
    """The Job of this change, as it is where it exists: a Job cannot be edited."""
    there = existing.get((_JOB, names.check(render.intent.key.name, change.id)))
    if there is not None:
        return [dict(there)]
    return [_job(render, change, existing)] if change.check is CheckRun.RUN and render.check else []


def _job(render: RenderInput, change: ChangePlan, existing: Existing) -> KubeObject:
    intent = render.intent
    model = intent.key.name
    job = meta.new_object("batch/v1", _JOB, names.check(model, change.id), intent, CHECK_POOL)
    job["metadata"]["annotations"] = {ANNOTATION_CHANGE: change.id}
    given = render.check
    spec: KubeObject = {
        "serviceAccountName": names.engine(model),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "securityContext": pod_security_context(),
        "containers": [_container(each, _env(render, existing)) for each in given["template"]["spec"]["containers"]],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    if render.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in render.pull_secrets]
    job["spec"] = {
        "backoffLimit": given["backoffLimit"],
        "activeDeadlineSeconds": given["activeDeadlineSeconds"],
        # An eviction says nothing about quality.
        "podFailurePolicy": {
            "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
        },
        "template": {"metadata": {"labels": meta.labels(model, CHECK_POOL)}, "spec": spec},
    }
    return job


def _env(render: RenderInput, existing: Existing) -> list[KubeObject]:
    """Where the canary and what serves are, and under which names they do."""
    intent = render.intent
    key = intent.key
    runs = serving_of(existing.get(("Deployment", names.engine(key.name))) or {})
    values = {
        "CANARY_URL": f"http://{names.canary_service(key.name)}.{key.namespace}.svc",
        "CANARY_MODEL": intent.served_name,
        "INCUMBENT_URL": f"http://{names.service(key.name)}.{key.namespace}.svc",
        "INCUMBENT_MODEL": runs.served_name if runs is not None else intent.served_name,
    }
    return [{"name": f"{CHECK_ENV_PREFIX}{name}", "value": value} for name, value in values.items()]


def _container(given: Mapping[str, Any], ours: list[KubeObject]) -> KubeObject:
    """What the API allows of a container, and nothing else of it, by whatever path it came in."""
    env = [dict(item) for item in given.get("env") or () if not item["name"].startswith(CHECK_ENV_PREFIX)]
    # An arbitrary uid has no home, and the root file system is read-only.
    home = [] if any(item["name"] == "HOME" for item in env) else [{"name": "HOME", "value": "/tmp"}]
    container: KubeObject = {
        "name": given["name"],
        "image": given["image"],
        "env": [*ours, *home, *env],
        "securityContext": container_security_context(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    container |= {field: list(given[field]) for field in ("command", "args") if given.get(field)}
    if given.get("resources"):
        container["resources"] = dict(given["resources"])
    return container
