"""The chart, as files and as Helm renders it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from goodput_world import binaries

CHART = Path(__file__).resolve().parents[2] / "charts" / "goodput"
NAMESPACE = "goodput-system"


class Refused(Exception):
    """Helm refused the values; the message is its own."""


@pytest.fixture(scope="session")
def helm_program() -> Path:
    """Helm, built if need be."""
    return binaries.ensure(only=["helm"]).helm


@pytest.fixture
def template(helm_program: Path, tmp_path: Path) -> Callable[..., dict[tuple[str, str, str], dict[str, Any]]]:
    """`template(values)`: what `helm template` renders, by kind, namespace and name. Raises Refused."""

    def render(values: dict[str, Any] | None = None) -> dict[tuple[str, str, str], dict[str, Any]]:
        file = tmp_path / "values.yaml"
        file.write_text(yaml.safe_dump(values or {}))
        done = subprocess.run(
            [helm_program, "template", "goodput", CHART, "--namespace", NAMESPACE, "--values", file],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={"HOME": str(tmp_path)},
        )
        if done.returncode != 0:
            raise Refused(done.stderr)
        objects = [item for item in yaml.safe_load_all(done.stdout) if item]
        return {(o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"]): o for o in objects}

    return render


@pytest.fixture
def lint(helm_program: Path, tmp_path: Path) -> Callable[[], str]:
    """`helm lint --strict`: '' if it is content, else what it says."""

    def run() -> str:
        done = subprocess.run(
            [helm_program, "lint", "--strict", CHART],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={"HOME": str(tmp_path)},
        )
        return "" if done.returncode == 0 else done.stdout + done.stderr

    return run
