"""Telemetry from a Prometheus server, through prometheus-api-client in a worker thread with a deadline."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from urllib3.util.retry import Retry

from goodput.adapters import promql
from goodput.adapters.metric_names import ENGINE_COUNTERS, Quantity
from goodput.adapters.readings import Scraped, neighbours, telemetry_of, thresholds
from goodput.adapters.tables import OfferedBook, Tables, finite_by_model
from goodput.adapters.telemetry import Reading, Wanted
from goodput.adapters.vectors import NOTHING, Decoder, Vector
from goodput.domain.errors import TelemetryUnavailable

DEADLINE_SECONDS = 8.0
# All queries look at one instant in the past: a scrape of then is in the database by now, so they see the same one.
SETTLE_SECONDS = 0.5
# The percentile of request time moves slowly and is the one query that reads all buckets.
P95_EVERY_SECONDS = 120.0
EDGES_EVERY_SECONDS = 300.0
_TOKEN = re.compile(rb"[!-~]+")
_USERINFO = re.compile(r"(?<=//)[^/\s'\"]*@")

_NO_URL = (
    requests.exceptions.InvalidURL,
    requests.exceptions.MissingSchema,
    requests.exceptions.InvalidSchema,
    UnicodeEncodeError,
)


_CHUNK_BYTES = 2**20


class _DecodingSession(requests.Session):
    """Gives the client, which reads `json()["data"]["result"]`, answers that are decoded as `vectors` says."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = Decoder()
        # Unpacking megabytes costs more than their way through a cluster.
        self.headers["Accept-Encoding"] = "identity"
        self.waited_seconds = 0.0  # for answers, in all

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        started = time.perf_counter()
        response = super().request(*args, **{**kwargs, "stream": True})
        self.waited_seconds += time.perf_counter() - started

        def json(**_: Any) -> Any:
            started = time.perf_counter()
            # In a few large pieces: seven megabytes in those of ten kilobytes take twice as long.
            content = b"".join(response.iter_content(_CHUNK_BYTES))
            self.waited_seconds += time.perf_counter() - started
            return {"data": {"result": self.decoder.decode(content)}}

        response.json = json  # type: ignore[method-assign]
        return response


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """Where Prometheus is; `url` may hold a password, `token_file` holds a bearer token, `ca_file` its authority."""

    url: str
    token_file: str = ""
    ca_file: str = ""

    def without_userinfo(self, text: str) -> str:
        """`text` without user and password of a URL: what is told here goes on to conditions, events and logs."""
        # All of it before the last @, since a password that is not percent-encoded may hold what ends a host.
        userinfo = self.url.rpartition("@")[0].split("://", 1)[-1]
        return _USERINFO.sub("", text.replace(f"{userinfo}@", "") if userinfo else text)


class PrometheusTelemetry:
    """`Telemetry` of one Prometheus server."""

    def __init__(
        self,
        settings: PrometheusSettings,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._deadline_seconds = deadline_seconds
        self._monotonic = monotonic
        session = _DecodingSession()
        session.verify = settings.ca_file or True
        self._session = session
        self._client = PrometheusConnect(
            url=settings.url.rstrip("/"),
            session=session,
            # A second attempt after a timeout would only be too late as well.
            retry=Retry(total=1, read=False, backoff_factor=0.2, status_forcelist=[429, 502, 503, 504]),
        )
        # One thread: requests' session is not shared, and a reading that hangs cannot pile up others behind it.
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="prometheus")
        self._running: Future[Reading] | None = None
        self._offered = OfferedBook()
        self._p95: dict[tuple[str, str], float] = {}
        self._p95_at = float("-inf")
        self._edges: dict[Quantity, frozenset[float]] = {}
        self._edges_at = float("-inf")

    async def read(self, wanted: Sequence[Wanted]) -> Reading:
        """Telemetry of these Models; never raises: `error` says why there is none."""
        if self._running is not None and not self._running.done():
            return Reading(error="the last reading of Prometheus still has not ended")
        self._running = self._executor.submit(self._read, tuple(wanted))
        try:
            # The thread gives up by itself soon after; its answer would be too old to use.
            async with asyncio.timeout(self._deadline_seconds + 1.0):
                return await asyncio.shield(asyncio.wrap_future(self._running))
        except TimeoutError:
            return Reading(error=f"Prometheus did not answer within {self._deadline_seconds:g} s")
        except TelemetryUnavailable as error:
            return Reading(error=str(error))

    def close(self) -> None:
        """Wait for nothing: a hanging request ends by its own timeout."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def _read(self, wanted: tuple[Wanted, ...]) -> Reading:
        give_up_at = self._monotonic() + self._deadline_seconds
        started = time.perf_counter() - self._session.waited_seconds
        try:
            at = float(self._query(promql.SERVER_TIME, None, give_up_at)[1]) - SETTLE_SECONDS
            scraped, tables = self._tables(wanted, at, give_up_at)
            self._session.decoder.forget_gone()
        except (KeyError, TypeError, ValueError, IndexError) as error:
            # Never the repr: that of a UnicodeError is the whole text that could not be coded.
            told = self._settings.without_userinfo(f"{type(error).__name__}: {error}")
            raise TelemetryUnavailable(f"Prometheus answered what cannot be read: {told[:300]}") from error
        models = telemetry_of(scraped, tables)
        missing: tuple[str, ...] = ()
        if any(model.serving for model in wanted):
            missing = tuple(
                names.alternatives[0] for quantity, names in ENGINE_COUNTERS.items() if quantity not in tables.engine
            )
        parse_seconds = time.perf_counter() - self._session.waited_seconds - started
        return Reading(models=models, missing=missing, parse_seconds=parse_seconds)

    def _tables(self, wanted: tuple[Wanted, ...], at: float, give_up_at: float) -> tuple[Scraped, Tables]:
        def ask(query: str) -> Vector:
            found = self._query(query, at, give_up_at) if query else NOTHING
            if not isinstance(found, Vector):
                raise TypeError("a scalar where a vector was asked for")
            return found

        scrapes = ask(promql.SCRAPES)
        tables = Tables(slots=self._session.decoder.slots)
        tables.add_scrapes(scrapes)
        tables.add_engine(ask(promql.ENGINE))
        edges: dict[Quantity, set[float]] = {}
        for model in wanted:
            for quantity, bound in thresholds(model.objective).items():
                edges.setdefault(quantity, set()).add(bound)
        tables.add_buckets(ask(promql.buckets({q: frozenset(bounds) for q, bounds in edges.items()})))
        scraped = Scraped(wanted, tables)
        self._add_neighbours(scraped, tables, ask)
        tables.add_pools(ask(promql.POOLS))
        tables.add_routers(ask(promql.ROUTERS), self._offered)
        self._add_p95(tables, ask)
        if any(model.serving and not self._seen(model, tables) for model in wanted):
            rows = ask(promql.UNLABELLED)
            tables.unlabelled_namespaces = frozenset(series.namespace for series, _ in rows)
        return scraped, tables

    @staticmethod
    def _seen(model: Wanted, tables: Tables) -> bool:
        return any(tables.slot((model.key.namespace, pod)) is not None for pod in model.pods)

    def _add_neighbours(self, scraped: Scraped, tables: Tables, ask: Callable[[str], Vector]) -> None:
        missing = scraped.missing_edges(tables)
        if not missing:
            return
        if self._monotonic() - self._edges_at > EDGES_EVERY_SECONDS or missing.keys() - self._edges.keys():
            for quantity in missing:
                rows = ask(promql.known_edges(quantity))
                self._edges[quantity] = frozenset(series.edge for series, _ in rows)
            # None: they may be there with the next scrape.
            self._edges_at = self._monotonic() if all(self._edges.values()) else float("-inf")
        near = {quantity: neighbours(bounds, self._edges[quantity]) for quantity, bounds in missing.items()}
        tables.add_buckets(ask(promql.buckets(near)))

    def _add_p95(self, tables: Tables, ask: Callable[[str], Vector]) -> None:
        if self._monotonic() - self._p95_at > P95_EVERY_SECONDS:
            self._p95 = finite_by_model(ask(promql.REQUEST_SECONDS_P95))
            self._p95_at = self._monotonic() if self._p95 else float("-inf")
        tables.p95 = self._p95

    def _query(self, query: str, at: float | None, give_up_at: float) -> Any:
        left = give_up_at - self._monotonic()
        if left <= 0.0:
            raise TelemetryUnavailable(f"Prometheus did not answer within {self._deadline_seconds:g} s")
        params = {"timeout": f"{max(1, int(1000 * left))}ms"}
        if at is not None:
            params["time"] = f"{at:.3f}"
        try:
            self._authorize()
            return self._client.custom_query(query, params=params, timeout=left)
        except PrometheusApiClientException as error:
            told = self._settings.without_userinfo(str(error))[:300]
            raise TelemetryUnavailable(f"Prometheus refused a query: {told}") from error
        except (requests.RequestException, msgspec.DecodeError, UnicodeEncodeError, OSError) as error:
            told = f"Prometheus at {self._settings.url} cannot be read: {_short(error)}"
            raise TelemetryUnavailable(self._settings.without_userinfo(told)[:300]) from error

    def _authorize(self) -> None:
        if self._settings.token_file:
            token = Path(self._settings.token_file).read_bytes().strip()
            # A header that cannot be sent would be quoted in the error.
            if not _TOKEN.fullmatch(token):
                raise TelemetryUnavailable(
                    f"{self._settings.token_file} holds no bearer token: one line of printable ASCII without spaces"
                )
            self._session.headers["Authorization"] = f"Bearer {token.decode()}"


def _short(error: Exception) -> str:
    """The cause in a few words, without addresses that change from one attempt to the next."""
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, _NO_URL):
        return "that is no URL of a server; in a user or password all but letters and digits is percent-encoded"
    if isinstance(error, requests.ConnectionError):
        reason = getattr(error.args[0], "reason", None) if error.args else None
        # urllib3 writes `<object>: Failed to establish a new connection: [Errno 111] Connection refused`.
        return str(reason if reason is not None else error).rsplit(": ", 1)[-1].strip("')\"")
    return f"{type(error).__name__}: {error}"
