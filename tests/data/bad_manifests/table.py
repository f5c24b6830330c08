"""The rows of this folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Row:
    """One wrong manifest; see README.md beside this file."""

    name: str
    manifest: str
    expect: dict[str, Any]
    beside: str = ""
    operator: dict[str, Any] = field(default_factory=dict)

    @property
    def object(self) -> dict[str, Any]:
        """The manifest, parsed."""
        parsed: dict[str, Any] = yaml.safe_load(self.manifest)
        return parsed

    @property
    def stage(self) -> str:
        return str(self.expect["stage"])


def rows(stage: str | None = None) -> list[Row]:
    """All rows, or those of one stage, in the order of the files."""
    found = [Row(**row) for path in sorted(_FOLDER.glob("*.yaml")) for row in yaml.safe_load(path.read_text())]
    return [row for row in found if stage is None or row.stage == stage]
