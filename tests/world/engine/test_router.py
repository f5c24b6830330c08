"""The real vllm-router in front of simulated engines: what docs/router-facts.md says, kept true."""

import asyncio
import socket
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

ROUTER = Path(sys.executable).with_name("vllm-router")
ROUTE = '{route="/v1/completions"}'
BODY = {"model": "m", "prompt": [1, 2, 3], "max_tokens": 4}


def free_port():
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Router:
    """A router's two addresses."""

    def __init__(self, url, metrics_url, session):
        self.url = url
        self._metrics_url = metrics_url
        self._session = session

    async def complete(self, **body):
        """The status of a completion."""
        async with self._session.post(f"{self.url}/v1/completions", json={**BODY, **body}) as answer:
            await answer.read()
            return answer.status

    async def counters(self):
        """Samples by name and labels."""
        async with self._session.get(f"{self._metrics_url}/metrics") as answer:
            lines = [line for line in (await answer.text()).splitlines() if line and not line.startswith("#")]
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}

    async def offered(self):
        """Users' requests so far, by the formula of docs/router-facts.md."""
        counters = await self.counters()

        def total(name, label=""):
            return sum(value for key, value in counters.items() if key.startswith(name) and label in key)

        no_worker = total("vllm_router_request_errors_total", "no_available_workers")
        return total("vllm_router_processed_requests_total") + no_worker - total("vllm_router_retries_total")


@asynccontextmanager
async def routing(session, workers, *arguments):
    """A ready router process over these engines."""
    port, metrics_port = free_port(), free_port()
    process = await asyncio.create_subprocess_exec(
        str(ROUTER),
        *("--worker-urls", *workers, "--host", "127.0.0.1", "--port", str(port)),
        *("--prometheus-port", str(metrics_port), *arguments),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        router = Router(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{metrics_port}", session)
        deadline = time.monotonic() + 60
        while True:
            try:
                async with session.get(f"{router.url}/readiness") as answer:
                    if answer.status == 200:
                        break
            except aiohttp.ClientConnectorError:
                pass
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
        yield router
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def test_a_chat_streams_whole_through_the_router(run_server):
    """Every chunk, in order, to the end."""
    async with run_server() as engine, routing(engine.session, [engine.url]) as router:
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 50, "stream": True}
        async with engine.session.post(f"{router.url}/v1/chat/completions", json=body) as answer:
            text = await answer.text()

    assert answer.status == 200
    assert text.count('"content":" token"') == 50
    assert text.endswith("data: [DONE]\n\n")


async def test_each_users_request_is_counted_once_whatever_becomes_of_it(run_server):
    """Served, refused with 4xx, retried on another engine, given up after 5 attempts: 1 each."""
    async with (
        run_server() as good,
        run_server("--max-num-queued-reqs", "0") as full,
        routing(good.session, [good.url, full.url], "--policy", "round_robin") as router,
    ):
        statuses = [await router.complete() for _ in range(4)]
        statuses.append(await router.complete(model="other"))
        counters = await router.counters()
        offered = await router.offered()

    assert statuses == [200] * 4 + [404]
    assert offered == 5
    assert counters[f"vllm_router_requests_total{ROUTE}"] == 4
    assert counters['vllm_router_request_errors_total{route="/v1/completions",error_type="non_retryable_error"}'] == 1
    assert counters[f"vllm_router_retries_total{ROUTE}"] >= 3


async def test_when_every_engine_is_full_the_client_gets_503_after_five_attempts(run_server):
    """And the request counts once; each attempt is a rejection at the engine."""
    async with (
        run_server("--max-num-queued-reqs", "0") as full,
        routing(full.session, [full.url], "--disable-circuit-breaker") as router,
    ):
        status = await router.complete()
        counters = await router.counters()
        offered = await router.offered()
        rejected = (await full.metrics())[
            'vllm:admission_rejections_total{model_name="m",reason="max_num_queued_reqs"}'
        ]

    assert (status, offered, rejected) == (503, 1, 5)
    assert counters[f"vllm_router_retries_exhausted_total{ROUTE}"] == 1
    assert f"vllm_router_requests_total{ROUTE}" not in counters


@pytest.mark.parametrize("stream", [True, False])
async def test_a_request_is_offered_load_from_its_arrival(run_server, stream):
    """Before it is answered."""
    async with run_server() as engine, routing(engine.session, [engine.url]) as router:
        pending = asyncio.ensure_future(router.complete(max_tokens=400, stream=stream))
        await asyncio.sleep(0.3)
        offered = await router.offered()
        served = (await router.counters()).get(f"vllm_router_requests_total{ROUTE}", 0)
        assert not pending.done()
        assert await pending == 200

    assert offered == 1
    assert served == (1 if stream else 0)
