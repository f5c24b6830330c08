"""Runs the table: each mutation in a copy of the tree of its own, against its named test alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from types import TracebackType

from tests.mutations.table import Mutation

ROOT = Path(__file__).resolve().parents[2]
# What unit tests need of the repository.
_COPIED = ("operator", "controllers", "tests", "pyproject.toml")
_PASSED, _FAILED = 0, 1


class Verdict(StrEnum):
    """What became of a mutation."""

    CAUGHT = "caught"
    SURVIVED = "SURVIVED"
    BROKEN = "BROKEN"


class Checker:
    """`with Checker() as checker`: a process that runs named tests in copies of the tree."""

    def __init__(self) -> None:
        self._worker = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_ADDOPTS": ""},
        )

    def __enter__(self) -> Checker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._worker.communicate()

    def run(self, tree: Path, *tests: str) -> tuple[int, str]:
        """Exit code and output of pytest in `tree`."""
        output = tree / "output.txt"
        pipes = self._worker
        assert pipes.stdin is not None
        assert pipes.stdout is not None
        pipes.stdin.write(json.dumps({"tree": str(tree), "tests": tests, "output": str(output)}) + "\n")
        pipes.stdin.flush()
        answer = pipes.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process that runs the tests ended with {pipes.wait()}")
        return int(answer), output.read_text(encoding="utf-8")

    def check(self, mutation: Mutation, scratch: Path) -> tuple[Verdict, str]:
        """The verdict on one mutation, and pytest's output. Raises ValueError like `mutate`."""
        tree = copy_tree(scratch)
        mutate(tree, mutation)
        code, output = self.run(tree, mutation.test)
        if code == _PASSED:
            return Verdict.SURVIVED, output
        # A test that could not even be set up or collected proves nothing.
        failed = code == _FAILED and "\nFAILED " in output and "\nERROR " not in output
        return (Verdict.CAUGHT if failed else Verdict.BROKEN), output


def copy_tree(into: Path) -> Path:
    """The code and its unit tests, without what was built from them."""
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, into / name, ignore=shutil.ignore_patterns("__pycache__", "mutations"))
        else:
            shutil.copy2(source, into / name)
    return into


def mutate(tree: Path, mutation: Mutation) -> None:
    """Take the rule out of `tree`. ValueError where its text is not there, or more than once."""
    for edit in mutation.edits:
        path = tree / edit.path
        text = path.read_text(encoding="utf-8")
        count = text.count(edit.old)
        if count != 1:
            raise ValueError(
                f"{edit.path} holds the text of the rule {mutation.rule!r} ({mutation.name}) {count} times, not once: "
                f"the code changed, write its present text into tests/mutations/table.py:\n{edit.old}"
            )
        path.write_text(text.replace(edit.old, edit.new), encoding="utf-8")
