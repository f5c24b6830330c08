"""The ledger on disk: gzip files of JSON lines, bounded in size and age. Each append is a gzip member of its own.

A process that dies leaves at most its last append broken, and files may be joined by `cat` in any order.
"""

from __future__ import annotations

import gzip
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

_SUFFIX = ".ledger.gz"
# Time at which it was begun (UTC), and who wrote it.
_NAME = re.compile(r"(\d{8}T\d{6})Z-[A-Za-z0-9._-]+" + re.escape(_SUFFIX))
_MAGIC = b"\x1f\x8b\x08"
# A file is left for a new one at this share of all that may be kept, or when it is so old.
_FILE_SHARE = 1.0 / 16.0
_FILE_SECONDS = 3600.0
_PIECE_BYTES = 65_536


class LedgerFiles:
    """Files of one writer in a directory; bounds are over the files of all its writers."""

    def __init__(
        self,
        directory: Path,
        writer: str,
        *,
        most_bytes: int,
        most_seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`most_seconds`: files that were last written longer ago are deleted."""
        self._directory = directory
        self._writer = re.sub(r"[^A-Za-z0-9._-]", "-", writer) or "operator"
        self._most_bytes = most_bytes
        self._most_seconds = most_seconds
        self._clock = clock
        self._current: Path | None = None
        self._begun = 0.0

    def append(self, lines: Sequence[bytes]) -> None:
        """Write lines, and delete what is too old or too much; all or nothing of `lines` is written.

        Raises:
            OSError: the disk is full, or not there.
        """
        data = gzip.compress(b"".join(lines), compresslevel=6)
        now = self._clock()
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._file(len(data), now)
        self._make_room(path, len(data), now)
        before = path.stat().st_size if path.exists() else 0
        if len(data) + before > self._most_bytes:
            raise OSError(f"{len(data)} bytes are more than the ledger may hold")
        try:
            with path.open("ab") as file:
                file.write(data)
        except OSError:
            _cut(path, before)
            raise

    def _file(self, size: int, now: float) -> Path:
        path = self._current
        if path is not None and 0.0 <= now - self._begun < _FILE_SECONDS:
            try:
                if path.stat().st_size + size <= self._most_bytes * _FILE_SHARE:
                    return path
            except FileNotFoundError:
                pass
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        self._current, self._begun = self._directory / f"{stamp}-{self._writer}{_SUFFIX}", now
        return self._current

    def _make_room(self, path: Path, size: int, now: float) -> None:
        """Delete files from the oldest on until `size` bytes more are within bounds."""
        files = [(each, each.stat()) for each in files_in(self._directory)]
        total = size + sum(stat.st_size for _, stat in files)
        for each, stat in files:
            if each == path:
                continue
            if total > self._most_bytes or now - stat.st_mtime > self._most_seconds:
                each.unlink(missing_ok=True)
                total -= stat.st_size


def _cut(path: Path, size: int) -> None:
    """Take back what was half written."""
    try:
        if size:
            with path.open("r+b") as file:
                file.truncate(size)
        else:
            path.unlink(missing_ok=True)
    except OSError:
        return  # readers skip what is broken


def files_in(directory: Path) -> list[Path]:
    """Files of a ledger, the oldest first."""
    return sorted(each for each in directory.iterdir() if _NAME.fullmatch(each.name))


def read_texts(paths: Iterable[Path]) -> Iterator[bytes]:
    """The lines of files, gzip or not, and of all files of a ledger in directories.

    Raises:
        OSError: one cannot be read.
    """
    for path in paths:
        for file in files_in(path) if path.is_dir() else (path,):
            yield from lines_of(file.read_bytes())


def lines_of(data: bytes) -> Iterator[bytes]:
    """Lines of a file: what is whole of each gzip member, broken ones in between left out; plain text as it is."""
    if not data.startswith(_MAGIC):
        yield from data.splitlines()
        return
    view, at = memoryview(data), 0
    while at < len(data):
        text, end = _member(view, at)
        yield from text.splitlines()
        # Of a broken or cut one the end is unknown: go on where another may begin.
        at = end or data.find(_MAGIC, at + 1)
        if at < 0:
            return


def _member(data: memoryview, at: int) -> tuple[bytes, int]:
    """(what can be read of the gzip member that begins there, its end or 0 where it has none)."""
    member, texts = zlib.decompressobj(wbits=31), []
    while at < len(data):
        piece = data[at : at + _PIECE_BYTES]
        try:
            texts.append(member.decompress(piece))
        except zlib.error:
            break
        at += len(piece)
        if member.eof:
            return b"".join(texts), at - len(member.unused_data)
    return b"".join(texts), 0
