"""Which variants of a rival's law are tried: at least 20 and at most 24 of the law's own grid, its defaults among them.

They are of the repository, fixed before any run; the best is chosen on the very trace that it is compared on.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from goodput.simulator.rivals.behaviour import Behaviour
from goodput.simulator.rivals.law import Law

LEAST, MOST = 20, 24


def points(law: Law[Any]) -> tuple[Law[Any], ...]:
    """The law as published, and variants taken evenly from its grid."""
    grid = [variant for variant in law.grid() if variant != law]
    wanted = min(MOST - 1, len(grid))
    chosen = [grid[index * len(grid) // wanted] for index in range(wanted)]
    return (law, *chosen)


def label(law: Law[Any], published: Law[Any]) -> str:
    """What a variant changes, as `field=value`; empty for the law as published."""
    names = [field.name for field in fields(law)]  # type: ignore[arg-type]  # every law is a dataclass
    changed = [name for name in names if getattr(law, name) != getattr(published, name)]
    return ", ".join(f"{name}={_text(getattr(law, name))}" for name in changed)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, Behaviour):
        return f"up {value.scale_up.stabilisation_seconds:g} s down {value.scale_down.stabilisation_seconds:g} s"
    return str(value)
