"""Placement where an SLO, a cap or free GPUs leave no option that is right: the nearest one, and what is said."""

from msgspec.structs import replace
from tests.decide.builders import CHAT, gpu, one, pod, pool, view
from tests.decide.test_placement import LLAMA_8B, LLAMA_70B, placed, supply

from goodput.domain.intent import Workload
from goodput.domain.observed import GpuSupply
from goodput.perfmodel import Lengths, Shape
from goodput.perfmodel.capacity import latency


def test_where_nothing_meets_the_slo_the_nearest_is_placed_and_it_is_said():
    """No GPU gives a token of 70B in 2 ms: the fastest of those that hold it serves as well as it can."""
    hopeless = {"architecture": LLAMA_70B, "objective": replace(CHAT, tpot_seconds=0.002)}
    found = placed(supply(l40s=8, h100_sxm=8), **hopeless)
    assert found.placement is not None
    assert (found.placement.gpu_type, found.placement.gpus) == ("h100-sxm", 8)
    assert found.message.startswith("no option meets the SLO, h100-sxm TP8 comes nearest: TPOT is ")
    assert all("even when idle" in each.reason for each in found.placement.rejected if each.option == "l40s TP8")


def edge(type_: str = "l40s") -> dict[str, object]:
    """An objective that an idle replica just meets, and a busy one does not."""
    assert LLAMA_8B is not None
    idle = latency(LLAMA_8B, gpu(type_), Shape(), Lengths(1155.0, 211.0), CHAT, rps=0.0).good
    return {"objective": replace(CHAT, attainment=round(idle, 4) - 1e-4), "tensor_parallel": 1}


def test_whoever_meets_the_slo_goes_before_who_meets_it_only_while_idle():
    """However dear; where there is no other, that one is placed, and what it misses is said."""
    found = placed(supply(l40s=8, b200=8), **edge())
    assert found.placement is not None
    assert found.placement.gpu_type == "b200"
    told = next(each.reason for each in found.placement.rejected if each.option == "l40s TP1")
    assert "% of requests meet it at " in told
    alone = placed(supply(l40s=8), **edge())
    assert alone.placement is not None
    assert alone.message.startswith("no option meets the SLO, l40s TP1 comes nearest: ")
    assert "requests/s a replica, not 9" in alone.message


def test_who_meets_the_slo_only_while_idle_stays_where_it_runs():
    """Its type is not judged anew, so no upgrade moves it; its replicas are given what they were given."""
    there = supply(l40s=8, b200=8)
    runs = placed(there, on=pool(pod("a")), **edge())
    assert runs.placement is not None
    assert (runs.placement.gpu_type, runs.message) == ("l40s", "")
    alone = placed(supply(l40s=8), **edge()).placement
    assert alone is not None
    assert runs.placement.capacity_rps == alone.capacity_rps > 0.3


def test_what_is_said_of_a_first_placement_stands_in_the_decision_and_the_condition():
    """Who looks at one of them learns that the SLO cannot be met."""
    model = view(pool(exists=False), None, objective=replace(CHAT, tpot_seconds=0.002))
    plan = one(model)
    assert "no option meets the SLO, l40s TP8 comes nearest" in plan.decision.message
    placed_condition = next(each for each in plan.conditions if each.type == "Placed")
    assert placed_condition.message.startswith("8 x l40s a replica, ")
    assert "no option meets the SLO" in placed_condition.message


def test_a_fleet_for_all_of_the_load_goes_before_one_that_a_cap_cuts():
    """Of one replica that is allowed, a larger one carries the load."""
    there = supply(l40s=400, h100_sxm=400)
    load = Workload(requests_per_second=10.0)
    free = placed(there, workload=load, gpu_types=("l40s",)).placement
    assert free is not None
    assert free.tensor_parallel == 1
    capped = placed(there, workload=load, max_replicas=1)
    assert capped.placement is not None
    assert capped.placement.gpu_type == "h100-sxm"
    assert "spec.scaling.maxReplicas: " in next(e.reason for e in capped.placement.rejected if e.option == "l40s TP1")


def test_caps_that_leave_no_fleet_for_the_load_are_named():
    """The SLO holds for a part of the load; the rest is the cap's."""
    found = placed(supply(l40s=400), workload=Workload(requests_per_second=60.0), max_cost_per_hour=4.0)
    assert found.placement is not None
    assert found.message.startswith("no fleet for the expected load is allowed: ")
    assert "spec.scaling.maxCostPerHour allows " in found.message


def test_room_for_the_whole_fleet_goes_before_room_for_its_first_replica():
    """And room for one replica before none."""
    load = Workload(requests_per_second=10.0)
    few = placed(supply(l40s=1, h200_sxm=8), workload=load).placement
    none = placed(
        {**supply(l40s=2, h200_sxm=8), "h200-sxm": GpuSupply(type="h200-sxm", nodes=1, installed=8, used=8)},
        workload=load,
    ).placement
    assert few is not None
    assert none is not None
    assert few.gpu_type == "h200-sxm"
    assert none.gpu_type == "l40s"
