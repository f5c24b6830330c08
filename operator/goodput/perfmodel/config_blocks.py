"""How many elements of a quantised matrix share a scale: what a rank holds must be a whole multiple of them."""

from __future__ import annotations

from goodput.perfmodel.config_fields import Fields

_NVFP4_GROUP = 16
_DEFAULT_GROUP = 128


def scaled_together(config: Fields, method: str, precision: str) -> int:
    """Elements along a row or column; 1 where a scale holds for a channel, for a tensor, or is cut by the engine.

    Raises `InvalidObject` for a block that is none.
    """
    if config.raw("weight_block_size") is not None:
        return _block(config, "weight_block_size")
    groups = config.mapping("config_groups")
    if groups is not None and (method == "compressed-tensors" or not method):
        found = [1]
        for name in groups.values:
            group = groups.mapping(str(name))
            weights = group.mapping("weights") if group is not None else None
            if weights is not None and weights.raw("block_structure") is not None:
                found.append(_block(weights, "block_structure"))
            elif weights is not None and precision in ("int4", "nvfp4"):
                found.append(weights.count("group_size") or 1)
        return max(found)
    if precision == "nvfp4":
        return _NVFP4_GROUP
    if precision != "int4" or method == "bitsandbytes" or config.raw("group_size") == -1:
        return 1
    return config.count("group_size") or config.count("q_group_size") or _DEFAULT_GROUP


def _block(fields: Fields, name: str) -> int:
    sides = fields.counts(name)
    if len(sides) != 2 or not all(sides):
        raise fields.invalid(name, f"must be two whole numbers above 0, not {fields.raw(name)!r}")
    return max(sides)
