"""One result, three forms: a table for people, JSON and YAML for programs."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# Columns where the output goes to a program: nothing may be cut.
PIPE_WIDTH = 1000
# A last column is folded to no less than this.
LEAST_LAST_COLUMN = 30


def console() -> Console:
    """Standard output; plain, and as wide as it needs, where it is no terminal."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def show(made: Table) -> None:
    """Print a table: not narrower than its columns need, whatever the terminal."""
    screen = console()
    screen.width = max(screen.width, made.min_width or 0)
    screen.print(made, crop=False)


def emit(value: Any, form: str) -> None:
    """Print `value` (JSON types) as JSON or YAML."""
    if form == "json":
        import orjson

        click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
    else:
        import yaml

        click.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), nl=False)


def say(lines: Iterable[str]) -> None:
    """Print sentences: as they are to a program, folded below their own indent to a terminal."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip(" ")))
        if len(line) > width > 0:
            line = textwrap.fill(line, width, subsequent_indent=f"{indent}  ", break_on_hyphens=False)  # noqa: PLW2901
        click.echo(line)


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """A table in kubectl's manner: no lines, capitals on top, absent as `-`.

    In a terminal that is too narrow the last column is folded; no other is cut, its lines run over.
    """
    from rich.table import Table

    cells = [["-" if cell in (None, "") else str(cell) for cell in row] for row in rows]
    widths = [max(len(text) for text in (column, *_of(cells, index))) for index, column in enumerate(columns)]
    widths[-1] = min(widths[-1], LEAST_LAST_COLUMN)
    made = Table(box=None, pad_edge=False, header_style="", show_edge=False)
    for column, width in zip(columns, widths, strict=True):
        made.add_column(column.upper(), no_wrap=column is not columns[-1], overflow="fold", min_width=width)
    for row in cells:
        made.add_row(*row)
    # Two blanks between columns.
    made.min_width = sum(widths) + 2 * (len(widths) - 1)
    return made


def _of(cells: Sequence[Sequence[str]], index: int) -> list[str]:
    return [row[index] for row in cells]
