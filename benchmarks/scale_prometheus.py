"""A Prometheus that answers the operator's queries about a fleet that does not exist, with vectors of full size.

It knows the query texts from the operator's own module and evaluates nothing: for each it writes the vector that a real
server would answer. Counters advance with each scrape of a pod, every `--scrape` seconds, and timestamps follow. All
vectors are written when a scrape ends, before anybody asks, so that an answer costs the operator no waiting.

`POST /step {"models": 20, "times": 3}` multiplies the load of the first so many Models from the next scrape on.
`POST /fleet [[namespace, model, [engine pods], [router pods]], ...]` says what there is to scrape.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import orjson
from aiohttp import web

from goodput.adapters import promql
from goodput.adapters.metric_names import (
    ENGINE_BUCKETS,
    ENGINE_COUNTERS,
    POD_LABEL_MODEL,
    POOL_SUMS,
    ROUTER_COUNTERS,
    Quantity,
)

# Load of one Model before the step, in requests a second: what ten engines carry with ease.
MODEL_RPS = 12.0
INPUT_TOKENS, OUTPUT_TOKENS = 1155.0, 211.0
# The edges that an engine exports here, and the share of requests within each: those of the objectives are met.
EDGES = {
    Quantity.TTFT_WITHIN: {0.25: 0.90, 0.5: 0.995, 1.0: 1.0},
    Quantity.TPOT_WITHIN: {0.025: 0.70, 0.05: 0.995, 0.1: 1.0},
    Quantity.E2E_WITHIN: {5.0: 0.50, 10.0: 0.97, 20.0: 1.0},
}
REQUEST_P95_SECONDS = 9.0
# Scrapes of the pods are spread over this part of an interval.
SPREAD_SECONDS = 5.0

Rows = Iterator[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Served:
    """One Model with the requests that it has served so far."""

    namespace: str
    name: str
    engines: list[str]
    routers: list[str]
    times: float = 1.0
    requests: float = 1000.0

    def after(self, seconds: float, times: float) -> Served:
        """The same when it has served so much longer, at so many times the load."""
        return replace(self, times=times, requests=self.requests + MODEL_RPS * times * seconds)

    def engine_values(self, quantity: Quantity) -> float:
        """Of one engine pod: each has an equal share, in whole requests."""
        share = self.requests // max(1, len(self.engines))
        running = round(MODEL_RPS * self.times * REQUEST_P95_SECONDS / 2 / max(1, len(self.engines)))
        return {Quantity.RUNNING: running, Quantity.WAITING: 0.0, Quantity.REJECTED: 0.0}.get(quantity, share)

    def sums(self, quantity: Quantity) -> float:
        """Of the whole pool."""
        each = {
            Quantity.PROMPT_TOKENS: INPUT_TOKENS,
            Quantity.CACHED_PROMPT_TOKENS: 0.1 * INPUT_TOKENS,
            Quantity.GENERATION_TOKENS: OUTPUT_TOKENS,
            Quantity.ITL_SUM: 0.03 * OUTPUT_TOKENS,
            Quantity.ITL_COUNT: OUTPUT_TOKENS,
            Quantity.PREFILL_SUM: 0.12,
            Quantity.PREFILL_COUNT: 1.0,
        }
        return self.requests * each[quantity]


# Engines that do not speculate export none of these.
_SPECULATION = frozenset({Quantity.DRAFTS, Quantity.ACCEPTED_TOKENS})


@dataclass(slots=True)
class Scraped:
    """All Models as the last scrape found them, and the answers of that scrape by query text."""

    scraped_at: float
    models: list[Served]
    answers: dict[str, bytes] = field(default_factory=dict)

    def answer(self, query: str) -> bytes:
        """Written now if nobody asked this before."""
        if query not in self.answers:
            self.answers[query] = self._written(query)
        return self.answers[query]

    def write(self, queries: Iterable[str]) -> None:
        """Write the answers to these queries."""
        for query in queries:
            self.answer(query)

    def _written(self, query: str) -> bytes:
        at = f"{self.scraped_at:.3f}"
        rows = ",".join(
            f'{{"metric":{{{labels}}},"value":[{at},"{value:.12g}"]}}' for labels, value in self._rows(query)
        )
        return f'{{"status":"success","data":{{"resultType":"vector","result":[{rows}]}}}}'.encode()

    def _rows(self, query: str) -> Rows:
        """Labels as JSON without braces, and the value.

        Raises:
            KeyError: the operator asks what is not known here.
        """
        if query == promql.SCRAPES:
            return self._scrapes()
        if query == promql.ENGINE:
            return self._engine()
        if query == promql.POOLS:
            return self._pools()
        if query == promql.ROUTERS:
            return self._routers()
        if query == promql.REQUEST_SECONDS_P95:
            return ((self._model(model), REQUEST_P95_SECONDS) for model in self.models)
        if query == promql.UNLABELLED:
            return iter(())
        bucket = next((each for each in EDGES if query == promql.known_edges(each)), None)
        if bucket is not None:
            return ((f'"le":"{edge}"', 1.0) for edge in EDGES[bucket])
        if 'le=~"' in query:
            return self._buckets(query)
        raise KeyError(query)

    @staticmethod
    def _model(model: Served) -> str:
        return f'"{POD_LABEL_MODEL}":"{model.name}","namespace":"{model.namespace}"'

    def _scrapes(self) -> Rows:
        numbers = itertools.count()
        for model in self.models:
            for pod in (*model.engines, *model.routers):
                offset = (next(numbers) * 0.618) % SPREAD_SECONDS
                yield f'{self._model(model)},"pod":"{pod}"', self.scraped_at - offset

    def _engine(self) -> Rows:
        for quantity, names in ENGINE_COUNTERS.items():
            name = names.alternatives[0]
            for model in self.models:
                value = model.engine_values(quantity)
                for pod in model.engines:
                    yield f'"__name__":"{name}","namespace":"{model.namespace}","pod":"{pod}"', value

    def _buckets(self, query: str) -> Rows:
        for quantity, shares in EDGES.items():
            name = ENGINE_BUCKETS[quantity].alternatives[0]
            asked = re.search(re.escape(name) + r'\{[^}]*le=~"([^"]*)"', query)
            if asked is None:
                continue
            labels = re.compile(asked[1].replace("\\\\", "\\"))
            for edge, share in shares.items():
                if labels.fullmatch(str(edge)) is None:
                    continue
                for model in self.models:
                    value = float(round(share * model.engine_values(Quantity.FIRST_TOKENS)))
                    for pod in model.engines:
                        yield (
                            f'"__name__":"{name}","le":"{edge}","namespace":"{model.namespace}","pod":"{pod}"',
                            value,
                        )

    def _pools(self) -> Rows:
        for quantity, names in POOL_SUMS.items():
            if quantity in _SPECULATION:
                continue
            for model in self.models:
                yield f'"__name__":"{names.alternatives[0]}",{self._model(model)}', model.sums(quantity)

    def _routers(self) -> Rows:
        name = ROUTER_COUNTERS[Quantity.ROUTER_ATTEMPTS].alternatives[0]
        for model in self.models:
            for pod in model.routers:
                labels = f'"__name__":"{name}","namespace":"{model.namespace}","pod":"{pod}"'
                yield labels, model.requests // len(model.routers)


@dataclass(slots=True)
class Fleet:
    """The last two scrapes: the queries of one reading look at one instant, and a scrape may end between them."""

    scrape_seconds: float
    now: Scraped
    before: Scraped
    published_at: float = 0.0
    stepped: int = 0
    times: float = 1.0

    def answer(self, query: str, at: float) -> bytes:
        """What was known at this instant (Unix seconds)."""
        return (self.now if at >= self.published_at else self.before).answer(query)

    def publish(self, scraped: Scraped) -> None:
        """From now on this is the last scrape."""
        self.before, self.now, self.published_at = self.now, scraped, time.time()

    async def scrape(self) -> None:
        """Advance and write all answers anew, for ever."""
        while True:
            due = self.now.scraped_at + self.scrape_seconds
            await asyncio.sleep(max(0.0, due - time.time()))
            last = self.now
            later = [
                model.after(self.scrape_seconds, self.times if number < self.stepped else 1.0)
                for number, model in enumerate(last.models)
            ]
            scraped = Scraped(due, later)
            await asyncio.to_thread(scraped.write, tuple(last.answers))
            # Another fleet may have been given meanwhile.
            if self.now is last:
                self.publish(scraped)


def application(fleet: Fleet) -> web.Application:
    """The HTTP interface."""

    async def query(request: web.Request) -> web.Response:
        text = request.query.get("query", "")
        if text == promql.SERVER_TIME:
            now = time.time()
            data = {"resultType": "scalar", "result": [now, repr(now)]}
            return web.json_response({"status": "success", "data": data})
        try:
            body = fleet.answer(text, float(request.query.get("time", time.time())))
        except KeyError:
            error = {"status": "error", "errorType": "bad_data", "error": f"not a query of the operator: {text}"}
            return web.json_response(error, status=400)
        return web.Response(body=body, content_type="application/json")

    async def step(request: web.Request) -> web.Response:
        asked = await request.json()
        fleet.stepped, fleet.times = int(asked["models"]), float(asked["times"])
        return web.Response()

    async def replace_fleet(request: web.Request) -> web.Response:
        scraped = Scraped(fleet.now.scraped_at, [Served(*entry) for entry in orjson.loads(await request.read())])
        await asyncio.to_thread(scraped.write, tuple(fleet.now.answers))
        fleet.publish(scraped)
        return web.Response()

    app = web.Application(client_max_size=64 * 2**20)
    app.add_routes(
        [
            web.get("/api/v1/query", query),
            web.get("/-/ready", lambda _: _ready()),
            web.post("/step", step),
            web.post("/fleet", replace_fleet),
        ]
    )
    return app


async def _ready() -> web.Response:
    return web.Response(text="ready")


async def serve(port: int, scrape_seconds: float) -> None:
    """Serve until killed."""
    nothing = Scraped(time.time(), [])
    fleet = Fleet(scrape_seconds, nothing, nothing)
    runner = web.AppRunner(application(fleet), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await fleet.scrape()


def main() -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--scrape", type=float, default=15.0)
    arguments = parser.parse_args()
    asyncio.run(serve(arguments.port, arguments.scrape))


if __name__ == "__main__":
    main()
