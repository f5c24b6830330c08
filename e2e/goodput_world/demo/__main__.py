"""`python -m goodput_world.demo`, which `make demo` calls."""

from __future__ import annotations

import asyncio
import signal
import sys

from rich.console import Console

from goodput_world.demo.driver import Demo
from goodput_world.demo.settings import SettingsError, read_settings
from goodput_world.errors import WorldError

EXIT_ERROR = 3
EXIT_INTERRUPTED = 130


async def _run(demo: Demo) -> int:
    """Run it so that SIGTERM, like Ctrl-C, unwinds it: every context on the way out ends its processes."""
    task = asyncio.create_task(demo.run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


def main() -> int:
    """Exit code of the demo; 3 when it could not run, 130 after Ctrl-C, each with every process ended."""
    try:
        return asyncio.run(_run(Demo(read_settings(), Console())))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("interrupted: everything is stopped", file=sys.stderr)
        return EXIT_INTERRUPTED
    except (SettingsError, WorldError) as error:
        print(f"the demo could not run: {error}", file=sys.stderr)
        return EXIT_ERROR


if __name__ == "__main__":
    sys.exit(main())
