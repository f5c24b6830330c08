"""Tables: nothing is cut, whatever the width of the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from goodput.cli import output

ROWS = [["l40s TP1", 4, "costs more than the 7.44 $/h of smaller replicas of it"], ["a100-40g-sxm TP8", None, "chosen"]]


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is printed to a terminal of 40 columns."""
    text = io.StringIO()
    monkeypatch.setattr(output, "console", lambda: Console(file=text, width=40, highlight=False))
    return text


def test_a_narrow_terminal_folds_the_last_column_alone(printed: io.StringIO) -> None:
    """The others are whole, and so are their lines."""
    output.show(output.table(("option", "replicas", "verdict"), ROWS))
    lines = printed.getvalue().splitlines()
    assert lines[0].split() == ["OPTION", "REPLICAS", "VERDICT"]
    assert [line.split("  ")[0] for line in lines if line[0] != " "] == ["OPTION", "l40s TP1", "a100-40g-sxm TP8"]
    assert "".join(printed.getvalue().split()).endswith("chosen")
    words = " ".join(line[28:].strip() for line in lines[1:3])
    assert words == "costs more than the 7.44 $/h of smaller replicas of it"


def test_a_short_table_needs_no_room(printed: io.StringIO) -> None:
    """Nothing is padded to the width of a terminal."""
    output.show(output.table(("a", "b"), [["1", ""]]))
    assert [line.rstrip() for line in printed.getvalue().splitlines()] == ["A  B", "1  -"]
