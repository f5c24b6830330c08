"""Conditions name the field that their reader can change."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.decide.builders import CHAT, START, gpu, one, pool, view

from goodput.decide import Policy, decide
from goodput.domain.conditions import Condition, ConditionReason, ConditionStatus, ConditionType
from goodput.domain.intent import Objective
from goodput.domain.observed import Snapshot
from goodput.domain.plan import ModelPlan
from goodput.perfmodel import Lengths, Shape, architecture, built_in_gpu_types, capacity


def _condition(plan: ModelPlan, kind: ConditionType) -> Condition:
    return next(each for each in plan.conditions if each.type is kind)


def _new(**changes: Any) -> ModelPlan:
    return one(view(pool(exists=False), None, **changes))


def test_a_cap_below_one_replica_is_told_though_minreplicas_stands() -> None:
    """maxCostPerHour beats the SLO, minReplicas beats maxCostPerHour: both are named, nothing is said of attainment."""
    plan = _new(max_cost_per_hour=0.01)
    assert plan.pool is not None
    assert plan.pool.replicas == 1
    told = _condition(plan, ConditionType.SLO_MET)
    assert (told.status, told.reason) == (ConditionStatus.UNKNOWN, ConditionReason.CAPPED)
    assert "spec.scaling.maxCostPerHour 0.01" in told.message
    assert "spec.scaling.minReplicas" in told.message
    assert _condition(_new(max_cost_per_hour=1000.0), ConditionType.SLO_MET).reason is not ConditionReason.CAPPED


@pytest.mark.parametrize(
    ("objective", "named", "unnamed"),
    [
        (Objective(ttft_seconds=0.001, tpot_seconds=0.05, e2e_seconds=None), "ttft of 1 ms", "tpot"),
        (Objective(ttft_seconds=0.5, tpot_seconds=0.001, e2e_seconds=None), "tpot of 1 ms", "ttft"),
        (Objective(ttft_seconds=None, tpot_seconds=None, e2e_seconds=0.01), "e2e of 10 ms", "ttft"),
    ],
)
def test_an_infeasible_slo_says_which_objective(objective: Objective, named: str, unnamed: str) -> None:
    """That which an idle replica misses, with its bound; not those that it meets."""
    told = _condition(_new(objective=objective), ConditionType.SLO_MET)
    assert (told.status, told.reason) == (ConditionStatus.FALSE, ConditionReason.SLO_INFEASIBLE)
    assert named in told.message
    assert unnamed not in told.message


def test_what_a_busy_replica_is_expected_to_miss_is_told_and_is_not_called_infeasible() -> None:
    """An idle one meets it: more replicas, or less to do, would mend it. Nothing is measured yet."""
    arch = architecture("meta-llama/Llama-3.1-8B-Instruct")
    assert arch is not None
    lengths = Lengths(1155.0, 211.0)
    idle = capacity(arch, gpu("l40s"), Shape(), lengths, CHAT).idle.good
    for attainment, told_of in ((round(idle, 4) - 1e-4, True), (0.9, False)):
        told = _condition(_new(objective=replace(CHAT, attainment=attainment)), ConditionType.SLO_MET)
        assert (told.status, told.reason) == (ConditionStatus.UNKNOWN, ConditionReason.TOO_FEW_REQUESTS)
        assert ("the least that a replica is given, 9" in told.message) is told_of


@pytest.mark.parametrize(
    ("changes", "reason", "field"),
    [
        ({"gpu_types": ("mi300x",)}, ConditionReason.NO_GPU_TYPE, "spec.gpuTypes: "),
        ({"gpu_types": ("nosuch",)}, ConditionReason.GPU_TYPE_NOT_FOUND, "spec.gpuTypes: "),
        ({"tensor_parallel": 3}, ConditionReason.PARALLELISM_INVALID, "spec.parallelism.tensor: "),
        ({"tensor_parallel": 16}, ConditionReason.PARALLELISM_INVALID, "spec.parallelism: "),
        ({"architecture": None}, ConditionReason.ARCHITECTURE_UNKNOWN, "spec.architecture: "),
    ],
)
def test_what_cannot_be_placed_names_its_field(changes: dict[str, Any], reason: ConditionReason, field: str) -> None:
    """Placed=False begins with the field."""
    told = _condition(_new(**changes), ConditionType.PLACED)
    assert (told.status, told.reason) == (ConditionStatus.FALSE, reason)
    assert told.message.startswith(field)


@pytest.mark.parametrize(("tensor", "field"), [(None, "spec.model: "), (1, "spec.parallelism: ")])
def test_a_model_that_does_not_fit_names_what_to_change(tensor: int | None, field: str) -> None:
    """The parallelism where its author chose it, else the model."""
    large = (
        architecture("meta-llama/Llama-3.1-405B-Instruct")
        if tensor is None
        else architecture("meta-llama/Llama-3.1-70B-Instruct")
    )
    assert large is not None
    told = _condition(_new(architecture=large, tensor_parallel=tensor, pipeline_parallel=tensor), ConditionType.PLACED)
    assert told.reason is ConditionReason.DOES_NOT_FIT
    assert told.message.startswith(field)


def test_a_cluster_without_gpus_says_what_to_add() -> None:
    """No field of the Model is wrong there."""
    model = view(pool(exists=False), None, gpu_types=())
    bare = Snapshot(models=(model,), gpu_types=built_in_gpu_types(), supply=())
    told = _condition(decide(bare, {}, Policy(), START).models[0], ConditionType.PLACED)
    assert told.reason is ConditionReason.NO_GPU_TYPE
    assert "spec." not in told.message
