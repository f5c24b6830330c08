"""Memory of a replica: worked examples of the literature and the rules of the engine's planner."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.perfmodel.families import FAMILIES

from goodput.domain.architecture import Architecture
from goodput.domain.errors import ModelDoesNotFit
from goodput.domain.intent import GpuType
from goodput.perfmodel import architecture, architecture_from_config, built_in_gpu_types, fit, model_ids
from goodput.perfmodel.kvcache import rank_token_bytes
from goodput.perfmodel.memory import KvPool
from goodput.perfmodel.precision import kv_format
from goodput.perfmodel.weights import Parallel, cannot_split


def arch(name: str) -> Architecture:
    found = architecture(name)
    assert found is not None
    return found


def tried(name: str, device: GpuType, parallel: Parallel, dtype: str) -> KvPool | None:
    try:
        return fit(arch(name), device, parallel=parallel, kv_dtype=dtype)
    except ModelDoesNotFit:
        return None


def gpu(name: str) -> GpuType:
    return next(each for each in built_in_gpu_types() if each.name == name)


@pytest.mark.parametrize(
    ("batch", "context", "want"),
    [(32, 2048, 53_687_091_200), (16, 4096, 53_687_091_200), (32, 4096, 107_374_182_400)],
)
def test_kv_cache_of_llama_2_13b(batch, context, want):
    """2 * B * S * L * H * M bytes: 40 layers, 5,120 wide, 2 bytes."""
    assert batch * context * arch("meta-llama/Llama-2-13b-hf").kv_bytes_per_token == want


def test_a_pool_of_windows_alone_holds_as_many_tokens_as_the_engine_says():
    """Mistral-7B keeps the last 4,096 tokens in every layer: its pool holds whole requests, and tokens of them."""
    name = "mistralai/Mistral-7B-v0.1"
    pool = fit(architecture_from_config(name, FAMILIES[name][0]), gpu("l40s"))
    assert pool.bytes_per_token == 0.0
    assert pool.tokens == int(pool.max_concurrency * pool.max_model_len) > 32_768


def test_kv_cache_of_a_500b_model_with_full_attention():
    """118 layers, 48 heads of 128, fp16, batch 512, context 2,048."""
    llama = arch("meta-llama/Llama-2-13b-hf")
    layers = replace(llama.kv_layers[0], layers=118, heads=48, elements_per_head=2 * 128)
    big = replace(llama, kv_layers=(layers,))
    assert 512 * 2048 * big.kv_bytes_per_token == 3_040_836_845_568


def test_kv_heads_shard_over_ranks_up_to_their_number_and_latent_attention_does_not():
    """Llama-3.1-70B has 81,920 B a token on each of 4 ranks; 8 heads over 16 ranks are replicated; MLA always is."""

    def share(name: str, tensor_parallel: int) -> float:
        (kept,) = arch(name).kv_layers
        return rank_token_bytes(kept, kv_format("bf16"), tensor_parallel) / rank_token_bytes(kept, kv_format("bf16"), 1)

    llama = arch("meta-llama/Llama-3.1-70B")
    assert llama.kv_bytes_per_token * share(llama.name, 4) == 81_920
    assert share(llama.name, 16) == share(llama.name, 8) == 1 / 8
    assert share("deepseek-ai/DeepSeek-V3", 8) == 1.0


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


def test_a_gpu_of_one_gigabyte_holds_nothing_and_the_error_says_what_would():
    """Weights are named first, with what they need, what there is, and how many such GPUs would do."""
    small = replace(gpu("l40s"), memory_bytes=1e9)
    with pytest.raises(ModelDoesNotFit, match=r"weights need 15\.0 GiB of the 0\.9 GiB") as caught:
        fit(arch("meta-llama/Llama-3.1-8B"), small)
    assert caught.value.part == "weights"
    assert "no tensor parallelism on a node of 8 GPUs holds it" in str(caught.value)


def test_what_a_node_does_not_have_is_no_help():
    """TP 4 would hold 8B on slices of 10 GB: but a replica has one of them."""
    with pytest.raises(ModelDoesNotFit) as caught:
        fit(arch("meta-llama/Llama-3.1-8B"), gpu("h100-sxm-1g.10gb"))
    assert str(caught.value).endswith("; a checkpoint in int4 would fit")
    with pytest.raises(ModelDoesNotFit, match="a replica has one slice, and no narrower checkpoint fits"):
        fit(arch("meta-llama/Llama-3.1-70B"), gpu("h100-sxm-1g.10gb"))


@pytest.mark.parametrize(
    ("name", "device", "helps"),
    [
        ("meta-llama/Llama-3.1-70B", "h100-sxm", ["TP 2 would fit", "a checkpoint in fp8 or int4 would fit"]),
        ("meta-llama/Llama-3.1-405B", "h200-sxm", ["TP 8 would fit"]),
        ("Qwen/Qwen3-32B", "l40s", ["TP 2 would fit", "a checkpoint in fp8 or int4 would fit"]),
    ],
)
def test_the_error_says_what_would_help(name, device, helps):
    """More ranks, or a narrower checkpoint."""
    with pytest.raises(ModelDoesNotFit) as caught:
        fit(arch(name), gpu(device))
    assert [help_ for help_ in helps if help_ not in str(caught.value)] == []


def test_heads_that_ranks_cannot_share_and_stages_without_layers_are_refused():
    """phi-4 has 40 attention heads and 10 of keys and values: TP 4 divides the first, not the second."""
    with pytest.raises(ModelDoesNotFit, match="TP 4 neither divides the 10") as caught:
        fit(arch("microsoft/phi-4"), gpu("h100-sxm"), 4)
    assert caught.value.part == "parallelism"
    with pytest.raises(ModelDoesNotFit, match="TP 3 does not divide the 32 attention heads"):
        fit(arch("meta-llama/Llama-3.1-8B"), gpu("h100-sxm"), 3)
    with pytest.raises(ModelDoesNotFit, match="PP 33 is more than the 32 layers") as caught:
        fit(arch("meta-llama/Llama-3.1-8B"), gpu("h100-sxm"), 1, 33)
    assert caught.value.part == "parallelism"
    assert fit(arch("microsoft/phi-4"), gpu("h100-sxm"), 5).tokens > 0


def test_the_longest_request_that_was_asked_for_must_fit():
    """Unset, max-model-len follows the pool; set, it is a demand."""
    llama = arch("meta-llama/Llama-3.1-8B")
    longest = fit(llama, gpu("l4")).max_model_len
    assert fit(llama, gpu("l4"), max_model_len=longest).max_model_len == longest
    with pytest.raises(ModelDoesNotFit, match="not of 131072") as caught:
        fit(llama, gpu("l4"), max_model_len=131_072)
    assert caught.value.part == "kv-cache"


def test_a_narrower_kv_cache_holds_twice_the_tokens():
    """fp8 halves what a token takes; everything else stays."""
    llama = arch("meta-llama/Llama-3.1-8B")
    plain, fp8 = (fit(llama, gpu("l40s"), kv_dtype=dtype) for dtype in ("auto", "fp8"))
    assert fp8.tokens == pytest.approx(2 * plain.tokens, rel=1e-3)
    assert fp8.sequences(4096) == pytest.approx(2 * plain.sequences(4096), rel=1e-3)


def test_a_drafts_weights_come_off_the_pool():
    """Two gigabytes of a draft model on each rank are two gigabytes less KV cache."""
    llama = arch("meta-llama/Llama-3.1-8B")
    alone, drafted = (fit(llama, gpu("l40s"), extra_weight_bytes=extra) for extra in (0.0, 2e9))
    assert alone.pool_bytes - drafted.pool_bytes == pytest.approx(2e9)


def test_data_parallel_ranks_have_pools_of_their_own():
    """DeepSeek-V3 on 16 H200: latent KV is whole on each of 16 tensor ranks, but each data rank keeps its own."""
    deepseek = arch("deepseek-ai/DeepSeek-V3")
    tensor = fit(deepseek, gpu("h200-sxm"), parallel=Parallel(tensor=16, expert=True))
    data = fit(deepseek, gpu("h200-sxm"), parallel=Parallel(tensor=1, data=16, expert=True))
    assert data.sequences(4096) > 10 * tensor.sequences(4096)


def test_a_sequence_of_a_windowed_model_costs_its_window_at_most():
    """gpt-oss-120b: twice the context is twice the full layers, and the same 128 tokens of the others."""
    pool = fit(arch("openai/gpt-oss-120b"), gpu("h100-sxm"))
    short, long = (1.0 / pool.sequences(tokens) for tokens in (50_000, 100_000))
    assert long / short == pytest.approx(2.0, rel=0.01)
    assert pool.bytes_per_token == pytest.approx(36_864)
    assert pool.window_bytes < 500 * 36_864


def test_a_hybrid_model_pays_for_its_states_before_the_first_token():
    """Nemotron-3-Nano: 23 layers of state of 2.1 MB, two of them with prefix caching."""
    model = arch("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
    cached, plain = (fit(model, gpu("h200-sxm"), prefix_caching=flag) for flag in (True, False))
    assert plain.window_bytes > model.state_bytes
    assert cached.window_bytes - plain.window_bytes == pytest.approx(4 * plain.plan.block_bytes)
    assert plain.sequences(100) > cached.sequences(100)


@given(
    st.sampled_from(model_ids()),
    st.floats(1e9, 3e11),
    st.floats(1.0, 2.0),
    st.builds(Parallel, tensor=st.sampled_from([1, 2, 4, 8]), pipeline=st.sampled_from([1, 2, 4])),
    st.sampled_from(["auto", "fp8"]),
)
def test_more_memory_never_holds_less(name, memory, factor, parallel, dtype):
    """What fits on a GPU fits on a larger one, with no fewer tokens, blocks or sequences; budgets add up."""
    small, large = (
        tried(name, replace(gpu("b200"), memory_bytes=size), parallel, dtype) for size in (memory, memory * factor)
    )
    if small is None:
        return
    assert large is not None
    assert large.blocks >= small.blocks
    assert large.max_model_len >= small.max_model_len
    assert large.sequences(2000) >= small.sequences(2000) > 0
    for size, pool in ((memory, small), (memory * factor, large)):
        total = pool.weight_bytes + pool.activation_bytes + pool.graph_bytes + pool.pool_bytes
        assert total == pytest.approx(size * 0.92)
        assert pool.blocks * pool.plan.block_bytes <= pool.pool_bytes
        assert pool.plan.blocks_per_request(pool.max_model_len) < pool.blocks


@given(st.sampled_from(model_ids()), st.sampled_from([1, 2, 4, 8]))
def test_twice_the_ranks_hold_no_fewer_sequences(name, tensor):
    """Sharding frees memory for KV on each rank, even where heads or latent vectors are repeated."""
    fewer, more = (tried(name, gpu("b300"), Parallel(tensor=ranks), "auto") for ranks in (tensor, 2 * tensor))
    assume(fewer is None or not cannot_split(arch(name), Parallel(tensor=2 * tensor)))
    assert fewer is None or (more is not None and more.sequences(2000) >= fewer.sequences(2000) * (1 - 1e-9))
