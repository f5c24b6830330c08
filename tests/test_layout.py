"""The repository's shape that other code relies on."""

import operator
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_operator_folder_does_not_shadow_the_standard_library() -> None:
    """`import operator` still finds the standard library's module."""
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert operator.itemgetter(0)([7]) == 7


def test_no_python_file_is_over_500_lines() -> None:
    """A file that long has two subjects: split it."""
    sources = [
        path
        for folder in ("operator", "controllers", "e2e", "tests", "benchmarks", "scripts")
        for path in (ROOT / folder).rglob("*.py")
    ]
    long_files = {str(path.relative_to(ROOT)): n for path in sources if (n := len(path.read_text().splitlines())) > 500}

    assert sources
    assert long_files == {}
