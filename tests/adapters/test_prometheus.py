"""Reading Prometheus: few queries at one instant, within a deadline, and errors in words."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import orjson
import pytest
from tests.podtables import row

from goodput.adapters import promql
from goodput.adapters.metric_names import POD_LABEL_POOL, Quantity
from goodput.adapters.prometheus import SETTLE_SECONDS, PrometheusSettings, PrometheusTelemetry
from goodput.adapters.telemetry import Wanted
from goodput.domain.identity import CANARY_POOL, CHECK_POOL, ROUTER_POOL, SERVE_POOL, Key
from goodput.domain.intent import Objective

CHAT = Objective(ttft_seconds=0.5, tpot_seconds=0.05, e2e_seconds=None)


class Store:
    """A Prometheus that knows a few series; edges of the TTFT histogram are those given."""

    def __init__(self) -> None:
        self.queries: list[tuple[str, str | None]] = []
        self.edges = ["0.25", "0.5", "1.0", "+Inf"]
        self.labelled = True
        self.delay_seconds = 0.0
        self.status = 200

    def answer(self, query: str) -> Any:
        if query == promql.SERVER_TIME:
            return [1000.0, "1000"]
        if query == promql.UNLABELLED:
            return [] if self.labelled else [{"metric": {"namespace": "a"}, "value": [0, "1"]}]
        if not self.labelled:
            return []
        if query.startswith("group by (le)"):
            return [{"metric": {"le": edge}, "value": [0, "1"]} for edge in self.edges]
        pod = {"namespace": "a", "pod": "p"}
        if query == promql.SCRAPES:
            return [{"metric": pod, "value": [1000, "990"]}]
        if query == promql.ENGINE:
            names = ("time_to_first_token_seconds_count", "e2e_request_latency_seconds_count")
            gauges = ("num_requests_running", "num_requests_waiting")
            return [self.row(f"vllm:{name}", "100", pod) for name in (*names, *gauges)]
        if "_bucket" in query and "histogram_quantile" not in query:
            asked = {le for regex in re.findall(r'le=~"([^"]*)"', query) for le in regex.replace("\\\\", "").split("|")}
            rows = []
            for edge in self.edges:
                if edge in asked:
                    count = {"0.25": "50", "0.5": "90", "1.0": "100"}.get(edge, "100")
                    rows.append(self.row("vllm:time_to_first_token_seconds_bucket", count, {**pod, "le": edge}))
            if "0.05" in asked:
                rows.append(self.row("vllm:request_time_per_output_token_seconds_bucket", "95", {**pod, "le": "0.05"}))
            return rows
        if "histogram_quantile" in query:
            return [{"metric": {"namespace": "a", "goodput_dev_model": "m"}, "value": [0, "NaN"]}]
        return []

    @staticmethod
    def row(name: str, value: str, labels: dict[str, str]) -> dict[str, Any]:
        return {"metric": {"__name__": name, **labels}, "value": [0, value]}


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            given = parse_qs(urlparse(self.path).query)
            query = given["query"][0]
            made.queries.append((query, given.get("time", [None])[0]))
            assert re.fullmatch(r"\d+ms", given["timeout"][0])
            time.sleep(made.delay_seconds)
            body = orjson.dumps({"status": "success", "data": {"result": made.answer(query)}})
            self.send_response(made.status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    made.url = f"http://127.0.0.1:{server.server_port}"  # type: ignore[attr-defined]
    yield made
    server.shutdown()
    server.server_close()


def wanted(count: int = 1) -> list[Wanted]:
    others = [Wanted(key=Key("a", f"m{n}"), objective=CHAT, pods=(), serving=()) for n in range(1, count)]
    return [Wanted(key=Key("a", "m"), objective=CHAT, pods=("p",), serving=("p",)), *others]


def telemetry(store: Store, **options: Any) -> PrometheusTelemetry:
    return PrometheusTelemetry(PrometheusSettings(store.url), **options)  # type: ignore[attr-defined]


async def test_reads_the_fleet_at_one_instant(store: Store) -> None:
    """Every query looks at the same settled instant, and their number does not depend on the fleet."""
    reading = await telemetry(store).read(wanted(1))
    assert reading.error == ""
    model = reading.models[Key("a", "m")]
    assert model.problem == ""
    assert model.pool is not None
    seen = row(model.pool.counters)
    assert (seen.scraped_at, seen.ttft_within) == (990.0, 90.0)
    assert model.pool.request_seconds_p95 is None
    times = {at for query, at in store.queries if query != promql.SERVER_TIME}
    assert times == {f"{1000.0 - SETTLE_SECONDS:.3f}"}
    few = len(store.queries)
    store.queries.clear()
    await telemetry(store).read(wanted(500))
    assert len(store.queries) == few


async def test_interpolates_where_the_threshold_is_no_edge(store: Store) -> None:
    """Without the exact edge its neighbours are asked for, and the error is told."""
    store.edges = ["0.25", "1.0", "+Inf"]
    reading = await telemetry(store).read(wanted())
    pool = reading.models[Key("a", "m")].pool
    assert pool is not None
    seen = row(pool.counters)
    assert seen.ttft_within == pytest.approx(50 + 50 * (0.25 / 0.75))
    assert seen.unsure == 50.0


async def test_series_without_our_labels_are_recognised(store: Store) -> None:
    """Engines that are scraped without our pod labels are told apart from no metrics at all."""
    store.labelled = False
    model = (await telemetry(store).read(wanted())).models[Key("a", "m")]
    assert model.pool is None
    assert model.unlabelled


async def test_a_slow_server_costs_no_more_than_the_deadline(store: Store) -> None:
    """Past the deadline there is an error, and a reading that still runs is not piled upon."""
    store.delay_seconds = 0.4
    slow = telemetry(store, deadline_seconds=0.3)
    started = time.monotonic()
    reading = await slow.read(wanted())
    assert "answer" in reading.error
    assert time.monotonic() - started < 3.0
    slow.close()


async def test_refusals_and_absence_are_errors_in_words(store: Store) -> None:
    """A refused query and a server that is not there are errors, never an empty fleet."""
    store.status = 400
    assert "refused" in (await telemetry(store).read(wanted())).error
    nowhere = PrometheusTelemetry(PrometheusSettings("http://127.0.0.1:1"))
    error = (await nowhere.read(wanted())).error
    assert "http://127.0.0.1:1" in error
    assert "onnection refused" in error


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://u:hunter2@127.0.0.1:1", "Prometheus at http://127.0.0.1:1 cannot be read: [Errno 111]"),
        ("http://u:hunter2@127.0.0.1:1/@prom", "Prometheus at http://"),
        ("http://u:hun/ter2@127.0.0.1:1", "Prometheus at http://127.0.0.1:1 cannot be read: that is no URL"),
        ("u:hunter2@127.0.0.1:1", "Prometheus at 127.0.0.1:1 cannot be read: that is no URL"),
        ("http://u:hunter2@", "Prometheus at http:// cannot be read: that is no URL"),
        ("http://u:hun\u20acter2@127.0.0.1:1", "Prometheus at http://127.0.0.1:1 cannot be read: that is no URL"),
    ],
)
async def test_the_password_of_a_url_is_never_told(url: str, told: str) -> None:
    """Errors go on to conditions, events and logs: whatever is wrong, they name the server alone."""
    error = (await PrometheusTelemetry(PrometheusSettings(url)).read(wanted())).error
    assert error.startswith(told)
    assert "hun" not in error
    assert "ter2" not in error


async def test_a_server_that_repeats_the_password_does_not_spread_it(store: Store) -> None:
    """A proxy may quote the address that it was asked for in its own error."""
    host = store.url.removeprefix("http://")  # type: ignore[attr-defined]
    store.status, store.answer = 502, lambda _: f"no route to http://u:hunter2@{host}/api"  # type: ignore[method-assign]
    error = (await PrometheusTelemetry(PrometheusSettings(f"http://u:hunter2@{host}")).read(wanted())).error
    assert "hunter2" not in error
    store.status, store.answer = 400, lambda _: f"no route to http://u:hunter2@{host}/api"  # type: ignore[method-assign]
    error = (await PrometheusTelemetry(PrometheusSettings(f"http://u:hunter2@{host}")).read(wanted())).error
    assert f"no route to http://{host}/api" in error


@pytest.mark.parametrize("content", [b"hunter2\nx", "hunter2\u20ac".encode(), b"\xff\xfehunter2", b""])
async def test_a_token_that_cannot_be_sent_is_not_quoted(content: bytes, tmp_path: Path) -> None:
    """The file is named instead."""
    file = tmp_path / "token"
    file.write_bytes(content)
    error = (await PrometheusTelemetry(PrometheusSettings("http://127.0.0.1:1", str(file))).read(wanted())).error
    assert f"{file} holds no bearer token" in error
    assert "hunter2" not in error


async def test_a_token_is_sent_without_the_end_of_its_line(store: Store, tmp_path: Path) -> None:
    """As Kubernetes and editors write it."""
    file = tmp_path / "token"
    file.write_text("abc.DEF-123\n")
    reader = PrometheusTelemetry(PrometheusSettings(store.url, str(file)))  # type: ignore[attr-defined]
    assert (await reader.read(wanted())).error == ""
    assert reader._session.headers["Authorization"] == "Bearer abc.DEF-123"


@pytest.mark.parametrize(
    ("query", "pools"),
    [
        (promql.SCRAPES, {SERVE_POOL, ROUTER_POOL}),
        (promql.ENGINE, {SERVE_POOL}),
        (promql.POOLS, {SERVE_POOL}),
        (promql.ROUTERS, {ROUTER_POOL}),
        (promql.REQUEST_SECONDS_P95, {SERVE_POOL}),
        (promql.buckets({Quantity.TTFT_WITHIN: frozenset({1.0}), Quantity.E2E_WITHIN: frozenset({9.0})}), {SERVE_POOL}),
        (promql.known_edges(Quantity.TTFT_WITHIN), {SERVE_POOL}),
    ],
)
def test_every_query_asks_for_pods_that_serve_users(query: str, pools: set[str]) -> None:
    """A canary, and what judges it, may be scraped by whatever else scrapes there: they are in no answer."""
    selectors = re.findall(r"[\w:]*\{[^}]*\}", query)
    assert selectors
    for selector in selectors:
        (operator, matcher), *_ = re.findall(rf'{POD_LABEL_POOL}(=~|!=|!~|=)"([^"]*)"', selector)
        assert operator in ("=", "=~")
        every = (SERVE_POOL, ROUTER_POOL, CANARY_POOL, CHECK_POOL, "")
        assert {pool for pool in every if re.fullmatch(matcher, pool)} == pools


def test_bucket_queries_ask_for_both_spellings_of_an_edge() -> None:
    """`1` and `1.0` are one edge; dots are escaped for the regular expression within the string."""
    query = promql.buckets({Quantity.TTFT_WITHIN: frozenset({1.0, 0.5})})
    assert r'le=~"0\\.5|1|1\\.0"' in query
    assert promql.buckets({}) == ""


async def test_a_scalar_where_a_vector_was_asked_for_is_told(store: Store) -> None:
    """Whatever answers there is no Prometheus that can be read."""
    store.answer = lambda query: [1000.0, "1000"]  # type: ignore[method-assign]
    reading = await telemetry(store).read(wanted())
    assert "a scalar where a vector was asked for" in reading.error
