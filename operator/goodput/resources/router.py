"""Deployment of the routers: vllm-router with Kubernetes discovery, two replicas that take requests in parallel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goodput.domain.identity import ROUTER_POOL, SERVE_POOL
from goodput.resources import meta, names, pinning
from goodput.resources.inputs import KubeObject, RenderInput
from goodput.resources.security import container_security_context, pod_security_context
from goodput.resources.spread import spread_constraints

REQUEST_TIMEOUT_SECONDS = 1800
# The Service stops sending within this time after a pod was told to go.
PRE_STOP_SECONDS = 10
GRACE_SECONDS = PRE_STOP_SECONDS + REQUEST_TIMEOUT_SECONDS + 20


def router_args(render: RenderInput) -> list[str]:
    """vllm-router listens on loopback and discovers port 80 unless told otherwise."""
    engine_labels = meta.selector(render.intent.key.name, SERVE_POOL)
    return [
        "--host",
        "0.0.0.0",
        "--port",
        str(names.ROUTER_PORT),
        "--prometheus-host",
        "0.0.0.0",
        "--prometheus-port",
        str(names.ROUTER_METRICS_PORT),
        "--service-discovery",
        "--selector",
        *(f"{key}={value}" for key, value in engine_labels.items()),
        "--service-discovery-namespace",
        render.intent.key.namespace,
        "--service-discovery-port",
        str(names.ENGINE_PORT),
        # Requests with a common prefix go where its cache is.
        "--policy",
        "cache_aware",
        # Affinity gives way once one replica has more requests than another by more than this: prompts that no tree
        # knows all go to the smallest tree, which for hours is that of the last replica that came. With the default
        # (64 more) it is flooded; what is left of that is this many of each router's, on top of what others have.
        "--balance-abs-threshold",
        "2",
        "--balance-rel-threshold",
        "1.2",
        "--request-timeout-secs",
        str(REQUEST_TIMEOUT_SECONDS),
        # Discovery does not notice a pod that turned unready; only these checks take it out, after 60 s x 3 by default.
        "--health-check-interval-secs",
        "2",
        "--health-check-timeout-secs",
        "5",
        "--health-failure-threshold",
        "2",
        "--health-success-threshold",
        "1",
        # The circuit breaker takes an engine's 503 at its queue limit for a failure. With the defaults (5 attempts,
        # open for 60 s after 10 failures) a load above what three engines admit opened every circuit: 27 % of it was
        # served, against 84 % with 2 attempts and 2 s after 30. It still shields from a dead engine until checks fail.
        "--retry-max-retries",
        "3",
        "--cb-failure-threshold",
        "30",
        "--cb-timeout-duration-secs",
        "1",
        "--cb-success-threshold",
        "1",
    ]


def _probe(path: str, period_seconds: int, failures: int) -> KubeObject:
    return {
        "httpGet": {"path": path, "port": names.HTTP, "scheme": "HTTP"},
        "periodSeconds": period_seconds,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def router_template(render: RenderInput) -> KubeObject:
    """Pod template without its revision label."""
    model = render.intent.key.name
    container: KubeObject = {
        "name": names.ROUTER_CONTAINER,
        "image": render.settings.router_image,
        "command": ["vllm-router"],
        "args": router_args(render),
        "env": [{"name": "HOME", "value": "/tmp"}],
        "ports": [
            {"name": names.HTTP, "containerPort": names.ROUTER_PORT, "protocol": "TCP"},
            {"name": names.METRICS, "containerPort": names.ROUTER_METRICS_PORT, "protocol": "TCP"},
        ],
        "readinessProbe": _probe("/readiness", 5, 2),
        "livenessProbe": _probe("/liveness", 10, 6),
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_SECONDS}}},
        # A router holds prompts and a prefix tree in memory; the limit keeps a runaway from its node's other pods.
        "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": container_security_context(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    spec: KubeObject = {
        "serviceAccountName": names.router(model),
        "enableServiceLinks": False,
        "securityContext": pod_security_context(),
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "topologySpreadConstraints": spread_constraints(meta.selector(model, ROUTER_POOL)),
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    if render.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in render.pull_secrets]
    return {"metadata": {"labels": meta.labels(model, ROUTER_POOL)}, "spec": spec}


def choose_router_template(existing: Mapping[str, Any] | None, render: RenderInput) -> pinning.Choice:
    """Template of the router pods, by the same rule as that of the engine pods."""
    wanted = pinning.Wanted(
        inputs={"imagePullSecrets": list(render.image_pull_secrets)} if render.image_pull_secrets else {},
        shape="",
        image=render.settings.router_image,
        image_annotation=pinning.ANNOTATION_ROUTER_IMAGE,
        pins=pinning.default_secrets(None, () if render.image_pull_secrets else render.pull_secrets),
    )
    return pinning.choose(
        existing, wanted, lambda: router_template(render), take_update=render.terms.takes_update(ROUTER_POOL)
    )


def _replicas(render: RenderInput, existing: Mapping[str, Any] | None) -> int:
    there = (existing or {}).get("spec", {}).get("replicas")
    return there if render.terms.keeps_router_replicas and isinstance(there, int) else render.settings.router_replicas


def router_deployment(
    render: RenderInput, choice: pinning.Choice, existing: Mapping[str, Any] | None = None
) -> KubeObject:
    """As many replicas as the settings say, or as `existing` has while something else scales it."""
    intent = render.intent
    deployment = meta.new_object("apps/v1", "Deployment", names.router(intent.key.name), intent, ROUTER_POOL)
    deployment["metadata"]["annotations"] = choice.annotations
    deployment["spec"] = {
        "replicas": _replicas(render, existing),
        "selector": {"matchLabels": meta.selector(intent.key.name, ROUTER_POOL)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "minReadySeconds": 5,
        "revisionHistoryLimit": 2,
        "template": choice.template,
    }
    return deployment
