"""Precision of weights and KV cache, where it is to differ from the checkpoint's."""

from __future__ import annotations

from typing import Literal

from goodput.api.base import ApiModel


class Precision(ApiModel):
    """Lower precision takes less memory and time, and may cost quality: Goodput never lowers it by itself."""

    weights: Literal["Auto", "fp8"] = "Auto"
    """`Auto`: as the checkpoint stores them. `fp8`: a bf16 or fp16 checkpoint is quantised while it loads
    (`--quantization fp8`); GPU types that cannot run it are left out. Default Auto."""
    kv_cache: Literal["Auto", "bf16", "fp8"] = "Auto"
    """`Auto`: as the checkpoint says, which is the precision of its activations unless it brings scales of its own.
    `bf16` and `fp8`: this one (`--kv-cache-dtype`); fp8 holds twice the tokens. Default Auto."""
