"""Prefill and decode under a roof."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from goodput.domain.architecture import Architecture
from goodput.domain.errors import ModelDoesNotFit
from goodput.perfmodel import Lengths, Shape, architecture, built_in_gpu_types, fit
from goodput.perfmodel.gpus import gpu_type, whole_cards
from goodput.perfmodel.phases import decode, peak_flops, prefill, ridge, use

LENGTHS = Lengths(1000.0, 200.0)
MODELS = ("meta-llama/Llama-3.1-8B-Instruct", "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-120b", "google/gemma-3-27b-it")


def test_one_sequence_has_an_intensity_of_one() -> None:
    """bf16: two FLOP with every weight of two bytes, and hardly any cache."""
    arch, gpu = architecture(MODELS[0]), gpu_type("h100-sxm")
    assert arch is not None
    assert gpu is not None
    alone = decode(arch, gpu, Shape(), batch=1.0, context_tokens=16.0)
    assert alone.intensity == pytest.approx(1.0, rel=0.01)
    assert ridge(arch, gpu) == pytest.approx(989e12 / 3.35e12, rel=0.01)


def test_batches_share_weights_and_contexts_do_not() -> None:
    """Intensity grows with the batch, less so with long contexts; tensor ranks change it not at all."""
    arch, gpu = architecture(MODELS[0]), gpu_type("h100-sxm")
    assert arch is not None
    assert gpu is not None
    short = [decode(arch, gpu, Shape(), batch=b, context_tokens=500.0).intensity for b in (1.0, 8.0, 64.0)]
    long = [decode(arch, gpu, Shape(), batch=b, context_tokens=8000.0).intensity for b in (1.0, 8.0, 64.0)]
    assert short == sorted(short)
    assert short[-1] / short[0] > 2.0 * long[-1] / long[0]
    split = decode(arch, gpu, Shape(tensor_parallel=4), batch=8.0, context_tokens=500.0)
    assert split.intensity == pytest.approx(short[1])


def test_few_tokens_touch_few_experts() -> None:
    """A mixture of experts reads more weights with every sequence, so its intensity grows slowly at first."""
    sparse, dense, gpu = architecture(MODELS[1]), architecture(MODELS[0]), gpu_type("h200-sxm")
    assert sparse is not None
    assert dense is not None
    assert gpu is not None
    growth = [
        decode(arch, gpu, Shape(tensor_parallel=8), batch=8.0, context_tokens=100.0).intensity
        / decode(arch, gpu, Shape(tensor_parallel=8), batch=1.0, context_tokens=100.0).intensity
        for arch in (sparse, dense)
    ]
    assert growth[0] < 0.5 * growth[1]


def test_every_rank_reads_a_latent_vector_whole() -> None:
    """576 elements of a token in each of 61 layers, at any tensor degree; heads are shared out."""
    latent, heads, gpu = architecture(MODELS[1]), architecture(MODELS[0]), gpu_type("h200-sxm")
    assert latent is not None
    assert heads is not None
    assert gpu is not None

    def kept(arch: Architecture, tensor: int) -> float:
        short, long = (
            decode(arch, gpu, Shape(tensor_parallel=tensor), batch=1.0, context_tokens=tokens).bytes
            for tokens in (1000.0, 2000.0)
        )
        return (long - short) / 1000.0

    assert kept(latent, 8) == pytest.approx(61 * 576 * 2)
    assert kept(heads, 8) == pytest.approx(131_072 / 8)


def test_the_last_token_of_a_prompt_alone_goes_to_the_output_head() -> None:
    """Of a small model with a large vocabulary the head would be a third of the arithmetic."""
    arch, gpu = architecture("Qwen/Qwen3-0.6B"), gpu_type("l4")
    assert arch is not None
    assert gpu is not None
    body = arch.active_parameters - arch.embedding_parameters - arch.head_parameters
    assert arch.head_parameters > 0.3 * body
    prompt = prefill(arch, gpu, Shape(), Lengths(100.0, 10.0))
    assert 200.0 * body < prompt.flop < 1.1 * 200.0 * body


def test_mbu_of_a_7b_model_at_100_tokens_a_second() -> None:
    """14 GB a token, 100 times a second, over 2 TB/s: 70 %."""
    llama, gpu = architecture(MODELS[0]), gpu_type("a100-80g-sxm")
    assert llama is not None
    assert gpu is not None
    others = llama.multiplied_parameters - llama.dense_parameters
    arch = replace(llama, dense_parameters=7e9 - others)
    fast = replace(gpu, memory_bandwidth_bytes_per_second=2e12)
    used = use(arch, fast, Shape(), Lengths(1.0, 1001.0), rps=0.1, batch=1.0)
    assert used.mbu == pytest.approx(0.70, rel=0.01)
    assert used.mfu == pytest.approx(2 * 7e9 * 100 / dict(gpu.flops)["bf16"], rel=0.03)


def test_long_prompts_are_a_matter_of_arithmetic() -> None:
    """Ten tokens out of 8,000 in: prefill takes most of the time."""
    arch, gpu = architecture(MODELS[0]), gpu_type("h100-sxm")
    assert arch is not None
    assert gpu is not None
    used = use(arch, gpu, Shape(), Lengths(8000.0, 10.0), rps=2.0, batch=1.0)
    assert used.prefill_share > 0.7


def test_drafts_that_are_accepted_save_bytes() -> None:
    """The same tokens a second in half the steps."""
    arch, gpu = architecture(MODELS[0]), gpu_type("h100-sxm")
    assert arch is not None
    assert gpu is not None
    plain, drafted = (
        use(arch, gpu, Shape(), Lengths(100.0, 1000.0), rps=0.1, batch=1.0, tokens_per_step=tokens)
        for tokens in (1.0, 2.0)
    )
    assert drafted.mbu == pytest.approx(plain.mbu / 2.0, rel=0.01)
    assert drafted.mfu == plain.mfu


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_above_its_roof(name: str) -> None:
    """No phase is believed to be faster than peak arithmetic, or than its bytes at full bandwidth."""
    arch = architecture(name)
    assert arch is not None
    shape = Shape(tensor_parallel=8)
    for gpu in whole_cards(built_in_gpu_types()):
        try:
            fit(arch, gpu, 8)
        except ModelDoesNotFit:
            continue
        points = [decode(arch, gpu, shape, batch=b, context_tokens=1100.0) for b in (1.0, 16.0, 256.0)]
        for point in (*points, prefill(arch, gpu, shape, LENGTHS)):
            roof = min(peak_flops(arch, gpu), point.intensity * gpu.memory_bandwidth_bytes_per_second)
            assert point.flop_per_second <= roof * 1.001, (gpu.name, point.name)
