"""The process: parse, check, load for as long as the plant says, listen, serve, and stop as vLLM stops."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import orjson

from goodput.simulator.engine import Engine
from goodput.simulator.plant import Plant, PlantError, StepTimeModel
from goodput.simulator.sequences import EngineConfig
from goodput_world.engine import flags, options, startup
from goodput_world.engine.admit import Admission
from goodput_world.engine.clock import SimulatedClock
from goodput_world.engine.exposition import Registry
from goodput_world.engine.http1 import Connection
from goodput_world.engine.metrics import EngineMetrics
from goodput_world.engine.server import VERSION, Server

LOG_INTERVAL_SECONDS = 10.0
_TRUE = frozenset({"1", "t", "true"})


def load_plant(path: str | None) -> Plant:
    """The plant of GOODPUT_SIM_PLANT. Raises `StartupError` if there is none or it is not usable."""
    if not path:
        raise startup.StartupError("GOODPUT_SIM_PLANT: name the JSON file of the plant to simulate")
    try:
        values = orjson.loads(Path(path).read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise startup.StartupError(f"GOODPUT_SIM_PLANT: {path}: {error}") from None
    if not isinstance(values, dict):
        raise startup.StartupError(f"GOODPUT_SIM_PLANT: {path}: not a JSON object")
    try:
        return Plant.from_mapping(values)
    except PlantError as error:
        raise startup.StartupError(f"GOODPUT_SIM_PLANT: {path}: {error}") from None


def bind(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet: until the engine is ready, connections are refused."""
    address = os.environ.get("POD_IP_BIND", "") if host in ("0.0.0.0", "::") else ""
    family = socket.AF_INET6 if ":" in (address or host) else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((address or host, port))
    return bound


def build(plant: Plant, settings: options.Options, config: EngineConfig, clock: SimulatedClock) -> Server:
    """The server with its engine and metrics."""
    created = os.environ.get("PROMETHEUS_DISABLE_CREATED_SERIES", "").lower() not in _TRUE
    registry = Registry(created_series=created)
    metrics = EngineMetrics(
        registry,
        model_name=settings.served_names[0],
        max_model_len=config.max_model_len,
        edges=settings.histogram_edges,
        cache_config=startup.cache_config(plant, settings, config),
        kv_metrics=settings.kv_metrics_sample > 0,
        lora=settings.enable_lora,
        speculative_tokens=settings.speculative_tokens,
    )
    per_token = startup.kv_bytes_per_token(plant, settings.kv_cache_dtype)
    times = StepTimeModel.of(replace(plant, kv_bytes_per_token=per_token))
    engine = Engine(config, times, plant.request_overhead_seconds)
    keys = settings.api_keys or ((os.environ["VLLM_API_KEY"],) if os.environ.get("VLLM_API_KEY") else ())
    return Server(
        engine,
        metrics,
        registry,
        clock,
        model=settings.model,
        served=settings.served_names,
        api_keys=keys,
        load_tracking=settings.load_tracking,
        mfu=settings.enable_mfu_metrics,
        process_metrics=settings.api_server_count == 1,
        gpus=plant.gpus,
    )


class Process:
    """One engine process from its start-up to its end; `stopped` holds the exit code."""

    def __init__(self, plant: Plant, settings: options.Options, config: EngineConfig) -> None:
        self._plant = plant
        self._settings = settings
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._clock = SimulatedClock(self._loop, float(os.environ.get("GOODPUT_SIM_SPEED") or 1.0))
        self._server: Server | None = None
        self._listener: asyncio.Server | None = None
        self.stopped: asyncio.Future[int] = self._loop.create_future()

    async def run(self) -> int:
        """Start up, serve until stopped, and return the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._terminate)
        bound = bind(self._settings.host, self._settings.port)
        loading = self._loop.create_task(self._load(bound))
        loading.add_done_callback(self._loaded)
        try:
            return await self.stopped
        finally:
            loading.cancel()
            bound.close()

    def _loaded(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None and not self.stopped.done():
            self.stopped.set_exception(task.exception() or RuntimeError("start-up failed"))

    async def _load(self, bound: socket.socket) -> None:
        seconds = float(os.environ.get("GOODPUT_SIM_STARTUP_SECONDS") or self._plant.startup_seconds)
        began = self._clock.now()
        startup.log("core.py", f"Initializing a V1 LLM engine (v{VERSION}) with config: model='{self._settings.model}'")
        for at, place, text in startup.phases(self._plant, self._config, seconds):
            await self._clock.sleep_until(began + at)
            startup.log(place, text)
        server = build(self._plant, self._settings, self._config, self._clock)
        admission = Admission.from_environment(self._settings.port)

        def opened(connection: Connection) -> None:
            server.connections.add(connection)
            if admission is not None:
                admission.opened(connection)

        def connection() -> Connection:
            return Connection(server.handle, opened, server.connections.discard)

        self._listener = await self._loop.create_server(connection, sock=bound, backlog=2048)
        self._server = server
        gc.collect()
        gc.freeze()
        startup.log("launcher.py", "Application startup complete.")
        if not self._settings.disable_log_stats and self._settings.api_server_count == 1:
            self._clock.call_later(LOG_INTERVAL_SECONDS, self._log_stats, server, 0, 0)

    def _terminate(self) -> None:
        """SIGTERM: with a shutdown timeout finish what is in flight; with 0 the engine dies and clients hang."""
        server = self._server
        if server is None:
            self._stop(0)
            return
        timeout = self._settings.shutdown_timeout_seconds
        if timeout == 0:
            startup.log("launcher.py", "Shutting down: waiting for connections to close.")
            server.die()
            self._close_listener()
            server.on_idle = lambda: self._stop(0)
            for connection in list(server.connections):
                if not connection.busy:
                    connection.transport.close()
            if not server.busy:
                self._stop(0)
            return
        startup.log("launcher.py", f"Shutting down: draining for at most {timeout} s.")
        server.drain()
        self._clock.call_later(timeout, self._finish)
        server.on_idle = self._finish
        if not server.busy:
            self._finish()

    def _finish(self) -> None:
        """The drain is over: tear the workers down, then go."""
        self._clock.call_later(self._plant.teardown_seconds, self._stop, 0)

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._listener.close()

    def _stop(self, code: int) -> None:
        if not self.stopped.done():
            self.stopped.set_result(code)

    def _log_stats(self, server: Server, prompt_before: int, generated_before: int) -> None:
        """The line that vLLM logs every 10 s while there is something to say."""
        prompt = server.prompt_tokens_total - prompt_before
        generated = server.generation_tokens_total - generated_before
        engine = server.engine
        if prompt or generated or engine.unfinished:
            queries = max(1, engine.prefix_queries_tokens)
            startup.log(
                "loggers.py",
                f"Engine 000: Avg prompt throughput: {prompt / LOG_INTERVAL_SECONDS:.1f} tokens/s, "
                f"Avg generation throughput: {generated / LOG_INTERVAL_SECONDS:.1f} tokens/s, "
                f"Running: {engine.running} reqs, Waiting: {engine.waiting} reqs, "
                f"GPU KV cache usage: {100 * engine.kv_usage:.1f}%, "
                f"Prefix cache hit rate: {100 * engine.prefix_hits_tokens / queries:.1f}%",
            )
        self._clock.call_later(
            LOG_INTERVAL_SECONDS, self._log_stats, server, server.prompt_tokens_total, server.generation_tokens_total
        )


async def _run(plant: Plant, settings: options.Options, config: EngineConfig) -> int:
    return await Process(plant, settings, config).run()


def main(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit code (2 for usage, 1 for a failed start)."""
    if list(arguments) in (["--version"], ["-v"]):
        print(VERSION)
        return 0
    if not arguments or arguments[0] != "serve":
        print(
            "usage: vllm [-h] [-v] {serve} ...\nvllm: error: the simulated engine knows `serve` only", file=sys.stderr
        )
        return 2
    parsed = flags.parse(arguments[1:])
    try:
        plant = load_plant(os.environ.get("GOODPUT_SIM_PLANT"))
        settings = options.resolve(parsed, plant.gpu_memory_bytes)
        plant = plant.with_gpus(settings.tensor_parallel_size)
        plant = startup.as_loaded(plant, settings)
        startup.check_environment(os.environ, settings.model, plant, settings)
        config = startup.engine_config(plant, settings)
        return asyncio.run(_run(plant, settings, config))
    except options.UsageError as error:
        print(f"usage: vllm serve [model_tag] [options]\nvllm: error: {error}", file=sys.stderr)
        return 2
    except options.ConfigError as error:
        print(f"pydantic_core._pydantic_core.ValidationError: 1 validation error\n{error}", file=sys.stderr)
        return 1
    except startup.StartupError as error:
        startup.log("core.py", "EngineCore failed to start.", "ERROR")
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"OSError: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
        return 1
