"""Plants of any model on any GPU type."""

import pytest
from tests.decide.builders import intent

from goodput.decide import Policy
from goodput.decide.engine import replica_of
from goodput.domain.errors import ModelDoesNotFit
from goodput.domain.intent import ModelIntent
from goodput.domain.plan import Placement
from goodput.perfmodel import architecture
from goodput.perfmodel.gpus import gpu_type
from goodput.perfmodel.roofline import step_times
from goodput.simulator.plant import Plant, StepTimeModel
from goodput.simulator.plants import Draws, Usual, engine_of, plant_of

CHAT = Usual(1155.0, 211.0)
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def wanted(model: str) -> ModelIntent:
    return intent(model=model, architecture=architecture(model))


def made(model: str, gpu: str, tensor: int = 1, stages: int = 1, draws: Draws | None = None) -> tuple[Plant, Placement]:
    arch, kind = architecture(model), gpu_type(gpu)
    assert arch is not None
    assert kind is not None
    placement = replica_of(wanted(model), kind, tensor, stages, policy=Policy())
    return plant_of(arch, kind, placement, CHAT, draws=draws), placement


@pytest.mark.parametrize(
    ("model", "gpu", "tensor"),
    [
        (LLAMA, "l40s", 1),
        (LLAMA, "h100-sxm", 1),
        ("Qwen/Qwen3-32B", "h100-sxm", 2),  # tensor parallelism
        ("Qwen/Qwen3-30B-A3B", "h100-sxm", 1),  # experts
        ("openai/gpt-oss-120b", "h100-sxm", 1),  # experts in mxfp4, windows
        ("deepseek-ai/DeepSeek-V3", "h200-sxm", 8),  # latent attention, fp8
        ("google/gemma-3-27b-it", "a100-80g-sxm", 1),  # windows
    ],
)
def test_an_undrawn_plant_takes_the_times_of_published_points(model, gpu, tensor):
    """Decode of 64 sequences within 12 % of the sum of its parts: the plant takes the longer of two of them."""
    plant, placement = made(model, gpu, tensor)
    arch, kind = architecture(model), gpu_type(gpu)
    assert arch is not None
    assert kind is not None
    times = step_times(arch, kind, tensor)
    mine = StepTimeModel.of(plant)
    batch, context = 64, round(CHAT.context_tokens)
    assert mine.step_seconds(0, batch, batch * context) == pytest.approx(times.decode(batch, context), rel=0.12)
    chunk = min(2048, placement.max_num_batched_tokens)
    prompt = mine.step_seconds(chunk, 0, 0.0, chunk * chunk / 2.0)
    assert prompt == pytest.approx(times.prefill(chunk, chunk)[0], rel=0.25)


def test_figures_of_a_dense_model_are_those_that_one_knows():
    """Llama-3.1-8B in bf16: 15 GB of weights at nine tenths of the bandwidth, 15 GFLOP a token, the pool of vLLM."""
    plant, placement = made(LLAMA, "l40s")
    weights_seconds = plant.weights_bytes / (plant.bandwidth_bytes_per_second * plant.mbu)
    assert weights_seconds == pytest.approx(15.0e9 / (0.9 * 864e9), rel=0.02)
    assert plant.flops_per_token == pytest.approx(15.0e9, rel=0.01)
    assert plant.kv_pool_tokens == pytest.approx(197_000, rel=0.03)
    assert (plant.gpus, plant.max_model_len) == (1, 131_072)
    assert engine_of(plant, placement).kv_blocks == plant.kv_pool_tokens // 16


def test_draws_follow_the_seed_and_stay_within_a_fifth():
    same = Draws.of(3)
    assert same == Draws.of(3) != Draws.of(4)
    drawn = [Draws.of(seed) for seed in range(200)]
    for name in ("bandwidth", "arithmetic", "kv_traffic", "step_overhead", "request_overhead"):
        values = [getattr(each, name) for each in drawn]
        assert 0.8 <= min(values) < 0.83
        assert 1.17 < max(values) <= 1.2
    assert all(0.95 <= each.kv_pool <= 1.0 for each in drawn)
    slow, _ = made(LLAMA, "l40s", draws=Draws(bandwidth=0.8))
    plain, _ = made(LLAMA, "l40s")
    assert slow.mbu == pytest.approx(0.8 * plain.mbu)
    assert slow.mfu == plain.mfu


def test_pipeline_stages_share_requests_and_not_weights():
    """Two stages of the GPUs that one has: a step of weights takes as long, each request half."""
    one, _ = made(LLAMA, "l40s")
    two, _ = made(LLAMA, "l40s", stages=2)
    first, second = StepTimeModel.of(one), StepTimeModel.of(two)
    assert two.gpus == 2
    assert second.step_seconds(0, 0, 0.0) == pytest.approx(first.step_seconds(0, 0, 0.0), rel=0.01)
    alone, shared = (each.step_seconds(0, 0, 1e6) - each.step_seconds(0, 0, 0.0) for each in (first, second))
    assert shared == pytest.approx(alone / 2.0, rel=0.01)
    assert two.kv_pool_tokens > 2 * one.kv_pool_tokens


def test_a_model_that_does_not_fit_has_no_plant():
    arch, kind = architecture("meta-llama/Llama-3.1-70B-Instruct"), gpu_type("l40s")
    assert arch is not None
    assert kind is not None
    _, placement = made(LLAMA, "l40s")
    with pytest.raises(ModelDoesNotFit):
        plant_of(arch, kind, placement, CHAT)
