"""GPU types by what a command line names: exact names, or wildcards."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

import click

from goodput.domain.intent import GpuType


def matching(types: Sequence[GpuType], patterns: Sequence[str], *, mig: bool) -> list[GpuType]:
    """Types that some pattern matches; slices of cards where they are named exactly, or with `mig`.

    Raises:
        click.ClickException: a pattern matches none; names those that there are.
    """
    asked = [pattern.lower() for pattern in patterns]
    found = {
        gpu.name
        for gpu in types
        for pattern in asked
        if gpu.name == pattern or (fnmatchcase(gpu.name, pattern) and (mig or not gpu.slice_of))
    }
    for pattern in asked:
        if any(fnmatchcase(name, pattern) for name in found):
            continue
        slices = [gpu.name for gpu in types if fnmatchcase(gpu.name, pattern)]
        if slices:
            raise click.ClickException(f"--gpu-type: {pattern} names slices only, such as {slices[0]}: add --mig")
        known = ", ".join(gpu.name for gpu in types if not gpu.slice_of)
        raise click.ClickException(f"--gpu-type: no type is named {pattern}; there are {known}")
    return [gpu for gpu in types if gpu.name in found]
