"""What is built in: architectures by hub id. Read once from the package's own data."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from goodput.domain.architecture import Architecture
from goodput.perfmodel.config import architecture_from_config

# Endings of hub ids that name a tuning of the same structure.
_TUNINGS = ("-instruct", "-chat", "-base", "-hf", "-it", "-2507", "-2506", "-thinking", "-preview", "-pt")


def _load(name: str) -> Any:
    return json.loads(files("goodput.perfmodel").joinpath("data", name).read_text(encoding="utf-8"))


@cache
def _configs() -> dict[str, tuple[str, dict[str, Any]]]:
    return {_plain(name): (name, config) for name, config in sorted(_load("models.json").items())}


def _plain(model_id: str) -> str:
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

    A quantised checkpoint (`-FP8`, `-AWQ`, `-NVFP4`) is a model of its own: it is never read as its base.
    """
    found = _configs().get(_plain(model_id))
    return architecture_from_config(model_id, found[1]) if found else None


def model_ids() -> tuple[str, ...]:
    """Hub ids of the built-in architectures, sorted."""
    return tuple(sorted(name for name, _ in _configs().values()))
