"""Laws that the time of a step keeps whatever its constants are."""

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from goodput.domain.architecture import KvLayers, LayerKind
from goodput.perfmodel import architecture, built_in_gpu_types, model_ids
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


@given(NAMES, st.floats(1, 256), st.floats(0, 20_000))
def test_tensor_parallelism_divides_reads_and_never_fixed_times(name: str, batch: float, context: float) -> None:
    one, two = (step_times(architecture(name), GPUS["h100-sxm"], tensor) for tensor in (1, 2))
    assert two.reads(batch) < one.reads(batch)
    assert two.reads(batch) >= 0.5 * one.reads(batch) * (1 - 1e-9)
    assert two.context_reads(context) >= 0.5 * one.context_reads(context) * (1 - 1e-9)
    assert two.fixed >= one.fixed


def test_a_batch_touches_as_many_experts_as_drawing_without_favour_does() -> None:
    """E * (1 - (1 - k/E)^t): the share of experts that none of t tokens visits, counted by hand for one token."""
    arch = architecture("Qwen/Qwen3-30B-A3B")
    times = step_times(arch, GPUS["h100-sxm"])
    assert (times.reads(1.0) - times.weights) / times.experts == pytest.approx(8 / 128)
    missed = comb(127, 8) / comb(128, 8)
    assert (times.reads(4.0) - times.weights) / times.experts == pytest.approx(1.0 - missed**4)
    assert times.reads(10_000.0) == pytest.approx(times.weights + times.experts)


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
