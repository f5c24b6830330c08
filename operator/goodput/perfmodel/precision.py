"""Formats of weights and of the KV cache: bytes, what a GPU computes them with, and what it cannot run.

Bytes of a parameter include scales: 4 + 8/16 bits of nvfp4, 4 + 8/32 of mxfp4, a 16-bit scale and a zero for each group
of int4; scales of fp8 (one for 128 x 128) and of int8 (one a channel) are under 0.1 %.
"""

from __future__ import annotations

from msgspec.structs import replace

from goodput.domain.architecture import Architecture
from goodput.domain.conditions import ConditionReason
from goodput.domain.errors import InvalidObject
from goodput.domain.intent import GpuType
from goodput.domain.values import Value

PLAIN_BYTES = 2.0
_INT4_GROUP = 128
_SCALE_BYTES = 2.0


class WeightFormat(Value, frozen=True, kw_only=True):
    """One way to store weights. `column` is the peak of `GpuType.flops` that multiplies them where the GPU has it."""

    name: str
    bytes_per_parameter: float
    column: str
    weight_only: bool = False  # always unpacked to bf16 before it is multiplied


WEIGHT_FORMATS = {
    each.name: each
    for each in (
        WeightFormat(name="bf16", bytes_per_parameter=PLAIN_BYTES, column="bf16"),
        WeightFormat(name="fp8", bytes_per_parameter=1.0, column="fp8"),
        WeightFormat(name="int8", bytes_per_parameter=1.0, column="int8"),
        WeightFormat(
            name="int4",
            bytes_per_parameter=0.5 + (_SCALE_BYTES + 0.5) / _INT4_GROUP,
            column="bf16",
            weight_only=True,
        ),
        WeightFormat(name="nvfp4", bytes_per_parameter=0.5 + 1.0 / 16.0, column="fp4"),
        WeightFormat(name="mxfp4", bytes_per_parameter=0.5 + 1.0 / 32.0, column="fp4"),
    )
}


class KvFormat(Value, frozen=True, kw_only=True):
    """One way to store the KV cache, as `--kv-cache-dtype` names it."""

    name: str
    element_bytes: float
    head_bytes: float = 0.0  # scale of one head of one token; K has one and V another
    latent_bytes: float | None = None  # of a latent vector with its scales, where the format packs it
    native: str = ""  # column of `GpuType.flops` that a GPU must have


KV_FORMATS = {
    each.name: each
    for each in (
        KvFormat(name="auto", element_bytes=PLAIN_BYTES),
        KvFormat(name="bf16", element_bytes=PLAIN_BYTES),
        KvFormat(name="fp8", element_bytes=1.0),
        KvFormat(name="fp8_ds_mla", element_bytes=1.0, latent_bytes=656.0, native="fp8"),
        KvFormat(name="int8_per_token_head", element_bytes=1.0, head_bytes=4.0),
        KvFormat(name="fp8_per_token_head", element_bytes=1.0, head_bytes=4.0),
        KvFormat(name="nvfp4", element_bytes=0.5 + 1.0 / 16.0, native="fp4"),
        KvFormat(name="nvfp4_ds_mla", element_bytes=0.5 + 1.0 / 16.0, latent_bytes=352.0, native="fp4"),
    )
}
_KV_ALIASES = {"bfloat16": "bf16", "float16": "bf16", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8"}


def stored_bytes(name: str, group: int | None = None, *, zero_points: bool = True) -> float:
    """Bytes of one parameter in format `name`; of int4, `group` elements share a scale, and a zero point if stored."""
    if name == "int4" and (group or not zero_points):
        return 0.5 + (_SCALE_BYTES + (0.5 if zero_points else 0.0)) / (group or _INT4_GROUP)
    return WEIGHT_FORMATS[name].bytes_per_parameter


def kv_format(name: str) -> KvFormat:
    """Format of the KV cache by the name that the engine takes. Raises `InvalidObject` for one that is not known."""
    known = _KV_ALIASES.get(name, name)
    if known not in KV_FORMATS:
        raise _invalid("kvCache", f"{name!r} is not known; known are {', '.join(sorted(KV_FORMATS))}")
    return KV_FORMATS[known]


def compute_column(precision: str, gpu: GpuType) -> str:
    """Peak of `gpu.flops` that multiplies weights of this format; weight-only formats are unpacked to bf16."""
    column = WEIGHT_FORMATS[precision].column
    return column if column in dict(gpu.flops) else "bf16"


def cannot_run(precision: str, gpu: GpuType) -> str:
    """Why the GPU runs weights of this format neither natively nor unpacked to bf16; empty: it does.

    The engine's weight-only kernels (Marlin) unpack fp8, int4 and fp4 on NVIDIA parts from Ampere on; other vendors'
    parts need the arithmetic itself, or unpack int4 and mxfp4. Raises `InvalidObject` for a format that is not known.
    """
    if precision not in WEIGHT_FORMATS:
        raise _invalid("weights", f"{precision!r} is not known; known are {', '.join(sorted(WEIGHT_FORMATS))}")
    column = WEIGHT_FORMATS[precision].column
    nvidia = gpu.resource_name.startswith("nvidia.com/")
    if precision == "nvfp4" and not nvidia:
        return f"weights in nvfp4 need an NVIDIA GPU, {gpu.name} is none: use fp8 or mxfp4"
    if column in dict(gpu.flops) or precision == "int4":
        return ""
    if gpu.name in _BEFORE_AMPERE:
        return f"weights in {precision} need Ampere or newer, {gpu.name} is older: use bf16 or int4"
    if not nvidia and precision != "mxfp4":
        return f"weights in {precision} need a GPU with {column} arithmetic, {gpu.name} has none: use bf16 or int4"
    return ""


_BEFORE_AMPERE = frozenset({"t4", "v100-16g", "v100-32g"})


def cannot_keep(kv_dtype: str, gpu: GpuType) -> str:
    """Why the GPU cannot hold the KV cache in this format; empty: it can. Raises `InvalidObject` for one not known."""
    native = kv_format(kv_dtype).native
    if native and native not in dict(gpu.flops):
        return f"a KV cache in {kv_dtype} needs a GPU with {native} arithmetic, {gpu.name} has none: use auto or fp8"
    return ""


def with_precision(arch: Architecture, weights: str) -> Architecture:
    """`arch` as if its checkpoint stored weights in this format: what a re-quantised checkpoint of it would be.

    Embedding and head stay as they are. Raises `InvalidObject` for a format that is not known, or wider than what the
    checkpoint holds: nobody gets back what it left out.
    """
    if weights == arch.precision:
        return arch
    if weights not in WEIGHT_FORMATS:
        raise _invalid("weights", f"{weights!r} is not known; known are {', '.join(sorted(WEIGHT_FORMATS))}")
    size = WEIGHT_FORMATS[weights].bytes_per_parameter
    if size > arch.quantised_bytes:
        raise _invalid("weights", f"{weights} is wider than the {arch.precision} that {arch.name} is stored in")
    return replace(
        arch,
        precision=weights,
        quantised_bytes=size,
        attention_bytes=None if arch.attention_bytes is None else min(size, arch.attention_bytes),
        dense_bytes=None if arch.dense_bytes is None else min(size, arch.dense_bytes),
        experts_only=False,
        block_scales=False,
        cuts=tuple((width, 1) for width, _ in arch.cuts),
        expert_cut=None if arch.expert_cut is None else (arch.expert_cut[0], 1),
    )


def _invalid(field: str, message: str) -> InvalidObject:
    return InvalidObject(f"spec.precision.{field}", message, ConditionReason.INVALID_SPEC)
