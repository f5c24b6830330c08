"""Vision and audio towers of a multimodal config.json: weights that stand in memory beside the decoder.

They are plain encoders: attention of four square matrices and a feed-forward of two, or three with a gate. One that
says neither its layers nor its width is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TOWERS = ("vision_config", "audio_config")
_LAYERS = ("depth", "num_hidden_layers", "encoder_layers", "layers")
# Where both stand, `hidden_size` is that of the decoder (Qwen2-VL).
_WIDTHS = ("embed_dim", "d_model", "width", "hidden_size")
_FEEDS = ("intermediate_size", "encoder_ffn_dim")
_RATIO = 4.0
_LARGEST = 1e6


def tower_parameters(mapping: Mapping[str, Any]) -> float:
    """Parameters of all towers that `mapping` (config.json fields) describes."""
    inner = mapping.get("thinker_config")
    holders = (mapping, inner) if isinstance(inner, Mapping) else (mapping,)
    parts = (holder.get(name) for holder in holders for name in _TOWERS)
    return sum((_encoder(part) for part in parts if isinstance(part, Mapping)), 0.0)


def _encoder(part: Mapping[str, Any]) -> float:
    layers, width = _first(part, _LAYERS), _first(part, _WIDTHS)
    layers += _first(part, ("num_global_layers",))  # of Llama 3.2
    feed = _first(part, _FEEDS) or (_first(part, ("mlp_ratio",)) or _RATIO) * width
    gated = part.get("hidden_act") == "silu" or part.get("model_type") == "pixtral"
    return layers * width * (4.0 * width + (3.0 if gated else 2.0) * feed)


def _first(part: Mapping[str, Any], names: tuple[str, ...]) -> float:
    for name in names:
        value = part.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= _LARGEST:
            return float(value)
    return 0.0
