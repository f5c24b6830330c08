"""What serves stays placed, whatever an upgraded operator believes of the memory that it takes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.decide.builders import GPUS, START, gpu, snapshot
from tests.decide.test_replicas import loaded, replicas, steady
from tests.placements import placement

from goodput.decide import Policy, decide
from goodput.domain.change import Serving
from goodput.domain.conditions import ConditionReason, ConditionStatus, ConditionType
from goodput.domain.decision import Rule
from goodput.domain.observed import ModelView, PodState
from goodput.domain.plan import ModelPlan
from goodput.perfmodel import architecture

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
GIB = 1024.0**3
RUNS = placement(max_num_seqs=256, max_model_len=131_072)
# By the law of memory as it is, an 8B in bf16 takes 15 GiB and a request of 4,096 tokens half of one.
TOO_LITTLE = 18.0


def served(rps: float, number: int, *, states: PodState = PodState.READY, **changes: Any) -> ModelView:
    """So many replicas at this load, of a Deployment that says what its pods are."""
    quality = (("spec.model", LLAMA),)
    model = loaded(rps, number, **{"quality": quality, **changes})
    runs = Serving(model=LLAMA, served_name=LLAMA, quality=quality, architecture=architecture(LLAMA))
    pods = tuple(replace(pod, state=states) for pod in model.pool.pods)
    return replace(model, pool=replace(model.pool, pods=pods, placement=RUNS, serving=runs))


def decided(model: ModelView, memory_gib: float, **memory: Any) -> ModelPlan:
    """By an operator, or a GPUType, that gives an L40S so much memory."""
    types = tuple(replace(each, memory_bytes=memory_gib * GIB) if each.name == "l40s" else each for each in GPUS)
    remembered = steady(12.0, len(model.pool.pods), **memory)
    return decide(snapshot(model, types=types), {model.intent.key: remembered}, Policy(), START).models[0]


def condition(plan: ModelPlan, kind: ConditionType) -> tuple[ConditionStatus, ConditionReason, str]:
    found = next(each for each in plan.conditions if each.type is kind)
    return found.status, found.reason, found.message


@pytest.mark.parametrize("memory_gib", [TOO_LITTLE, 12.0], ids=["no room for a request", "none for weights"])
def test_what_serves_stays_placed_and_is_scaled_though_it_would_not_be_placed_anew(memory_gib: float) -> None:
    """An engine that started holds what it admits: a replica is believed what it is believed with that much memory."""
    plan = decided(served(12.0, 3), memory_gib)
    assert plan.pool is not None
    assert (plan.pool.placement.gpu_type, plan.pool.placement.max_model_len) == ("l40s", 131_072)
    plain = decided(served(12.0, 3), gpu("l40s").memory_bytes / GIB)
    assert plan.decision.rule is plain.decision.rule
    assert replicas(plan) == replicas(plain) > 3
    assert plan.figures.capacity_rps_per_replica == pytest.approx(
        plain.figures.capacity_rps_per_replica or 0.0, rel=0.05
    )
    status, reason, message = condition(plan, ConditionType.PLACED)
    assert (status, reason) == (ConditionStatus.TRUE, ConditionReason.PLACED)
    assert "it serves and stays, though by what is believed now nothing new would be placed so: " in message
    assert "GiB" in message
    assert condition(plan, ConditionType.STALLED)[0] is ConditionStatus.FALSE


def test_a_price_that_nobody_knows_hides_nothing_of_it() -> None:
    """Both are told."""
    types = tuple(
        replace(each, memory_bytes=TOO_LITTLE * GIB, price_per_hour=None) if each.name == "l40s" else each
        for each in GPUS
    )
    model = served(12.0, 3)
    plan = decide(snapshot(model, types=types), {model.intent.key: steady(12.0, 3)}, Policy(), START).models[0]
    _, reason, message = condition(plan, ConditionType.PLACED)
    assert reason is ConditionReason.PRICE_UNKNOWN
    assert "its price is unknown" in message
    assert "it serves and stays" in message


def test_engines_that_served_stay_placed_while_none_is_ready() -> None:
    """Their nodes are drained: the pods that come are what served before."""
    plan = decided(served(12.0, 3, states=PodState.STARTING), TOO_LITTLE)
    assert replicas(plan) >= 3
    assert condition(plan, ConditionType.PLACED)[0] is ConditionStatus.TRUE


@pytest.mark.parametrize("what", ["never ready", "another checkpoint", "another parallelism"])
def test_what_never_served_so_is_judged_strictly(what: str) -> None:
    """Pods that never got ready prove nothing, nor do those of another checkpoint or parallelism."""
    if what == "never ready":
        plan = decided(served(12.0, 3, states=PodState.STARTING), TOO_LITTLE, startup_seconds=())
    elif what == "another parallelism":
        plan = decided(served(12.0, 3, tensor_parallel=1, pipeline_parallel=2), 9.0)
    else:
        other = "meta-llama/Llama-3.1-70B-Instruct"
        asked = {"model": other, "architecture": architecture(other), "quality": (("spec.model", other),)}
        plan = decided(served(12.0, 3, **asked), TOO_LITTLE)
        status, reason, message = condition(plan, ConditionType.STALLED)
        assert (status, reason) == (ConditionStatus.TRUE, ConditionReason.ROLLOUT_BLOCKED)
        assert "weights need" in message
        assert condition(plan, ConditionType.PLACED)[0] is ConditionStatus.TRUE, "what serves stays"
        return
    assert plan.pool is None
    assert condition(plan, ConditionType.PLACED)[:2] == (ConditionStatus.FALSE, ConditionReason.DOES_NOT_FIT)


def test_what_serves_in_a_format_that_its_gpu_is_believed_not_to_run_stays_as_it_is() -> None:
    """No memory helps there, and nobody knows what a replica does: its number is kept, and it is not moved."""
    checkpoint = "meta-llama/Llama-3.1-8B-Instruct-FP8"
    arch = architecture(checkpoint)
    assert arch is not None
    quality = (("spec.model", checkpoint),)
    model = served(12.0, 3, model=checkpoint, architecture=arch, quality=quality, gpu_types=("l40s", "mi210"))
    runs = Serving(model=checkpoint, served_name="m", quality=quality, architecture=arch)
    pool = replace(model.pool, gpu_type="mi210", placement=replace(RUNS, gpu_type="mi210"), serving=runs)
    plan = decided(replace(model, pool=pool), 45.0)
    assert plan.pool is not None
    assert plan.pool.placement.gpu_type == "mi210"
    assert (plan.pool.replicas, plan.decision.rule) == (3, Rule.HOLD_CHANGE)
    _, _, message = condition(plan, ConditionType.PLACED)
    assert "need a GPU with fp8 arithmetic" in message
