"""How a checkpoint stores its weights: format, bytes of a parameter by part, and what it leaves as it was."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from goodput.domain.values import Value
from goodput.perfmodel.config_fields import Fields
from goodput.perfmodel.precision import PLAIN_BYTES, stored_bytes

# Endings of the module names of each part, as they stand in the lists of what is not quantised.
_ATTENTION_NAMES = (
    "self_attn",
    "attn",
    "linear_attn",
    "q_proj",
    "qkv_proj",
    "in_proj",
    "in_proj_qkv",
    "in_proj_qkvz",
    "q_a_proj",
    "q_b_proj",
    "wq_b",
)
_EXPERT_NAMES = ("experts", "block_sparse_moe", "moe")
_DENSE_NAMES = ("mlp", "shared_expert", "shared_experts", "gate_up_proj", "up_proj", "ffn")
_FILE_BYTES = {"float32": 4.0, "bfloat16": PLAIN_BYTES, "float16": PLAIN_BYTES}
# Algorithm or method -> format. Those that leave the format open are read from their own fields.
_FORMATS = {
    "fp8": "fp8",
    "fbgemm_fp8": "fp8",
    "fp8_pb_wo": "fp8",
    "fp8_per_channel_per_token": "fp8",
    "deepseek_v4_fp8": "fp8",
    "ptpc_fp8": "fp8",
    "mxfp8": "fp8",
    "int8": "int8",
    "experts_int8": "int8",
    "w4a16": "int4",
    "w4a16_awq": "int4",
    "w4a8_awq": "int4",
    "nvfp4": "nvfp4",
    "w4a16_nvfp4": "nvfp4",
    "nvfp4_awq": "nvfp4",
    "mxfp4": "mxfp4",
    "w4a8_mxfp4_fp8": "mxfp4",
}
# Elements of a group where one scale holds for a channel (a group size of -1): a few thousand, as layers are wide.
_WHOLE_CHANNEL = 4096
_WEIGHT_ONLY = frozenset({"awq", "awq_marlin", "gptq", "gptq_marlin", "auto-round", "auto_round", "inc"})


class Quantisation(Value, frozen=True, kw_only=True):
    """Format of the quantised weights, and bytes of one parameter of each part, scales included."""

    precision: str
    quantised_bytes: float  # of experts, or of all layers where the two below are None
    plain_bytes: float = PLAIN_BYTES
    experts_only: bool = False
    attention_bytes: float | None = None
    dense_bytes: float | None = None
    block_scales: bool = False  # fp8 with a scale for each block


def read_quantisation(fields: Fields, *, sparse: bool) -> Quantisation:
    """Quantisation of the checkpoint; `sparse` says whether it has experts. Raises `InvalidObject` naming the field."""
    plain = PLAIN_BYTES
    config = fields.mapping("quantization_config")
    if config is None or not config.values:
        return Quantisation(precision="bf16", quantised_bytes=plain, plain_bytes=plain)
    nested = config.mapping("quantization")  # ModelOpt's own file has it one level deeper
    if nested is not None and config.raw("quant_algo") is None:
        config = Fields({**config.values, **nested.values}, nested.prefix)
    expert_format = _expert_format(fields, config)
    method = config.text("quant_method").lower()
    algorithm = config.text("quant_algo").lower()
    if expert_format and _FORMATS.get(method) == "fp8":
        rest = stored_bytes("fp8")
        return Quantisation(
            precision=expert_format,
            quantised_bytes=stored_bytes(expert_format),
            plain_bytes=plain,
            attention_bytes=rest,
            dense_bytes=rest,
            block_scales=config.raw("weight_block_size") is not None,
        )
    if algorithm == "mixed_precision" or config.raw("quantized_layers") is not None:
        return _mixed(config, plain, sparse=sparse)
    precision, size = _uniform(config, method, algorithm)
    kept = _kept_plain(config)
    attention, experts, dense = (_names(kept, names) for names in (_ATTENTION_NAMES, _EXPERT_NAMES, _DENSE_NAMES))
    if sparse and experts:
        raise config.invalid("modules_to_not_convert", "leaves the experts as they were, so next to nothing is smaller")
    only = precision == "mxfp4" and method == "mxfp4" and sparse
    return Quantisation(
        precision=precision,
        quantised_bytes=size,
        plain_bytes=plain,
        experts_only=only or (sparse and attention and dense),
        attention_bytes=plain if attention else None,
        dense_bytes=plain if dense and sparse else None,
        block_scales=config.raw("weight_block_size") is not None,
    )


def file_bytes(fields: Fields) -> float:
    """Bytes of one parameter that is not quantised in the checkpoint's files; the engine loads float32 in 16 bits.

    Raises `InvalidObject` for a type that is not known.
    """
    for name in ("torch_dtype", "dtype"):
        dtype = fields.text(name).removeprefix("torch.")
        if dtype:
            if dtype not in _FILE_BYTES:
                raise fields.invalid(name, f"must be one of {', '.join(sorted(_FILE_BYTES))}, not {dtype!r}")
            return _FILE_BYTES[dtype]
    return PLAIN_BYTES


def _expert_format(fields: Fields, config: Fields) -> str:
    """Format of the experts where they differ from the rest (DeepSeek-V4: mxfp4 experts in an fp8 checkpoint)."""
    algorithm = config.text("moe_quant_algo").lower()
    if algorithm:
        if algorithm not in _FORMATS:
            raise config.invalid("moe_quant_algo", f"{algorithm!r} is not known")
        return _FORMATS[algorithm]
    experts = fields.text("expert_dtype")
    if experts not in ("", "fp4", "fp8"):
        raise fields.invalid("expert_dtype", f"must be fp4 or fp8, not {experts!r}")
    if experts == "fp4" or (not experts and fields.text("model_type") == "deepseek_v4"):
        return "mxfp4"
    return ""


def _uniform(config: Fields, method: str, algorithm: str) -> tuple[str, float]:
    """Format and bytes of a parameter where one format holds for all that is quantised."""
    if method in _WEIGHT_ONLY:
        bits = config.count("bits") or config.count("w_bit") or 4
        if config.raw("group_size") == -1:
            return _integers(config, "bits", bits, _WHOLE_CHANNEL)
        return _integers(config, "bits", bits, config.count("group_size") or config.count("q_group_size") or 128)
    group = config.count("group_size") or None
    if method == "bitsandbytes":
        if config.flag("load_in_8bit"):
            return "int8", stored_bytes("int8")
        return "int4", stored_bytes("int4", 64)
    if method in ("quark", "torchao"):
        raise config.invalid("quant_method", f"{method!r} leaves open what is stored how, and cannot be sized")
    groups = config.mapping("config_groups")
    if method == "compressed-tensors" or (not method and groups is not None and not algorithm):
        return _compressed(config)
    for name in (algorithm, method):
        if name in _FORMATS:
            return _FORMATS[name], stored_bytes(_FORMATS[name], group)
    where = "quant_algo" if algorithm and (not method or method.startswith("modelopt")) else "quant_method"
    raise config.invalid(where, f"{algorithm or method!r} is not known")


def _compressed(config: Fields) -> tuple[str, float]:
    """compressed-tensors: the first group's weights say it."""
    groups = config.mapping("config_groups")
    if groups is None or not groups.values:
        raise config.invalid("config_groups", "is missing: compressed-tensors says there how weights are stored")
    found = {_group(groups, str(name)) for name in groups.values}
    if len(found) > 1:
        raise config.invalid("config_groups", "has groups of unlike formats, of which the share is not known")
    return found.pop()


def _group(groups: Fields, name: str) -> tuple[str, float]:
    group = groups.mapping(name)
    weights = group.mapping("weights") if group is not None else None
    if weights is None:
        raise groups.invalid(name, "needs weights")
    bits, size = weights.integer("num_bits"), weights.count("group_size")
    if weights.text("type") != "float":
        return _integers(weights, "num_bits", bits, size, zero_points=not weights.flag("symmetric", True))
    if bits == 8:
        return "fp8", stored_bytes("fp8", size or None)
    if bits != 4:
        raise weights.invalid("num_bits", f"{bits} bits of a float are not known")
    # Both store 4 bits and 8 of scale; the formats differ in how many elements share one.
    return ("mxfp4", stored_bytes("mxfp4")) if size == 32 else ("nvfp4", stored_bytes("nvfp4"))


def _integers(fields: Fields, name: str, bits: int, group: int, *, zero_points: bool = True) -> tuple[str, float]:
    if bits not in (2, 3, 4, 8):
        raise fields.invalid(name, f"{bits} bits of an integer are not known")
    if bits == 8:
        return "int8", stored_bytes("int8")
    return "int4", stored_bytes("int4", group or None, zero_points=zero_points) - (4 - bits) / 8.0


def _mixed(config: Fields, plain: float, *, sparse: bool) -> Quantisation:
    """Layers listed one by one, each with its algorithm: what most modules of a part have holds for the part."""
    listed = config.raw("quantized_layers")
    if not isinstance(listed, Mapping) or not listed:
        raise config.invalid("quantized_layers", "is missing: MIXED_PRECISION says there how each layer is stored")
    attention = _majority(config, listed, _ATTENTION_NAMES)
    dense = _majority(config, listed, ("mlp", "shared_expert", "shared_experts", "gate_proj", "up_proj"))
    experts = _majority(config, listed, _EXPERT_NAMES)
    main = (experts if sparse else dense) or dense or experts
    if not main:
        raise config.invalid("quantized_layers", "names neither experts nor mlp")
    return Quantisation(
        precision=main,
        quantised_bytes=stored_bytes(main),
        plain_bytes=plain,
        attention_bytes=stored_bytes(attention) if attention else plain,
        dense_bytes=stored_bytes(dense) if dense else plain,
    )


def _majority(config: Fields, listed: Mapping[str, Any], names: tuple[str, ...]) -> str:
    counts: dict[str, int] = {}
    for module, how in listed.items():
        if not isinstance(how, Mapping) or not _names((str(module),), names):
            continue
        algorithm = str(how.get("quant_algo") or "").lower()
        if algorithm not in _FORMATS:
            raise config.invalid("quantized_layers", f"{algorithm!r} of {module} is not known")
        counts[_FORMATS[algorithm]] = counts.get(_FORMATS[algorithm], 0) + 1
    return max(sorted(counts), key=lambda name: counts[name], default="")


def _kept_plain(config: Fields) -> tuple[str, ...]:
    """Modules that the checkpoint does not quantise."""
    lists = ("modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers")
    return tuple(str(each) for name in lists for each in config.sequence(name))


def _names(patterns: Iterable[str], names: tuple[str, ...]) -> bool:
    """Whether a pattern names a whole part: its last word that is no wildcard is one of `names`.

    `model.layers.3.self_attn*` and `re:.*self_attn.*` name attention; `mlp.gate` names a router, and is none.
    """
    for pattern in patterns:
        words = [word.strip("*:^$\\") for word in pattern.removeprefix("re:").replace("\\", "").split(".")]
        words = [word for word in words if word and not word.isdigit()]
        if words and words[-1] in names:
            return True
    return False
