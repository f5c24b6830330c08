"""Bytes of a parameter of each module: groups of modules in formats of their own, and modules left as they were."""

from __future__ import annotations

from goodput.perfmodel.config_fields import Fields
from goodput.perfmodel.config_modules import ModulePart, Modules, Shares
from goodput.perfmodel.precision import PLAIN_BYTES, stored_bytes

# Lists of modules that are left as they were, as each method names them.
_LISTS = ("modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers", "llm_int8_skip_modules")
# Bits from which on a weight is not quantised.
_PLAIN_BITS = 16

Sizes = list[list[float]]  # bytes of a parameter of each module of each layer


def everywhere(modules: Modules, size: float) -> Sizes:
    """The same bytes for every module."""
    return [[size] * len(modules.kinds[kind]) for kind in modules.of_layer]


def mean_bytes(modules: Modules, sizes: Sizes, part: ModulePart) -> float | None:
    """Mean bytes of a parameter of this part; None where it has no module."""
    weighed: dict[float, float] = {}
    for kind, layer in zip(modules.of_layer, sizes, strict=True):
        for module, size in zip(modules.kinds[kind], layer, strict=True):
            if module.part is part:
                weighed[size] = weighed.get(size, 0.0) + module.parameters
    if len(weighed) < 2:
        return next(iter(weighed), None)
    return sum(size * count for size, count in weighed.items()) / sum(weighed.values())


def list_field(config: Fields) -> str:
    """The field that lists what is left as it was."""
    others = ("config_groups", "dynamic", "extra_config", "modules_in_block_to_quantize")
    return next((name for name in (*_LISTS, *others) if config.raw(name)), _LISTS[0])


def without_kept(config: Fields, modules: Modules, sizes: Sizes) -> Sizes:
    """`sizes` with all that the checkpoint says of single modules. Raises `InvalidObject` naming the field."""
    chosen = config.sequence("modules_in_block_to_quantize")
    if chosen:
        names = [str(name) for each in chosen for name in (each if isinstance(each, list | tuple) else (each,))]
        named = modules.named(config, "modules_in_block_to_quantize", names)
        left = tuple(tuple(1.0 - share for share in layer) for layer in named)
        sizes = blended(sizes, left, PLAIN_BYTES)
    sizes = _overridden(config, modules, sizes, "dynamic")
    sizes = _overridden(config, modules, sizes, "extra_config")
    for where in _LISTS:
        names = [str(each) for each in config.sequence(where)]
        if names:
            sizes = blended(sizes, modules.named(config, where, names), PLAIN_BYTES)
    return sizes


def blended(sizes: Sizes, shares: Shares, size: float) -> Sizes:
    """`sizes` where each module stores this share of its parameters in `size` bytes."""
    return [
        [
            before + share * (size - before) if 0.0 < share < 1.0 else (size if share else before)
            for before, share in zip(old, new, strict=True)
        ]
        for old, new in zip(sizes, shares, strict=True)
    ]


def _overridden(config: Fields, modules: Modules, sizes: Sizes, where: str) -> Sizes:
    """Single modules in a format of their own: by expressions (GPTQ's `dynamic`, a minus leaves them as they were), or
    by names (`extra_config` of AutoRound)."""
    rules = config.mapping(where)
    if rules is None:
        return sizes
    done = [[0.0] * len(layer) for layer in sizes]
    for name in rules.values:
        pattern = str(name)
        if where == "dynamic":
            pattern = f"re:{pattern.removeprefix('-:').removeprefix('+:')}"
        own = rules.mapping(str(name))
        bits = own.count("bits") if own is not None else 0
        if str(name).startswith("-:") or bits >= _PLAIN_BITS:
            size = PLAIN_BYTES
        elif own is None or not bits:
            continue
        else:
            group = own.count("group_size") or config.count("group_size")
            size = integer_format(own, "bits", bits, group)[1]
        shares = modules.named(config, where, (pattern,))
        first = tuple(
            tuple(share if not before else 0.0 for share, before in zip(new, old, strict=True))
            for new, old in zip(shares, done, strict=True)
        )
        sizes = blended(sizes, first, size)
        done = [[max(pair) for pair in zip(new, old, strict=True)] for new, old in zip(shares, done, strict=True)]
    return sizes


def compressed_groups(config: Fields, modules: Modules) -> tuple[str, float, Sizes | None]:
    """compressed-tensors: (precision, bytes, bytes of each module) of its groups; None: all modules are alike.

    A target is the name of modules, or of a class (`Linear`) that all of them are of; names come first.
    """
    groups = config.mapping("config_groups")
    if groups is None or not groups.values:
        raise config.invalid("config_groups", "is missing: compressed-tensors says there how weights are stored")
    formats = {str(name): _group(groups, str(name)) for name in groups.values}
    targets = {name: _targets(groups, name) for name in formats}
    classes = [name for name in formats if not targets[name] or any(map(_is_class, targets[name]))]
    if classes and len(set(formats.values())) == 1:
        return *formats[classes[0]], None
    if len({formats[name] for name in classes}) > 1:
        raise config.invalid("config_groups", "has groups of unlike formats for the same modules")
    sizes = everywhere(modules, formats[classes[0]][1] if classes else PLAIN_BYTES)
    for name in reversed(list(formats)):  # the first group that names a module has it
        named = [each for each in targets[name] if not _is_class(each)]
        sizes = blended(sizes, modules.named(groups, name, named), formats[name][1])
    weights = {
        each: sum(
            module.parameters
            for kind, layer in zip(modules.of_layer, sizes, strict=True)
            for module, size in zip(modules.kinds[kind], layer, strict=True)
            if size == each[1] and (module.part is ModulePart.EXPERTS or not modules.experts)
        )
        for each in formats.values()
    }
    return *max(sorted(weights), key=lambda each: weights[each]), sizes


def _targets(groups: Fields, name: str) -> tuple[str, ...]:
    group = groups.mapping(name)
    return tuple(str(each) for each in group.sequence("targets")) if group is not None else ()


def _is_class(target: str) -> bool:
    """Whether it names a class, such as `Linear`: names of modules begin with a small letter."""
    return target[:1].isupper() and "." not in target


def _group(groups: Fields, name: str) -> tuple[str, float]:
    group = groups.mapping(name)
    weights = group.mapping("weights") if group is not None else None
    if weights is None:
        raise groups.invalid(name, "needs weights")
    bits, size = weights.integer("num_bits"), weights.count("group_size")
    if weights.text("type") != "float":
        return integer_format(weights, "num_bits", bits, size, zero_points=not weights.flag("symmetric", True))
    if bits == 8:
        return "fp8", stored_bytes("fp8", size or None)
    if bits != 4:
        raise weights.invalid("num_bits", f"{bits} bits of a float are not known")
    # Both store 4 bits and 8 of scale; the formats differ in how many elements share one.
    return ("mxfp4", stored_bytes("mxfp4")) if size == 32 else ("nvfp4", stored_bytes("nvfp4"))


def integer_format(fields: Fields, name: str, bits: int, group: int, *, zero_points: bool = True) -> tuple[str, float]:
    """(precision, bytes of a parameter) of integers of so many `bits`. Raises `InvalidObject` naming the field."""
    if bits not in (2, 3, 4, 8):
        raise fields.invalid(name, f"{bits} bits of an integer are not known")
    if bits == 8:
        return "int8", stored_bytes("int8")
    return "int4", stored_bytes("int4", group or None, zero_points=zero_points) - (4 - bits) / 8.0
