"""How a checkpoint stores its weights: format, bytes of a parameter by part, and what it leaves as it was."""

from __future__ import annotations

from collections.abc import Mapping

from goodput.domain.values import Value
from goodput.perfmodel.config_blocks import scaled_together
from goodput.perfmodel.config_fields import Fields
from goodput.perfmodel.config_kept import (
    blended,
    compressed_groups,
    everywhere,
    integer_format,
    list_field,
    mean_bytes,
    without_kept,
)
from goodput.perfmodel.config_modules import ModulePart, Modules
from goodput.perfmodel.precision import PLAIN_BYTES, stored_bytes

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
# Groups of int4 experts that a cut goes through are cut too, down to this size.
_LEAST_EXPERT_GROUP = 32
# Methods that quantise experts alone.
_EXPERTS_ONLY = frozenset({("mxfp4", "mxfp4"), ("experts_int8", "int8")})
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
    # Elements that are scaled together, along what tensor ranks cut: of attention and dense layers, of experts.
    block: int = 1
    expert_block: int = 1


def read_quantisation(fields: Fields, modules: Modules) -> Quantisation:
    """Quantisation of the checkpoint with these modules. Raises `InvalidObject` naming the field."""
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
            block=scaled_together(config, method, "fp8"),
        )
    if algorithm == "mixed_precision" or config.raw("quantized_layers") is not None:
        return _mixed(config, modules)
    return _by_module(config, modules, method, algorithm)


def _by_module(config: Fields, modules: Modules, method: str, algorithm: str) -> Quantisation:
    """One format, or one for each group of modules, and the modules that are left as they were."""
    plain, sparse = PLAIN_BYTES, modules.experts > 0
    group_sizes = None
    if method == "compressed-tensors" or (not method and not algorithm and config.raw("config_groups") is not None):
        precision, size, group_sizes = compressed_groups(config, modules)
    else:
        precision, size = _uniform(config, method, algorithm)
    together = scaled_together(config, method, precision)
    sizes = without_kept(config, modules, group_sizes or everywhere(modules, size))
    found = {part: mean_bytes(modules, sizes, part) for part in ModulePart}
    attention, dense, experts = found[ModulePart.ATTENTION], found[ModulePart.DENSE], found[ModulePart.EXPERTS]
    if sparse and experts is not None and experts >= plain:
        raise config.invalid(list_field(config), "leaves the experts as they were, so next to nothing is smaller")
    if not sparse and min(each for each in (attention, dense, plain) if each is not None) >= plain:
        raise config.invalid(list_field(config), "leaves every layer as it was: leave out quantization_config")
    main = experts if sparse and experts is not None else size
    only = sparse and (method, precision) in _EXPERTS_ONLY
    bare = sparse and dense is not None and dense >= plain and attention is not None and attention >= plain
    return Quantisation(
        precision=precision,
        quantised_bytes=main,
        plain_bytes=plain,
        experts_only=only or bare,
        attention_bytes=None if only or attention == main else attention,
        dense_bytes=None if only or dense in (None, main) else dense,
        block_scales=config.raw("weight_block_size") is not None,
        block=together,
        expert_block={"fp8": together, "int4": min(together, _LEAST_EXPERT_GROUP)}.get(precision, 1),
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
            raise config.invalid("moe_quant_algo", _unknown(algorithm))
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
            return integer_format(config, "bits", bits, _WHOLE_CHANNEL)
        return integer_format(config, "bits", bits, config.count("group_size") or config.count("q_group_size") or 128)
    group = config.count("group_size") or None
    if method == "bitsandbytes":
        if config.flag("load_in_8bit"):
            return "int8", stored_bytes("int8")
        return "int4", stored_bytes("int4", 64)
    if method in ("quark", "torchao"):
        raise config.invalid("quant_method", f"{method!r} leaves open what is stored how, and cannot be sized")
    for name in (algorithm, method):
        if name in _FORMATS:
            return _FORMATS[name], stored_bytes(_FORMATS[name], group)
    where = "quant_algo" if algorithm and (not method or method.startswith("modelopt")) else "quant_method"
    raise config.invalid(where, _unknown(algorithm or method))


def _unknown(name: str) -> str:
    known = sorted({*_FORMATS, *_WEIGHT_ONLY, "bitsandbytes", "compressed-tensors"})
    return f"{name!r} is not known: serve a checkpoint in another format, known are {', '.join(known)}"


def _mixed(config: Fields, modules: Modules) -> Quantisation:
    """Modules listed one by one, each with its algorithm; those that are not listed stay as they were."""
    listed = config.raw("quantized_layers")
    if not isinstance(listed, Mapping) or not listed:
        raise config.invalid("quantized_layers", "is missing: MIXED_PRECISION says there how each layer is stored")
    names: dict[str, list[str]] = {}
    for module, how in listed.items():
        algorithm = str(how.get("quant_algo") or "").lower() if isinstance(how, Mapping) else ""
        if algorithm not in _FORMATS:
            raise config.invalid("quantized_layers", f"{algorithm!r} of {module} is not known")
        names.setdefault(_FORMATS[algorithm], []).append(str(module))
    sizes = everywhere(modules, PLAIN_BYTES)
    held = {}
    part = ModulePart.EXPERTS if modules.experts else ModulePart.DENSE
    for each, those in sorted(names.items()):
        shares = modules.named(config, "quantized_layers", those)
        sizes = blended(sizes, shares, stored_bytes(each))
        held[each] = mean_bytes(modules, [list(layer) for layer in shares], part) or 0.0
    precision = max(held, key=lambda each: held[each])
    attention, dense, experts = (mean_bytes(modules, sizes, each) for each in ModulePart)
    main = experts if modules.experts else dense
    if main is None or main >= PLAIN_BYTES:
        raise config.invalid("quantized_layers", "names neither experts nor mlp")
    return Quantisation(
        precision=precision,
        quantised_bytes=main,
        plain_bytes=PLAIN_BYTES,
        attention_bytes=attention,
        dense_bytes=PLAIN_BYTES if dense is None else dense,
    )
