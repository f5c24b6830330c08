"""Results of runs, kept by all that determines them: a run that was made before is not made again."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_PACKAGES = ROOT / "operator" / "goodput"
_HERE = ROOT / "benchmarks" / "autoscale"
# What a rival's run depends on, and what ours depends on besides.
_SOURCES = {
    "simulator": (_PACKAGES / "simulator", _PACKAGES / "domain", _HERE / "runs.py", _HERE / "bounded.py"),
    "laws": (_PACKAGES / "decide", _PACKAGES / "perfmodel"),
}
# Part of those packages, but what comes of them is named in a key by its value.
_BESIDE = ("derive.py", "plants.py", "ramp_plant.py", "traces")


@lru_cache(maxsize=4)
def source_hash(what: str) -> str:
    """Of all source and data files of `simulator` or `laws`."""
    digest = hashlib.sha256()
    for place in _SOURCES[what]:
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.suffix in (".py", ".json", ".csv") and not set(path.parts) & set(_BESIDE):
                digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def key_of(*parts: object) -> str:
    """The name of what these parts determine; their `repr` is what they are."""
    return hashlib.sha256("\n".join(map(repr, parts)).encode()).hexdigest()


@dataclass(frozen=True)
class Store:
    """A folder of results, one small file each."""

    folder: Path

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}.json"

    def get(self, key: str) -> dict[str, Any] | None:
        """What was kept; None: nothing, or a file that a killed process left."""
        try:
            found: dict[str, Any] = json.loads(self._path(key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found

    def put(self, key: str, result: dict[str, Any]) -> None:
        """Keep a result; readers see all of it or nothing."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(result), encoding="utf-8")
        part.replace(path)
