"""GPUs on nodes with taints: who reaches them, what is told, and who takes what is free."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.decide.builders import GPUS, START, pod, pool, snapshot, view
from tests.decide.test_change import condition
from tests.decide.test_priority import HIGH, LOW, model
from tests.decide.test_replicas import loaded, replicas, steady

from goodput.decide import Policy, decide
from goodput.decide.reach import Free, reach
from goodput.domain.conditions import ConditionReason, ConditionStatus, ConditionType
from goodput.domain.decision import Clamp
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import GpuSupply, ModelView, PodState, Tainted
from goodput.domain.plan import ModelPlan
from goodput.domain.taints import Taint, advice, untolerated

OTHERS = Taint("team", "other", "NoSchedule")
DISK = Taint("node.kubernetes.io/disk-pressure", "", "NoSchedule")
FOR_OTHERS = '{"effect":"NoSchedule","key":"team","operator":"Equal","value":"other"}'


def stock(
    name: str = "l40s",
    *,
    anyone: int = 0,
    others: int = 0,
    used: int = 0,
    taint: Taint = OTHERS,
    limit: int | None = None,
) -> GpuSupply:
    """GPUs that anyone reaches, and `others` behind a taint, of which `used` are in use."""
    row = Tainted(taints=(taint,), nodes=1, installed=others, used=used)
    return GpuSupply(
        type=name,
        nodes=bool(anyone) + bool(others),
        installed=anyone + others,
        used=used,
        limit=limit,
        tainted=(row,) if others else (),
    )


def planned(there: GpuSupply | tuple[GpuSupply, ...], *models: tuple[ModelView, LoopMemory | None]) -> list[ModelPlan]:
    supply = there if isinstance(there, tuple) else (there,)
    look = replace(snapshot(*(one for one, _ in models)), supply=supply)
    memory = {one.intent.key: known for one, known in models if known is not None}
    return list(decide(look, memory, Policy(), START).models)


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        (FOR_OTHERS, True),
        ('{"key":"team","value":"other"}', True),
        ('{"key":"team","operator":"Exists"}', True),
        ('{"operator":"Exists"}', True),
        ('{"key":"team","operator":"Equal","value":"ours"}', False),
        ('{"key":"team"}', False),
        ('{"key":"tea","operator":"Exists"}', False),
        ('{"effect":"NoExecute","key":"team","operator":"Exists"}', False),
        ('{"effect":"NoSchedule","operator":"Exists","tolerationSeconds":5}', True),
    ],
)
def test_tolerations_are_read_as_the_scheduler_reads_them(toleration: str, tolerates: bool) -> None:
    """Equal is the default, no effect is any effect, no key with Exists is any key."""
    assert untolerated((OTHERS,), (toleration,)) == (() if tolerates else (OTHERS,))


def test_all_taints_of_a_node_count() -> None:
    """One that is tolerated is no help against another."""
    assert untolerated((OTHERS, DISK), (FOR_OTHERS,)) == (DISK,)


@pytest.mark.parametrize(
    ("there", "tolerations", "want"),
    [
        pytest.param(stock(anyone=8, others=8, used=3), (), (8, 8), id="not tolerated"),
        pytest.param(stock(anyone=8, others=8, used=3), (FOR_OTHERS,), (16, 13), id="tolerated"),
        pytest.param(stock(others=8), (), (0, 0), id="nothing else"),
        pytest.param(stock(others=8, limit=32), (), (0, 0), id="those that an autoscaler makes will be like these"),
        pytest.param(stock(anyone=8, others=8, limit=32), (), (24, 24), id="some of those may be within reach"),
        pytest.param(stock(limit=32), (), (32, 32), id="no node yet"),
    ],
)
def test_what_pods_reach(there: GpuSupply, tolerations: tuple[str, ...], want: tuple[int, int]) -> None:
    """Capacity and free GPUs, and the same of the stock that Models share."""
    known = reach({"l40s": there}, tolerations).supply["l40s"]
    assert (known.capacity, known.free) == want
    shared = Free.of({"l40s": there})
    assert shared.of_type("l40s", tolerations) == shared.by_type(tolerations)["l40s"] == want[1]


def test_what_a_model_takes_leaves_to_others_what_only_they_reach() -> None:
    """First what anyone reaches: the scheduler may choose that, and nobody is to count on it."""
    shared = Free.of({"l40s": stock(anyone=4, others=4)})
    shared.take("l40s", 3, (FOR_OTHERS,))
    assert (shared.of_type("l40s", ()), shared.of_type("l40s", (FOR_OTHERS,))) == (1, 5)
    shared.take("l40s", 3, (FOR_OTHERS,))
    assert (shared.of_type("l40s", ()), shared.of_type("l40s", (FOR_OTHERS,))) == (0, 2)
    shared.take("l40s", 2, ())
    assert shared.of_type("l40s", (FOR_OTHERS,)) == 2, "a minimum that is out of reach takes nothing from others"
    shared.take("l40s", 9, (FOR_OTHERS,))
    assert shared.of_type("l40s", (FOR_OTHERS,)) == 0
    assert shared.of_type("h100-sxm", ()) is None


def test_a_new_model_goes_where_its_pods_can_go() -> None:
    """The L40S would be cheaper, and is for others; who tolerates that takes it."""
    there = (stock(others=8), stock("h100-sxm", anyone=8))
    new = view(pool(exists=False), None, gpu_types=())
    (plan,) = planned(there, (new, None))
    assert plan.pool is not None
    assert plan.pool.placement.gpu_type == "h100-sxm"
    rejected = {each.option: each.reason for each in plan.decision.rejected}
    assert rejected["l40s"] == (
        "8 GPUs l40s are on nodes with taint team=other:NoSchedule, which its pods do not tolerate: add it to "
        "spec.template.tolerations"
    )
    (plan,) = planned(there, (view(pool(exists=False), None, gpu_types=(), tolerations=(FOR_OTHERS,)), None))
    assert plan.pool is not None
    assert plan.pool.placement.gpu_type == "l40s"


@pytest.mark.parametrize("named", [(), ("l40s",)])
def test_where_nothing_is_within_reach_the_taint_is_named(named: tuple[str, ...]) -> None:
    """Nothing is created that would stay Pending."""
    (plan,) = planned(stock(others=8), (view(pool(exists=False), None, gpu_types=named), None))
    status, reason, message = condition(plan, ConditionType.PLACED)
    assert (plan.pool, status, reason) == (None, ConditionStatus.FALSE, ConditionReason.NO_GPU_TYPE)
    assert "taint team=other:NoSchedule" in message
    assert "add it to spec.template.tolerations" in message


def test_nodes_that_are_in_trouble_are_not_to_be_tolerated() -> None:
    """Who tolerates disk pressure gets pods that are evicted."""
    (plan,) = planned(stock(others=8, taint=DISK), (view(pool(exists=False), None), None))
    message = condition(plan, ConditionType.PLACED)[2]
    assert "taint node.kubernetes.io/disk-pressure:NoSchedule, which take no pods now" in message
    assert "tolerations" not in message


def test_a_fleet_grows_as_far_as_its_pods_reach() -> None:
    """Two are free, eight more are for others: the decision says so."""
    there = stock(anyone=3, others=8)
    there = replace(there, used=1)
    (plan,) = planned(there, (loaded(40.0, 1), steady(40.0, 1)))
    assert (replicas(plan), plan.decision.clamp) == (3, Clamp.GPUS)
    assert "2 GPUs l40s are free" in plan.decision.message
    assert "8 GPUs l40s are on nodes with taint team=other:NoSchedule" in plan.decision.message
    (plan,) = planned(there, (loaded(40.0, 1, tolerations=(FOR_OTHERS,)), steady(40.0, 1)))
    assert replicas(plan) > 3


def test_models_with_other_tolerations_share_what_both_reach() -> None:
    """The first takes two of what anyone reaches, and the second gets none of those that are for others."""
    first, last = model(HIGH, 0, 1, 3.0, tolerations=(FOR_OTHERS,)), model(LOW, 0, 1, 3.0)
    there = replace(stock(anyone=5, others=1), used=2)
    assert [replicas(plan) for plan in planned(there, first, last)] == [3, 2]


def test_nobody_yields_gpus_that_the_higher_does_not_reach() -> None:
    """The lower one may run on nodes for others: what it gave back would be of no use."""
    there = replace(stock(anyone=1, others=3, used=3), used=4)
    high = model(HIGH, 10, 1, 3.0)
    found = planned(there, high, model(LOW, 0, 3, 3.0, tolerations=(FOR_OTHERS,)))
    assert [replicas(plan) for plan in found] == [1, 3]
    assert [replicas(plan) for plan in planned(there, high, model(LOW, 0, 3, 3.0))] == [1, 1]
    waiting = model(LOW, 0, 1, 2.0, tolerations=(FOR_OTHERS,), extra=(pod("waiting", PodState.PENDING),))
    assert replicas(planned(there, high, waiting)[1]) == 2


def test_a_pod_that_waits_for_a_gpu_is_told_of_those_behind_a_taint() -> None:
    """The scheduler does not name taints any more: our own nodes do."""
    words = "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint(s)."
    new = pod("new", PodState.PENDING, trouble="Unschedulable", trouble_message=words)
    (plan,) = planned(stock(anyone=1, others=8), (view(pool(new), None), None))
    status, reason, message = condition(plan, ConditionType.PLACED)
    assert (status, reason) == (ConditionStatus.FALSE, ConditionReason.INSUFFICIENT_GPUS)
    assert "1 GPUs l40s are missing" in message
    assert "8 GPUs l40s are on nodes with taint team=other:NoSchedule" in message


@pytest.mark.parametrize(
    ("words", "helps"),
    [
        ("4 node(s) had untolerated taint {nvidia.com/gpu: present}.", True),
        ("1 node(s) had untolerated taint {team: }, 1 node(s) had untolerated taint {node.kubernetes.io/x: }.", True),
        ("4 node(s) had untolerated taint(s).", True),
        ("4 node(s) had untolerated taint {node.kubernetes.io/disk-pressure: }.", False),
        ("4 Insufficient memory.", False),
        ("", False),
    ],
)
def test_what_helps_is_told_beside_the_schedulers_words(words: str, helps: bool) -> None:
    """A taint that only says what becomes of a node is none to tolerate."""
    assert (advice(words) == "to use nodes with such a taint, add it to spec.template.tolerations") is helps
    assert ("spec.template.tolerations" in pod("p", trouble_message=words).said) is helps


def test_without_taints_nothing_is_copied() -> None:
    """Thousands of Models of clusters without taints share one view of what there is."""
    shared = Free.of({gpu.name: stock(gpu.name, anyone=8) for gpu in GPUS})
    assert shared.by_type(()) is shared.left
    assert shared.reach((FOR_OTHERS,)) is shared.reach((FOR_OTHERS,))
