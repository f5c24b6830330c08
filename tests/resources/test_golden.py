"""The rendered objects, whole, against files that a reviewer reads. GOODPUT_UPDATE_GOLDEN=1 writes them anew."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.placements import placement

from goodput.domain.intent import Precision, RoutingMode
from goodput.domain.plan import ChangePlan, CheckRun
from goodput.resources.inputs import EngineInput, KubeObject, RenderInput, SecretKey
from goodput.resources.kinds.memory import memory_config_map
from goodput.resources.pinning import ANNOTATION_TEMPLATE
from goodput.resources.render import render_model

GOLDEN = Path(__file__).parent / "golden"

CASES: dict[str, dict[str, Any]] = {
    "smallest": {},
    "monitored": {
        "pod_monitor": True,
        "pod_monitor_labels": (("release", "stack"), ("goodput.dev/model", "never")),
        "metrics_from": ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}},),
    },
    "no-router": {"routing": RoutingMode.NONE, "admission": False},
    "full": {
        "revision": "main",
        "credentials": SecretKey(name="hub", key="HF_TOKEN"),
        "image_pull_secrets": ("registry",),
        "engine": EngineInput(
            image="vllm/vllm-openai:v0.32.0",
            args=("--enable-auto-tool-choice", "--tool-call-parser", "llama3_json"),
            env=({"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"},),
        ),
        "template": {
            "labels": {"team": "search"},
            "annotations": {"example.com/owner": "search"},
            "resources": {"requests": {"cpu": "6"}, "limits": {"memory": "64Gi"}},
            "tolerations": [{"key": "dedicated", "operator": "Exists"}],
            "priorityClassName": "serving",
            "volumes": [{"name": "templates", "persistentVolumeClaim": {"claimName": "templates", "readOnly": True}}],
            "volumeMounts": [{"name": "templates", "mountPath": "/templates", "readOnly": True}],
        },
        "tensor_parallel": 2,
        "tolerations": (json.dumps({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}),),
        "surge": False,
    },
    "canary": {
        "quality": (("spec.model", "meta-llama/Llama-3.1-8B-Instruct"), ("spec.precision.weights", "fp8")),
        "precision": Precision(weights="fp8"),
        "metrics_from": ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}},),
        "image_pull_secrets": ("registry",),
        "change": ChangePlan(id="0123456789", held=True, canary=placement(tensor_parallel=2), check=CheckRun.RUN),
        "check": {
            "backoffLimit": 1,
            "activeDeadlineSeconds": 900,
            "template": {
                "spec": {
                    "containers": [
                        {
                            "name": "eval",
                            "image": "registry.example.com/evals:7",
                            "command": ["evaluate"],
                            "args": ["--url", "$(GOODPUT_CANARY_URL)"],
                            "env": [{"name": "TASKS", "value": "gsm8k"}],
                            "resources": {"requests": {"cpu": "1"}},
                        }
                    ]
                }
            },
        },
    },
    "from-claim": {"model": "pvc://weights/llama/8b", "served_name": "llama-8b"},
}


def _readable(objects: tuple[KubeObject, ...]) -> str:
    """The objects as YAML; the copy of the pod template in an annotation is proved equal and left out."""
    shown = copy.deepcopy(objects)
    for item in shown:
        annotations = item["metadata"].get("annotations", {})
        if ANNOTATION_TEMPLATE in annotations:
            assert json.loads(annotations[ANNOTATION_TEMPLATE]) == item["spec"]["template"]
            annotations[ANNOTATION_TEMPLATE] = "as spec.template below"
    return yaml.safe_dump_all(shown, sort_keys=False, width=120)


@pytest.mark.parametrize("case", CASES)
def test_objects_are_as_reviewed(case: str, make_render: Callable[..., RenderInput]) -> None:
    """Every object of these Models is, byte for byte, what the golden file shows."""
    text = _readable(render_model(make_render(**CASES[case]), {}).objects)
    path = GOLDEN / f"{case}.yaml"
    if os.environ.get("GOODPUT_UPDATE_GOLDEN") == "1":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_the_memory_is_one_owned_config_map(make_render: Callable[..., RenderInput]) -> None:
    """The loop's memory is the text it was given, in a ConfigMap that goes with the Model."""
    config_map = memory_config_map(make_render().intent, '{"version":1}')
    assert config_map["metadata"]["name"] == "llama-8b-goodput"
    assert config_map["metadata"]["ownerReferences"][0]["uid"] == make_render().intent.uid
    assert config_map["data"] == {"memory.json": '{"version":1}'}
