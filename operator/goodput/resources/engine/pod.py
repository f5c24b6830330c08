"""The pod of one vLLM replica."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from goodput.domain.identity import SERVE_POOL
from goodput.domain.taints import toleration_of
from goodput.resources import meta, names
from goodput.resources.engine import storage, usertemplate
from goodput.resources.engine.args import SHUTDOWN_TIMEOUT_SECONDS, engine_args
from goodput.resources.engine.owned import user_env
from goodput.resources.inputs import KubeObject, RenderInput
from goodput.resources.security import container_security_context, pod_security_context
from goodput.resources.spread import spread_constraints

# Routers learn of a deletion within this time; until then requests still arrive and are still taken.
PRE_STOP_SECONDS = 10
# vLLM needs about 12 s from the last token to its exit; the API server and kubelet want a little too.
TEARDOWN_SECONDS = 30
GRACE_SECONDS = PRE_STOP_SECONDS + SHUTDOWN_TIMEOUT_SECONDS + TEARDOWN_SECONDS

_STARTUP_PERIOD_SECONDS = 5
_STARTUP_MARGIN_SECONDS = 60
# Routers keep idle connections for 90 s. vLLM closes them after 5 s, and a request sent in that instant fails.
_KEEP_ALIVE_SECONDS = 120
# /health answers late under load; the default of 1 s flaps.
_PROBE_TIMEOUT_SECONDS = 5


def _probe(period_seconds: int, failures: int, timeout_seconds: int = _PROBE_TIMEOUT_SECONDS) -> KubeObject:
    return {
        "httpGet": {"path": "/health", "port": names.HTTP, "scheme": "HTTP"},
        "periodSeconds": period_seconds,
        "timeoutSeconds": timeout_seconds,
        "failureThreshold": failures,
    }


def _startup_failures(startup_timeout_seconds: int) -> int:
    """The kubelet must not give up before vLLM itself does, so that its log says why."""
    return math.ceil((startup_timeout_seconds + _STARTUP_MARGIN_SECONDS) / _STARTUP_PERIOD_SECONDS)


def other_startup_timeout(template: Mapping[str, Any], startup_timeout_seconds: int) -> int | None:
    """Seconds after which pods of `template` are started again, if these are others; None also where it says none."""
    for container in template.get("spec", {}).get("containers") or ():
        failures = (container.get("startupProbe") or {}).get("failureThreshold")
        if container.get("name") == names.ENGINE_CONTAINER and isinstance(failures, int):
            same = failures == _startup_failures(startup_timeout_seconds)
            return None if same else failures * _STARTUP_PERIOD_SECONDS - _STARTUP_MARGIN_SECONDS
    return None


def _probes(startup_timeout_seconds: int) -> KubeObject:
    return {
        "startupProbe": _probe(_STARTUP_PERIOD_SECONDS, _startup_failures(startup_timeout_seconds)),
        "readinessProbe": _probe(5, 3),
        # Patient: a restart costs minutes of loading.
        "livenessProbe": _probe(10, 6, 10),
    }


def _env(render: RenderInput) -> list[KubeObject]:
    """Fixed entries first, then defaults that the user may replace, then the user's own."""
    fixed: list[KubeObject] = [
        {"name": "HOME", "value": storage.CACHE_ENV["HOME"]},
        # torch asks getpass for a user name, which no passwd entry gives for an arbitrary uid.
        {"name": "USER", "value": "vllm"},
        # `_created` series double the number of series and say nothing.
        {"name": "PROMETHEUS_DISABLE_CREATED_SERIES", "value": "True"},
    ]
    if render.token is not None:
        reference = {"name": render.token.name, "key": render.token.key}
        fixed.append({"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": reference}})
    user = user_env(render.engine.env, (item["name"] for item in fixed))
    user_names = {item["name"] for item in user}
    defaults = {
        **{name: path for name, path in storage.CACHE_ENV.items() if name != "HOME"},
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_ENGINE_READY_TIMEOUT_S": str(render.settings.startup_timeout_seconds),
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": str(_KEEP_ALIVE_SECONDS),
    }
    return [
        *fixed,
        *({"name": name, "value": value} for name, value in defaults.items() if name not in user_names),
        *user,
    ]


def _resources(render: RenderInput) -> KubeObject:
    """One core per GPU worker and one for the API server; host memory for Python, CUDA and loading.

    Small on purpose: a request above what GPU nodes have left would keep a replica Pending beside a free GPU.
    """
    gpus = render.placement.gpus
    defaults = {"cpu": str(1 + gpus), "memory": f"{4 + 6 * gpus}Gi"}
    return usertemplate.merged_resources(render.template, defaults, {render.placement.resource_name: str(gpus)})


def _container(render: RenderInput, image: str) -> KubeObject:
    model = render.intent.model
    return {
        "name": names.ENGINE_CONTAINER,
        "image": image,
        "command": ["vllm", "serve"],
        "args": engine_args(render),
        "env": _env(render),
        "ports": [{"name": names.HTTP, "containerPort": names.ENGINE_PORT, "protocol": "TCP"}],
        **_probes(render.settings.startup_timeout_seconds),
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_SECONDS}}},
        "resources": _resources(render),
        "securityContext": container_security_context(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [*storage.volume_mounts(model), *usertemplate.user_mounts(render.template)],
    }


def _tolerations(render: RenderInput) -> list[Any]:
    """Of the GPU type, then of the user, each once."""
    placement = render.placement
    wanted = [json.loads(text) for text in (toleration_of(placement.resource_name), *placement.tolerations)]
    wanted += [dict(item) for item in render.template.get("tolerations") or ()]
    result: list[Any] = []
    for item in wanted:
        if item not in result:
            result.append(item)
    return result


def engine_template(render: RenderInput, image: str, pool: str = SERVE_POOL) -> KubeObject:
    """Pod template of `pool` without its revision label."""
    intent, template = render.intent, render.template
    selector = meta.selector(intent.key.name, pool)
    spec: KubeObject = {
        "serviceAccountName": names.engine(intent.key.name),
        "automountServiceAccountToken": False,
        # A Service named "vllm" would inject VLLM_PORT=tcp://..., at which vLLM stops.
        "enableServiceLinks": False,
        "securityContext": pod_security_context(),
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "nodeSelector": dict(render.placement.node_selector),
        "topologySpreadConstraints": spread_constraints(selector),
        "containers": [_container(render, image)],
        "volumes": [
            *storage.volumes(intent.model, render.placement.gpus),
            *usertemplate.user_volumes(template),
        ],
    }
    optional = {
        "tolerations": _tolerations(render),
        "imagePullSecrets": [{"name": name} for name in render.pull_secrets],
        "affinity": template.get("affinity"),
        "priorityClassName": template.get("priorityClassName"),
    }
    spec.update({key: value for key, value in optional.items() if value})
    metadata: KubeObject = {
        "labels": {**usertemplate.user_metadata(template, "labels"), **meta.labels(intent.key.name, pool)}
    }
    annotations = usertemplate.user_metadata(template, "annotations")
    if annotations:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": spec}
