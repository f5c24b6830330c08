"""What takes the time of a phase, and what keeps a replica from carrying more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from goodput.domain.architecture import Architecture
from goodput.domain.errors import ModelDoesNotFit
from goodput.domain.intent import GpuType, Objective
from goodput.domain.speculation import DraftMethod, Speculation
from goodput.perfmodel import Lengths, Shape, architecture, built_in_gpu_types, capacity, fit, model_ids
from goodput.perfmodel.binding import Bottleneck, bottleneck, decode_taken, load_taken, prefill_taken
from goodput.perfmodel.gpus import gpu_type, whole_cards
from goodput.perfmodel.memory import engine_defaults
from goodput.perfmodel.replica import context_tokens, replica_times
from goodput.perfmodel.roofline import step_times
from goodput.perfmodel.speculation import drafts_of

LLAMA_8B, LLAMA_70B = "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-70B-Instruct"
LLAMA_13B, QWEN_600M = "meta-llama/Llama-2-13b-hf", "Qwen/Qwen3-0.6B"
CARDS = whole_cards(built_in_gpu_types())
LENGTHS = Lengths(1000.0, 200.0)


def arch(name: str) -> Architecture:
    found = architecture(name)
    assert found is not None
    return found


def gpu(name: str) -> GpuType:
    found = gpu_type(name)
    assert found is not None
    return found


@given(
    st.sampled_from(model_ids()),
    st.sampled_from(CARDS),
    st.sampled_from([(1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (4, 2)]),
    st.floats(1.0, 300.0),
    st.floats(1.0, 30_000.0),
)
def test_the_parts_are_all_of_the_time(
    name: str, card: GpuType, degrees: tuple[int, int], batch: float, tokens: float
) -> None:
    """Of a step and of a prompt, whatever the model and the GPU; alone on one GPU nothing communicates."""
    tensor, pipeline = degrees
    try:
        fit(arch(name), card, tensor, pipeline)
    except ModelDoesNotFit:
        return
    shape = Shape(tensor_parallel=tensor, pipeline_parallel=pipeline)
    times = step_times(arch(name), card, tensor, pipeline_parallel=pipeline)
    step = decode_taken(arch(name), card, shape, batch=batch, context_tokens=tokens)
    assert step.seconds == pytest.approx(times.decode(batch, tokens))
    prompt = prefill_taken(arch(name), card, shape, Lengths(tokens, 10.0))
    host = times.request + tokens * times.request_token
    assert prompt.host == pytest.approx(host)
    assert prompt.seconds - host == pytest.approx(times.prefill(tokens, engine_defaults(card)[1])[0])
    for taken in (step, prompt):
        assert all(seconds >= -1e-12 for seconds in taken.by_part.values())
        assert sum(taken.share(part) for part in taken.by_part) == pytest.approx(1.0)
        assert (taken.communication > 0.0) is (tensor * pipeline > 1)


@pytest.mark.parametrize(
    ("name", "card", "tensor", "batch", "want"),
    [
        (LLAMA_8B, "l4", 1, 1.0, Bottleneck.BANDWIDTH),
        (LLAMA_8B, "h100-sxm", 1, 1.0, Bottleneck.BANDWIDTH),
        (LLAMA_8B, "l40s", 8, 1.0, Bottleneck.COMMUNICATION),
        (QWEN_600M, "h100-sxm", 1, 1.0, Bottleneck.LAUNCHES),
        ("deepseek-ai/DeepSeek-V3", "b200", 8, 1.0, Bottleneck.LAUNCHES),
        ("deepseek-ai/DeepSeek-V3", "b200", 8, 64.0, Bottleneck.BANDWIDTH),
        ("Qwen/Qwen3-32B", "h100-sxm", 2, 1000.0, Bottleneck.COMPUTE),
    ],
)
def test_what_takes_a_decode_step(name: str, card: str, tensor: int, batch: float, want: Bottleneck) -> None:
    """Reads of weights, unless links are slow, the model small, or the batch beyond the ridge."""
    shape = Shape(tensor_parallel=tensor)
    assert decode_taken(arch(name), gpu(card), shape, batch=batch, context_tokens=100.0).most is want


@pytest.mark.parametrize(
    ("name", "card", "tensor", "tokens", "want"),
    [
        (LLAMA_8B, "h100-sxm", 1, 6000.0, Bottleneck.COMPUTE),
        (LLAMA_8B, "a10g", 8, 6000.0, Bottleneck.COMMUNICATION),
        (LLAMA_8B, "h100-sxm", 1, 50.0, Bottleneck.HOST),
        ("openai/gpt-oss-120b", "gb200", 1, 50.0, Bottleneck.HOST),
    ],
)
def test_what_takes_a_prompt(name: str, card: str, tensor: int, tokens: float, want: Bottleneck) -> None:
    """Arithmetic where it is long and alone on a GPU."""
    assert prefill_taken(arch(name), gpu(card), Shape(tensor_parallel=tensor), Lengths(tokens, 10.0)).most is want


def test_the_host_is_no_part_of_the_steps() -> None:
    """It handles requests while the GPU works; the seconds of a second are those of its steps and prompts."""
    at = load_taken(arch(LLAMA_8B), gpu("h100-sxm"), Shape(), LENGTHS, rps=4.0, batch=8.0)
    times = step_times(arch(LLAMA_8B), gpu("h100-sxm"))
    assert at.host == 0.0
    steps, context = 4.0 * 199.0 / 8.0, context_tokens(LENGTHS)
    assert at.seconds == pytest.approx(steps * times.decode(8.0, context) + 4.0 * times.prefill(1000.0, 8192)[0])


def test_a_draft_model_takes_time_too() -> None:
    """The parts of a step that drafts are those of its drafts and of their verification."""
    drafts = drafts_of(DraftMethod.DRAFT, 4)
    speculation = Speculation(method=DraftMethod.DRAFT, model=LLAMA_8B, draft=arch(LLAMA_8B))
    shape = Shape(tensor_parallel=4, speculation=speculation, drafts=drafts)
    times = replica_times(arch(LLAMA_70B), gpu("h100-sxm"), shape)
    step = decode_taken(arch(LLAMA_70B), gpu("h100-sxm"), shape, batch=8.0, context_tokens=1000.0)
    assert step.seconds == pytest.approx(times.step(8.0, 1000.0))
    prompt = prefill_taken(arch(LLAMA_70B), gpu("h100-sxm"), shape, LENGTHS)
    assert prompt.seconds - prompt.host == pytest.approx(times.prefill(1000.0, 8192)[0])


TIGHT, LOOSE = (Objective(ttft_seconds=0.5, tpot_seconds=tpot, e2e_seconds=None) for tpot in (0.02, 0.5))
QUICK = replace(TIGHT, tpot_seconds=0.003)
PATIENT = replace(LOOSE, ttft_seconds=9.0)
PROMPTS = Lengths(6000.0, 10.0)
EIGHT, FEW = Shape(tensor_parallel=8), Shape(max_num_seqs=8)


@pytest.mark.parametrize(
    ("name", "card", "shape", "asked", "want"),
    [
        pytest.param(LLAMA_8B, "h100-sxm", Shape(), (LENGTHS, TIGHT), Bottleneck.BANDWIDTH, id="a tight TPOT"),
        pytest.param(LLAMA_8B, "h100-sxm", Shape(), (PROMPTS, PATIENT), Bottleneck.COMPUTE, id="long prompts"),
        pytest.param(QWEN_600M, "h100-sxm", Shape(), (Lengths(50.0, 500.0), QUICK), Bottleneck.LAUNCHES, id="small"),
        pytest.param(LLAMA_8B, "a10g", EIGHT, (PROMPTS, PATIENT), Bottleneck.COMMUNICATION, id="PCIe"),
        pytest.param(LLAMA_13B, "a100-40g-sxm", Shape(), (LENGTHS, PATIENT), Bottleneck.KV_CAPACITY, id="MHA"),
        pytest.param(LLAMA_8B, "h200-sxm", FEW, (LENGTHS, PATIENT), Bottleneck.QUEUE, id="few sequences"),
    ],
)
def test_what_keeps_a_replica_from_carrying_more(
    name: str, card: str, shape: Shape, asked: tuple[Lengths, Objective], want: Bottleneck
) -> None:
    """A wall of memory or of max-num-seqs, else what takes most of its steps at its capacity."""
    found = capacity(arch(name), gpu(card), shape, *asked)
    assert bottleneck(arch(name), gpu(card), shape, asked[0], found) is want


def test_faster_links_leave_less_to_wait_for() -> None:
    """Everything else takes as long as before."""
    slow, shape = gpu("l40s"), Shape(tensor_parallel=8)
    fast = replace(slow, scale_up_bytes_per_second=450e9)
    before, after = (
        decode_taken(arch(LLAMA_70B), card, shape, batch=8.0, context_tokens=1000.0) for card in (slow, fast)
    )
    assert after.communication < before.communication
    assert after.launches == pytest.approx(before.launches)
    assert after.bandwidth == before.bandwidth
