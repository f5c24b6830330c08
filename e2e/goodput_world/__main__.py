"""Run a world by hand until Ctrl-C: `python -m goodput_world`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from pathlib import Path

from goodput_world.binaries import ensure
from goodput_world.controlplane import ControlPlane
from goodput_world.errors import WorldError
from goodput_world.slots import claim_slot


async def run(directory: Path) -> None:
    """Start, say how to use it, wait for SIGINT or SIGTERM, stop."""
    plane = ControlPlane(ensure(), directory, claim_slot())
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await plane.start()
    print(f"export KUBECONFIG={plane.kubeconfig()}", flush=True)
    await stop.wait()
    await plane.stop()


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m goodput_world", description=__doc__)
    parser.add_argument("--directory", type=Path, default=Path("build/world"))
    arguments = parser.parse_args()
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(run(arguments.directory))
    except WorldError as error:
        print(f"goodput: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
