"""One process of a container: started in its sandbox, awaited by a pidfd, killed with all its children."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from goodput_world.agent import sandbox

_PAGE_BYTES = resource.getpagesize()


class StartError(Exception):
    """The command of a container could not be started; the message says why."""


class ContainerProcess:
    """A process in a session of its own. It dies with us: the kernel kills it when our main thread ends."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        """Wraps a process that was just started; use `start`."""
        self._popen = popen
        self.pid = popen.pid
        self.exited = asyncio.Event()
        self.exit_code = 0
        self.signal = 0
        self.oom_killed = False
        self.guests: set[ContainerProcess] = set()
        """Commands that were run inside the container: probes, hooks, exec."""
        self._descriptor = os.pidfd_open(popen.pid)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._descriptor, self._on_exit)

    def _on_exit(self) -> None:
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # What the command left behind goes with it, as in a container; not yet reaped, so the id is still ours.
            os.killpg(self.pid, signal.SIGKILL)
        status = self._popen.wait()
        if status < 0:
            self.signal = -status
            status = 128 - status
        self.exit_code = status
        self.exited.set()

    def send(self, number: int) -> None:
        """Send a signal to the command itself; no-op once it has ended."""
        if not self.exited.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL to the command and all that share its session's process group."""
        if not self.exited.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def kill_for_memory(self) -> None:
        """SIGKILL as the kernel's OOM killer does; the container's reason becomes OOMKilled."""
        self.oom_killed = not self.exited.is_set()
        self.kill()

    def pids(self) -> list[int]:
        """The process and its descendants that live now."""
        found: list[int] = []
        queue = [self.pid, *(guest.pid for guest in self.guests)]
        while queue:
            pid = queue.pop()
            found.append(pid)
            with contextlib.suppress(OSError):
                for task in os.listdir(f"/proc/{pid}/task"):
                    children = Path(f"/proc/{pid}/task/{task}/children").read_text()
                    queue.extend(int(child) for child in children.split())
        return found

    def resident_bytes(self) -> int:
        """Resident memory of the process and its descendants."""
        total = 0
        for pid in self.pids():
            with contextlib.suppress(OSError, IndexError, ValueError):
                total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
        return total


async def start(spec: Mapping[str, Any], spec_path: Path, log_path: Path) -> ContainerProcess:
    """Start a sandbox of this spec (see sandbox.py). Raises StartError when its command cannot be run."""
    spec_path.write_bytes(orjson.dumps({**spec, "parent": os.getpid()}))
    spec_path.chmod(0o600)
    reading, writing = os.pipe()
    try:
        with log_path.open("ab") as output:
            popen = subprocess.Popen(
                [sys.executable, "-I", "-S", sandbox.__file__, str(spec_path), str(writing)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(writing,),
                start_new_session=True,
                env={},
            )
    finally:
        os.close(writing)
    process = ContainerProcess(popen)
    try:
        message = await _read_all(reading)
    except asyncio.CancelledError:
        process.kill()
        raise
    if message:
        await process.exited.wait()
        raise StartError(message)
    return process


async def _read_all(descriptor: int) -> str:
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    received = bytearray()

    def read() -> None:
        data = os.read(descriptor, 4096)
        received.extend(data)
        if not data:
            done.set()

    loop.add_reader(descriptor, read)
    try:
        await done.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    return received.decode(errors="replace")


async def run_inside(
    process: ContainerProcess, argv: Sequence[str], env: Mapping[str, str], directory: Path, timeout_seconds: float
) -> tuple[int, str]:
    """Run a command inside a container: (exit status, what it printed). Status 124 when it ran past its time."""
    name = f"exec-{os.urandom(6).hex()}"
    spec_path, log_path = directory / f"{name}.json", directory / f"{name}.log"
    child: ContainerProcess | None = None
    try:
        child = await start({"pid": process.pid, "argv": list(argv), "env": dict(env)}, spec_path, log_path)
        process.guests.add(child)
        async with asyncio.timeout(timeout_seconds):
            await child.exited.wait()
        return child.exit_code, log_path.read_text(errors="replace")
    except TimeoutError:
        return 124, log_path.read_text(errors="replace")
    except StartError as error:
        return 126, str(error)
    finally:
        if child is not None:
            process.guests.discard(child)
            child.kill()
        for path in (spec_path, log_path):
            path.unlink(missing_ok=True)
