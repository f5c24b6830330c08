"""Configurations that describe something else than a text-generating decoder: refused with a sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from goodput.domain.conditions import ConditionReason
from goodput.domain.errors import InvalidObject
from goodput.perfmodel.config_fields import invalid
from goodput.perfmodel.config_parts import nested_decoder

_ENCODERS = re.compile(
    r"^(?!.*decoder)(.*bert.*|electra|mpnet|xlm|xlnet|ernie|gte|new|longformer|bge.*|esm.*|luke|big_bird|funnel|"
    r"canine|fnet|layoutlm.*|nystromformer|roformer|splinter|tapas|xmod|data2vec.*|perceiver)$"
)
_ENCODER_DECODERS = re.compile(
    r"^(.*t5|t5.*|.*bart|marian|pegasus.*|bigbird_pegasus|led|m2m_100|whisper|blenderbot.*|prophetnet|nllb.*|fsmt|"
    r"seamless.*|speech_to_text.*|switch_transformers|.*encoder-decoder|florence2|moonshine|mvp|pix2struct|udop)$"
)
_VISION = re.compile(r"^(clip.*|siglip.*|vit.*|deit|swin.*|dinov2.*|beit|convnext.*|resnet|segformer|detr|sam)$")
_AUDIO = re.compile(r"^(wav2vec2.*|hubert|wavlm|musicgen|bark|encodec|speecht5|vits)$")
_RETRIEVERS = re.compile(r"^(col(bert|pali|qwen|idefics|smol|nomic).*)$")
_SERIES = re.compile(r"^(timesfm.*|time_series.*|time_moe|informer|autoformer|patchts.*|chronos.*|moirai.*|sundial)$")
_DIFFUSION = re.compile(r"^(llada.*|dream.*|sdar.*|diffu.*)$")
# Classes with an output layer that says the next token, whatever their families call them.
_GENERATING = re.compile(
    r"ForCausalLM|LMHead|Generation$|ChatModel$|"
    r"^(ChatGLMModel|UltravoxModel|NVLM_D(_Model)?|MiniCPM[OV]|Ovis.*|.*_VL(_V\d)?|NemotronH_Nano.*|Mantis.*)$"
)
_WITHOUT_ATTENTION = re.compile(r"^(mamba2?|falcon_mamba|rwkv.*)$")
_ENDINGS = {
    "ForMaskedLM": "an encoder that fills in masked words",
    "ForSequenceClassification": "a classifier or reranker",
    "ForTokenClassification": "a classifier of tokens",
    "ForQuestionAnswering": "an extractive reader",
    "ForImageClassification": "a classifier of images",
    "ForCTC": "a speech recogniser",
    "ForRewardModel": "a reward model",
    "RewardModel": "a reward model",
    "EmbeddingModel": "an embedding model",
    "BiModel": "an embedding model",
    "ForRetrieval": "an embedding model",
}
_ID = re.compile(r"(embedding|embed-|reranker|-rerank)", re.IGNORECASE)


def refuse_other_than_decoders(name: str, mapping: Mapping[str, Any]) -> None:
    """Raises `InvalidObject` that says what it is instead, and names the field that says so."""
    decoder = "Goodput sizes decoders that generate text"
    if mapping.get("_diffusers_version") is not None or mapping.get("_class_name") is not None:
        field = "_class_name" if mapping.get("_class_name") is not None else "_diffusers_version"
        raise invalid(field, f"describes a diffusion model; {decoder}")
    if mapping.get("is_encoder_decoder") is True:
        raise invalid("is_encoder_decoder", f"describes an encoder-decoder; {decoder}")
    family = mapping.get("model_type")
    if isinstance(family, str):
        for pattern, what in (
            (_ENCODERS, "an encoder, such as embedding models are"),
            (_ENCODER_DECODERS, "an encoder-decoder"),
            (_VISION, "a vision model"),
            (_AUDIO, "an audio model"),
            (_RETRIEVERS, "an embedding model"),
            (_SERIES, "a model of time series"),
            (_DIFFUSION, "a diffusion model of text, which is decoded in another way"),
        ):
            if pattern.match(family):
                raise invalid("model_type", f"{family!r} is {what}; {decoder}")
        if _WITHOUT_ATTENTION.match(family):
            raise invalid("model_type", f"{family!r} has no attention at all, which is not modelled")
    classes = mapping.get("architectures")
    for each in classes if isinstance(classes, list | tuple) else ():
        for ending, what in _ENDINGS.items():
            if isinstance(each, str) and each.endswith(ending):
                raise invalid("architectures", f"{each!r} is {what}; {decoder}")
        if isinstance(each, str) and re.fullmatch(r"[A-Za-z0-9]+Model", each) and not _generates(mapping, classes):
            raise invalid("architectures", f"{each!r} has no output layer, as embedding models have none; {decoder}")
    named = [each for each in classes if isinstance(each, str)] if isinstance(classes, list | tuple) else []
    if named and not _generates(mapping, named):
        known = "such as those named ForCausalLM or ForConditionalGeneration"
        raise invalid("architectures", f"{named[0]!r} is no class that generates text, {known}; {decoder}")
    text = nested_decoder(mapping)
    if mapping.get("is_causal") is False or (text is not None and text.get("is_causal") is False):
        raise invalid("is_causal", f"is false: this is an encoder, such as embedding models are; {decoder}")
    if mapping.get("use_bidirectional_attention") is True or (
        text is not None and text.get("use_bidirectional_attention") is True
    ):
        raise invalid("use_bidirectional_attention", f"makes this an encoder, such as embedding models are; {decoder}")
    if isinstance(mapping.get("vision_config"), Mapping) and text is None and mapping.get("num_hidden_layers") is None:
        raise invalid("vision_config", f"stands alone: there is no text_config; {decoder}")
    if _ID.search(name):
        raise InvalidObject(
            "spec.model",
            f"{name} is an embedding or reranking model by its name; {decoder}",
            ConditionReason.ARCHITECTURE_INVALID,
        )


def _generates(mapping: Mapping[str, Any], classes: Any) -> bool:
    """Whether a class or the part that holds the decoder has an output layer (InternVLChatModel, ChatGLMModel)."""
    nested, loaders = nested_decoder(mapping) or {}, mapping.get("auto_map")
    inner = nested.get("architectures")
    named = [*classes, *(inner if isinstance(inner, list | tuple) else ())]
    if isinstance(loaders, Mapping) and "AutoModelForCausalLM" in loaders:
        return True
    return any(isinstance(each, str) and _GENERATING.search(each) is not None for each in named)
