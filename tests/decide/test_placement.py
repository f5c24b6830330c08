"""Placement: the cheapest type that fits and meets the SLO, and who is placed stays."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.decide.builders import CHAT, GPUS, START, gpu, intent, one, pod, pool, snapshot, view

from goodput.cli.plan import Question, plan_intent
from goodput.decide import Policy, decide
from goodput.decide.choosing import MOST_REJECTED
from goodput.decide.placement import Placed, place
from goodput.domain.conditions import ConditionReason
from goodput.domain.identity import Key
from goodput.domain.intent import Carrier, GpuType, ModelIntent, Precision, Workload
from goodput.domain.observed import GpuSupply, PoolView
from goodput.domain.speculation import DraftMethod, Speculation
from goodput.perfmodel import architecture
from goodput.perfmodel.precision import with_precision

TYPES = {gpu.name: gpu for gpu in GPUS}
LLAMA_8B = intent().architecture
LLAMA_70B = architecture("meta-llama/Llama-3.1-70B")
assert LLAMA_8B is not None
assert LLAMA_70B is not None


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
    """One L4 is cheaper but cannot hold 50 ms a token; H100 can, but costs more than an L40S."""
    found = placed(supply(l4=1, l40s=8, h100_sxm=8))
    assert found.placement is not None
    assert (found.placement.gpu_type, found.placement.gpus) == ("l40s", 1)
    reasons = {each.option: each.reason for each in found.placement.rejected}
    assert "ms even when idle, " in reasons["l4 TP1"]
    assert "x the 50 ms allowed" in reasons["l4 TP1"]
    assert "x the cost of l40s TP1; " in reasons["h100-sxm TP1"]


def test_the_smallest_parallelism_that_fits_is_taken():
    """70B in bf16 needs two 141 GB GPUs, or four of 80 GB for room; never eight where fewer do."""
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
    assert "no price" in next(each.reason for each in both.placement.rejected if each.option == "l40")


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
        changes = {**changes, "tensor_parallel": 1, "pipeline_parallel": 1}
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
    assert "the cost of" in lost.reason


def test_expected_lengths_size_a_replica():
    """Long documents in, a word out: another capacity than that of conversations."""
    there = supply(l40s=8)
    talks = placed(there).placement
    documents = placed(there, workload=Workload(input_tokens=6000.0, output_tokens=20.0)).placement
    assert talks is not None
    assert documents is not None
    assert documents.capacity_rps < talks.capacity_rps


@pytest.mark.parametrize(
    ("edit", "same"),
    [
        ({"objective": replace(CHAT, tpot_seconds=0.06)}, False),
        ({"objective": replace(CHAT, attainment=0.99)}, False),
        ({"objective": replace(CHAT, ttft_seconds=None, e2e_seconds=30.0)}, False),
        ({"workload": Workload(input_tokens=6000.0)}, False),
        ({"workload": Workload(output_variation=0.5)}, False),
        ({"objective": replace(CHAT, min_requests=7)}, True),
        ({"workload": Workload(requests_per_second=60.0)}, True),
        ({"max_replicas": 7, "min_replicas": 2}, True),
    ],
    ids=str,
)
def test_a_placement_tells_for_which_slo_and_lengths_it_was_sized(edit, same):
    """Not for which load: settings of one replica do not follow it."""
    before, after = placed(supply(l40s=400)).placement, placed(supply(l40s=400), **edit).placement
    assert before is not None
    assert after is not None
    assert before.sized_for
    assert (after.sized_for == before.sized_for) is same


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


def test_models_of_one_tick_share_what_is_free():
    """The first takes the last GPU of the cheapest type, the second goes elsewhere."""
    views = [view(pool(exists=False), None, gpu_types=(), key=Key("default", name)) for name in "ab"]
    stock = tuple(supply(l40s=1, h100_sxm=8).values())
    plans = decide(replace(snapshot(*views), supply=stock), {}, Policy(), START).models
    assert [plan.pool.placement.gpu_type for plan in plans if plan.pool] == ["l40s", "h100-sxm"]


def test_stages_of_a_placement_are_kept():
    """It was placed in two stages for lack of memory: nobody asked for them, and nobody takes them away."""
    running = pool(pod("a"), gpu_type="t4", tensor_parallel=1, pipeline_parallel=2)
    found = placed(supply(t4=8, l40s=8), on=running)
    assert found.placement is not None
    assert (found.placement.gpu_type, found.placement.pipeline_parallel) == ("t4", 2)
    wished = placed(supply(t4=8, l40s=8), on=running, pipeline_parallel=1)
    assert wished.placement is not None
    assert wished.placement.pipeline_parallel == 1


def test_no_more_is_told_of_what_was_rejected_than_a_status_holds():
    """The best of every type, and how many more there were."""
    every = supply(**{each.name: 8 for each in GPUS if not each.slice_of})
    found = placed(every)
    assert found.placement is not None
    told = [each.option for each in found.placement.rejected if " TP" in each.option]
    assert len(told) == MOST_REJECTED
    assert found.placement.rejected[-1].option.endswith(" others")
    assert placed(dict(reversed(every.items()))).placement == found.placement


def test_requests_that_no_kv_cache_holds_are_told_apart_from_weights():
    """The weights fit, the requests that its author expects do not."""
    long = {"workload": Workload(input_tokens=60_000.0), "tensor_parallel": 1, "pipeline_parallel": 1}
    found = placed(supply(l4=8), **long)
    assert (found.placement, found.reason) == (None, ConditionReason.DOES_NOT_FIT)
    assert found.message.startswith("spec.workload: the longest request that its KV cache holds has ")


_TYPES = ("l4", "t4", "l40s", "a100-40g-sxm", "h100-sxm", "l40")
_ASKED = st.fixed_dictionaries(
    {
        "architecture": st.sampled_from([LLAMA_8B, LLAMA_70B, with_precision(LLAMA_8B, "fp8")]),
        "objective": st.builds(
            replace,
            st.just(CHAT),
            ttft_seconds=st.sampled_from([None, 0.3, 2.0]),
            tpot_seconds=st.sampled_from([0.02, 0.05, 0.2]),
        ),
        "gpu_types": st.sampled_from([(), ("l40s", "l4"), ("t4", "h100-sxm")]),
        "tensor_parallel": st.sampled_from([None, None, 2]),
        "precision": st.sampled_from([Precision(), Precision(kv_cache="fp8")]),
        "speculation": st.sampled_from([None, None, Speculation(method=DraftMethod.NGRAM)]),
        "min_replicas": st.sampled_from([1, 3]),
        "max_replicas": st.sampled_from([None, 4]),
        "max_cost_per_hour": st.sampled_from([None, 12.0]),
        "workload": st.builds(
            Workload,
            requests_per_second=st.sampled_from([None, 0.5, 12.0]),
            input_tokens=st.sampled_from([None, 4000.0]),
        ),
    }
)


@given(_ASKED, st.dictionaries(st.sampled_from(_TYPES), st.integers(0, 64), min_size=1))
@settings(max_examples=25)
def test_what_is_placed_is_what_plan_shows(asked, free):
    """GPU type, parallelism, engine limits, drafts and first replicas: the plan and the operator are one judge."""
    there = tuple(GpuSupply(type=name, nodes=8, installed=64, used=64 - number) for name, number in free.items())
    model = view(pool(exists=False), None, **asked)
    types = [replace(gpu(name), builtin=False) for name in free]
    shown = plan_intent(model.intent, types, Question(), free)
    first = next((option for option in shown.options if option.runs), None)
    plan = decide(replace(snapshot(model), supply=there), {}, Policy(), START).models[0]
    if first is None:
        assert plan.pool is None
        return
    assert plan.pool is not None
    got = plan.pool.placement
    assert (got.gpu_type, got.tensor_parallel, got.pipeline_parallel) == (
        first.gpu.name,
        first.shape.tensor_parallel,
        first.shape.pipeline_parallel,
    )
    assert got.speculative_tokens == (first.shape.drafts.tokens if first.shape.drafts else 0)
    assert got.max_num_seqs == (first.shape.max_num_seqs or got.max_num_seqs)
    assert first.pool is not None
    assert got.max_model_len == first.pool.max_model_len
    if first.capacity is not None:
        assert got.capacity_rps == first.capacity.rps
    if first.meets and first.available and first.fleet is not None:
        assert plan.pool.replicas == first.fleet.replicas


def test_a_tick_of_a_placed_model_judges_no_option(monkeypatch):
    """A thousand Models are decided in one tick: who is placed is looked up, not chosen anew."""

    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("goodput.decide.choosing.options", never)
    assert one(view(pool(pod("a")), None)).pool is not None
    with pytest.raises(AssertionError):
        one(view(pool(exists=False), None))
