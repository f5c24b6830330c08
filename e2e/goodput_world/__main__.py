"""Run a world by hand until Ctrl-C: `python -m goodput_world`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from pathlib import Path

from goodput_world.errors import WorldError
from goodput_world.world import World, WorldConfig


async def run(config: WorldConfig) -> None:
    """Start, say how to use it, wait for SIGTERM or Ctrl-C, stop."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with World(config) as world:
        print(f"export KUBECONFIG={world.kubeconfig}")
        if world.prometheus_url:
            print(f"# Prometheus: {world.prometheus_url}")
        print("# Ctrl-C stops it", flush=True)
        while True:
            world.raise_if_dead()
            await asyncio.sleep(1)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m goodput_world", description=__doc__)
    parser.add_argument("--directory", type=Path, default=Path("build/world"), help="logs and data (build/world)")
    parser.add_argument("--no-agent", action="store_true", help="the control plane alone, without nodes")
    parser.add_argument("--no-prometheus", action="store_true")
    parser.add_argument("--no-operator", action="store_true", help="do not install the CRDs and the chart")
    arguments = parser.parse_args()
    config = WorldConfig(
        agent=not arguments.no_agent,
        prometheus=not (arguments.no_prometheus or arguments.no_agent),
        operator=None if arguments.no_operator or arguments.no_agent else "chart",
        directory=arguments.directory,
    )
    try:
        with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
            asyncio.run(run(config))
    except WorldError as error:
        print(f"goodput: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
