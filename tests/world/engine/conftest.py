"""A server in the test's own loop, on a plant whose steps are short."""

import asyncio
import dataclasses
from contextlib import asynccontextmanager

import aiohttp
import pytest

from goodput.simulator.derive import L40S, LLAMA_3_1_8B, derive
from goodput_world.engine import flags, options, startup
from goodput_world.engine.clock import SimulatedClock
from goodput_world.engine.http1 import Connection
from goodput_world.engine.main import build

# Small and fast: 2 ms a step, 1,000 blocks.
FAST = dataclasses.replace(
    derive(LLAMA_3_1_8B, L40S, startup_seconds=0.2),
    weights_bytes=16.06e9 / 20,
    flops_per_token=15e9 / 20,
    gpu_memory_bytes=None,
    kv_pool_tokens=16_000,
    max_model_len=8192,
    request_overhead_seconds=0.001,
    teardown_seconds=0.1,
)


class Running:
    """A server with its address, its clients' session and a reader of its metrics."""

    def __init__(self, server, url, session):
        self.server = server
        self.url = url
        self.session = session

    async def metrics(self):
        """Samples by their text, `name{labels}`."""
        async with self.session.get(f"{self.url}/metrics") as answer:
            assert answer.status == 200
            text = await answer.text()
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}

    async def post(self, path="/v1/completions", **body):
        """Status and decoded JSON."""
        async with self.session.post(self.url + path, json={"model": "m", **body}) as answer:
            return answer.status, await answer.json()


@asynccontextmanager
async def running(*arguments, plant=FAST, speed=1.0):
    """Start a server with these flags beside the usual ones."""
    parsed = flags.parse(["big/model", "--served-model-name", "m", "also", *arguments])
    settings = options.resolve(parsed, plant.gpu_memory_bytes)
    loop = asyncio.get_running_loop()
    server = build(plant, settings, startup.engine_config(plant, settings), SimulatedClock(loop, speed))
    listener = await loop.create_server(
        lambda: Connection(server.handle, server.connections.add, server.connections.discard), "127.0.0.1", 0
    )
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    async with aiohttp.ClientSession() as session:
        yield Running(server, url, session)
    listener.close()


@pytest.fixture
def fast_plant():
    """The plant of `running`."""
    return FAST


@pytest.fixture
def run_server():
    """The context manager `running`."""
    return running
