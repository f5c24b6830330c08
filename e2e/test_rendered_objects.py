# ruff: noqa: F811 - fixtures come by import
"""What is rendered for example Models, asked of a real API server: taken, restricted, and equal when read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from goodput.api import Model
from goodput.domain.identity import Key
from goodput.domain.intent import ModelIntent, Objective, RoutingMode
from goodput.domain.plan import ChangePlan, CheckRun, Placement
from goodput.resources.compare import compare
from goodput.resources.inputs import KubeObject, RenderSettings
from goodput.resources.kinds.memory import memory_config_map
from goodput.resources.render import render_model
from goodput.runtime.rendering import render_input
from goodput_world.cluster import REPOSITORY
from schema_server import Server, any_cluster, server  # noqa: F401 - fixtures

EXAMPLES = ("model-llama-8b", "model-tuned", "model-private", "model-pvc", "model-quality-check")
# What no example writes: readOnly left out, and written as the false that Kubernetes drops.
TEMPLATES: dict[str, dict[str, Any]] = {
    f"{name}-volumes": {
        "volumes": [
            {"name": "claim", "persistentVolumeClaim": {"claimName": "data", **read_only}},
            {"name": "scratch", "emptyDir": {}},
        ],
        "volumeMounts": [
            {"name": "claim", "mountPath": "/data", **read_only},
            {"name": "scratch", "mountPath": "/scratch", **read_only},
        ],
    }
    for name, read_only in {"plain": {}, "writable": {"readOnly": False}}.items()
}
CASES = (*EXAMPLES, *TEMPLATES)
PLURALS = {
    "ConfigMap": "configmaps",
    "Deployment": "deployments",
    "Job": "jobs",
    "NetworkPolicy": "networkpolicies",
    "Pod": "pods",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "Service": "services",
    "ServiceAccount": "serviceaccounts",
}
SETTINGS = RenderSettings(engine_image="vllm/vllm-openai:v0.33.0", router_image="goodput-router:0.1.17")
PLACEMENT = Placement(
    gpu_type="l40s",
    resource_name="nvidia.com/gpu",
    node_selector=(("nvidia.com/gpu.product", "NVIDIA-L40S"),),
    tolerations=('{"key":"nvidia.com/gpu","operator":"Exists","effect":"NoSchedule"}',),
    tensor_parallel=2,
    max_num_seqs=64,
    max_num_batched_tokens=2048,
    max_model_len=8192,
    max_num_queued_requests=40,
    max_num_queued_tokens=8192,
    capacity_rps=3.0,
    price_per_hour=None,
)


def _objects(example: str, routing: RoutingMode, namespace: str) -> list[KubeObject]:
    file = example if example in EXAMPLES else EXAMPLES[0]
    raw = yaml.safe_load((REPOSITORY / "examples" / f"{file}.yaml").read_text(encoding="utf-8"))
    raw["metadata"]["namespace"] = namespace
    if example in TEMPLATES:
        raw["spec"]["template"] = TEMPLATES[example]
    model = Model.parse(raw)
    intent = ModelIntent(
        key=Key(namespace, model.metadata.name),
        uid="11111111-2222-3333-4444-555555555555",
        generation=1,
        model=model.spec.model,
        served_name=model.served_name,
        slo=Key(namespace, "chat"),
        objective=Objective(ttft_seconds=0.5, tpot_seconds=0.05, e2e_seconds=30.0),
        architecture=None,
        routing=routing,
    )
    # What judges a change is rendered where a Model says how.
    change = ChangePlan(id="0123456789", held=False, canary=PLACEMENT, check=CheckRun.RUN)
    change_or_none = change if model.spec.quality_check is not None else None
    render = render_input(model, intent, PLACEMENT, replicas=3, settings=SETTINGS, change=change_or_none)
    return [memory_config_map(intent, '{"version":1}'), *render_model(render, {}).objects]


def _ask(server: Server, verb: str, manifest: Mapping[str, Any], name: str, **parameters: str) -> KubeObject:
    """Dry run; the object with the server's defaults."""
    api_version, kind = manifest["apiVersion"], manifest["kind"]
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    client = server._api
    # JSON is YAML; a body of type application/json the client would encode once more.
    content = "application/apply-patch+yaml" if verb == "PATCH" else "application/yaml"
    _, url, headers, body, *_ = client.param_serialize(
        verb,
        f"{root}/namespaces/{server.namespace}/{PLURALS[kind]}{name}",
        query_params=[("dryRun", "All"), ("fieldValidation", "Strict"), *parameters.items()],
        header_params={"Content-Type": content, "Accept": "application/json"},
        body=json.dumps(manifest),
        auth_settings=["BearerToken"],
    )
    response = client.call_api(verb, url, headers, body)
    text = response.read()
    assert response.status in (200, 201), f"{kind} {name}: {text.decode()}"
    answer: KubeObject = json.loads(text)
    return answer


@pytest.mark.parametrize("routing", list(RoutingMode))
@pytest.mark.parametrize("example", CASES)
def test_the_api_server_takes_every_object_and_compares_equal(
    example: str, routing: RoutingMode, server: Server
) -> None:
    """Server-side apply accepts each object, and with its defaults filled in nothing differs: no write would follow."""
    for item in _objects(example, routing, server.namespace):
        applied = _ask(
            server, "PATCH", item, f"/{item['metadata']['name']}", fieldManager="goodput-operator", force="true"
        )
        assert compare(applied, item) is None


@pytest.mark.parametrize("example", CASES)
async def test_pods_are_admitted_where_pod_security_is_restricted(
    example: str, server: Server, any_cluster: Any
) -> None:
    """In a namespace that enforces the restricted standard, pods of engines, routers and checks are created."""
    label = "pod-security.kubernetes.io/enforce=restricted"
    await any_cluster.kubectl("label", "namespace", server.namespace, label, "--overwrite")
    for item in _objects(example, RoutingMode.ROUTER, server.namespace):
        if item["kind"] not in ("Deployment", "Job"):
            continue
        template = item["spec"]["template"]
        # Priority classes and accounts that a dry run did not create are not what is asked about.
        spec = {
            key: value
            for key, value in template["spec"].items()
            if key not in ("priorityClassName", "serviceAccountName")
        }
        metadata = {**template["metadata"], "name": item["metadata"]["name"], "namespace": server.namespace}
        _ask(server, "POST", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, "")
