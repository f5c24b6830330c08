"""Generated files are what the models say, and scripts/generate notices when they are not."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from goodput.api.kinds import KINDS
from goodput.api.schema import object_schema, unknown_fields

_ROOT = Path(__file__).resolve().parents[2]
_SCHEMAS = {kind.kind: object_schema(kind) for kind in KINDS}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """scripts/generate as a module; what it generates is made once, for that takes seconds."""
    loader = importlib.machinery.SourceFileLoader("generate_script", str(_ROOT / "scripts" / "generate"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    made = [generator() for generator in module.GENERATORS]
    module.GENERATORS = tuple(lambda files=files: files for files in made)  # type: ignore[attr-defined]
    return module


def _run(script: ModuleType, monkeypatch: pytest.MonkeyPatch, root: Path, *arguments: str) -> int:
    monkeypatch.setattr(script, "ROOT", root)
    monkeypatch.setattr("sys.argv", ["generate", *arguments])
    code: int = script.main()
    return code


def test_committed_files_are_up_to_date(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """CRDs, reference and whatever else is generated."""
    assert _run(script, monkeypatch, _ROOT, "--check") == 0, capsys.readouterr().out[-3000:]


def test_a_stale_file_fails_the_check_with_a_diff_and_is_mended_without_it(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """--check writes nothing."""
    assert _run(script, monkeypatch, tmp_path) == 0
    crd = tmp_path / "crds" / "goodput.dev_slos.yaml"
    right = crd.read_text()
    crd.write_text(right.replace("Bound on the time to first token.", "Something else."))
    assert _run(script, monkeypatch, tmp_path, "--check") == 1
    told = capsys.readouterr()
    assert "-      description: Something else." in told.out
    assert "+      description: Bound on the time to first token." in told.out
    assert "run scripts/generate" in told.err
    assert "Something else." in crd.read_text()
    assert _run(script, monkeypatch, tmp_path) == 0
    assert crd.read_text() == right


@pytest.mark.parametrize("path", sorted((_ROOT / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_examples_parse(path: Path) -> None:
    """Every example has known fields only and right values."""
    raw = yaml.safe_load(path.read_text())
    assert not list(unknown_fields(raw, _SCHEMAS[raw["kind"]]))
    next(kind for kind in KINDS if kind.kind == raw["kind"]).model.parse(raw)
