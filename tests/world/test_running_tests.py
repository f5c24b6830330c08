"""The root conftest: a skip without a reason in tests/skips.txt fails the run; how tests are shared by two workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SUITE = """
import pytest

def test_runs():
    assert True

@pytest.mark.skip(reason="no hardware")
def test_skipped():
    assert False

@pytest.mark.xfail(reason="known")
def test_expected_failure():
    assert False
"""


@pytest.mark.parametrize(
    ("skips", "arguments", "status"),
    [
        pytest.param("", ["--fail-on-skip"], 1, id="unexplained"),
        pytest.param("test_suite.py::test_skipped: needs a GPU\n", ["--fail-on-skip"], 0, id="explained"),
        pytest.param("", [], 0, id="not-asked"),
        pytest.param("test_suite.py::test_skipped\n", ["--fail-on-skip"], 4, id="no-reason-given"),
        pytest.param("", ["--fail-on-skip", "-n", "2"], 1, id="unexplained-in-a-worker"),
    ],
)
def test_a_skip_fails_the_run_unless_it_is_explained(
    tmp_path: Path, skips: str, arguments: list[str], status: int
) -> None:
    """Exit status of pytest: 0 passed, 1 failed, 4 wrong use. An expected failure is no skip."""
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "skips.txt").write_text(skips)
    (tmp_path / "test_suite.py").write_text(SUITE)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *arguments, "test_suite.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == status, ran.stdout + ran.stderr
    assert ("skipped without a reason" in ran.stdout) == (status == 1)


def test_a_module_that_is_skipped_as_a_whole_in_a_worker_fails_the_run(tmp_path: Path) -> None:
    """Workers tell the main process of tests that ran, not of modules that they left out."""
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "skips.txt").write_text("")
    (tmp_path / "test_runs.py").write_text("def test_runs():\n    assert True\n")
    (tmp_path / "test_left_out.py").write_text("import pytest\n\npytest.importorskip('no_such_module')\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--fail-on-skip", "-n", "2"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert ran.stdout.count("test_left_out.py") >= 1


def test_one_worker_runs_what_shares_a_world(tmp_path: Path) -> None:
    """`make test`: unit tests in one worker, those of the session's world in another, each in their order."""
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    names = ("tests/test_a.py", "tests/test_b.py", "e2e/test_c.py", "e2e/test_d.py")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("def test_1():\n    pass\n\ndef test_2():\n    pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", "-n", "2", "--dist", "loadscope"]
    ran = subprocess.run(
        [*command, "--no-loadscope-reorder", "--import-mode=importlib", "tests", "e2e"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    workers: dict[str, list[str]] = {}
    for line in ran.stdout.splitlines():
        if line.startswith("[gw"):
            workers.setdefault(line[1:4], []).append(line.split()[-1])
    expected = [[f"{name}::test_{each}" for name in part for each in (1, 2)] for part in (names[:2], names[2:])]
    assert sorted(workers.values()) == sorted(expected)
