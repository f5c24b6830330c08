"""Memory of a replica: worked examples of the literature and the rules of the engine's planner."""

import pytest
from msgspec.structs import replace

from goodput.domain.architecture import Architecture
from goodput.domain.errors import ModelDoesNotFit
from goodput.domain.intent import GpuType
from goodput.perfmodel import architecture, built_in_gpu_types, fit
from goodput.perfmodel.memory import kv_rank_share


def arch(name: str) -> Architecture:
    found = architecture(name)
    assert found is not None
    return found


def gpu(name: str) -> GpuType:
    return next(each for each in built_in_gpu_types() if each.name == name)


@pytest.mark.parametrize(
    ("batch", "context", "want"),
    [(32, 2048, 53_687_091_200), (16, 4096, 53_687_091_200), (32, 4096, 107_374_182_400)],
)
def test_kv_cache_of_llama_2_13b(batch, context, want):
    """2 * B * S * L * H * M bytes: 40 layers, 5,120 wide, 2 bytes."""
    assert batch * context * arch("meta-llama/Llama-2-13b-hf").kv_bytes_per_token == want


def test_kv_cache_of_a_500b_model_with_full_attention():
    """118 layers, 48 heads of 128, fp16, batch 512, context 2,048."""
    llama = arch("meta-llama/Llama-2-13b-hf")
    layers = replace(llama.kv_layers[0], layers=118, heads=48, elements_per_head=2 * 128)
    big = replace(llama, kv_layers=(layers,))
    assert 512 * 2048 * big.kv_bytes_per_token == 3_040_836_845_568


def test_kv_heads_shard_over_ranks_up_to_their_number_and_latent_attention_does_not():
    """Llama-3.1-70B has 81,920 B a token on each of 4 ranks; 8 heads over 16 ranks are replicated; MLA always is."""
    llama = arch("meta-llama/Llama-3.1-70B")
    assert llama.kv_bytes_per_token * kv_rank_share(llama, 4) == 81_920
    assert kv_rank_share(llama, 16) == kv_rank_share(llama, 8) == 1 / 8
    assert kv_rank_share(arch("deepseek-ai/DeepSeek-V3"), 8) == 1.0


def test_what_is_left_after_weights_and_activations_is_the_kv_pool():
    """Llama-3.1-8B on an L40S: 16.1 GB of weights leave some 190,000 to 210,000 tokens at 0.92 of the memory."""
    pool = fit(arch("meta-llama/Llama-3.1-8B"), gpu("l40s"))
    assert pool.weight_bytes == pytest.approx(16.06e9, rel=0.01)
    assert 190_000 < pool.tokens < 210_000
    assert pool.max_model_len == 131_072
    total = pool.weight_bytes + pool.activation_bytes + pool.graph_bytes + pool.pool_bytes
    assert total == pytest.approx(gpu("l40s").memory_bytes * 0.92)


def test_a_small_gpu_shortens_the_longest_request_instead_of_crashing():
    """On an L4 the same model holds tens of thousands of tokens: max-model-len follows, in whole blocks."""
    pool = fit(arch("meta-llama/Llama-3.1-8B"), gpu("l4"))
    assert 16_384 < pool.max_model_len < 65_536
    assert pool.max_model_len % 16 == 0


@pytest.mark.parametrize(
    ("name", "device", "tensor", "part"),
    [
        ("meta-llama/Llama-3.1-70B", "h100-sxm", 1, "weights"),
        ("meta-llama/Llama-3.1-8B", "t4", 1, "weights"),
        ("facebook/opt-13b", "l40s", 1, None),
        ("Qwen/Qwen2.5-72B-Instruct", "h100-sxm", 2, "activations"),
    ],
)
def test_a_model_that_does_not_fit_says_which_part_is_too_large(name, device, tensor, part):
    """The error names the part; a model that fits raises nothing."""
    if part is None:
        assert fit(arch(name), gpu(device), tensor).tokens > 0
        return
    shrunk = gpu(device)
    if part == "activations":
        shrunk = replace(shrunk, memory_bytes=arch(name).parameters * 2.0 / tensor / 0.92 + 1e8)
    with pytest.raises(ModelDoesNotFit) as caught:
        fit(arch(name), shrunk, tensor)
    assert caught.value.part == part
    assert "GiB" in str(caught.value)


def test_a_pool_that_cannot_hold_one_request_does_not_fit():
    """Weights fit, but not one request of 4,096 tokens: the part is the KV cache."""
    model = arch("meta-llama/Llama-2-13b-hf")
    tight = replace(gpu("l40s"), memory_bytes=(model.parameters * 2.0 + 3.6e9) / 0.92)
    with pytest.raises(ModelDoesNotFit) as caught:
        fit(model, tight)
    assert caught.value.part == "kv-cache"
