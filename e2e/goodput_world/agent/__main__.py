"""`python -m goodput_world.agent`: run the simulated nodes until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import resource
import signal
from pathlib import Path

import orjson

from goodput_world.agent.agent import Agent
from goodput_world.agent.config import AgentConfig, load_config
from goodput_world.agent.control import Control
from goodput_world.agent.kubeapi import Api, Endpoint, load_kubeconfig
from goodput_world.agent.namespaces import enter_namespaces


def _raise_file_limit() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def serve(endpoint: Endpoint, config: AgentConfig, directory: Path, port: int) -> None:
    """Run the agent until a signal; writes agent.json with the URL of the control interface once all is ready."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with Api(endpoint) as api:
        agent = Agent(api, config, directory)
        runner, url = await Control(agent).start(port)
        started = asyncio.Event()
        running = asyncio.create_task(agent.run(started))
        stopping = asyncio.create_task(stop.wait())
        starting = asyncio.create_task(started.wait())
        try:
            await asyncio.wait({running, stopping, starting}, return_when=asyncio.FIRST_COMPLETED)
            if started.is_set():
                fresh = directory / "agent.json.new"
                fresh.write_bytes(orjson.dumps({"pid": os.getpid(), "control": url}))
                fresh.replace(directory / "agent.json")
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
            for task in (stopping, starting):
                task.cancel()
            await runner.cleanup()
            (directory / "agent.json").unlink(missing_ok=True)


def main() -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m goodput_world.agent", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--config", type=Path, required=True, help="JSON of config.AgentConfig")
    parser.add_argument("--directory", type=Path, required=True, help="logs, volumes, agent.json")
    parser.add_argument("--control-port", type=int, default=0, help="of the control interface; 0: any free one")
    options = parser.parse_args()
    directory = options.directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "agent.json").unlink(missing_ok=True)
    logging.basicConfig(
        filename=directory / "agent.log",
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    enter_namespaces()
    _raise_file_limit()
    endpoint, config = load_kubeconfig(options.kubeconfig), load_config(options.config)
    asyncio.run(serve(endpoint, config, directory, options.control_port))


if __name__ == "__main__":
    main()
