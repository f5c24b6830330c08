# ruff: noqa: F811 - fixtures come by import
"""The API server and Python read the same objects: what one refuses, the other refuses."""

from __future__ import annotations

import asyncio
import copy
import json
import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from goodput.api.conditions import Condition
from goodput.api.kinds import KINDS
from goodput.api.modelstatus import (
    BoundedFigure,
    DecisionInput,
    DecisionStatus,
    DemandStatus,
    GoodputStatus,
    GpuUseStatus,
    ModelStatus,
    PinnedStatus,
    PoolStatus,
    RejectedOption,
)
from goodput.api.schema import Kind, object_schema, unknown_fields
from goodput.domain.errors import InvalidObject
from goodput_world.cluster import REPOSITORY, Cluster
from schema_objects import objects
from schema_server import Server, any_cluster, server  # noqa: F401 - fixtures

_KINDS = {kind.kind: kind for kind in KINDS}
_SCHEMAS = {kind.kind: object_schema(kind) for kind in KINDS}
_SEEDS = [
    yaml.safe_load((REPOSITORY / "examples" / f"{name}.yaml").read_text())
    for name in ("model-tuned", "model-private", "model-pvc", "gputype-custom", "slo-chat")
]
# What people and templating engines write by mistake, and what fits somewhere else.
_VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 2.0, 1.5, 10**9, 10**18, "", " ", "x", "X", "a b", "a/b", "1", "0", "-1", "true"),
    *(
        "500ms",
        "0s",
        "95%",
        "0%",
        "100%",
        "79.2Gi",
        "1e3",
        "NaN",
        "a" * 64,
        "a" * 300,
        "ä",
        "x\n",
        "../x",
        "/x",
        "/dev/shm",
    ),
    *([], {}, ["x"], ["x", "x"], [1], [None], {"name": "x"}, {"name": "x", "namespace": "y"}, {"x": "y"}, {"x": 1}),
    *(["--port=1"], ["--max-num-seqs", "4"], ["-tp4"], ["--", "x"], "pvc://x/y", "Auto", "Off", "None", "Advise"),
]
_CASES = 600


def _places(value: Any, schema: Mapping[str, Any]) -> Iterator[tuple[Any, str | int]]:
    """(container, key) of everything that is there or could be."""
    if isinstance(value, dict):
        for name in {**schema.get("properties", {}), **value}:
            yield value, name
            if name in value:
                inner = schema.get("properties", {}).get(name) or schema.get("additionalProperties") or {}
                yield from _places(value[name], inner)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield value, index
            yield from _places(item, schema.get("items", {}))


def _mutated(chance: random.Random) -> dict[str, Any]:
    """An example with one to three values replaced, added or removed below its spec."""
    raw: dict[str, Any] = copy.deepcopy(chance.choice(_SEEDS))
    raw["metadata"]["name"] = "mutated"
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        places = list(_places(raw["spec"], _SCHEMAS[raw["kind"]]["properties"]["spec"]))
        container, key = chance.choice(places)
        if isinstance(container, dict) and chance.random() < 0.2:
            container.pop(key, None)
        else:
            container[key] = copy.deepcopy(chance.choice(_VALUES))
    return raw


def _python_refuses(raw: dict[str, Any]) -> str:
    """Why, or '' if it takes it."""
    unknown = list(unknown_fields(raw, _SCHEMAS[raw["kind"]]))
    if unknown:
        return f"unknown: {unknown}"
    try:
        _KINDS[raw["kind"]].model.parse(raw)
    except InvalidObject as error:
        return str(error)
    return ""


async def test_mutated_examples_are_judged_alike(server: Server) -> None:
    """600 seeded mutations are accepted by both or refused by both, and neither verdict is rare."""
    chance = random.Random(20231116)
    disagreements, accepted = [], 0
    for _ in range(_CASES):
        raw = _mutated(chance)
        status, answer = await asyncio.to_thread(server.create, json.dumps(raw))
        assert status in (201, 400, 422), answer
        refused = _python_refuses(raw)
        accepted += status == 201
        if (status == 201) == bool(refused):
            told = refused or [(c.get("field"), c["message"]) for c in answer["details"]["causes"]]
            disagreements.append((json.dumps(raw["spec"]), status, told))
    assert not disagreements, f"{len(disagreements)} of {_CASES}:\n" + "\n".join(map(str, disagreements[:10]))
    assert _CASES * 0.1 < accepted < _CASES * 0.9


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_made_up_objects_are_judged_alike(kind: Kind, server: Server) -> None:
    """Objects out of the CRD's own schema, by hypothesis: the API server takes those that Python takes."""

    @settings(max_examples=80, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(objects(kind, "made-up"))
    def judge(raw: dict[str, Any]) -> None:
        status, answer = server.create(json.dumps(raw))
        refused = _python_refuses(raw)
        assert (status == 201) == (not refused), (status, refused, answer)

    judge()


async def test_a_full_status_is_taken_by_server_side_apply(any_cluster: Cluster, server: Server) -> None:
    """Every field that Python can write exists in the CRD, and reads back as it was written."""
    status = ModelStatus(
        observed_generation=1,
        conditions=(
            Condition(
                type="Ready",
                status="True",
                reason="Serving",
                message="2 replicas serve",
                last_transition_time="2026-01-01T12:00:00Z",
                observed_generation=1,
            ),
        ),
        slo="platform/chat",
        pools=(
            PoolStatus(
                name="serve",
                role="Aggregated",
                gpu_type="l40s",
                tensor_parallel=1,
                pipeline_parallel=1,
                desired=2,
                ready=2,
            ),
        ),
        pool_summary="1x l40s",
        replicas="2/2",
        demand=DemandStatus(requests_per_second="4.9", source="router", input_tokens="1200", output_tokens="210"),
        goodput=GoodputStatus(requests_per_second="4.8", lower="4.7", upper="4.9"),
        attainment="97%",
        gpu_use=GpuUseStatus(mfu="21%", mbu="48%", busy_mfu="33%", busy_mbu="75%", bottleneck="bandwidth"),
        attainment_bounds=BoundedFigure(lower="96%", upper="98%"),
        cost_per_hour="2.20",
        service_url="http://llama-8b.default.svc",
        pinned=PinnedStatus(image="vllm/vllm-openai:v0.33.0", revision="abc"),
        last_decision=DecisionStatus(
            id="1-serve-1-2",
            time="2026-01-01T12:00:00Z",
            action="ScaleUp",
            reason="Demand",
            rule="Demand",
            message="demand 4.9/s needs 2 replicas",
            from_=1,
            to=2,
            wanted=2,
            clamp="None",
            inputs=(DecisionInput(name="demand", value="4.9", unit="requests/s"),),
            rejected=(RejectedOption(option="h100-sxm", reason="costs more"),),
        ),
    )
    unset = [name for name in ModelStatus.model_fields if getattr(status, name) in (None, ())]
    assert not unset, "this test must fill every field"
    name, where = "full-status", ["-n", server.namespace]
    head = {"apiVersion": "goodput.dev/v1alpha1", "kind": "Model", "metadata": {"name": name}}
    await any_cluster.apply({**head, "spec": {"model": "a/b", "slo": "chat"}}, namespace=server.namespace)
    manifest = json.dumps({**head, "status": status.to_dict()})
    await any_cluster.kubectl(
        *("apply", "--server-side", "--subresource=status", "--field-manager=goodput", *where, "-f", "-"),
        stdin=manifest,
    )
    found = await any_cluster.get("model", name, namespace=server.namespace)
    assert ModelStatus.model_validate(found["status"]) == status
    columns = await any_cluster.kubectl("get", "models", name, *where)
    for shown in ("platform/chat", "1x l40s", "2/2", "4.8", "97%", "2.20", "True"):
        assert shown in columns


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("model.spec", ["slo", "-required-", "The SLO to meet", "Unset:"]),
        ("model.spec.scaling", ["maxCostPerHour", "beats the SLO"]),
        ("slo.spec", ["ttft", "such as `500ms`"]),
        ("gputype.spec", ["memoryBandwidth", "bytes per second"]),
    ],
)
async def test_kubectl_explain_reads_well(any_cluster: Cluster, server: Server, path: str, words: list[str]) -> None:
    """Field, whether it is required, what it means and what happens when it is unset."""
    text = await any_cluster.wait_for(
        lambda: any_cluster.kubectl("explain", path), what=f"kubectl explain {path}", timeout_seconds=30
    )
    flowed = " ".join(text.split())
    assert all(word in flowed for word in words), text
