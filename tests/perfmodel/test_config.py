"""config.json -> architecture: what is wrong is named, what is not modelled is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.perfmodel.families import FAMILIES
from tests.perfmodel.odd_families import ODD_FAMILIES

from goodput.domain.architecture import Architecture
from goodput.domain.conditions import ConditionReason
from goodput.domain.errors import InvalidObject
from goodput.perfmodel import architecture_from_config
from goodput.perfmodel.weights import Parallel, rank_weights

LLAMA: dict[str, Any] = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}


def test_plain_fields_are_enough():
    """Seven fields of config.json give Llama-3.1-8B."""
    found = architecture_from_config("mine", LLAMA)
    assert found.head_dim == 128
    assert found.kv_bytes_per_token == 131_072
    assert found.weight_bytes_per_parameter == 2.0


def test_float32_weights_are_read_in_full_and_held_in_16_bits():
    """The engine loads float32 in half its size, after the start has read all of it."""
    found = architecture_from_config("mine", {**LLAMA, "torch_dtype": "float32"})
    assert found.weight_bytes == 2.0 * found.parameters
    assert found.checkpoint_bytes == 4.0 * found.parameters
    plain = architecture_from_config("mine", LLAMA)
    assert plain.checkpoint_bytes == plain.weight_bytes


def test_the_text_part_of_a_multimodal_config_counts():
    """`text_config` holds the decoder of a vision model."""
    assert architecture_from_config("mine", {"text_config": LLAMA}).layers == 32


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"hidden_size": "4096"}, "hidden_size"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"hidden_size": -1}, "hidden_size"),
        ({"vocab_size": 1.5}, "vocab_size"),
        ({"vocab_size": float("nan")}, "vocab_size"),
        ({"vocab_size": True}, "vocab_size"),
        ({"num_key_value_heads": 64}, "num_key_value_heads"),
        ({"num_key_value_heads": 5}, "num_key_value_heads"),
        ({"intermediate_size": None}, "intermediate_size"),
        ({"max_position_embeddings": None}, "max_position_embeddings"),
        ({"mamba_num_heads": 64}, "mamba_num_heads"),
        ({"index_topk": 2048}, "index_topk"),
        ({"num_experts": 8}, "num_experts_per_tok"),
        ({"use_cla": True}, "use_cla"),
        ({"hidden_act": ["relu2"]}, "hidden_act"),
        ({"mlp_hidden_act": 2}, "mlp_hidden_act"),
        ({"model_type": "falcon_mamba"}, "model_type"),
        ({"text_config": "llama"}, "text_config"),
        ({"num_experts": 8, "num_experts_per_tok": [2, 4]}, "num_experts_per_tok"),
        ({"num_experts": 8, "num_experts_per_tok": 2, "moe_layers_enum": "1;2"}, "moe_layers_enum"),
        ({"num_experts": 8, "num_experts_per_tok": 9}, "num_experts_per_tok"),
        ({"quantization_config": {"quant_method": "magic"}}, "quantization_config.quant_method"),
    ],
)
def test_a_wrong_field_is_named(change, field):
    """The error carries the path of the field and the reason of the condition."""
    with pytest.raises(InvalidObject) as caught:
        architecture_from_config("mine", {**LLAMA, **change})
    assert caught.value.field == f"spec.architecture.{field}"
    assert caught.value.reason is ConditionReason.ARCHITECTURE_INVALID


@pytest.mark.parametrize(
    ("config", "precision", "size"),
    [
        ({"quant_method": "fp8"}, "fp8", 1.0),
        ({"quant_method": "fbgemm_fp8"}, "fp8", 1.0),
        ({"quant_method": "awq"}, "int4", 0.5 + 2.5 / 128),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, "int4", 0.5 + 2.5 / 64),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, "int8", 1.0),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, "int4", 0.5 + 2.5 / 4096),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8", 1.0),
        ({"quant_method": "mxfp4"}, "mxfp4", 0.53125),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8", 1.0),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", 0.5625),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4"}}, "nvfp4", 0.5625),
    ],
)
def test_quantised_weights_are_smaller_and_embeddings_are_not(config, precision, size):
    """The stored bytes of a weight follow the quantisation, scales included; embedding and head stay in bf16."""
    plain = architecture_from_config("mine", LLAMA)
    found = architecture_from_config("mine", {**LLAMA, "quantization_config": config})
    ends = 2 * 128256 * 4096
    assert found.precision == precision
    assert found.weight_bytes == pytest.approx(ends * 2.0 + (plain.parameters - ends) * size)


@pytest.mark.parametrize(
    ("weights", "precision", "size"),
    [
        ({"num_bits": 8, "type": "float"}, "fp8", 1.0),
        ({"num_bits": 8, "type": "int"}, "int8", 1.0),
        ({"num_bits": 4, "type": "int", "group_size": 128, "symmetric": True}, "int4", 0.5 + 2 / 128),
        ({"num_bits": 4, "type": "int", "group_size": 128, "symmetric": False}, "int4", 0.5 + 2.5 / 128),
        ({"num_bits": 4, "type": "float", "group_size": 16}, "nvfp4", 0.5625),
        ({"num_bits": 4, "type": "float", "group_size": 32}, "mxfp4", 0.53125),
    ],
)
def test_compressed_tensors_say_their_format_in_their_groups(weights, precision, size):
    """fp8, w8a8, w4a16 and fp4 checkpoints name one method, and differ in their weights."""
    config = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}
    found = architecture_from_config("mine", {**LLAMA, "quantization_config": config})
    assert (found.precision, found.quantised_bytes) == (precision, size)


def test_layers_with_a_window_are_told_from_those_without():
    """Gemma 3 27B: one layer in six has full attention, 52 of 62 see 1,024 tokens."""
    gemma = {
        "model_type": "gemma3_text",
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "num_hidden_layers": 62,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": True,
        "sliding_window": 1024,
        "sliding_window_pattern": 6,
    }
    found = architecture_from_config("gemma", gemma)
    assert found.kv_bytes_per_token == 10 * 16 * 256 * 2
    (window,) = (group for group in found.kv_layers if group.window_tokens)
    assert window.bytes_per_token() == 52 * 16 * 256 * 2
    assert window.window_tokens == 1024


@pytest.mark.parametrize(
    "window",
    [
        {"model_type": "phi3", "sliding_window": 262144},
        {"model_type": "mistral", "sliding_window": 131072},
        {"layer_types": ["sliding_attention"] * 32, "sliding_window": 131072},
        {"model_type": "llama4_text", "attention_chunk_size": 131072, "no_rope_layers": [1] * 32},
    ],
)
def test_a_window_that_no_request_leaves_is_full_attention(window):
    """Phi-4-mini names a window of twice its longest context: it keeps every token, as Llama does."""
    assert architecture_from_config("mine", {**LLAMA, **window}).kv_bytes_per_token == 131_072


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_parameters_of_every_family_match_what_is_published(name):
    """Hybrids, shared KV, latent attention without query compression, GPT-2's own field names: within 1 %."""
    config, billions = FAMILIES[name]
    assert architecture_from_config(name, config).parameters / 1e9 == pytest.approx(billions, rel=0.01)


@pytest.mark.parametrize("name", sorted(ODD_FAMILIES))
def test_families_that_say_it_in_their_own_way(name):
    """Nested decoders, class defaults, values a layer, halves of widths, two layers in one: size within 1.5 %."""
    config, billions, kept = ODD_FAMILIES[name]
    found = architecture_from_config(name, config)
    assert found.parameters / 1e9 == pytest.approx(billions, rel=0.015)
    assert found.kv_bytes_per_token == kept


@pytest.mark.parametrize(
    ("towers", "billions"),
    [
        ({"vision_config": {"depth": 32, "embed_dim": 1280, "hidden_size": 3584, "mlp_ratio": 4}}, 0.63),  # Qwen2-VL
        (  # Qwen2.5-VL
            {
                "vision_config": {
                    "depth": 32,
                    "hidden_size": 1280,
                    "intermediate_size": 3420,
                    "out_hidden_size": 3584,
                    "hidden_act": "silu",
                }
            },
            0.63,
        ),
        ({"vision_config": {"num_hidden_layers": 27, "hidden_size": 1152, "intermediate_size": 4304}}, 0.41),  # Gemma 3
        (
            {"vision_config": {"num_hidden_layers": 45, "hidden_size": 3200, "intermediate_size": 12800}},
            5.53,
        ),  # InternVL3-78B
        ({"vision_config": {"layers": 27, "width": 1152, "mlp_ratio": 3.7362}}, 0.41),  # DeepSeek-VL2
        ({"audio_config": {"encoder_layers": 32, "d_model": 1280, "encoder_ffn_dim": 5120}}, 0.63),  # Qwen2-Audio
        ({"vision_config": {"hidden_size": 1152}}, 0.0),
        ({"vision_config": {"depths": [2, 2], "hidden_size": "wide"}}, 0.0),
        ({}, 0.0),
    ],
)
def test_towers_stand_in_memory_and_cost_no_token(towers, billions):
    """Qwen2.5-VL-3B is a sixth larger than its decoder; quantised checkpoints leave the tower as it was."""
    quantised = {"quantization_config": {"quant_method": "fp8"}}
    plain = architecture_from_config("mine", {**LLAMA, **quantised})
    found = architecture_from_config("mine", {"text_config": LLAMA, **quantised, **towers})
    assert (found.parameters - plain.parameters) / 1e9 == pytest.approx(billions, abs=0.006)
    assert found.active_parameters == plain.active_parameters
    added = found.weight_bytes - plain.weight_bytes
    assert added == pytest.approx(2.0 * found.tower_parameters) == found.checkpoint_bytes - plain.checkpoint_bytes
    for parallel in (Parallel(), Parallel(tensor=2), Parallel(pipeline=2)):
        more = rank_weights(found, parallel).total - rank_weights(plain, parallel).total
        assert more == pytest.approx(added / parallel.tensor)


@pytest.mark.parametrize(
    ("fields", "missing"),
    [
        ({"vision_config": {"depth": 32, "hidden_size": 1280}}, ()),
        ({"vision_config": {"architecture": "mobilenetv5"}}, ("vision_config",)),
        ({"thinker_config": {"audio_config": {"hidden_size": 1536}}}, ("audio_config",)),
        ({"vision_lora": {"r": 256}, "speech_lora": {"r": 320}}, ("speech_lora", "vision_lora")),
        ({"vision_start_token_id": 5, "vision_config": {}}, ()),
    ],
)
def test_a_tower_that_is_not_counted_is_named(fields, missing):
    """Where the file says neither layers nor width, or says it in a way of its own."""
    assert architecture_from_config("mine", {**LLAMA, **fields}).unsized_towers == missing


def test_an_expert_that_does_nothing_is_not_visited():
    """LongCat chooses 12 of 512 experts and 256 that do nothing: 8 real ones on average."""
    config = ODD_FAMILIES["meituan-longcat/LongCat-Flash-Chat"][0]
    assert architecture_from_config("longcat", config).experts_per_token == 8


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        # layers that keep all tokens, a window, a state; bytes of a token, in the window, of the states
        ("ibm-ai-platform/Bamba-9B", (3, 0, 29, 3 * 4096, 0, 29 * (8448 * 3 * 2 + 128 * 64 * 128 * 2))),
        ("ai21labs/AI21-Jamba-1.5-Mini", (4, 0, 28, 4 * 4096, 0, 28 * (8192 * 3 * 2 + 8192 * 16 * 2))),
        ("tiiuae/Falcon-H1-34B-Instruct", (72, 0, 72, 72 * 2048, 0, 72 * (5120 * 3 * 2 + 4096 * 256 * 2))),
        ("moonshotai/Kimi-Linear-48B-A3B-Instruct", (7, 0, 20, 7 * 1152, 0, 20 * (12288 * 3 * 2 + 4096 * 128 * 4))),
        ("MiniMaxAI/MiniMax-Text-01", (10, 0, 70, 10 * 4096, 0, 70 * 8192 * 128 * 2)),
        ("google/gemma-3n-E4B-it", (4, 16, 0, 4 * 2048, 16 * 2048, 0)),
        ("mistralai/Mistral-7B-v0.1", (0, 32, 0, 0, 32 * 4096, 0)),
        ("openai-community/gpt2", (12, 0, 0, 12 * 3072, 0, 0)),
    ],
)
def test_what_layers_keep_of_a_sequence(name, kept):
    """Mamba keeps convolution inputs and state, Kimi a matrix a head, the last layers of Gemma 3n nothing."""
    found = architecture_from_config(name, FAMILIES[name][0])
    by_kind = {kind: sum(group.layers for group in found.kv_layers if group.kind == kind) for kind in KINDS}
    assert (
        *by_kind.values(),
        found.kv_bytes_per_token,
        sum(group.bytes_per_token() for group in found.kv_layers if group.window_tokens),
        found.state_bytes,
    ) == kept


KINDS = ("full", "window", "state")
DECODER = "sizes decoders that generate text"


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"model_type": "bert", "architectures": ["BertModel"]}, "model_type"),
        ({"model_type": "xlm-roberta"}, "model_type"),
        ({**LLAMA, "architectures": ["MistralModel"]}, "architectures"),
        ({**LLAMA, "architectures": ["Qwen3ForSequenceClassification"]}, "architectures"),
        ({**LLAMA, "architectures": ["LlamaBidirectionalForMaskedLM"]}, "architectures"),
        ({**LLAMA, "use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ({"text_config": {**LLAMA, "use_bidirectional_attention": True}}, "use_bidirectional_attention"),
        ({**LLAMA, "architectures": ["Qwen2ForCausalLM"], "is_causal": False}, "is_causal"),
        ({"text_config": {**LLAMA, "is_causal": False}}, "is_causal"),
        ({**LLAMA, "model_type": "qwen2_5_vl", "architectures": ["ColQwen2_5"]}, "architectures"),
        ({**LLAMA, "architectures": ["SomethingForRetrieval"]}, "architectures"),
        *(
            ({**LLAMA, "model_type": family}, "model_type")
            for family in ("esm", "neobert", "plbart", "timesfm", "llada")
        ),
        *(({**LLAMA, "model_type": family}, "model_type") for family in ("eurobert", "t5gemma", "colqwen2", "dream")),
        ({"model_type": "t5"}, "model_type"),
        ({"model_type": "whisper", "is_encoder_decoder": True}, "is_encoder_decoder"),
        ({"_class_name": "FluxTransformer2DModel"}, "_class_name"),
        ({"model_type": "siglip_vision_model"}, "model_type"),
        ({"vision_config": {"hidden_size": 1024}}, "vision_config"),
        ({"model_type": "wav2vec2"}, "model_type"),
    ],
)
def test_what_is_no_decoder_is_refused_with_a_sentence(config, field):
    """Embedding models, classifiers, encoder-decoders, diffusion, vision and audio models say what they are."""
    with pytest.raises(InvalidObject, match=DECODER) as caught:
        architecture_from_config("mine", config)
    assert caught.value.field == f"spec.architecture.{field}"


@pytest.mark.parametrize(
    "kind",
    [
        {"architectures": ["GPT2LMHeadModel"]},
        {"architectures": ["InternVLChatModel"]},
        {"architectures": ["VoxtralRealtimeGeneration"]},
        {"architectures": ["MiniCPMV"], "model_type": "minicpmv"},
        {"architectures": ["Llama_Nemotron_Nano_VL"]},
        {"architectures": ["OwnDecoder"], "auto_map": {"AutoModelForCausalLM": "modeling_own.OwnDecoder"}},
        {"architectures": [], "is_causal": True},
        {"model_type": "modernbert-decoder"},
    ],
)
def test_what_generates_text_is_not_refused_for_its_name(kind):
    """Classes of decoders are called in several ways."""
    assert architecture_from_config("mine", {**LLAMA, **kind}).layers == 32


def test_an_embedding_model_that_its_name_alone_betrays_is_refused():
    """Qwen3-Embedding has the config of a decoder: the id says it."""
    with pytest.raises(InvalidObject, match=DECODER) as caught:
        architecture_from_config("Qwen/Qwen3-Embedding-8B", LLAMA)
    assert caught.value.field == "spec.model"


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({**LLAMA, "head_dim": None, "hidden_size": 4100}, "num_attention_heads"),
        ({**LLAMA, "layer_types": ["full_attention"] * 31}, "layer_types"),
        ({**LLAMA, "layer_types": ["retention"] * 32}, "layer_types"),
        ({**LLAMA, "layer_types": ["sliding_attention"] * 32}, "sliding_window"),
        ({**LLAMA, "num_kv_shared_layers": 32}, "num_kv_shared_layers"),
        ({**LLAMA, "hybrid_layer_pattern": [1] * 3}, "hybrid_layer_pattern"),
        ({**LLAMA, "swa_num_attention_heads": 8}, "hybrid_layer_pattern"),
        ({**LLAMA, "hybrid_override_pattern": "MXM"}, "hybrid_override_pattern"),
        ({**LLAMA, "ssm_state_size": 128}, "ssm_state_size"),
        ({**LLAMA, "full_attention_interval": 4}, "linear_num_key_heads"),
        ({**LLAMA, "linear_attn_config": {"num_heads": 4}}, "linear_attn_config.full_attn_layers"),
        ({**LLAMA, "linear_attn_config": 3}, "linear_attn_config"),
        ({**LLAMA, "block_configs": [{"attention": {"no_op": True}}]}, "block_configs"),
        ({**LLAMA, "block_configs": [{"attention": {"n_heads_in_group": 5}, "ffn": {"no_op": True}}]}, None),
        ({**LLAMA, "model_type": "deepseek_v4"}, "compress_ratios"),
        ({**LLAMA, "compress_ratios": [4] * 3}, "compress_ratios"),
        ({**LLAMA, "kv_lora_rank": 512}, "qk_rope_head_dim"),
        ({**LLAMA, "num_experts": 8, "num_experts_per_tok": 2, "moe_layer_freq": [1]}, "moe_layer_freq"),
        ({**LLAMA, "torch_dtype": "float8"}, "torch_dtype"),
        ({**LLAMA, "quantization_config": "fp8"}, "quantization_config"),
        ({**LLAMA, "quantization_config": {"quant_method": "quark"}}, "quantization_config.quant_method"),
        ({**LLAMA, "quantization_config": {"quant_method": "modelopt", "quant_algo": "FP6"}}, None),
        ({**LLAMA, "quantization_config": {"quant_method": "compressed-tensors"}}, "quantization_config.config_groups"),
        ({**LLAMA, "quantization_config": {"quant_method": "gptq", "bits": 5}}, "quantization_config.bits"),
        (
            {**LLAMA, "quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}},
            "quantization_config.quantized_layers",
        ),
    ],
)
def test_what_cannot_be_sized_is_refused_by_field_never_guessed(config, field):
    """A missing or contradictory field is named by its whole path."""
    with pytest.raises(InvalidObject) as caught:
        architecture_from_config("mine", config)
    assert caught.value.reason is ConditionReason.ARCHITECTURE_INVALID
    assert caught.value.field.startswith("spec.architecture.")
    assert field is None or caught.value.field == f"spec.architecture.{field}"


@pytest.mark.parametrize(
    ("quantisation", "parts"),
    [
        # bytes of a parameter of attention, dense feed-forward, experts
        ({"quant_method": "fp8", "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate"]}, (1.0, 1.0, 1.0)),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}, (2.0, 2.0, 0.53125)),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["model.layers.*.self_attn*"]},
            (2.0, 0.5625, 0.5625),
        ),
        (
            {
                "quant_method": "modelopt",
                "quant_algo": "NVFP4",
                "exclude_modules": ["model.layers.*.self_attn*", "model.layers.*.mlp.shared_experts*"],
            },
            (2.0, 2.0, 0.5625),
        ),
        ({"quant_method": "fp8", "moe_quant_algo": "NVFP4"}, (1.0, 1.0, 0.5625)),
        (
            {
                "quant_method": "modelopt",
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": {
                    "model.layers.*.self_attn": {"quant_algo": "FP8"},
                    "model.layers.*.mlp.experts": {"quant_algo": "NVFP4"},
                },
            },
            (1.0, 2.0, 0.5625),
        ),
    ],
)
def test_what_a_quantisation_leaves_out_counts_in_full(quantisation, parts):
    """Attention, dense layers and experts of one checkpoint may be stored in three formats."""
    experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 1024, "n_shared_experts": 1}
    found = architecture_from_config("mine", {**LLAMA, **experts, "quantization_config": quantisation})
    assert (found.stored_attention_bytes, found.stored_dense_bytes, found.quantised_bytes) == parts


def sized(config: dict[Any, Any]) -> Architecture | str:
    """The architecture, or the field that is wrong."""
    try:
        return architecture_from_config("mine", config)
    except InvalidObject as error:
        return error.field


HOSTILE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(0, 64),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.one_of(st.integers(-1, 128), st.text(max_size=3), st.none()), max_size=64),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)
CONFIGS = [config for config, _ in FAMILIES.values()]
FIELDS = sorted({field for config in CONFIGS for field in config} | {"quantization_config", "block_configs"})


@given(st.sampled_from(CONFIGS), st.dictionaries(st.sampled_from(FIELDS), HOSTILE, min_size=1, max_size=4))
def test_any_mapping_gives_an_architecture_or_names_a_field(config, changes):
    """Hostile values never escape as another error, and what is sized adds up."""
    found = sized({**config, **changes})
    if isinstance(found, str):
        assert found.startswith("spec.architecture.")
        return
    assert found.parameters >= found.active_parameters > 0
    assert found.weight_bytes > 0
    assert all(group.layers > 0 for group in found.kv_layers)


@given(st.dictionaries(st.text(max_size=12), HOSTILE, max_size=8))
def test_nonsense_is_refused_by_field(config):
    """Whatever is no config.json lacks something that is named."""
    assert isinstance(sized(config), str)
