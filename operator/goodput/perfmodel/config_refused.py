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
    r"^(bert|.*roberta.*|distilbert|deberta.*|electra|albert|mpnet|modernbert|nomic_bert|camembert|xlm|xlnet|ernie|"
    r"gte|new|jina.*bert.*|longformer|bge.*|colbert)$"
)
_ENCODER_DECODERS = re.compile(r"^(.*t5|bart|mbart|marian|pegasus|led|m2m_100|whisper|blenderbot.*|prophetnet|nllb.*)$")
_VISION = re.compile(r"^(clip.*|siglip.*|vit.*|deit|swin.*|dinov2.*|beit|convnext.*|resnet|segformer|detr|sam)$")
_AUDIO = re.compile(r"^(wav2vec2.*|hubert|wavlm|musicgen|bark|encodec|speecht5|vits)$")
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
    text = nested_decoder(mapping)
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
    return any(isinstance(each, str) and ("ForCausalLM" in each or "LMHead" in each) for each in named)
