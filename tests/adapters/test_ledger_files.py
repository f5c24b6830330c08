"""The ledger on disk: what is written is read again, within bounds, and nothing that breaks hides the rest."""

from __future__ import annotations

import errno
import gzip
import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goodput.adapters import ledger_files
from goodput.adapters.ledger_files import LedgerFiles, files_in, lines_of, read_texts
from goodput.adapters.ledger_writer import LedgerWriter

START = 1_760_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


def ledger(directory: Path, clock: Clock, most_bytes: int = 1_000_000, days: float = 8.0) -> LedgerFiles:
    return LedgerFiles(directory, "pod-a", most_bytes=most_bytes, most_seconds=days * 86_400.0, clock=clock)


def read(directory: Path) -> list[bytes]:
    return list(read_texts([directory]))


def size(directory: Path) -> int:
    return sum(each.stat().st_size for each in files_in(directory))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.binary(min_size=1, max_size=60).map(bytes.hex), min_size=1, max_size=5), max_size=12))
def test_what_is_appended_is_read_in_order(tmp_path_factory: pytest.TempPathFactory, appends: list[list[str]]) -> None:
    directory, clock = tmp_path_factory.mktemp("ledger"), Clock()
    files = ledger(directory, clock)
    for texts in appends:
        files.append([text.encode() + b"\n" for text in texts])
        clock.now += 60.0
    assert read(directory) == [text.encode() for texts in appends for text in texts]


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_cut_or_damaged_append_costs_itself_only(cut: int, byte: int) -> None:
    first, second, third = (gzip.compress(text) for text in (b"one\n", b"two and more\n" * 9, b"three\n"))
    cut = min(cut, len(second) - 1)
    for broken in (second[:cut], second[:cut] + bytes([byte]) + second[cut + 1 :]):
        found = list(lines_of(first + broken + third))
        assert found[0] == b"one"
        assert found[-1] == b"three"


def test_a_file_that_ends_in_the_middle_of_a_line_is_read_up_to_there(tmp_path: Path) -> None:
    files = ledger(tmp_path, Clock())
    files.append([b'{"a":1}\n'])
    files.append([b'{"b":2}\n'])
    (path,) = files_in(tmp_path)
    path.write_bytes(path.read_bytes()[:-12])
    assert read(tmp_path)[0] == b'{"a":1}'
    plain = tmp_path / "plain.jsonl"
    plain.write_bytes(b'{"a":1}\n{"b"')
    assert list(read_texts([plain])) == [b'{"a":1}', b'{"b"']


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 2_000), min_size=1, max_size=60))
def test_size_is_bounded_whatever_is_appended(tmp_path_factory: pytest.TempPathFactory, sizes: list[int]) -> None:
    directory, clock = tmp_path_factory.mktemp("ledger"), Clock()
    files = ledger(directory, clock, most_bytes=20_000)
    for number, length in enumerate(sizes):
        # Bytes that do not compress.
        text = b"".join(bytes([(number * 7919 + place * place * 104_729) % 251]) for place in range(length)).hex()
        files.append([text.encode() + b"\n"])
        clock.now += 60.0
        assert size(directory) <= 20_000
    assert read(directory)[-1] == text.encode()


def test_the_oldest_goes_first_and_what_is_too_old_goes(tmp_path: Path) -> None:
    import os

    clock = Clock()
    files = ledger(tmp_path, clock, days=1.0)
    for hour in range(30):
        files.append([f"{hour}\n".encode()])
        os.utime(files_in(tmp_path)[-1], (clock.now, clock.now))
        clock.now += 3600.0
    kept = [int(text) for text in read(tmp_path)]
    assert kept == list(range(kept[0], 30))
    assert 24 <= len(kept) <= 26


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    stranger = tmp_path / "notes.gz"
    stranger.write_bytes(b"x" * 50_000)
    files = ledger(tmp_path, Clock(), most_bytes=1_000)
    files.append([b"line\n"])
    assert stranger.exists()
    assert read(tmp_path) == [b"line"]


def test_what_was_half_written_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    files = ledger(tmp_path, clock)
    files.append([b"whole\n"])
    real = Path.open

    def full(self: Path, mode: str = "r", *rest: Any, **named: Any) -> Any:
        opened = real(self, mode, *rest, **named)
        if mode != "ab":
            return opened

        class Full:
            def __enter__(self) -> Full:
                return self

            def __exit__(self, *_: object) -> None:
                opened.close()

            def write(self, data: bytes) -> None:
                opened.write(data[:5])
                opened.flush()
                raise OSError(errno.ENOSPC, "No space left on device")

        return Full()

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(OSError, match="No space"):
        files.append([b"lost\n"])
    monkeypatch.undo()
    files.append([b"later\n"])
    assert read(tmp_path) == [b"whole", b"later"]


class Failing:
    """A disk that is full, or that hangs until it is let go."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.calls = 0
        self.go_on = threading.Event()

    def append(self, lines: Sequence[bytes]) -> None:
        self.calls += 1
        if self.error is not None:
            raise self.error
        self.go_on.wait(10.0)


def test_a_full_disk_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    disk = Failing(OSError(errno.ENOSPC, "No space left on device"))
    writer = LedgerWriter(disk)
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            writer.put([b"x\n"])
        writer.close()
    assert disk.calls == 4
    assert [record.getMessage().count("No space left on device") for record in caplog.records] == [1]


def test_a_disk_that_hangs_holds_up_nobody(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goodput.adapters.ledger_writer._END_SECONDS", 0.05)
    disk = Failing()
    writer = LedgerWriter(disk)
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            writer.put([b"x\n"])
        writer.close()
    assert disk.calls <= 1
    assert len(caplog.records) == 1
    disk.go_on.set()


def test_names_sort_by_time(tmp_path: Path) -> None:
    assert ledger_files._NAME.fullmatch("20261201T151900Z-goodput-6d5.ledger.gz")
    assert not ledger_files._NAME.fullmatch("other.gz")
