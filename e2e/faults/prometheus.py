"""A Prometheus that knows every pod of Goodput and counts made-up requests; it lies on demand.

It answers the operator's own queries (by comparing their text) over HTTP, at `/NAMESPACE/` for the pods of one
namespace or at `/all/`. Traffic is even, shared equally by the ready engines, and all of it within the objectives up to
what a replica is believed to hold. Its prompts are long and short by turns, as an operator that saw them all equal
would believe more of a replica.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from faults.recorder import Recorder, Seen
from goodput.adapters import promql
from goodput.decide.policy import PRIOR_INPUT_TOKENS, PRIOR_OUTPUT_TOKENS

_BUCKET = re.compile(r'(vllm:\w+_bucket)\{[^}]*le=~"([^"]*)"')
_NAMES = re.compile(r'__name__=~"([^"]*)"')
_SUMS = "sum by (__name__, namespace, goodput_dev_model)"
_SCRAPE_SECONDS = 0.25
_SCRAPES_KEPT = 40
# One request of the made-up traffic, in tokens; the controller's own prior, so that it learns nothing new from it.
PROMPT_TOKENS, OUTPUT_TOKENS = PRIOR_INPUT_TOKENS, PRIOR_OUTPUT_TOKENS
# Of what comes to an engine that is given more than it holds, this share is within the objectives: too few to prove
# that it holds so much, too many to be certain that it does not.
_STRAINED_SHARE = 0.945
# Prompts are longer by this share for so many seconds, then shorter: four seconds have the mean.
_LONGER, _TURN_SECONDS = 0.35, 2.0
Row = dict[str, Any]


@dataclass(slots=True)
class Traffic:
    """Load of one namespace and how its metrics are falsified.

    `fault`: '' none, `nan` counters are NaN, `stale` no scrape since, `absent` no series of engines and routers at all,
    `no-histogram` no buckets, `unlabelled` series without our labels.
    """

    requests_per_second: float = 0.0
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Scrape:
    """Requests counted so far and times of the last scrapes, by uid of a pod."""

    at: float
    counted: dict[str, float]
    timely: dict[str, float]
    prompt_tokens: dict[str, float]
    scraped_at: dict[str, float]


@dataclass(slots=True)
class FakePrometheus:
    """`async with` it; `url(scope)` is what the operator is given."""

    recorder: Recorder
    holds_rps: float
    """Requests/s up to which one engine is within the objectives."""
    traffic: dict[str, Traffic] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    """By scope: `error` answers HTTP 500, `empty` finds nothing for any query, `hang` never answers."""
    queries: int = 0
    _counted: dict[str, float] = field(default_factory=dict)
    _timely: dict[str, float] = field(default_factory=dict)
    _prompt_tokens: dict[str, float] = field(default_factory=dict)
    _scraped_at: dict[str, float] = field(default_factory=dict)
    _scrapes: deque[Scrape] = field(default_factory=lambda: deque(maxlen=_SCRAPES_KEPT))
    """The last ones: all queries of a reading look at one instant, however busy the machine is between them."""
    _runner: web.AppRunner | None = None
    _scraping: asyncio.Task[None] | None = None
    _base: str = ""

    async def __aenter__(self) -> FakePrometheus:
        """Listen."""
        app = web.Application()
        app.router.add_route("*", "/{scope}/api/v1/query", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self._base = f"http://{host}:{port}"
        self._scraping = asyncio.create_task(self._scrape())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        if self._scraping is not None:
            self._scraping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._scraping
        if self._runner is not None:
            await self._runner.cleanup()

    def url(self, scope: str = "all") -> str:
        """Its address."""
        return f"{self._base}/{scope}"

    def load(self, namespace: str, requests_per_second: float) -> None:
        """Offer so much from now on."""
        self.traffic.setdefault(namespace, Traffic()).requests_per_second = requests_per_second

    def falsify(self, namespace: str, fault: str) -> None:
        """Metrics of a namespace lie from now on ('' ends it)."""
        self.traffic.setdefault(namespace, Traffic()).fault = fault

    async def _scrape(self) -> None:
        before = time.time()
        while True:
            await asyncio.sleep(_SCRAPE_SECONDS)
            now = time.time()
            for namespace, traffic in self.traffic.items():
                self._count(namespace, traffic.requests_per_second * (now - before), now)
            self._scrapes.append(
                Scrape(now, dict(self._counted), dict(self._timely), dict(self._prompt_tokens), dict(self._scraped_at))
            )
            before = now

    def _count(self, namespace: str, requests: float, now: float) -> None:
        tokens = PROMPT_TOKENS * (1.0 + (_LONGER if now % (2.0 * _TURN_SECONDS) < _TURN_SECONDS else -_LONGER))
        for pool in ("serve", "router"):
            pods = self.recorder.ready(namespace, pool)
            for pod in pods:
                share = requests / len(pods)
                strained = self.traffic[namespace].requests_per_second > len(pods) * self.holds_rps
                timely = share * (_STRAINED_SHARE if strained else 1.0)
                self._counted[pod.uid] = self._counted.get(pod.uid, 0.0) + share
                self._timely[pod.uid] = self._timely.get(pod.uid, 0.0) + timely
                self._prompt_tokens[pod.uid] = self._prompt_tokens.get(pod.uid, 0.0) + share * tokens
                if self.traffic[namespace].fault != "stale":
                    self._scraped_at[pod.uid] = now

    async def _answer(self, request: web.Request) -> web.Response:
        self.queries += 1
        scope = request.match_info["scope"]
        asked = {**await request.post(), **request.query}
        query = str(asked.get("query", ""))
        fault = self.faults.get(scope, "")
        if fault == "hang":
            await asyncio.sleep(3600)
        if fault == "error":
            return web.Response(status=500, text="made to fail")
        if query == promql.SERVER_TIME:
            now = time.time()
            return _json([now, str(now)])
        scrape = self._scrape_at(float(str(asked.get("time") or time.time())))
        rows = [] if fault == "empty" or scrape is None else list(self._rows(scope, query, scrape))
        return _json(rows)

    def _scrape_at(self, at: float) -> Scrape | None:
        """The newest scrape that was over at an instant."""
        return next((scrape for scrape in reversed(self._scrapes) if scrape.at <= at), None)

    def _rows(self, scope: str, query: str, scrape: Scrape) -> Iterator[Row]:
        for namespace, traffic in self.traffic.items():
            if scope not in ("all", namespace):
                continue
            if traffic.fault == "unlabelled":
                if query == promql.UNLABELLED:
                    yield _row({"namespace": namespace}, 1.0)
                continue
            if traffic.fault == "absent":
                continue
            engines, routers = (
                [pod for pod in self.recorder.ready(namespace, pool) if pod.uid in scrape.scraped_at]
                for pool in ("serve", "router")
            )
            yield from self._of(namespace, traffic, query, engines, routers, scrape=scrape)

    def _of(
        self,
        namespace: str,
        traffic: Traffic,
        query: str,
        engines: list[Seen],
        routers: list[Seen],
        *,
        scrape: Scrape,
    ) -> Iterator[Row]:
        def count(pod: Seen) -> float:
            return float("nan") if traffic.fault == "nan" else scrape.counted.get(pod.uid, 0.0)

        def where(pod: Seen) -> dict[str, str]:
            return {"namespace": namespace, "pod": pod.name}

        if query == promql.SCRAPES:
            for pod in engines + routers:
                yield _row({**where(pod), "goodput_dev_model": MODEL}, scrape.scraped_at[pod.uid])
        elif query == promql.REQUEST_SECONDS_P95:
            yield _row({"namespace": namespace, "goodput_dev_model": MODEL}, 1.0)
        elif "_bucket{" in query:
            for name, edges in _BUCKET.findall(query) if traffic.fault != "no-histogram" else ():
                for edge in edges.replace("\\", "").split("|"):
                    for pod in engines:
                        late = 0.0 * count(pod)  # what is no number for requests is none here
                        yield _row({"__name__": name, **where(pod), "le": edge}, scrape.timely.get(pod.uid, 0.0) + late)
        elif found := _NAMES.search(query):
            names = re.compile(found[1])
            series = (
                _per_model(engines, count, lambda pod: scrape.prompt_tokens.get(pod.uid, 0.0))
                if query.startswith(_SUMS)
                else [(pod.name, row) for pod in engines for row in _per_engine(count(pod))]
                + [(pod.name, ("vllm_router_processed_requests_total", count(pod))) for pod in routers]
            )
            second = "goodput_dev_model" if query.startswith(_SUMS) else "pod"
            for whose, (name, value) in series:
                if names.fullmatch(name):
                    yield _row({"__name__": name, "namespace": namespace, second: whose}, value)


def _per_engine(requests: float) -> list[tuple[str, float]]:
    return [
        ("vllm:time_to_first_token_seconds_count", requests),
        ("vllm:e2e_request_latency_seconds_count", requests),
        ("vllm:num_requests_running", 1.0),
        ("vllm:num_requests_waiting", 0.0),
        ("vllm:admission_rejections_total", 0.0),
        ("vllm:kv_cache_usage_perc", 0.1),
    ]


def _per_model(
    engines: list[Seen], count: Callable[[Seen], float], prompt_tokens: Callable[[Seen], float]
) -> list[tuple[str, tuple[str, float]]]:
    requests = sum(count(pod) for pod in engines)
    # What is no number for requests is none for their tokens.
    prompts = sum(prompt_tokens(pod) + 0.0 * count(pod) for pod in engines)
    return [
        (MODEL, ("vllm:prompt_tokens_total", prompts)),
        (MODEL, ("vllm:prompt_tokens_cached_total", 0.0)),
        (MODEL, ("vllm:generation_tokens_total", requests * OUTPUT_TOKENS)),
    ]


MODEL = "llama-8b"
"""The name of the Model in every namespace of these tests."""


def _row(labels: dict[str, str], value: float) -> Row:
    return {"metric": labels, "value": [time.time(), "NaN" if math.isnan(value) else repr(value)]}


def _json(result: Any) -> web.Response:
    body = {"status": "success", "data": {"resultType": "vector", "result": result}}
    return web.Response(text=json.dumps(body), content_type="application/json")
