"""Generated files are what the models say, and scripts/generate notices when they are not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from goodput.api.kinds import KINDS
from goodput.api.schema import object_schema, unknown_fields

_ROOT = Path(__file__).resolve().parents[2]
_SCHEMAS = {kind.kind: object_schema(kind) for kind in KINDS}


def _generate(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT / "operator"), str(_ROOT / "controllers")])}
    return subprocess.run(
        [sys.executable, str(root / "scripts" / "generate"), *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=120,
    )


def test_committed_files_are_up_to_date() -> None:
    """CRDs, reference and whatever else is generated."""
    checked = _generate(_ROOT, "--check")
    assert checked.returncode == 0, checked.stdout[-3000:] + checked.stderr


def test_a_stale_file_fails_the_check_with_a_diff_and_is_mended_without_it(tmp_path: Path) -> None:
    """--check writes nothing."""
    shutil.copytree(_ROOT / "scripts", tmp_path / "scripts")
    for folder in ("operator", "controllers", "crds", "docs"):
        shutil.copytree(_ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    crd = tmp_path / "crds" / "goodput.dev_slos.yaml"
    right = crd.read_text()
    crd.write_text(right.replace("Bound on the time to first token.", "Something else."))
    stale = _generate(tmp_path, "--check")
    assert stale.returncode == 1
    assert "-      description: Something else." in stale.stdout
    assert "+      description: Bound on the time to first token." in stale.stdout
    assert "Something else." in crd.read_text()
    assert _generate(tmp_path).returncode == 0
    assert crd.read_text() == right


@pytest.mark.parametrize("path", sorted((_ROOT / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_examples_parse(path: Path) -> None:
    """Every example has known fields only and right values."""
    raw = yaml.safe_load(path.read_text())
    assert not list(unknown_fields(raw, _SCHEMAS[raw["kind"]]))
    next(kind for kind in KINDS if kind.kind == raw["kind"]).model.parse(raw)
