"""The KV cache is counted as the engine's own planner counts it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.perfmodel.families import FAMILIES

from goodput.domain.architecture import Architecture, KvLayers, LayerKind
from goodput.perfmodel import architecture, architecture_from_config
from goodput.perfmodel.kvcache import KvSettings, plan_kv

POOL = 40 * 1024**3  # of the table below


def arch(name: str) -> Architecture:
    found = architecture_from_config(name, FAMILIES[name][0]) if name in FAMILIES else architecture(name)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "settings", "length", "want"),
    [
        ("meta-llama/Llama-3.1-8B", {}, 32_768, (2_097_152, 1, 327_680)),
        ("meta-llama/Llama-3.1-8B", {"kv_dtype": "fp8"}, 32_768, (1_048_576, 1, 655_360)),
        ("meta-llama/Llama-3.1-70B", {"tensor_parallel": 4}, 32_768, (1_310_720, 1, 524_288)),
        ("deepseek-ai/DeepSeek-V3", {"block_tokens": 64}, 32_768, (4_497_408, 1, 611_136)),
        ("google/gemma-3-27b-it", {}, 32_768, (1_310_720, 7, 194_871)),
        ("openai/gpt-oss-120b", {}, 32_768, (589_824, 2, 928_792)),
        ("openai/gpt-oss-120b", {}, 131_072, (589_824, 2, 1_095_405)),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", {"prefix_caching": False}, 32_768, (25_952_256, 4, 1_548_522)),
    ],
)
def test_the_planners_own_figures_are_met_exactly(name, settings, length, want):
    """Bytes of a block, groups and tokens that vLLM 0.33's planner prints for 40 GiB and 8,192 batched tokens."""
    plan = plan_kv(arch(name), KvSettings(**settings))
    assert (plan.block_bytes, len(plan.groups), plan.size_tokens(POOL, length)) == want


@pytest.mark.parametrize(
    ("name", "dtype", "want"),
    [
        ("meta-llama/Llama-3.1-8B", "auto", 131_072),
        ("meta-llama/Llama-3.1-8B", "fp8_e4m3", 65_536),
        ("meta-llama/Llama-3.1-8B", "nvfp4", 36_864),
        ("meta-llama/Llama-3.1-8B", "fp8_per_token_head", 65_536 + 32 * 8 * 8),
        ("deepseek-ai/DeepSeek-V3", "auto", 70_272),
        ("deepseek-ai/DeepSeek-V3", "fp8", 35_136),
        ("deepseek-ai/DeepSeek-V3", "fp8_ds_mla", 40_016),
        ("deepseek-ai/DeepSeek-V3", "nvfp4_ds_mla", 61 * 352),
        ("deepseek-ai/DeepSeek-V3.2", "fp8_ds_mla", 61 * (656 + 132)),
        ("zai-org/GLM-5.2", "fp8_ds_mla", 78 * 656 + 21 * 132),
    ],
)
@pytest.mark.parametrize("tensor", [1, 8])
def test_bytes_of_a_token_by_kv_dtype(name, dtype, want, tensor):
    """Scales count; a latent vector and an indexer's key are whole on every rank, heads are spread."""
    found = arch(name)
    plan = plan_kv(found, KvSettings(kv_dtype=dtype, tensor_parallel=tensor))
    shared = 1 if found.kv_layers[0].latent else tensor
    assert plan.block_bytes / plan.block_tokens * shared == pytest.approx(want)


def test_qwen3_next_attention_blocks_grow_until_they_hold_a_state():
    """A state of 2,146,304 bytes needs 1,048 tokens of 2,048 bytes: 66 kernel blocks of 16."""
    assert plan_kv(arch("Qwen/Qwen3-Next-80B-A3B-Instruct"), KvSettings()).block_tokens == 1056


def test_prefix_caching_keeps_a_second_state():
    """A request of a hybrid model takes one state block more in each group of state layers."""
    found = arch("Qwen/Qwen3-Next-80B-A3B-Instruct")
    cached, plain = (plan_kv(found, KvSettings(prefix_caching=flag)).blocks_per_request(32_768) for flag in (1, 0))
    assert (plain, cached) == (35, 38)


def test_more_batched_tokens_leave_less_room_to_models_with_windows():
    """Tokens in flight are kept beside the window: 16,384 batched tokens cost Gemma 3 capacity, and Llama none."""
    for name, loses in (("google/gemma-3-27b-it", True), ("meta-llama/Llama-3.1-8B", False)):
        small, large = (
            plan_kv(arch(name), KvSettings(max_num_batched_tokens=tokens)).size_tokens(POOL, 32_768)
            for tokens in (2_048, 16_384)
        )
        assert (large < small) is loses


def test_chunked_local_layers_keep_a_chunk_and_what_is_in_flight():
    """Llama 4 Scout, 12 full layers and 36 of chunks of 8,192: full 2,048 blocks, chunks (8,192 + 8,192) / 16 each."""
    plan = plan_kv(arch("meta-llama/Llama-4-Scout-17B-16E-Instruct"), KvSettings())
    assert len(plan.groups) == 4
    assert plan.blocks_per_request(32_768) == 2_048 + 3 * 1_024


def test_layers_with_narrower_heads_get_larger_blocks():
    """Gemma 4: a global layer keeps half the bytes of a windowed one, so its blocks have twice the tokens."""
    plan = plan_kv(arch("google/gemma-4-26B-A4B"), KvSettings())
    assert {group.kind: group.block_tokens for group in plan.groups} == {LayerKind.WINDOW: 16, LayerKind.FULL: 32}
    assert len(plan.groups) == 6


def test_compressed_attention_packs_pages_of_unlike_size_into_one_block():
    """DeepSeek-V4-Flash, 43 layers: 22 pages of 37,440 bytes, 21 of 8,640 and 20 of 1,728, in 5 groups."""
    plan = plan_kv(arch("deepseek-ai/DeepSeek-V4-Flash"), KvSettings())
    assert plan.block_bytes == 1_039_680
    assert [(group.block_tokens, group.window_tokens) for group in plan.groups] == [
        (256, 0),
        (64, 128),
        (64, 128),
        (4, 8),
        (8, 128),
    ]


def test_three_layers_sharing_keep_a_third_and_a_window_of_a_tenth_keeps_a_tenth():
    """Cross-layer sharing divides KV by the layers that share; a window of 1,000 of 10,000 tokens by ten."""
    base = {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 3,
        "num_attention_heads": 8,
        "vocab_size": 1000,
        "max_position_embeddings": 16_384,
    }
    plain = architecture_from_config("plain", base)
    sharing = architecture_from_config("sharing", {**base, "num_kv_shared_layers": 2})
    windowed = architecture_from_config("windowed", {**base, "model_type": "mistral", "sliding_window": 1_000})
    assert sharing.kv_bytes_per_token * 3 == plain.kv_bytes_per_token
    (window,) = windowed.kv_layers
    assert window.window_tokens * window.bytes_per_token() * 10 == 10_000 * plain.kv_bytes_per_token
    (few,), (all_layers,) = sharing.kv_layers, plain.kv_layers
    assert few.reading_layers * few.attention_flops == all_layers.reading_layers * all_layers.attention_flops


@pytest.mark.parametrize(("context", "tensor"), [(2, 8), (4, 8), (8, 8)])
def test_context_parallel_spreads_the_tokens_of_latent_attention(context, tensor):
    """Every rank holds the latent vectors of its share of the tokens: as many times the capacity."""
    found = arch("deepseek-ai/DeepSeek-V3")
    alone = plan_kv(found, KvSettings(tensor_parallel=tensor)).size_tokens(POOL, 32_768)
    spread = plan_kv(found, KvSettings(tensor_parallel=tensor, context_parallel=context)).size_tokens(POOL, 32_768)
    assert spread == pytest.approx(alone * context, rel=0.001)


_GROUPS = st.builds(
    KvLayers,
    kind=st.sampled_from([LayerKind.FULL, LayerKind.WINDOW, LayerKind.CHUNK]),
    layers=st.integers(1, 60),
    heads=st.sampled_from([1, 2, 4, 8, 16]),
    elements_per_head=st.sampled_from([64, 128, 256, 320, 512]),
    window_tokens=st.sampled_from([128, 1024, 4096]),
)
_STATES = st.builds(KvLayers, kind=st.just(LayerKind.STATE), layers=st.integers(1, 60), fixed_bytes=st.floats(1e4, 1e7))


@given(
    st.lists(st.one_of(_GROUPS, _STATES), min_size=1, max_size=4, unique=True),
    st.integers(10**8, 10**11),
    st.integers(256, 100_000),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(["auto", "fp8", "nvfp4"]),
)
def test_no_mixture_of_layers_promises_more_tokens_than_its_pool_has_bytes(groups, pool, length, tensor, dtype):
    """What the requests at once keep by themselves, without blocks and padding, never exceeds the pool."""
    kept = tuple(
        group if group.kind in (LayerKind.WINDOW, LayerKind.CHUNK) else replace(group, window_tokens=0)
        for group in groups
    )
    mixture = replace(arch("meta-llama/Llama-3.1-8B"), kv_layers=kept)
    plan = plan_kv(mixture, KvSettings(tensor_parallel=tensor, kv_dtype=dtype, max_num_batched_tokens=256))
    element = {"auto": 2.0, "fp8": 1.0, "nvfp4": 0.5625}[dtype]
    least = 0.0
    for group in kept:
        if group.kind is LayerKind.STATE:
            least += group.state_bytes / tensor
        else:
            seen = min(length, group.window_tokens - 1) if group.window_tokens else length
            share = max(1, group.heads // tensor) / group.heads
            least += seen * group.bytes_per_token(element) * share
    assert plan.max_concurrency(pool, length) * least <= pool * (1 + 1e-9)
    # What is held while decoding is within what is planned, but for the part of a block that is held on average.
    assert plan.held_blocks(length) <= plan.blocks_per_request(length) + len(plan.groups)
    longest = plan.longest(pool, length)
    assert 0 <= longest <= length
    assert longest == length or not plan.holds(pool, longest + 1)
