"""Every option of placement, judged and ranked: can it run, how long does it take, what does it cost."""

from __future__ import annotations

import re
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from goodput.domain.architecture import Architecture
from goodput.domain.intent import GpuType, Objective
from goodput.domain.speculation import DraftMethod, Speculation, SpeculationMode
from goodput.perfmodel import Lengths, Shape, architecture, built_in_gpu_types
from goodput.perfmodel.capacity import latency
from goodput.perfmodel.judging import Verdict, judge
from goodput.perfmodel.notches import frontier, notches
from goodput.perfmodel.options import allowed, cheapest, options, rank
from goodput.perfmodel.requirements import Requirements

CHAT = Objective(ttft_seconds=0.5, tpot_seconds=0.05, e2e_seconds=None)
NIGHTLY = Objective(ttft_seconds=None, tpot_seconds=None, e2e_seconds=4 * 3600.0)
GPUS = {gpu.name: gpu for gpu in built_in_gpu_types()}
CUDA, _ = allowed(built_in_gpu_types(), ())


def model(name: str) -> Architecture:
    found = architecture(name)
    assert found is not None
    return found


LLAMA_8B = model("meta-llama/Llama-3.1-8B-Instruct")
LLAMA_70B = model("meta-llama/Llama-3.1-70B-Instruct")
PHI_14B = model("microsoft/phi-4")
KV_HEADS = "TP 4 neither divides the 10 key-value heads nor is a multiple of them"
QWEN_7B = model("Qwen/Qwen2.5-7B-Instruct")  # 28 heads: no TP 8


def wanted(arch: Architecture = LLAMA_8B, **changes: Any) -> Requirements:
    return Requirements(arch=arch, **{"objective": CHAT, "lengths": Lengths(1155.0, 211.0), "rps": 10.0, **changes})


def types(*names: str) -> tuple[GpuType, ...]:
    return tuple(GPUS[name] for name in names)


def test_the_winner_is_the_cheapest_fleet_and_not_the_cheapest_replica() -> None:
    """One h100-sxm costs more than one l40s; at 10 requests/s the l40s fleet costs more."""
    found = options(wanted(), types("l40s", "h100-sxm"))
    assert found[0].label == "h100-sxm TP1"
    assert options(wanted(rps=0.0), types("l40s", "h100-sxm"))[0].label == "l40s TP1"


def test_what_cannot_run_names_what_is_too_large() -> None:
    """Weights of 70B in bf16 on one GPU of 48 GB."""
    first = next(item for item in options(wanted(LLAMA_70B), types("l40s")) if item.shape == Shape())
    assert first.verdict is Verdict.TOO_LARGE
    assert first.why.endswith("of the 40.9 GiB that one GPU may use") or "weights need" in first.why


def test_what_misses_says_by_how_much() -> None:
    """A decode step reads 16 GB over 300 GB/s: no L4 gives a token in 50 ms."""
    only = judge(wanted(), GPUS["l4"], Shape())
    assert only.verdict is Verdict.MISSES
    assert only.why.startswith("TPOT is ")
    assert "even when idle" in only.why
    assert only.shortfall > 1.0
    assert only.fleet is None


def strict(asked: Requirements, gpu: str) -> Requirements:
    """What an idle replica just meets: one with anything to do does not."""
    idle = latency(asked.arch, GPUS[gpu], Shape(), asked.lengths, asked.objective, rps=0.0).good
    return replace(asked, objective=replace(asked.objective, attainment=round(idle, 4) - 1e-4))


def test_who_meets_the_slo_only_while_idle_does_not_meet_it() -> None:
    """A replica is given a tenth of what it keeps up with at least, and is told by what it makes of the SLO there."""
    for rps in (0.0, 10.0):
        asked = strict(wanted(rps=rps), "l40s")
        only = judge(asked, GPUS["l40s"], Shape())
        assert only.verdict is Verdict.BUSY_MISSES
        assert only.runs
        assert only.fleet is not None
        assert only.idle is not None
        assert only.idle.good >= asked.objective.attainment > only.fleet.at_load.good
        assert only.shortfall == asked.objective.attainment - only.fleet.at_load.good
        assert re.match(r"9\d.*% of requests meet it at .* requests/s a replica, not 9.*%: TTFT is ", only.why)


def test_who_meets_the_slo_only_while_idle_loses_to_whoever_meets_it() -> None:
    """However dear that is; and it meets it itself where its author asks for as many replicas as that takes."""
    asked = strict(wanted(), "l40s")
    found = options(asked, types("l40s", "b200"))
    assert (found[0].gpu.name, found[0].verdict) == ("b200", Verdict.MEETS)
    tried = (option for option in found if option.gpu.name == "l40s")
    assert all(option.verdict in (Verdict.BUSY_MISSES, Verdict.MEETS, Verdict.MISSES) for option in tried)
    many = judge(replace(asked, min_replicas=1000), GPUS["l40s"], Shape())
    assert (many.verdict, many.why) == (Verdict.MEETS, "")


def test_a_cap_is_told_beside_what_a_busy_replica_misses() -> None:
    """It allows a part of the replicas, which would not meet the SLO either."""
    only = judge(replace(strict(wanted(), "l40s"), max_replicas=2), GPUS["l40s"], Shape())
    assert (only.verdict, only.field) == (Verdict.BUSY_MISSES, "")
    assert only.why.endswith(" replicas are needed, spec.scaling.maxReplicas allows 2")


def test_a_loser_is_compared_with_the_winner() -> None:
    """By cost at the expected demand, and by what binds."""
    _, second, *_ = options(wanted(), types("h100-sxm", "h200-sxm"))
    assert second.why.startswith("15 % above the cost of h100-sxm TP1; time per token binds at ")


def test_who_has_no_price_comes_after_who_has_one_and_says_so() -> None:
    """Never silently against a priced type."""
    found = options(wanted(), types("a30", "b200"))
    assert found[0].gpu.name == "b200"
    assert "what a30 costs is unknown" in next(item.why for item in found if item.gpu.name == "a30" and item.meets)


def test_without_any_price_the_fewest_gpus_win() -> None:
    """Then each GPU counts alike."""
    unpriced = [replace(gpu, price_per_hour=None) for gpu in types("l40s", "h100-sxm")]
    found = options(wanted(), unpriced)
    assert found[0].gpu.name == "h100-sxm"
    assert found[1].why.endswith("against 1 of h100-sxm")


def test_what_is_not_free_comes_after_what_is() -> None:
    """The cheapest type is there, but taken."""
    found = options(wanted(), types("l40s", "h100-sxm"), {"l40s": 16, "h100-sxm": 0})
    assert found[0].gpu.name == "l40s"
    assert "fewer are free" in next(item.why for item in found if item.gpu.name == "h100-sxm" and item.meets)


def test_stages_come_only_where_replicas_cannot() -> None:
    """For a chat TP holds it, so no stage is tried; 28 heads on 8 small GPUs need two stages of TP 4."""
    assert all(item.shape.pipeline_parallel == 1 for item in options(wanted(), types("l40s", "h100-sxm")))
    large = replace(QWEN_7B, dense_parameters=5.5e10)
    found = options(wanted(large), types("l4"))
    assert {item.shape.pipeline_parallel for item in found if item.verdict is not Verdict.TOO_LARGE} == {2, 4, 8}


def test_stages_are_tried_where_latency_does_not_matter() -> None:
    """A deadline of hours for whole requests is a batch: stages are as good as tensor ranks."""
    assert wanted(objective=NIGHTLY).patient
    assert not wanted(objective=replace(NIGHTLY, tpot_seconds=1.0)).patient
    assert not wanted(objective=replace(NIGHTLY, e2e_seconds=30.0)).patient
    found = options(wanted(LLAMA_70B, objective=NIGHTLY), types("l40s"))
    assert max(item.shape.pipeline_parallel for item in found) > 1


@pytest.mark.parametrize(
    ("changes", "gpu", "why"),
    [
        pytest.param({"tensor_parallel": 3}, "h100-sxm", "TP 3 does not divide the 32 attention heads", id="heads"),
        pytest.param({"tensor_parallel": 8}, "t4", "8 GPUs are needed in one pod, a node of t4 has 4", id="node"),
        pytest.param({"pipeline_parallel": 64}, "h100-sxm", "PP 64 is more than the 32 layers", id="layers"),
        pytest.param({"arch": PHI_14B, "tensor_parallel": 4}, "l40s", KV_HEADS, id="key-value heads"),
    ],
)
def test_a_parallelism_that_does_not_exist_is_named(changes: dict[str, Any], gpu: str, why: str) -> None:
    """One option, which says why it is none, and which field to change."""
    (only,) = options(wanted(**changes), types(gpu))
    assert (only.verdict, only.why) == (Verdict.INVALID, why)
    assert only.field.startswith("spec.parallelism")


def test_no_shape_is_tried_that_the_engine_refuses() -> None:
    """phi-4 has 40 attention heads and 10 of keys and values: TP 1 and 2, never 4 or 8."""
    found = options(wanted(PHI_14B, rps=100.0), types("h100-sxm", "l40s"))
    assert {option.shape.tensor_parallel for option in found} == {1, 2}


@pytest.mark.parametrize("mode", list(SpeculationMode))
def test_a_drafter_that_the_engine_does_not_split_is_named(mode: SpeculationMode) -> None:
    """28 heads over 8 ranks: no option where it must draft, plain decoding where it may."""
    drafter = Speculation(method=DraftMethod.DRAFT, mode=mode, model=QWEN_7B.name, draft=QWEN_7B)
    (only,) = options(wanted(LLAMA_70B, tensor_parallel=8, speculation=drafter), types("h200-sxm"))
    told = f"its drafter {QWEN_7B.name}: TP 8 does not divide the 28 attention heads"
    if mode is SpeculationMode.ALWAYS:
        assert (only.verdict, only.field, only.why) == (Verdict.INVALID, "spec.speculative", told)
    else:
        assert (only.verdict, only.shape.drafts) == (Verdict.MEETS, None)
        assert told in only.note


@pytest.mark.parametrize(
    "changes", [{"rps": nan}, {"rps": -1.0}, {"rps": inf}, {"tensor_parallel": 0}, {"pipeline_parallel": -1}]
)
def test_nonsense_is_refused(changes: dict[str, Any]) -> None:
    """A demand or a parallelism that is no number of its kind."""
    with pytest.raises(ValueError, match=r"demand|parallel"):
        options(wanted(**changes), CUDA)


def test_types_of_other_makers_need_naming() -> None:
    """The default image runs on CUDA; who names another type brings an image."""
    runs, left_out = allowed(built_in_gpu_types(), ())
    assert "mi300x" in left_out
    assert all(gpu.resource_name.startswith("nvidia.com/") for gpu in runs)
    assert [gpu.name for gpu in allowed(built_in_gpu_types(), ["mi300x"])[0]] == ["mi300x"]


_WANTED = st.builds(
    wanted,
    st.sampled_from([LLAMA_8B, LLAMA_70B, QWEN_7B]),
    objective=st.builds(
        Objective,
        ttft_seconds=st.sampled_from([None, 0.2, 0.5, 2.0]),
        tpot_seconds=st.sampled_from([0.02, 0.05, 0.1]),
        e2e_seconds=st.none(),
        attainment=st.sampled_from([0.9, 0.95, 0.99]),
    ),
    lengths=st.builds(Lengths, st.sampled_from([100.0, 1155.0, 6000.0]), st.sampled_from([20.0, 211.0, 800.0])),
    rps=st.sampled_from([0.0, 0.3, 2.0, 10.0, 80.0]),
    min_replicas=st.sampled_from([1, 3]),
)


def test_a_type_whose_sequences_bind_is_not_left_out_unseen() -> None:
    """Short prompts at 80 requests/s: three A100 of 40 GB carry them with more sequences than the engine's 256."""
    objective = Objective(ttft_seconds=0.2, tpot_seconds=0.05, e2e_seconds=None, attainment=0.9)
    asked = wanted(LLAMA_8B, objective=objective, lengths=Lengths(100.0, 211.0), rps=80.0)
    found = cheapest(asked, CUDA)
    assert found is not None
    assert (found.label, found.shape.max_num_seqs) == ("a100-40g-sxm TP1", 1024)


@given(_WANTED)
@settings(max_examples=15)
def test_the_quick_search_finds_the_winner(asked: Requirements) -> None:
    """Bounds leave out only what cannot win."""
    best = options(asked, CUDA)[0]
    found = cheapest(asked, CUDA)
    assert (found.label if found else None) == (best.label if best.meets else None)


@given(_WANTED)
@settings(max_examples=15)
def test_who_is_said_to_meet_the_slo_shows_its_attainment(asked: Requirements) -> None:
    """No verdict says more than the figure beside it."""
    for option in options(asked, CUDA):
        if option.fleet is not None:
            enough = option.fleet.at_load.good >= asked.objective.attainment - 1e-9
            assert enough is (option.verdict in (Verdict.MEETS, Verdict.CAPPED))


@given(_WANTED)
@settings(max_examples=15)
def test_what_is_called_dearer_is(asked: Requirements) -> None:
    """Judged in full, it meets the SLO at a higher cost than a smaller replica of its type, or not at all."""
    found = options(asked, CUDA)
    for option in found:
        if option.verdict is Verdict.DEARER:
            full = judge(asked, option.gpu, option.shape)
            assert not full.meets or any(
                rank(full) > rank(other) for other in found if other.gpu is option.gpu and other.meets
            )


@given(_WANTED)
@settings(max_examples=15)
def test_a_fleet_carries_its_load(asked: Requirements) -> None:
    """Capacity covers the demand and what is kept free; costs are shares of the cost per hour."""
    for option in options(asked, CUDA):
        fleet = option.fleet
        if fleet is None or option.capacity is None:
            continue
        assert fleet.replicas * option.capacity.rps >= asked.load_rps * (1 - 1e-6)
        assert fleet.replicas >= asked.min_replicas
        assert fleet.gpus == fleet.replicas * option.gpus
        if fleet.cost.per_hour is not None:
            assert fleet.cost.per_thousand_requests is not None
            assert fleet.cost.per_thousand_requests * fleet.rps * 3.6 == pytest.approx(fleet.cost.per_hour)


def test_notches_are_what_a_plan_with_that_slo_costs() -> None:
    """Looser bounds never cost more, tighter ones never less."""
    asked = wanted(rps=40.0)
    winner = options(asked, CUDA)[0]
    found = {(notch.bound, notch.after): notch for notch in notches(asked, CUDA, winner)}
    assert set(found) == {
        ("TTFT", 0.25),
        ("TTFT", 1.0),
        ("TPOT", 0.025),
        ("TPOT", 0.1),
        ("attainment", 0.9),
        ("attainment", 0.99),
    }
    looser = found["TPOT", 0.1]
    assert looser.option is not None
    again = options(wanted(rps=40.0, objective=replace(CHAT, tpot_seconds=0.1)), CUDA)[0]
    assert looser.option.label == again.label
    for (bound, after), notch in found.items():
        looser_bound = after > notch.before if bound != "attainment" else after < notch.before
        assert notch.saving is None or (notch.saving >= -1e-9 if looser_bound else notch.saving <= 1e-9)


def test_the_frontier_falls() -> None:
    """Cost against one bound: tight bounds may be unreachable, looser ones never cost more."""
    points = frontier(wanted(), CUDA, "tpot_seconds", [0.1, 0.0001, 0.02, 0.05])
    assert [value for value, _ in points] == [0.0001, 0.02, 0.05, 0.1]
    assert points[0][1] is None
    costs = [option.fleet.cost.per_hour for _, option in points if option is not None and option.fleet is not None]
    assert costs == sorted(costs, key=lambda cost: -(cost or 0.0))
