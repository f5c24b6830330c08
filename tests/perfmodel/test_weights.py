"""Weights of one rank: what each kind of parallelism divides, and what it repeats."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from goodput.domain.architecture import Architecture
from goodput.perfmodel import architecture, model_ids
from goodput.perfmodel.weights import Parallel, cannot_split, expert_rank_share, rank_weights, stage_layers


def arch(name: str) -> Architecture:
    found = architecture(name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-8B", "moonshotai/Kimi-K2.5", "openai/gpt-oss-120b"])
def test_one_rank_alone_holds_every_weight(name):
    """Without parallelism a rank's weights are the checkpoint's."""
    assert rank_weights(arch(name), Parallel()).total == pytest.approx(arch(name).weight_bytes)


def test_eight_ranks_of_a_dense_model_hold_an_eighth_each():
    """Llama-3.1-70B has 8 KV heads: TP 8 divides everything, TP 16 repeats K and V projections once."""
    llama = arch("meta-llama/Llama-3.1-70B")
    assert rank_weights(llama, Parallel(tensor=8)).total == pytest.approx(llama.weight_bytes / 8)
    repeated = 80 * 8192 * 2 * 128 * 2.0  # bytes of one head's K and V projections in 80 layers
    over = rank_weights(llama, Parallel(tensor=16)).total - llama.weight_bytes / 16
    assert over == pytest.approx(repeated / 2)


def test_latent_down_projections_and_indexers_are_whole_on_every_rank():
    """DeepSeek-V3: 7,168 x (512 + 64 + 1,536) in each of 61 layers, in fp8, do not shard."""
    deepseek = arch("deepseek-ai/DeepSeek-V3")
    whole = 61 * 7168 * (512 + 64 + 1536)
    one, eight = (rank_weights(deepseek, Parallel(tensor=tensor)).attention for tensor in (1, 8))
    assert eight == pytest.approx((one - whole) / 8 + whole)


def test_quantised_latent_up_projections_are_held_twice():
    """DeepSeek-V3: 512 x 128 x 256 in each of 61 layers, once in fp8 and once in bf16; Kimi-K2.5 has bf16 alone."""
    deepseek, kimi = arch("deepseek-ai/DeepSeek-V3"), arch("moonshotai/Kimi-K2.5")
    second = 61 * 512 * 128 * 256 * 2.0
    assert rank_weights(deepseek, Parallel()).total == pytest.approx(deepseek.weight_bytes + second)
    assert rank_weights(kimi, Parallel()).total == pytest.approx(kimi.weight_bytes)


@pytest.mark.parametrize(
    ("name", "tensor", "context", "why"),
    [
        ("deepseek-ai/DeepSeek-V3", 8, 8, ""),
        ("deepseek-ai/DeepSeek-V3", 8, 3, "does not divide TP 8"),
        ("openai/gpt-oss-120b", 16, 2, "window"),
        ("Qwen/Qwen3-235B-A22B", 8, 2, ""),  # 4 KV heads, each on two ranks
        ("Qwen/Qwen3-235B-A22B", 4, 2, "KV heads"),
    ],
)
def test_context_parallelism_spreads_what_ranks_would_repeat(name, tensor, context, why):
    """It needs ranks with the same heads, and no layer with a window."""
    refused = cannot_split(arch(name), Parallel(tensor=tensor, context=context))
    assert (refused is not None and refused[0] == "context" and why in refused[1]) if why else refused is None


def test_data_parallel_attention_is_repeated_and_experts_are_spread_over_all_ranks():
    """DeepSeek-V3 on 16 GPUs: with DP 16 each rank holds all of attention and 16 of 256 experts."""
    deepseek = arch("deepseek-ai/DeepSeek-V3")
    spread = Parallel(tensor=1, data=16, expert=True)
    weights = rank_weights(deepseek, spread)
    assert spread.gpus == 16
    assert weights.attention == pytest.approx(deepseek.attention_parameters + 2.0 * deepseek.absorbed_parameters)
    assert weights.experts == pytest.approx(deepseek.expert_parameters / 16)


@pytest.mark.parametrize(
    ("parallel", "share"),
    [
        (Parallel(tensor=8), 1 / 8),
        (Parallel(tensor=8, expert=True), 1 / 8),
        (Parallel(tensor=6, expert=True), 43 / 256),  # 256 over 6: some rank holds 43
        (Parallel(tensor=8, expert=4), 64 / 256 / 2),
        (Parallel(tensor=4, data=4, expert=16), 1 / 16),
    ],
)
def test_whole_experts_are_dealt_out_and_the_fullest_rank_counts(parallel, share):
    """Expert parallelism deals whole experts, tensor parallelism cuts each."""
    assert expert_rank_share(arch("deepseek-ai/DeepSeek-V3"), parallel) == pytest.approx(share)


@pytest.mark.parametrize(
    ("layers", "stages", "want"), [(32, 4, (8, 8, 8, 8)), (61, 2, (31, 30)), (62, 4, (15, 16, 16, 15))]
)
def test_layers_are_dealt_to_stages_as_the_engine_does(layers, stages, want):
    """Left-over layers go to the stages before the last."""
    assert stage_layers(layers, stages) == want


def test_the_stage_that_holds_most_counts():
    """Llama-3.1-8B on two stages: each has half of the layers and one of the two matrices of the vocabulary."""
    llama = arch("meta-llama/Llama-3.1-8B")
    assert rank_weights(llama, Parallel(pipeline=2)).total == pytest.approx(llama.weight_bytes / 2)
    tied = arch("Qwen/Qwen3-1.7B")
    matrix = 151_936 * 2048 * 2.0
    assert rank_weights(tied, Parallel(pipeline=2)).total == pytest.approx((tied.weight_bytes + matrix) / 2)


@given(
    st.sampled_from(model_ids()),
    st.sampled_from([1, 2, 4, 8, 16]),
    st.sampled_from([1, 2, 3, 4]),
    st.sampled_from([1, 2, 8]),
    st.sampled_from([False, True, 2, 8]),
)
def test_all_ranks_together_hold_at_least_the_model_and_more_ranks_never_hold_more_each(
    name, tensor, pipeline, data, expert
):
    """No parallelism loses weights; doubling the tensor ranks never makes a rank heavier."""
    model = arch(name)
    parallel = Parallel(tensor=tensor, pipeline=pipeline, data=data, expert=expert)
    assume(not cannot_split(model, replace(parallel, tensor=2 * tensor)) and not cannot_split(model, parallel))
    weights = rank_weights(model, parallel)
    assert weights.total * parallel.gpus >= model.weight_bytes * (1 - 1e-9)
    doubled = Parallel(tensor=2 * tensor, pipeline=pipeline, data=data, expert=expert)
    assert rank_weights(model, doubled).total <= weights.total * (1 + 1e-9)
