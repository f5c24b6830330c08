"""The whole demo against a stand-in for the cluster: an API server, a Prometheus and a streaming service of a few
lines.
"""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import kubernetes
import pytest
from aiohttp import web
from rich.console import Console

from goodput_world.demo import driver, measure
from goodput_world.demo.driver import Demo
from goodput_world.demo.environment import Environment
from goodput_world.demo.settings import DemoSettings
from goodput_world.demo.summary import StaticPeak
from goodput_world.replay import Envelope, TraceRequest
from goodput_world.waiting import wait_for


def _pod(index: int, ready: bool) -> dict[str, Any]:
    return {
        "metadata": {"uid": f"u{index}", "creationTimestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())},
        "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


class StandIn:
    """Answers as the cluster would. One replica, under load two for as long as it takes to look twice, then one again.

    By looks and not by the clock: a busy machine may look seldom, and would miss what lasts a second.
    """

    def __init__(self) -> None:
        self.applied: list[str] = []
        self.completions = 0
        self.looks_under_load = 0
        self.token_seconds = 0.001
        self.good_share = 1.0
        self.url = ""

    @property
    def api(self) -> kubernetes.client.ApiClient:
        configuration = kubernetes.client.Configuration()
        configuration.host = self.url
        return kubernetes.client.ApiClient(configuration)

    async def apply(self, document: dict[str, Any], *, namespace: str) -> None:
        self.applied.append(f"{namespace}/{document['kind']}")

    async def service_url(self, namespace: str, name: str) -> str:
        return self.url

    async def wait_for(self, condition: Callable[[], Any], *, what: str, timeout_seconds: float) -> Any:
        return await wait_for(condition, what=what, timeout_seconds=timeout_seconds, poll_seconds=0.01)

    def desired(self) -> int:
        return 2 if 1 <= self.looks_under_load <= 2 else 1

    async def pods(self, request: web.Request) -> web.Response:
        return web.json_response({"items": [_pod(index, True) for index in range(self.desired())]})

    async def deployments(self, request: web.Request) -> web.Response:
        assert request.query["fieldSelector"] == "metadata.name=llama-8b-serve"
        self.looks_under_load += self.completions > 0
        return web.json_response({"items": [{"spec": {"replicas": self.desired()}}]})

    async def model(self, request: web.Request) -> web.Response:
        ready = {"type": "Ready", "status": "True"}
        return web.json_response({"status": {"conditions": [ready], "lastDecision": {"action": "ScaleUp"}}})

    async def query(self, request: web.Request) -> web.Response:
        good = self.completions * self.good_share
        value = self.completions if request.query["query"] == "goodput_requests_offered_total" else good
        series = {"metric": {"namespace": "default", "model": "llama-8b"}, "value": [0, str(value)]}
        return web.json_response({"data": {"result": [series]}})

    async def completion(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.completions += 1
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for _ in range(body["max_tokens"]):
            await response.write(b'data: {"choices":[{"text":"a"}]}\n\n')
            await asyncio.sleep(self.token_seconds)
        await response.write(b"data: [DONE]\n\n")
        return response


@pytest.fixture
async def stand_in(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StandIn]:
    fake = StandIn()
    app = web.Application(client_max_size=2**26)
    app.router.add_get("/api/v1/namespaces/default/pods", fake.pods)
    app.router.add_get("/apis/apps/v1/namespaces/default/deployments", fake.deployments)
    app.router.add_get("/apis/goodput.dev/v1alpha1/namespaces/default/models/llama-8b", fake.model)
    app.router.add_get("/api/v1/query", fake.query)
    app.router.add_post("/v1/completions", fake.completion)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"

    @asynccontextmanager
    async def environment(settings: DemoSettings, progress: Callable[[str], None]) -> AsyncIterator[Environment]:
        yield Environment(fake, fake.url, None, 1.0, lambda: None)  # type: ignore[arg-type]

    monkeypatch.setattr(driver, "environment", environment)
    monkeypatch.setattr(driver, "static_peak", lambda *_: StaticPeak(6.0, 1.5, 1))
    # Four requests a second, eight tokens each: the whole demo in seconds.
    trace = tuple(TraceRequest(index * 0.25, 20, 8) for index in range(40))
    monkeypatch.setattr(driver, "azure_conversation", lambda: trace)
    monkeypatch.setattr(measure, "_COUNTERS_QUIET_SECONDS", 0.0)
    yield fake
    await runner.cleanup()


async def run_demo(folder: Path) -> tuple[int, str, dict[str, Any]]:
    out = io.StringIO()
    settings = DemoSettings(seconds=5.0, directory=folder, envelope=Envelope(((0.0, 1.0), (1.0, 1.0))))
    code = await Demo(settings, Console(file=out, force_terminal=False)).run()
    return code, out.getvalue(), json.loads((folder / "summary.json").read_text())


async def test_a_good_run_exits_with_0(stand_in: StandIn, tmp_path: Path) -> None:
    """Everything met, bounds that agree, fewer GPU-hours than static peak, up and down: a pass with all its files."""
    code, text, summary = await run_demo(tmp_path / "demo")

    assert stand_in.applied == ["default/SLO", "default/GPUType", "default/Model"]
    assert code == 0, text
    assert summary["requests"] == stand_in.completions > 0
    assert summary["attainment_operator"] == [1.0, 1.0]
    assert (summary["scale_ups"], summary["scale_downs"]) == (1, 1)
    assert summary["api_writes_last_steady_minutes"] is None
    assert summary["replicas_max"] == 2
    assert {path.name for path in (tmp_path / "demo").iterdir()} >= {"requests.csv", "demo.svg", "demo.png"}
    for stated in ("45 s to start", "x1 at 0 %", "l40s", "1.50 requests/s"):
        assert stated in text


async def test_an_operator_that_disagrees_fails_the_run(stand_in: StandIn, tmp_path: Path) -> None:
    """The clients saw everything met, the operator counted 90 %: that is a failure, whichever of them is wrong."""
    stand_in.good_share = 0.9

    code, text, summary = await run_demo(tmp_path / "demo")

    assert code == driver.EXIT_FAILED
    assert summary["attainment_operator"] == pytest.approx([0.9, 0.9])
    assert "FAIL     operator agrees" in text


async def test_slow_tokens_fail_the_run(stand_in: StandIn, tmp_path: Path) -> None:
    """A fleet that misses its SLO is not excused by anything else."""
    stand_in.token_seconds = 0.06

    code, text, summary = await run_demo(tmp_path / "demo")

    assert code == driver.EXIT_FAILED
    assert summary["attainment"] < 0.5
    assert "FAIL     attainment" in text
