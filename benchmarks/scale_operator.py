"""The operator process as the scale benchmark runs and watches it: when it is in sync, its passes, its memory."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from goodput_world.processes import Process

_MEBIBYTE = 2**20
# Steps of a pass that wait for others: of the first, what it takes to parse answers counts.
READING, WRITING = "3 telemetry", "7 write"
DECIDING, COMPARING = "5 decide", "6 diff"


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of the fleet loop, as its debug line tells. `read`: it asked Prometheus, so it is a tick.

    `wall_seconds` is all work from the answers of Prometheus to what differs: neither the wait for Prometheus nor the
    last step, in which it waits for the API server to take its writes.
    """

    at: str
    read: bool
    wall_seconds: float
    cpu_seconds: float
    parse_seconds: float
    steps: Mapping[str, float]

    @property
    def tick_seconds(self) -> float:
        """Parse, decide and diff: what is left out is reading the stores of the cluster."""
        return self.parse_seconds + self.steps[DECIDING] + self.steps[COMPARING]


class OperatorProcess:
    """`goodput-operator` with the chart's defaults against one API server and one Prometheus."""

    def __init__(self, *, kubeconfig: Path, prometheus_url: str, port: int, log_path: Path) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self.process = Process(
            "goodput-operator",
            [
                *(Path(sys.executable).parent / "goodput-operator", "--prometheus-url", prometheus_url),
                *("--listen", f"127.0.0.1:{port}", "--lease-namespace", "default"),
                *("--log-format", "json", "--log-level", "DEBUG"),
            ],
            log_path=log_path,
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        )

    async def ready(self, timeout_seconds: float) -> float:
        """Seconds from its start until it says that it is ready, which is once all stores are in sync.

        Raises TimeoutError.
        """
        begun = time.monotonic()
        self.process.start()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
            while time.monotonic() - begun < timeout_seconds:
                self.process.raise_if_exited()
                try:
                    async with session.get(f"{self._url}/readyz") as answer:
                        if answer.status == 200:
                            return time.monotonic() - begun
                except (aiohttp.ClientError, TimeoutError):
                    pass
                await asyncio.sleep(0.1)
        raise TimeoutError(f"the operator is not ready after {timeout_seconds:.0f} s; its log:\n{self.process.tail()}")

    async def metric(self, pattern: str) -> float:
        """The sum of the series whose line matches the pattern up to its value; 0 if there is none."""
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
            session.get(f"{self._url}/metrics") as answer,
        ):
            text = await answer.text()
        line = re.compile(rf"{pattern} ([0-9.e+-]+)$")
        return sum(float(found[1]) for found in map(line.match, text.splitlines()) if found)

    def passes(self) -> Iterator[Pass]:
        """Passes that ended so far."""
        with self.process.log_path.open("rb") as lines:
            for line in lines:
                if b"a pass took" not in line:
                    continue
                told: dict[str, Any] = orjson.loads(line)
                steps: dict[str, float] = told["steps"]
                parse_seconds = told["parse_seconds"]
                own = sum(took for step, took in steps.items() if step not in (READING, WRITING))
                yield Pass(told["time"], told["read"], parse_seconds + own, told["cpu_seconds"], parse_seconds, steps)

    def memory_mebibytes(self) -> tuple[float, float]:
        """Resident memory of the process tree now, and the peak: that of the process, as the kernel keeps it, and what
        its children hold now.
        """
        pid = self.process.pid
        if pid is None:
            self.process.raise_if_exited()
            return 0.0, 0.0
        own, peak = _status(pid, "VmRSS"), _status(pid, "VmHWM")
        children = sum(_status(child, "VmRSS") for child in _descendants(pid))
        return (own + children) / _MEBIBYTE, (peak + children) / _MEBIBYTE


def _status(pid: int, name: str) -> int:
    """Bytes of a line of /proc/PID/status; 0 for a process that is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _descendants(pid: int) -> Iterator[int]:
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = thread.read_text().split()
        except OSError:
            continue
        for child in children:
            yield int(child)
            yield from _descendants(int(child))
