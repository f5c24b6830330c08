"""A live view of a replay in a file: one JSON line a second, for a display and for whoever waits for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

PROGRESS_FILE = "progress.jsonl"


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts from the start of the replay to `t_seconds`. `started_epoch` is its start in Unix time.

    `offered` are the requests scheduled up to now, `done` those that ended in any way, `met` those that met the SLO.
    """

    t_seconds: float
    started_epoch: float
    offered: int
    sent: int
    done: int
    met: int
    lost: int
    in_flight: int
    tokens: int
    lateness_p99_seconds: float | None


class ProgressWriter:
    """Appends lines to `progress.jsonl` in a folder, each flushed at once."""

    def __init__(self, folder: Path) -> None:
        self._stream: IO[str] = (folder / PROGRESS_FILE).open("w", encoding="utf-8")

    def write(self, progress: Progress) -> None:
        """Append one line."""
        self._stream.write(json.dumps(asdict(progress)) + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


class ProgressReader:
    """Reads what was appended since the last call; a file that is not there yet reads as nothing."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / PROGRESS_FILE
        self._offset = 0

    def new(self) -> Iterator[Progress]:
        """Every whole line since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as stream:
            stream.seek(self._offset)
            for line in stream:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                yield Progress(**json.loads(line))
