"""The operator keeps a ledger where it is told to, and none otherwise."""

from __future__ import annotations

from pathlib import Path

from tests.controllers.conftest import Bench

from goodput.adapters.ledger_files import read_texts
from goodput.domain.ledger import Asked, Looked, decode


async def test_passes_are_kept_where_a_directory_is_given(tmp_path: Path) -> None:
    bench = Bench(ledger_dir=str(tmp_path / "ledger"))
    bench.furnish()
    await bench.start()
    try:
        bench.apply(bench.model())
        await bench.tick(9)
        assert bench.operator.ledger is not None
        bench.operator.ledger.close()
    finally:
        await bench.stop()
    read = decode(read_texts([tmp_path / "ledger"]))
    assert not read.damaged
    assert [line.key.name for line in read.lines if isinstance(line, Asked)] == ["llama"]
    assert sum(line.seconds for line in read.lines if isinstance(line, Looked)) == 80.0


async def test_without_a_directory_nothing_is_made_or_noted(tmp_path: Path) -> None:
    bench = Bench()
    bench.furnish()
    await bench.start()
    try:
        assert bench.operator.ledger is None
        assert bench.operator.loop.note is None
    finally:
        await bench.stop()


async def test_a_directory_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    bench = Bench(ledger_dir=str(tmp_path / "file" / "ledger"))
    bench.furnish()
    await bench.start()
    try:
        bench.apply(bench.model())
        await bench.tick(9)
        assert bench.replicas() == 1
    finally:
        await bench.stop()
