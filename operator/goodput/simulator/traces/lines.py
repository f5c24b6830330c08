"""Lines of a file with their numbers, plain or gzip, and the error that names one of them."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

_GZIP_MAGIC = b"\x1f\x8b"


class TraceError(ValueError):
    """A trace that cannot be read: the file, the number of the line where it is one, and what is wrong with it."""

    def __init__(self, path: Path, message: str, line: int | None = None) -> None:
        super().__init__(f"{path}:{line}: {message}" if line is not None else f"{path}: {message}")
        self.path = path
        self.line = line
        self.message = message


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that hold something, with their numbers from 1. A file is gzip if it begins like one."""
    try:
        with path.open("rb") as plain:
            packed = plain.read(2) == _GZIP_MAGIC
        with gzip.open(path) if packed else path.open("rb") as stream:
            yield from _decoded(path, stream)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(path, f"the gzip data is damaged ({error})") from None
    except OSError as error:
        raise TraceError(path, error.strerror or str(error)) from None


def _decoded(path: Path, raw_lines: Iterator[bytes]) -> Iterator[tuple[int, str]]:
    for number, raw in enumerate(raw_lines, start=1):
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError:
            raise TraceError(path, "is no UTF-8 text", number) from None
        if text:
            yield number, text


def cells(path: Path, number: int, text: str) -> list[str]:
    """The cells of a CSV line."""
    try:
        return next(csv.reader([text]), [])
    except csv.Error as error:
        raise TraceError(path, f"is no CSV ({error})", number) from None


def record(path: Path, number: int, text: str, header: Sequence[str]) -> dict[str, str]:
    """The cells of a CSV line by the names of a header of as many."""
    values = cells(path, number, text)
    if len(values) != len(header):
        raise TraceError(path, f"{len(values)} fields, the header has {len(header)}", number)
    return dict(zip(header, values, strict=True))
