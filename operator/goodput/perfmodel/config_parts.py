"""The decoder in a config.json: multimodal models nest it, and files leave out what their class has by default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goodput.perfmodel.config_fields import Fields

# Parts that hold a decoder, from the outside in.
_NESTED = ("thinker_config", "text_config", "llm_config", "language_config")
# Parts that hold fields of the decoder itself (MPT, DBRX).
_SECTIONS = ("attn_config", "ffn_config")
# What the class of a nested decoder has where the file does not say it; whole files say it.
_DEFAULTS: dict[str, dict[str, int]] = {
    "llama": {
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "max_position_embeddings": 2048,
    },
    "mistral": {
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
    },
    "qwen2": {
        "vocab_size": 151936,
        "hidden_size": 4096,
        "intermediate_size": 22016,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "max_position_embeddings": 32768,
    },
    "gemma": {"head_dim": 256, "max_position_embeddings": 8192},
    "gemma2": {"head_dim": 256, "max_position_embeddings": 8192, "sliding_window": 4096},
    "gemma3_text": {
        "vocab_size": 262208,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
    },
}


def nested_decoder(mapping: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The part of `mapping` that holds the decoder; None where there is none, or it is no object."""
    found: Mapping[str, Any] | None = None
    for name in _NESTED:
        part = (found or mapping).get(name)
        if isinstance(part, Mapping):
            found = part
    return found


def decoder_fields(mapping: Mapping[str, Any]) -> Fields:
    """Fields of the decoder. Raises `InvalidObject` where a part that should hold it is no object."""
    for name in _NESTED:
        Fields(mapping).mapping(name)
    found = nested_decoder(mapping)
    if found is not None:
        defaults = _DEFAULTS.get(str(found.get("model_type")), {})
        given = {name: value for name, value in found.items() if value is not None or name not in defaults}
        mapping = {**mapping, **defaults, **given}
    sections: dict[str, Any] = {}
    for name in _SECTIONS:
        section = Fields(mapping).mapping(name)
        sections |= section.values if section is not None else {}
    return Fields({**sections, **mapping})
