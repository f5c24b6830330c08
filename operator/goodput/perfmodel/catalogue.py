"""What is built in: architectures by hub id. Read once from the package's own data."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

from msgspec.structs import replace

from goodput.domain.architecture import Architecture
from goodput.domain.errors import InvalidObject
from goodput.perfmodel.config import architecture_from_config
from goodput.perfmodel.precision import with_precision

# Endings of hub ids that name a tuning of the same structure.
_TUNINGS = ("-instruct", "-chat", "-base", "-hf", "-it", "-2507", "-2506", "-thinking", "-preview", "-pt")
# Endings of hub ids that name how the weights are stored, and the format that each names.
_PRECISIONS = tuple(
    (re.compile(f"[-.]({pattern})$"), precision)
    for pattern, precision in (
        ("fp8(-dynamic|-kv|-block|-static(-pertensor)?)?", "fp8"),
        ("(quantized[.])?w8a8(-int8)?|int8|gptq-int8|(quantized[.])?w8a16", "int8"),
        ("awq(-int4|-4bit)?|gptq(-int4|-4bit)?|int4|(quantized[.])?w4a16(-g128)?|autoround", "int4"),
        ("nvfp4|fp4", "nvfp4"),
        ("mxfp4", "mxfp4"),
    )
)
# Of those, the ending that leaves open whether each block of so many elements has a scale.
_MAYBE_BLOCKS = re.compile("[-.]fp8(-block)?$")
_BLOCK = 128


def _load(name: str) -> Any:
    return json.loads(files("goodput.perfmodel").joinpath("data", name).read_text(encoding="utf-8"))


@cache
def _configs() -> dict[str, tuple[str, dict[str, Any]]]:
    return {plain_name(name): (name, config) for name, config in sorted(_load("models.json").items())}


@cache
def _ids_without_owner() -> dict[str, str]:
    """Name without its owner -> id, of names that one owner alone has."""
    found: dict[str, list[str]] = {}
    for each in _configs():
        found.setdefault(each.rpartition("/")[2], []).append(each)
    return {name: ids[0] for name, ids in found.items() if len(ids) == 1}


def plain_name(model_id: str) -> str:
    """Hub id without case, the `Meta-` that only some repositories carry, and endings that name a tuning."""
    owner, _, name = model_id.strip().lower().rpartition("/")
    name = name.removeprefix("meta-")
    shortened = True
    while shortened:
        shortened = False
        for ending in _TUNINGS:
            if name.endswith(ending):
                name, shortened = name.removesuffix(ending), True
    return f"{owner}/{name}"


@cache
def architecture(model_id: str) -> Architecture | None:
    """Architecture of a hub id, None where it is not built in. Tunings share their base's structure.

    A quantised checkpoint that is not built in itself has the structure of the model that its name begins with, and
    stores weights as its ending says (`-FP8`, `-AWQ`, `-GPTQ-Int8`, `-w4a16`, `-NVFP4`), whoever published it:
    embedding and head stay as they are, all else is quantised. A plain `-FP8` may have scales for blocks: its experts
    are not cut through one.
    """
    plain = plain_name(model_id)
    found = _configs().get(plain)
    if found:
        return architecture_from_config(model_id, found[1])
    for ending, precision in _PRECISIONS:
        match = ending.search(plain)
        if match:
            return _quantised(model_id, plain[: match.start()], precision)
    return None


def _quantised(model_id: str, base_id: str, precision: str) -> Architecture | None:
    base = plain_name(base_id)
    found = _configs().get(base) or _configs().get(_ids_without_owner().get(base.rpartition("/")[2], ""))
    if not found:
        return None
    try:
        quantised = with_precision(architecture_from_config(model_id, found[1]), precision)
    except InvalidObject:  # the base is stored narrower than the ending says: it is another checkpoint
        return None
    if quantised.expert_cut is None or not _MAYBE_BLOCKS.search(plain_name(model_id)):
        return quantised
    return replace(quantised, expert_cut=(quantised.expert_cut[0], _BLOCK))


def model_ids() -> tuple[str, ...]:
    """Hub ids of the built-in architectures, sorted."""
    return tuple(sorted(name for name, _ in _configs().values()))
