"""Vectors become telemetry: counters by pod, exact or interpolated edges, and names for what is missing."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import pytest
from tests.podtables import row as seen

from goodput.adapters.metric_names import Quantity
from goodput.adapters.readings import Scraped, interpolated, telemetry_of
from goodput.adapters.tables import OfferedBook, RouterCounts, Tables
from goodput.adapters.telemetry import Wanted
from goodput.adapters.vectors import Decoder, Vector
from goodput.domain.identity import Key
from goodput.domain.intent import Objective
from goodput.domain.observed import ModelTelemetry

CHAT = Objective(ttft_seconds=0.5, tpot_seconds=0.05, e2e_seconds=None)
KEY = Key("team", "llama")


DECODER = Decoder()
Row = dict[str, Any]


def row(name: str, value: float | str, pod: str = "p1", **labels: str) -> Row:
    return {"metric": {"__name__": name, "namespace": "team", "pod": pod, **labels}, "value": [0, str(value)]}


def vector(*rows: Row) -> Vector:
    found = DECODER.decode(json.dumps({"data": {"result": rows}}).encode())
    assert isinstance(found, Vector)
    return found


def scraped(at: float, *pods: str) -> Tables:
    found = Tables(slots=DECODER.slots)
    found.add_scrapes(vector(*(row("up", at, pod) for pod in pods)))
    return found


def wanted(
    *pods: str, serving: tuple[str, ...] | None = None, routers: tuple[str, ...] = (), routed: bool = True
) -> Wanted:
    serving = pods if serving is None else serving
    return Wanted(key=KEY, objective=CHAT, pods=pods, serving=serving, routers=routers, routed=routed)


def tables(*pods: str, but: Mapping[str, float | str | None] | None = None) -> Tables:
    """Everything there, for these pods, scraped at 100; `but` gives other values by name, None for absent."""
    found = scraped(100.0, *pods)
    values: dict[str, float | str | None] = {
        "vllm:time_to_first_token_seconds_count": 50,
        "vllm:e2e_request_latency_seconds_count": 40,
        "vllm:num_requests_running": 3,
        "vllm:num_requests_waiting": 1,
        "vllm:admission_rejections_total": 2,
        **(but or {}),
    }
    edges: dict[str, tuple[float | str | None, str]] = {
        "vllm:time_to_first_token_seconds_bucket": (45, "0.5"),
        "vllm:request_time_per_output_token_seconds_bucket": (39, "0.05"),
    }
    found.add_engine(
        vector(*(row(name, value, pod) for pod in pods for name, value in values.items() if value is not None))
    )
    found.add_buckets(vector(*(row(name, count, pod, le=le) for pod in pods for name, (count, le) in edges.items())))
    return found


def model_telemetry(model: Wanted, found: Tables) -> ModelTelemetry:
    return telemetry_of(Scraped([model], found), found)[model.key]


def test_counters_of_a_pod() -> None:
    """Each counter lands in its field, with the timestamp of its scrape, and nothing is missing."""
    telemetry = model_telemetry(wanted("p1"), tables("p1"))
    assert telemetry.problem == ""
    assert telemetry.pool is not None
    assert telemetry.pool.counters.pods == ("p1",)
    pod = seen(telemetry.pool.counters)
    assert (pod.scraped_at, pod.first_tokens, pod.ttft_within, pod.finished) == (100.0, 50.0, 45.0, 40.0)
    assert (pod.tpot_within, pod.e2e_within, pod.running, pod.waiting, pod.rejected) == (39.0, None, 3.0, 1.0, 2.0)
    assert pod.unsure == 0.0


def test_absent_is_not_zero() -> None:
    """A metric that a serving pod does not export is None and named, never 0."""
    telemetry = model_telemetry(wanted("p1"), tables("p1", but={"vllm:e2e_request_latency_seconds_count": None}))
    assert telemetry.pool is not None
    assert seen(telemetry.pool.counters).finished is None
    assert "vllm:e2e_request_latency_seconds_count" in telemetry.problem


def test_a_ready_pod_that_was_never_scraped_is_a_problem_and_a_new_one_is_not() -> None:
    """Only pods that must have been scraped by now are missed."""
    assert "p2" in model_telemetry(wanted("p1", "p2"), tables("p1")).problem
    assert model_telemetry(wanted("p1", "p2", serving=("p1",)), tables("p1")).problem == ""


def test_nothing_at_all_with_and_without_series_of_foreign_labels() -> None:
    """No pod scraped is no pool; unlabelled engine series in the namespace are recognised."""
    found = Tables()
    telemetry = model_telemetry(wanted("p1"), found)
    assert telemetry.pool is None
    assert not telemetry.unlabelled
    found.unlabelled_namespaces = frozenset({"team"})
    assert model_telemetry(wanted("p1"), found).unlabelled


@pytest.mark.parametrize("bad", ["NaN", "+Inf", "-1", "1e308"])
@pytest.mark.parametrize("name", ["vllm:num_requests_waiting", "vllm:admission_rejections_total"])
def test_what_is_no_count_is_told(name: str, bad: str) -> None:
    """A NaN is never dropped to look like calm: the law hears of it, of this Model alone."""
    found = tables("p1", but={name: bad})
    pool = model_telemetry(wanted("p1", serving=()), found).pool
    assert pool is not None
    assert pool.fault.startswith(f"of pod p1, {name} is ")
    other = model_telemetry(wanted("p2"), found).pool
    assert other is None or not other.fault


def test_buckets_and_times_that_are_no_counts_are_told() -> None:
    """Wherever such a value is."""
    found = tables("p1")
    found.add_buckets(vector(row("vllm:time_to_first_token_seconds_bucket", "NaN", le="0.5")))
    pool = model_telemetry(wanted("p1", serving=()), found).pool
    assert pool is not None
    assert "vllm:time_to_first_token_seconds_bucket is nan" in pool.fault
    timeless = scraped(-5.0, "p1")
    pool = model_telemetry(wanted("p1", serving=()), timeless).pool
    assert pool is not None
    assert "is -5.0" in pool.fault


@pytest.mark.parametrize("routed", [True, False])
@pytest.mark.parametrize(
    ("pod", "labels", "unlisted"),
    [
        pytest.param("p3", {"goodput_dev_model": "llama"}, True, id="a pod that the watch has not told of"),
        pytest.param("r1", {"goodput_dev_model": "llama"}, False, id="a router that is known"),
        pytest.param("p2", {"goodput_dev_model": "llama"}, False, id="known, and not long ready"),
        pytest.param("p3", {"goodput_dev_model": "mistral"}, False, id="of another Model"),
        pytest.param("p3", {"goodput_dev_model": "llama", "namespace": "else"}, False, id="of another namespace"),
        pytest.param("p3", {}, False, id="of nobody"),
    ],
)
def test_pods_that_are_scraped_and_not_known_are_told(
    pod: str, labels: dict[str, str], unlisted: bool, routed: bool
) -> None:
    """Sums by Model are over them as well."""
    found = Tables(slots=DECODER.slots)
    found.add_scrapes(vector(row("up", 100.0, "p1", goodput_dev_model="llama"), row("up", 100.0, pod, **labels)))
    read = model_telemetry(wanted("p1", "p2", serving=("p1",), routers=("r1",), routed=routed), found)
    assert read.pool is not None
    assert read.pool.unlisted is unlisted
    assert (read.router is not None) is (routed and pod == "r1")


def test_of_two_names_of_one_quantity_the_newer_counts() -> None:
    """A pod that exports an old and a new name is read by the new one, whatever the order of rows."""
    new = row("vllm:prompt_tokens_cached_total", 7, goodput_dev_model="llama")
    old = row("vllm:prefix_cache_hits_total", 9, goodput_dev_model="llama")
    for rows in ([new, old], [old, new]):
        found = tables("p1")
        found.add_pools(vector(*rows))
        pool = model_telemetry(wanted("p1"), found).pool
        assert pool is not None
        assert pool.cached_prompt_tokens == 7.0


@pytest.mark.parametrize(
    ("edges", "total", "want"),
    [
        pytest.param({0.5: 30.0}, 50.0, (30.0, 0.0), id="exact"),
        pytest.param({0.4: 20.0, 0.6: 40.0}, 50.0, (30.0, 20.0), id="halfway between two edges"),
        pytest.param({0.6: 12.0}, 50.0, (10.0, 12.0), id="below the first edge"),
        pytest.param({0.4: 20.0}, 50.0, (20.0, 30.0), id="beyond the last edge nothing more counts as good"),
        pytest.param({}, 50.0, None, id="no edge"),
    ],
)
def test_interpolation(edges: dict[float, float], total: float, want: tuple[float, float] | None) -> None:
    """Between exported edges the count is interpolated, and the possible error is the count between them."""
    got = interpolated(edges, 0.5, total)
    assert got == (None if want is None else pytest.approx(want))


EDGES = {"0.4": 40.0, "0.6": 48.0}


def test_requests_between_edges_are_counted_as_unsure() -> None:
    """An SLO between edges is served by interpolation, and how many may be on either side is told."""
    found = tables("p1")
    del found.within[Quantity.TTFT_WITHIN][0.5]
    buckets = [row("vllm:time_to_first_token_seconds_bucket", count, le=le) for le, count in EDGES.items()]
    found.add_buckets(vector(*buckets))
    assert Scraped([wanted("p1")], found).missing_edges(found) == {Quantity.TTFT_WITHIN: frozenset({0.5})}
    pool = model_telemetry(wanted("p1"), found).pool
    assert pool is not None
    pod = seen(pool.counters)
    assert pod.ttft_within == pytest.approx(44.0)
    assert pod.unsure == 8.0


def test_the_router_counts_each_request_once() -> None:
    """Attempts and attempts without an engine, less retries; failures are refusals and exhausted retries."""
    found = scraped(99.0, "r1", "r2")
    found.add_routers(
        vector(
            row("vllm_router_processed_requests_total", 33, "r1"),
            row("vllm_router_retries_total", 25, "r1"),
            row("vllm_router_request_errors_total", 8, "r1", error_type="no_available_workers"),
            row("vllm_router_request_errors_total", 2, "r1", error_type="non_retryable_error"),
            row("vllm_router_retries_exhausted_total", 4, "r1"),
        ),
        OfferedBook(),
    )
    router = model_telemetry(wanted("p1", routers=("r2", "r1", "r3")), found).router
    assert router is not None
    # r2 was scraped and has counted nothing yet; r3 was not scraped.
    assert router.requests == (("r1", 99.0, 16.0), ("r2", 99.0, 0.0))
    assert router.errors == (("r1", 99.0, 6.0), ("r2", 99.0, 0.0))


def test_offered_never_falls_but_at_a_restart() -> None:
    """A retry that is planned before its attempt starts makes no dip; a restarted router begins anew."""
    book, pod = OfferedBook(), ("team", "r1")
    assert book.take({pod: RouterCounts(attempts=100, retries=10)}) == {pod: 90.0}
    assert book.take({pod: RouterCounts(attempts=100, retries=13)}) == {pod: 90.0}
    assert book.take({pod: RouterCounts(attempts=105, retries=13)}) == {pod: 92.0}
    assert book.take({pod: RouterCounts(attempts=3, retries=0)}) == {pod: 3.0}


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_router_counter_that_is_no_count_is_passed_on_and_forgotten(bad: float) -> None:
    """The law hears of it, and the next sound look goes on where the last one was."""
    book, pod = OfferedBook(), ("team", "r1")
    assert book.take({pod: RouterCounts(attempts=100)}) == {pod: 100.0}
    for broken in (RouterCounts(attempts=bad), RouterCounts(attempts=101, no_worker=bad)):
        assert not math.isfinite(book.take({pod: broken})[pod])
    assert book.take({pod: RouterCounts(attempts=102)}) == {pod: 102.0}


def test_one_edge_that_is_written_in_two_ways_is_the_larger_count() -> None:
    """After an upgrade of Prometheus the series of before stands still beside the new one, in whatever order."""
    for counts in ((45, 50), (50, 45)):
        found = tables("p1")
        name = "vllm:time_to_first_token_seconds_bucket"
        found.add_buckets(vector(*(row(name, count, le=le) for le, count in zip(("0.5", "0.50"), counts, strict=True))))
        pool = model_telemetry(wanted("p1"), found).pool
        assert pool is not None
        assert seen(pool.counters).ttft_within == 50.0
