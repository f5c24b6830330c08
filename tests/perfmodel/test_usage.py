"""MFU and MBU of what was counted, of wall time and of busy time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from goodput.domain.architecture import Architecture
from goodput.domain.intent import GpuType, Objective
from goodput.domain.usage import Usage
from goodput.perfmodel import Lengths, Shape, architecture, latency
from goodput.perfmodel.gpus import gpu_type
from goodput.perfmodel.phases import decode, rank_weight_bytes, use
from goodput.perfmodel.replica import context_tokens
from goodput.perfmodel.usage import Counts, usage

LENGTHS = Lengths(1000.0, 200.0)
LONG = Lengths(1.0, 1001.0)
CHAT = Objective(ttft_seconds=0.5, tpot_seconds=0.05, e2e_seconds=None)


def arch(name: str = "meta-llama/Llama-3.1-8B-Instruct") -> Architecture:
    found = architecture(name)
    assert found is not None
    return found


def gpu(name: str = "h100-sxm") -> GpuType:
    found = gpu_type(name)
    assert found is not None
    return found


def counted(**changes: float) -> Counts:
    """A minute of one replica that decodes 100 tokens a second of one sequence, all of the time."""
    base = Counts(
        replica_seconds=60.0,
        prompt_tokens=0.0,
        prompts=0.0,
        generated_tokens=6000.0,
        itl_seconds=0.01,
        itl_count=6000.0,
        batch=1.0,
    )
    return replace(base, **changes)


def test_mfu_of_20_of_100_tokens_a_second_is_20_percent() -> None:
    """On a GPU whose arithmetic would give 100."""
    token = decode(arch(), gpu(), Shape(), batch=1.0, context_tokens=context_tokens(LONG)).flop
    hundred = replace(gpu(), flops=(("bf16", 100.0 * token),))
    seen = counted(generated_tokens=1200.0, itl_count=1200.0, itl_seconds=0.05)
    assert usage(arch(), hundred, Shape(), LONG, seen).mfu == pytest.approx(0.20, rel=0.01)
    assert use(arch(), hundred, Shape(), LONG, rps=0.02, batch=1.0).mfu == pytest.approx(0.20, rel=0.02)


def test_mbu_of_a_7b_model_at_100_tokens_a_second_is_70_percent() -> None:
    """14 GB a token over 2 TB/s."""
    llama = arch()
    seven = replace(llama, dense_parameters=7e9 - llama.multiplied_parameters + llama.dense_parameters)
    fast = replace(gpu(), memory_bandwidth_bytes_per_second=2e12)
    assert usage(seven, fast, Shape(), LONG, counted()).mbu == pytest.approx(0.70, rel=0.01)


def test_busy_time_alone_says_what_binds() -> None:
    """A replica that decodes a quarter of the time: four times the utilisation of its steps."""
    seen = counted(generated_tokens=1500.0, itl_count=1500.0)
    found = usage(arch(), gpu(), Shape(), LONG, seen)
    assert found.busy_seconds == pytest.approx(15.0)
    assert found.mbu is not None
    assert found.busy_mbu == pytest.approx(4.0 * found.mbu)
    assert found.busy_mbu == usage(arch(), gpu(), Shape(), LONG, counted()).mbu


@pytest.mark.parametrize("rps", [0.5, 3.0, 12.0])
def test_counts_of_a_load_give_what_the_model_says_of_it(rps: float) -> None:
    """Tokens and inter-token times as a replica counts them at a rate, in ten minutes."""
    at = latency(arch(), gpu(), Shape(), LENGTHS, CHAT, rps=rps)
    requests = 600.0 * rps
    seen = Counts(
        replica_seconds=600.0,
        prompt_tokens=requests * LENGTHS.input_mean,
        prompts=requests,
        generated_tokens=requests * LENGTHS.output_mean,
        itl_seconds=at.tpot_mean_seconds,
        itl_count=requests * (LENGTHS.output_mean - 1.0),
        batch=max(1.0, at.batch),
    )
    found = usage(arch(), gpu(), Shape(), LENGTHS, seen)
    believed = use(arch(), gpu(), Shape(), LENGTHS, rps=rps, batch=at.batch)
    assert found.mfu == pytest.approx(believed.mfu, rel=0.03)
    assert found.mbu == pytest.approx(believed.mbu, rel=0.15)
    assert found.busy_seconds <= 600.0
    if at.batch > 2.0:
        assert found.busy_seconds == pytest.approx(600.0, rel=0.05)


def test_a_step_reads_the_experts_that_its_tokens_touch() -> None:
    """32 tokens of 8 of 256 experts each touch 162 of them, not all 256."""
    deepseek, eight = arch("deepseek-ai/DeepSeek-V3"), Shape(tensor_parallel=8)
    seen = counted(itl_count=32.0, itl_seconds=0.05, batch=32.0, generated_tokens=32.0)
    found = usage(deepseek, gpu("h200-sxm"), eight, LENGTHS, seen)
    step = decode(deepseek, gpu("h200-sxm"), eight, batch=32.0, context_tokens=1125.0)
    assert found.memory_seconds * gpu("h200-sxm").memory_bandwidth_bytes_per_second == pytest.approx(
        step.bytes, rel=0.01
    )
    every = rank_weight_bytes(deepseek, 8, 1e6) - rank_weight_bytes(deepseek, 8, 32.0)
    experts = deepseek.expert_parameters * deepseek.quantised_bytes / 8
    assert every / experts == pytest.approx((1 - 8 / 256) ** 32, rel=0.01)


def test_tokens_are_shared_out_over_ranks_and_stages() -> None:
    """The same counts on four GPUs: a quarter of the FLOP each, and of the bytes what each stage reads."""
    alone, split = (usage(arch(), gpu(), shape, LONG, counted()) for shape in (Shape(), Shape(tensor_parallel=4)))
    assert split.compute_seconds == pytest.approx(alone.compute_seconds / 4.0)
    assert split.memory_seconds == pytest.approx(alone.memory_seconds / 4.0, rel=0.01)


def test_what_runs_at_the_instant_of_a_scrape_is_no_fewer_than_run_on_average() -> None:
    """Nothing ran just then, but 20 sequences did on average: their steps are not counted 20 times."""
    seen = counted(itl_count=120_000.0, generated_tokens=120_000.0)
    assert usage(arch(), gpu(), Shape(), LONG, replace(seen, batch=0.0)) == usage(
        arch(), gpu(), Shape(), LONG, replace(seen, batch=20.0)
    )


def test_nothing_watched_is_unknown_and_an_idle_minute_is_zero() -> None:
    """Absent is not zero."""
    assert (Usage().mfu, Usage().mbu, Usage().busy_mfu, Usage().busy_mbu) == (None,) * 4
    idle = usage(arch(), gpu(), Shape(), LENGTHS, counted(generated_tokens=0.0, itl_count=0.0, batch=0.0))
    assert (idle.mfu, idle.mbu, idle.busy_mfu, idle.busy_mbu) == (0.0, 0.0, None, None)


@given(
    st.sampled_from(["meta-llama/Llama-3.1-8B-Instruct", "openai/gpt-oss-120b", "Qwen/Qwen3.5-35B-A3B"]),
    st.floats(0.0, 1e5),
    st.floats(0.0, 1e3),
    st.floats(1e-4, 10.0),
    st.floats(0.0, 500.0),
)
def test_shares_are_shares(name: str, tokens: float, prompts: float, seconds: float, batch: float) -> None:
    """Whatever was counted, and no busy second more than there were."""
    seen = counted(prompts=prompts, prompt_tokens=900.0 * prompts, generated_tokens=tokens, itl_count=tokens)
    found = usage(arch(name), gpu("b200"), Shape(), LENGTHS, replace(seen, itl_seconds=seconds, batch=batch))
    assert 0.0 <= found.busy_seconds <= found.wall_seconds
    for share in (found.mfu, found.mbu, found.busy_mfu, found.busy_mbu):
        assert share is None or 0.0 <= share <= 1.0
