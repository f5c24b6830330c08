"""Weights of one rank: what each kind of parallelism divides, and what it repeats."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from goodput.domain.architecture import Architecture
from goodput.perfmodel import architecture, architecture_from_config, model_ids
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


QWEN_72B = {
    "hidden_size": 8192,
    "intermediate_size": 29568,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
}
QWEN_480B = {
    "model_type": "qwen3_moe",
    "hidden_size": 6144,
    "num_hidden_layers": 62,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 8192,
    "moe_intermediate_size": 2560,
    "num_experts": 160,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
    "max_position_embeddings": 262144,
}
BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def block_structure(*sides: int) -> dict[str, object]:
    weights = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": list(sides)}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}


@pytest.mark.parametrize(
    ("config", "degrees"),
    [
        # 2,560 elements of an expert: 640 at TP 4 are five blocks, 320 at TP 8 are two and a half.
        ({**QWEN_480B, "quantization_config": BLOCKS}, (1, 2, 4)),
        ({**QWEN_480B, "quantization_config": block_structure(128, 128)}, (1, 2, 4)),
        ({**QWEN_480B, "quantization_config": {"quant_method": "fp8"}}, (1, 2, 4, 8)),
        (QWEN_480B, (1, 2, 4, 8)),
        # 512 elements of a shared expert are one block at TP 4.
        (
            {
                **QWEN_480B,
                "shared_expert_intermediate_size": 512,
                "moe_intermediate_size": 1024,
                "quantization_config": BLOCKS,
            },
            (1, 2, 4),
        ),
        (
            {
                **QWEN_480B,
                "shared_expert_intermediate_size": 512,
                "moe_intermediate_size": 1024,
                "quantization_config": {**BLOCKS, "modules_to_not_convert": ["shared_expert"]},
            },
            (1, 2, 4, 8),
        ),
        # 29,568 = 231 groups of 128; as 29,696 published checkpoints are padded to it is 232.
        ({**QWEN_72B, "quantization_config": {"quant_method": "awq", "group_size": 128}}, (1,)),
        ({**QWEN_72B, "quantization_config": {"quant_method": "awq", "group_size": 64}}, (1, 2)),
        ({**QWEN_72B, "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": -1}}, (1, 2, 4, 8)),
        (
            {**QWEN_72B, "intermediate_size": 29696, "quantization_config": {"quant_method": "awq"}},
            (1, 2, 4, 8),
        ),
        (QWEN_72B, (1, 2, 4, 8)),
        ({**QWEN_72B, "intermediate_size": 29564}, (1, 2, 4)),
    ],
)
def test_a_width_is_cut_only_between_what_shares_a_scale(config, degrees):
    """The engine refuses a rank's part that is no whole multiple of the blocks or groups of the checkpoint."""
    found = architecture_from_config("mine", config)
    assert tuple(each for each in (1, 2, 4, 8) if cannot_split(found, Parallel(tensor=each)) is None) == degrees


def test_whole_experts_are_not_cut():
    """With expert parallelism experts stay whole; without, the sentence says what is wrong."""
    found = architecture_from_config("mine", {**QWEN_480B, "quantization_config": BLOCKS})
    assert cannot_split(found, Parallel(tensor=8, expert=True)) is None
    refused = cannot_split(found, Parallel(tensor=8))
    assert refused is not None
    assert refused[0] == "tensor"
    assert "TP 8 cuts the 2560 elements of experts into 320, no multiple of the 128" in refused[1]


def test_a_checkpoint_known_by_its_ending_alone_may_have_blocks():
    """`-FP8` of a model that is built in: its experts are cut as if blocks had scales, dense layers are not."""
    named = architecture("Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8")
    assert named is not None
    assert cannot_split(named, Parallel(tensor=8)) is not None
    assert cannot_split(named, Parallel(tensor=4)) is None
    by_channel = architecture("RedHatAI/Qwen3-Coder-480B-A35B-Instruct-FP8-dynamic")
    assert by_channel is not None
    assert cannot_split(by_channel, Parallel(tensor=8)) is None
