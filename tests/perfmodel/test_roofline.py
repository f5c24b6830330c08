"""Laws that the time of a step keeps whatever its constants are."""

import random
from collections import Counter
from math import comb, exp
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from goodput.domain.architecture import KvLayers, LayerKind
from goodput.perfmodel import architecture, built_in_gpu_types, model_ids
from goodput.perfmodel.efficiency import experts_touched
from goodput.perfmodel.precision import with_precision
from goodput.perfmodel.roofline import StepTimes, step_times

GPUS = {gpu.name: gpu for gpu in built_in_gpu_types()}
NAMES = st.sampled_from(model_ids())
TYPES = st.sampled_from(["h100-sxm", "b200", "l40s", "a100-80g-sxm", "mi300x", "t4"])
TENSOR = st.sampled_from([1, 2, 4, 8])


REPLICAS = st.builds(lambda name, gpu, tensor: step_times(architecture(name), GPUS[gpu], tensor), NAMES, TYPES, TENSOR)


@given(REPLICAS, st.tuples(st.floats(1, 512), st.floats(1, 512)), st.tuples(st.floats(0, 6e4), st.floats(0, 6e4)))
def test_more_sequences_or_more_context_never_make_a_step_faster(
    times: StepTimes, batches: tuple[float, float], contexts: tuple[float, float]
) -> None:
    (small, large), (short, long) = sorted(batches), sorted(contexts)
    assert 0.0 < times.decode(small, short) <= times.decode(large, long) * (1 + 1e-12)


@given(REPLICAS, st.integers(1, 50_000), st.integers(1, 50_000), st.sampled_from([2048, 8192, 16384]))
def test_longer_prompts_take_longer_and_cost_decode_more(times: StepTimes, one: int, two: int, chunk: int) -> None:
    short, long = sorted((one, two))
    (busy, extra), (busy_long, extra_long) = times.prefill(short, chunk), times.prefill(long, chunk)
    assert 0.0 < busy <= busy_long * (1 + 1e-9)
    assert 0.0 <= extra <= busy
    assert extra <= extra_long * (1 + 1e-9)


@given(NAMES, st.floats(1, 256), st.integers(0, 20_000))
def test_tensor_parallelism_divides_reads_and_never_fixed_times(name: str, batch: float, context: int) -> None:
    one, two = (step_times(architecture(name), GPUS["h100-sxm"], tensor) for tensor in (1, 2))
    assert two.reads(batch) < one.reads(batch)
    assert two.reads(batch) >= 0.5 * one.reads(batch) * (1 - 1e-9)
    assert two.context_reads(context) >= 0.5 * one.context_reads(context) * (1 - 1e-9)
    assert two.fixed >= one.fixed


def test_a_batch_touches_as_many_experts_as_drawing_without_favour_does() -> None:
    """E * (1 - (1 - k/E)^t): the share of experts that none of t tokens visits, counted by hand for one token."""
    missed = comb(127, 8) / comb(128, 8)
    for tokens in (1, 4, 64):
        assert experts_touched(8 / 128, tokens, 1e7) == pytest.approx(1.0 - missed**tokens, rel=1e-5)


def test_popular_experts_are_touched_again_before_others_are_touched_at_all() -> None:
    """One token visits as many as any; 64 touch fewer than of equal ones: counted with drawn popularities."""
    arch = architecture("Qwen/Qwen3-30B-A3B")
    times = step_times(arch, GPUS["h100-sxm"])
    assert (times.reads(1.0) - times.weights) / times.experts == pytest.approx(8 / 128)
    shape = times.expert_evenness
    draw = random.Random(1)
    visits = (1.0 - 8 / 128) ** (-1.0 / shape) - 1.0
    missed = [exp(-64.0 * draw.gammavariate(shape, visits)) for _ in range(20_000)]
    assert (times.reads(64.0) - times.weights) / times.experts == pytest.approx(1.0 - fmean(missed), abs=0.01)
    assert times.reads(64.0) < times.weights + (1.0 - (1.0 - 8 / 128) ** 64) * times.experts
    assert times.reads(1e5) == pytest.approx(times.weights + times.experts, rel=1e-3)


def test_the_fullest_rank_of_experts_holds_a_step_up_as_drawing_and_popularity_say() -> None:
    """8 ranks of 32 experts each, 8 of 256 to a token, counted with drawn popularities and visits; 256 tokens."""
    times = replace(
        step_times(architecture("deepseek-ai/DeepSeek-V3"), GPUS["h200-sxm"], 1, data_parallel=8, expert_parallel=True),
        weights=0.0,
        token_compute=0.0,
        token_moves=0.0,
    )
    draw = random.Random(1)
    reads, compute = [], []
    for _ in range(200):
        popularities = [draw.gammavariate(times.expert_evenness, 1.0) for _ in range(256)]
        visits = Counter(draw.choices(range(256), popularities, k=256 * 8))
        reads.append(max(sum(visits[8 * 4 * rank + each] > 0 for each in range(32)) for rank in range(8)) / 32)
        compute.append(max(sum(visits[8 * 4 * rank + each] for each in range(32)) for rank in range(8)) / 256)
    only_reads = replace(times, token_expert_compute=0.0, expert_padding=0.0)
    only_compute = replace(times, experts=1e-9, expert_padding=0.0)
    assert only_reads.products(256.0) == pytest.approx(fmean(reads) * times.experts, rel=0.03)
    assert only_compute.products(256.0) == pytest.approx(fmean(compute) * 256.0 * times.token_expert_compute, rel=0.05)
    assert only_reads.products(1e6) == pytest.approx(times.experts)


def test_near_the_ridge_a_dense_product_is_slower_than_both_roofs() -> None:
    """Kernels of Llama-3.1-8B on RTX PRO 6000: 9.8 ms of a step at 1 row, 35 us a row at 2048, 13.3 ms at 256."""
    read, row = 9.8e-3, 35.2e-6
    plain = step_times(architecture("meta-llama/Llama-3.1-8B"), GPUS["rtx-pro-6000"])
    times = replace(plain, weights=read, token_compute=row)
    assert times.products(256.0) == pytest.approx(13.3e-3, rel=0.03)
    assert times.products(1.0) == pytest.approx(read, rel=1e-4)
    assert times.products(20_000.0) == pytest.approx(20_000.0 * row, rel=1e-3)


def test_the_least_time_of_a_step_with_a_prompt_grows_with_the_ranks_that_wait_for_each_other() -> None:
    arch = architecture("meta-llama/Llama-3.1-70B")
    least = [step_times(arch, GPUS["b200"], tensor).mixed(0.0, 0.0, 1.0, 0.0) for tensor in (2, 4, 8)]
    assert least[2] - least[1] == pytest.approx(least[1] - least[0])
    assert least[2] > 1.3 * least[0]


def test_layers_with_a_window_read_no_more_than_it() -> None:
    """gpt-oss: half of the layers see 128 tokens, so long contexts cost half of what all layers would."""
    arch = architecture("openai/gpt-oss-120b")
    times = step_times(arch, GPUS["h100-sxm"])
    full = replace(
        arch, kv_layers=tuple(replace(each, kind=LayerKind.FULL, window_tokens=0) for each in arch.kv_layers)
    )
    all_see = step_times(full, GPUS["h100-sxm"])
    assert times.context_reads(128.0) == pytest.approx(all_see.context_reads(128.0))
    assert times.context_reads(1e6) == pytest.approx(0.5 * all_see.context_reads(1e6), rel=1e-3)
    assert times.prompt_attention(1e6) == pytest.approx(0.5 * all_see.prompt_attention(1e6), rel=1e-3)


def test_a_state_costs_the_same_at_any_context() -> None:
    arch = architecture("Qwen/Qwen3-32B")
    state = KvLayers(kind=LayerKind.STATE, layers=10, fixed_bytes=1e6)
    times = step_times(replace(arch, kv_layers=(state,)), GPUS["h100-sxm"])
    assert times.context_reads(10.0) == times.context_reads(100_000.0) > 0.0


def test_a_latent_vector_is_read_whole_on_every_rank() -> None:
    arch = architecture("deepseek-ai/DeepSeek-V3")
    narrow, wide = (step_times(arch, GPUS["h200-sxm"], tensor) for tensor in (8, 16))
    assert wide.kv_token == pytest.approx(narrow.kv_token)


def test_sparse_attention_reads_what_it_attends_to_and_its_index_whole() -> None:
    dense, sparse = (architecture(f"deepseek-ai/DeepSeek-{version}") for version in ("V3", "V3.2"))
    reads = [step_times(each, GPUS["h200-sxm"], 8).context_reads(100_000.0) for each in (dense, sparse)]
    assert reads[1] < 0.2 * reads[0]


@pytest.mark.parametrize(("gpu", "faster"), [("h100-sxm", True), ("a100-80g-sxm", False)])
def test_fp8_multiplies_faster_only_where_the_gpu_has_it(gpu: str, faster: bool) -> None:
    """Both read half of the bytes; an A100 unpacks them to bf16 first."""
    arch = architecture("meta-llama/Llama-3.1-70B")
    plain, narrow = (step_times(each, GPUS[gpu], 4) for each in (arch, with_precision(arch, "fp8")))
    assert narrow.weights < 0.85 * plain.weights
    assert (narrow.token_compute < plain.token_compute) == faster


def test_data_parallel_ranks_share_sequences_and_repeat_attention() -> None:
    arch = architecture("deepseek-ai/DeepSeek-V3")
    tensor, data = step_times(arch, GPUS["h200-sxm"], 8), step_times(arch, GPUS["h200-sxm"], 1, data_parallel=8)
    assert data.kv_token < 0.25 * tensor.kv_token
    assert data.weights > 3.0 * tensor.weights
    assert data.experts == pytest.approx(tensor.experts)


@given(st.floats(0.3, 3.0), st.floats(0.3, 3.0))
def test_speeds_move_their_own_phase_only(decode: float, prefill: float) -> None:
    arch = architecture("Qwen/Qwen3-32B")
    plain = step_times(arch, GPUS["h100-sxm"], 2)
    moved = step_times(arch, GPUS["h100-sxm"], 2, decode, prefill_speed=prefill)
    assert moved.reads(1.0) == pytest.approx(plain.reads(1.0) / decode)
    assert moved.kv_token == pytest.approx(plain.kv_token / decode)
    assert moved.token_compute == pytest.approx(plain.token_compute / prefill)
    assert moved.prompt_attention(5e3) == pytest.approx(plain.prompt_attention(5e3) / prefill)
