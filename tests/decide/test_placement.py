"""Placement: the cheapest type that fits and meets the SLO, and who is placed stays."""

import pytest
from msgspec.structs import replace
from tests.decide.builders import CHAT, GPUS, intent, pod, pool

from goodput.decide import Policy
from goodput.decide.placement import Placed, place
from goodput.domain.conditions import ConditionReason
from goodput.domain.intent import Carrier, GpuType, ModelIntent, Precision, Workload
from goodput.domain.observed import GpuSupply, PoolView
from goodput.domain.speculation import DraftMethod, Speculation
from goodput.perfmodel.precision import with_precision

TYPES = {gpu.name: gpu for gpu in GPUS}
LLAMA_8B = intent().architecture
assert LLAMA_8B is not None


def supply(**free: int) -> dict[str, GpuSupply]:
    """GPUs free by type; `h100_sxm=8` is 8 of h100-sxm."""
    return {
        name.replace("_", "-"): GpuSupply(type=name.replace("_", "-"), nodes=1, installed=number, used=0)
        for name, number in free.items()
    }


def placed(there: dict[str, GpuSupply], *, on: PoolView | None = None, **changes: object) -> Placed:
    wanted: ModelIntent = intent(**{"gpu_types": (), **changes})
    return place(wanted, on or pool(exists=False), TYPES, there, Policy())


def test_the_cheapest_type_that_meets_the_slo_wins_and_the_others_say_why_not():
    """L4 is cheaper but cannot hold 50 ms a token; H100 can, but costs more than an L40S."""
    found = placed(supply(l4=8, l40s=8, h100_sxm=8))
    assert found.placement is not None
    assert (found.placement.gpu_type, found.placement.gpus) == ("l40s", 1)
    reasons = {each.option: each.reason for each in found.placement.rejected}
    assert "idle replica" in reasons["l4 TP1"]
    assert "$/h" in reasons["h100-sxm TP1"]


def test_the_smallest_parallelism_that_fits_is_taken():
    """70B in bf16 needs two 141 GB GPUs, or four of 80 GB for room; never eight where fewer do."""
    from goodput.perfmodel import architecture

    found = placed(
        supply(h200_sxm=8),
        architecture=architecture("meta-llama/Llama-3.1-70B"),
        objective=replace(CHAT, ttft_seconds=3.0, tpot_seconds=0.1),
    )
    assert found.placement is not None
    assert found.placement.tensor_parallel == 2
    assert "weights" in next(each.reason for each in found.placement.rejected if each.option == "h200-sxm TP1")


def test_a_type_with_no_free_gpu_comes_after_one_that_has_some():
    """A cheaper type whose GPUs are all taken would leave the first pod Pending."""
    there = supply(l40s=8, h100_sxm=8)
    there["l40s"] = replace(there["l40s"], used=8)
    found = placed(there)
    assert found.placement is not None
    assert found.placement.gpu_type == "h100-sxm"


def test_an_unknown_price_ranks_by_gpus_and_says_so():
    """A type without a price is never compared silently with a priced one."""
    found = placed(supply(l40=8, l40s=8))
    assert found.reason is ConditionReason.PRICE_UNKNOWN
    assert "l40" in found.message


def test_under_a_limit_of_cost_a_type_with_a_price_is_preferred():
    """Of a type without one its namespace would get no replica; where there is no other, that is said elsewhere."""
    limited = Policy(max_cost_per_hour_per_namespace=10.0)
    wanted = replace(intent(gpu_types=()), objective=replace(CHAT, ttft_seconds=1.0))
    for there, want in ((supply(l40=8, h100_sxm=8), "h100-sxm"), (supply(l40=8), "l40")):
        found = place(wanted, pool(exists=False), TYPES, there, limited)
        assert found.placement is not None
        assert found.placement.gpu_type == want
    both = place(wanted, pool(exists=False), TYPES, supply(l40=8, h100_sxm=8), limited)
    assert both.placement is not None
    assert "no price" in next(each.reason for each in both.placement.rejected if each.option == "l40 TP1")


def test_who_is_placed_stays_though_something_cheaper_appears():
    """A migration is a roll-out: a new type alone does not cause one."""
    there = supply(l40s=8, h100_sxm=8)
    found = placed(there, on=pool(pod("a"), gpu_type="h100-sxm"))
    assert found.placement is not None
    assert found.placement.gpu_type == "h100-sxm"


def test_an_edit_of_types_or_parallelism_moves_it():
    """What the author asks for wins over what runs."""
    there = supply(l40s=8, h100_sxm=8)
    running = pool(pod("a"), gpu_type="h100-sxm")
    moved = place(intent(gpu_types=("l40s",)), running, TYPES, there, Policy())
    assert moved.placement is not None
    assert moved.placement.gpu_type == "l40s"
    wider = place(intent(gpu_types=("l40s",), tensor_parallel=2), pool(pod("a")), TYPES, there, Policy())
    assert wider.placement is not None
    assert wider.placement.tensor_parallel == 2


def test_a_type_that_the_default_image_does_not_run_on_is_left_out_and_says_so():
    """mi300x would be cheaper than h100-sxm, but the image is for CUDA: its pods would never start."""
    both = supply(h100_sxm=8, mi300x=8)
    found = placed(both)
    assert found.placement is not None
    assert found.placement.gpu_type == "h100-sxm"
    why = next(each.reason for each in found.placement.rejected if each.option == "mi300x")
    assert "amd.com/gpu" in why
    assert "spec.gpuTypes" in why
    named = place(intent(gpu_types=("h100-sxm", "mi300x")), pool(exists=False), TYPES, both, Policy())
    assert named.placement is not None
    assert named.placement.gpu_type == "mi300x", "who names it has an image for it"


def test_with_no_other_type_the_author_is_asked_to_name_it():
    """Nothing starts on it silently, and the message says which field to set."""
    found = placed(supply(mi300x=8))
    assert (found.placement, found.reason, found.stalled) == (None, ConditionReason.NO_GPU_TYPE, True)
    assert found.message.startswith("spec.gpuTypes: nodes have mi300x only")
    assert "spec.engine.image" in found.message


def test_a_type_that_was_never_named_is_nowhere_to_go():
    """The last node of its type is gone: it waits for one, and what runs on a type of its own image stays there."""
    gone = place(intent(gpu_types=()), pool(gpu_type="h100-sxm"), TYPES, supply(mi300x=8), Policy())
    assert gone.placement is not None
    assert gone.placement.gpu_type == "h100-sxm"
    there = placed(supply(h100_sxm=8, mi300x=8), on=pool(pod("a"), gpu_type="mi300x"))
    assert there.placement is not None
    assert there.placement.gpu_type == "mi300x"


def test_slices_of_a_gpu_are_gpus_of_nvidia():
    """A type of one's own with a MIG resource needs no name."""
    types = {**TYPES, "mig": replace(TYPES["h100-sxm"], name="mig", resource_name="nvidia.com/mig-3g.40gb")}
    found = place(intent(gpu_types=()), pool(exists=False), types, supply(mig=8), Policy())
    assert found.placement is not None
    assert found.placement.gpu_type == "mig"


@pytest.mark.parametrize(
    ("changes", "there", "reason"),
    [
        ({"architecture": None}, {"l40s": 8}, ConditionReason.ARCHITECTURE_UNKNOWN),
        ({"objective": None}, {"l40s": 8}, ConditionReason.SLO_NOT_FOUND),
        ({}, {}, ConditionReason.NO_GPU_TYPE),
        ({}, {"t4": 4}, ConditionReason.DOES_NOT_FIT),
        ({"tensor_parallel": 3}, {"l40s": 8}, ConditionReason.PARALLELISM_INVALID),
        ({"tensor_parallel": 16}, {"l40s": 8}, ConditionReason.PARALLELISM_INVALID),
    ],
)
def test_what_cannot_be_placed_names_the_reason(changes, there, reason):
    """No placement, a reason of the `Placed` condition and a sentence."""
    if reason is ConditionReason.DOES_NOT_FIT:
        changes = {**changes, "tensor_parallel": 1}
    found = placed(supply(**there), **changes)
    assert found.placement is None
    assert found.reason is reason
    assert len(found.message) > 20


def test_a_type_that_does_not_exist_is_named():
    """A typing mistake in spec.gpuTypes is no missing node."""
    found = place(intent(gpu_types=("l40z",)), pool(exists=False), TYPES, supply(l40s=8), Policy())
    assert found.reason is ConditionReason.GPU_TYPE_NOT_FOUND
    assert "l40z" in found.message


def _two_labellings() -> tuple[GpuType, Carrier]:
    """An L40S that nodes carry by two labellings, and the one that pods were rendered with before."""
    before = Carrier("nvidia.com/gpu", (("karpenter.k8s.aws/instance-gpu-name", "l40s"),))
    return replace(TYPES["l40s"], alternatives=(before,)), before


def test_who_is_placed_keeps_the_labels_that_its_pods_ask_for():
    """Feature discovery was installed, and pods would now ask for its labels: no reason to render them anew."""
    gpu, before = _two_labellings()
    on = pool(pod("a"), carrier=before)
    found = place(intent(), on, {**TYPES, "l40s": gpu}, supply(l40s=8), Policy())
    assert found.placement is not None
    assert found.placement.node_selector == before.node_selector
    new = place(intent(), pool(exists=False), {**TYPES, "l40s": gpu}, supply(l40s=8), Policy())
    assert new.placement is not None
    assert new.placement.node_selector == gpu.node_selector


def test_labels_that_no_node_has_any_more_are_given_up():
    """A pod that asks for them would stay Pending: the next roll-out asks for what nodes have."""
    gone = Carrier("nvidia.com/gpu", (("karpenter.k8s.aws/instance-gpu-name", "l40s"),))
    alone = replace(TYPES["l40s"], alternatives=())
    found = place(intent(), pool(pod("a"), carrier=gone), {**TYPES, "l40s": alone}, supply(l40s=8), Policy())
    assert found.placement is not None
    assert found.placement.node_selector == alone.node_selector


def test_accelerators_that_no_type_counts_are_told_to_who_finds_none():
    """Nodes have GPUs, yet none that is known: the Model says which, not only that there are none."""
    strangers = "2 nodes have nvidia.com/gpu (nvidia.com/gpu.product=NVIDIA-H20), which no GPU type names"
    found = place(intent(gpu_types=()), pool(exists=False), TYPES, {}, Policy(), strangers=strangers)
    assert found.reason is ConditionReason.NO_GPU_TYPE
    assert "NVIDIA-H20" in found.message


def test_a_mig_profile_is_one_gpu_of_one_process():
    """An 8B model in bf16 fits half an H100, never two of its sevenths together."""
    found = placed(supply(**{"h100_sxm_3g.40gb": 16, "h100_sxm_1g.10gb": 56}))
    assert found.placement is not None
    assert (found.placement.gpu_type, found.placement.gpus) == ("h100-sxm-3g.40gb", 1)
    assert found.placement.resource_name == "nvidia.com/mig-3g.40gb"
    reasons = {each.option: each.reason for each in found.placement.rejected}
    assert "h100-sxm-1g.10gb TP1" in reasons
    assert "h100-sxm-1g.10gb TP2" not in reasons


def test_an_expected_load_is_what_the_cheapest_fleet_is_chosen_for():
    """One L40S is cheaper than one H100, but at 60 requests/s so many of them are needed that the H100 is cheaper."""
    there = supply(l40s=400, h100_sxm=400)
    one = placed(there)
    many = placed(there, workload=Workload(requests_per_second=60.0))
    assert one.placement is not None
    assert many.placement is not None
    assert one.placement.gpu_type == "l40s"
    per_request = {
        each.gpu_type: (each.price_per_hour or 0.0) / each.capacity_rps
        for name in ("l40s", "h100-sxm")
        if (each := placed(there, gpu_types=(name,)).placement) is not None
    }
    assert many.placement.gpu_type == min(per_request, key=lambda name: per_request[name])
    lost = next(each for each in many.placement.rejected if each.option.startswith(("l40s", "h100")))
    assert "replicas of" in lost.reason


def test_expected_lengths_size_a_replica():
    """Long documents in, a word out: another capacity than that of conversations."""
    there = supply(l40s=8)
    talks = placed(there).placement
    documents = placed(there, workload=Workload(input_tokens=6000.0, output_tokens=20.0)).placement
    assert talks is not None
    assert documents is not None
    assert documents.capacity_rps < talks.capacity_rps


def test_drafts_are_part_of_a_placement_where_they_help_and_the_reason_is_told():
    tight = replace(CHAT, ttft_seconds=2.0, tpot_seconds=0.03)
    lookup = Speculation(method=DraftMethod.NGRAM)
    on = placed(supply(l40s=8), objective=tight, speculation=lookup).placement
    assert on is not None
    assert on.speculative_tokens > 0
    assert "x faster" in next(each.reason for each in on.rejected if each.option == "plain decoding")
    hopeless = replace(lookup, acceptance=0.05)
    off = placed(supply(l40s=8), objective=tight, speculation=hopeless).placement
    assert off is not None
    assert off.speculative_tokens == 0
    assert "Auto asks for 1.05 x" in next(each.reason for each in off.rejected if each.option == "speculation")


def test_a_precision_that_a_type_does_not_run_leaves_it_out_and_says_why():
    """A T4 has no fp8 and is too old to unpack it; where there is nothing else, the field is named."""
    fp8 = with_precision(LLAMA_8B, "fp8")
    asked = {"architecture": fp8, "precision": Precision(weights="fp8")}
    found = placed(supply(t4=8, l40s=8), **asked)
    assert found.placement is not None
    assert found.placement.gpu_type == "l40s"
    alone = placed(supply(t4=8), **asked)
    assert (alone.placement, alone.reason) == (None, ConditionReason.PRECISION_INVALID)
    assert alone.message.startswith("spec.precision.weights: ")
    moved = placed(supply(t4=8, l40s=8), on=pool(pod("a"), gpu_type="t4"), **asked)
    assert moved.placement is not None
    assert moved.placement.gpu_type == "l40s"


def test_an_fp8_kv_cache_holds_twice_the_tokens():
    """An 8B on one 24 GB card: a request of twice the length."""
    shape = {"gpu_types": ("l4",), "tensor_parallel": 1}
    plain = placed(supply(l4=8), **shape).placement
    small = placed(supply(l4=8), **shape, precision=Precision(kv_cache="fp8")).placement
    assert plain is not None
    assert small is not None
    assert 20_000 < plain.max_model_len < 60_000
    assert small.max_model_len == pytest.approx(2 * plain.max_model_len, abs=32)
