"""Vision and audio towers of a multimodal config.json: weights that stand in memory beside the decoder.

They are plain encoders: attention of four square matrices and a feed-forward of two, or three with a gate. One that
does not say its layers and its width is left out, and named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from goodput.domain.architecture import Architecture

_TOWERS = ("vision_config", "audio_config")
# Parts that some families describe in ways of their own (Phi-4-multimodal, Qwen-VL, MiniCPM-o).
_OWN_TOWERS = re.compile(r"^(vision|visual|audio|speech|image|img|embd_layer)(?!.*(token|generation|preprocess))")
_LAYERS = ("depth", "num_hidden_layers", "encoder_layers", "layers")
# Where both stand, `hidden_size` is that of the decoder (Qwen2-VL).
_WIDTHS = ("embed_dim", "d_model", "width", "hidden_size")
_FEEDS = ("intermediate_size", "encoder_ffn_dim")
_RATIO = 4.0
_LARGEST = 1e6


def tower_parameters(mapping: Mapping[str, Any]) -> float:
    """Parameters of all towers that `mapping` (config.json fields) describes."""
    return sum((_encoder(part) for _, part in _parts(mapping, _TOWERS)), 0.0)


def unsized_towers(mapping: Mapping[str, Any]) -> tuple[str, ...]:
    """Fields that describe a tower whose parameters are not counted."""
    own = [name for name in mapping if isinstance(name, str) and name not in _TOWERS and _OWN_TOWERS.match(name)]
    unsaid = {name for name, part in _parts(mapping, _TOWERS) if not _encoder(part)}
    return tuple(sorted(unsaid | {name for name, _ in _parts(mapping, own)}))


def towers_remark(arch: Architecture) -> str:
    """What is to be said of towers that are not counted; empty where there is none."""
    if not arch.unsized_towers:
        return ""
    return f"{', '.join(arch.unsized_towers)} of {arch.name} is not counted: its weights come on top of those told"


def _parts(mapping: Mapping[str, Any], names: Iterable[str]) -> list[tuple[str, Mapping[str, Any]]]:
    inner = mapping.get("thinker_config")
    holders = (mapping, inner) if isinstance(inner, Mapping) else (mapping,)
    found = [(name, holder.get(name)) for name in names for holder in holders]
    return [(name, part) for name, part in found if isinstance(part, Mapping) and part]


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
