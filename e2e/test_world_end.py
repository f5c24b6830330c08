"""However a world ends, none of its processes is left, those of its pods included."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from goodput_world import watchdog
from goodput_world.waiting import wait_for

pytestmark = pytest.mark.skipif(
    os.environ.get("E2E_CLUSTER") == "existing", reason="an existing cluster is not ours to end"
)


def _mark_of_world_in(directory: Path) -> str | None:
    """The mark of the world whose etcd has its data below a directory."""
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and f"--data-dir={directory}".encode() in (process / "cmdline").read_bytes():
                for variable in (process / "environ").read_bytes().split(b"\0"):
                    name, _, value = variable.decode(errors="replace").partition("=")
                    if name == watchdog.MARK_VARIABLE:
                        return value
    return None


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        pytest.param(signal.SIGINT, 0, id="ctrl-c"),
        pytest.param(signal.SIGTERM, 0, id="sigterm"),
        pytest.param(signal.SIGKILL, -signal.SIGKILL, id="killed"),
    ],
)
async def test_no_process_is_left(tmp_path: Path, ending: signal.Signals, status: int) -> None:
    """Control plane, agent and the Prometheus pod are gone seconds after Ctrl-C, SIGTERM or SIGKILL."""
    directory = (tmp_path / "world").resolve()
    output = tmp_path / "output"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "goodput_world", "--no-operator", "--directory", str(directory)],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent)},
        )
    try:

        async def up() -> bool:
            assert process.poll() is None, output.read_text()
            return "export KUBECONFIG=" in output.read_text()

        await wait_for(up, what="a world of its own", timeout_seconds=180)
        mark = _mark_of_world_in(directory)
        assert mark is not None
        assert len(watchdog.marked(mark)) >= 6  # four of the control plane, the agent, Prometheus

        process.send_signal(ending)
        assert await asyncio.to_thread(process.wait, 60) == status, output.read_text()

        async def gone() -> bool:
            return not watchdog.marked(mark)

        await wait_for(gone, what="no process with the world's mark", timeout_seconds=20)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
