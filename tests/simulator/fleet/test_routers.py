"""How routers choose, retry and refuse."""

from collections import Counter

import pytest
from tests.simulator.fleet.fleets import PLANT, poisson, settings, steady

from goodput.simulator.capacity import engine_config
from goodput.simulator.fleet.balance import Choice, Worker, cache_aware, least_in_flight, round_robin
from goodput.simulator.fleet.clients import OpenLoop
from goodput.simulator.fleet.faults import Crash
from goodput.simulator.fleet.pods import Pod
from goodput.simulator.fleet.requests import Ask, End, engine_hashes
from goodput.simulator.fleet.settings import Edges, RouterSettings
from goodput.simulator.fleet.simulation import simulate


def _workers(*in_flight: int) -> list[Worker]:
    return [
        Worker(Pod(number, 0.0, PLANT, engine_config(PLANT), Edges()), load)
        for number, load in enumerate(in_flight, start=1)
    ]


def _choice(workers: list[Worker], ask: Ask, *, serial: int = 0, tried: tuple[Worker, ...] = ()) -> Choice:
    return Choice(workers, ask, list(tried), serial, RouterSettings())


PLAIN = Ask(0.0, 160, 10)


def test_round_robin_takes_one_after_the_other():
    workers = _workers(5, 0, 9)
    assert [workers.index(round_robin(_choice(workers, PLAIN, serial=serial))) for serial in range(4)] == [0, 1, 2, 0]


def test_least_in_flight_takes_another_one_for_a_retry():
    workers = _workers(2, 1, 4)
    assert least_in_flight(_choice(workers, PLAIN)) is workers[1]
    assert least_in_flight(_choice(workers, PLAIN, tried=(workers[1],))) is workers[0]
    assert least_in_flight(_choice(workers[:1], PLAIN, tried=(workers[0],))) is workers[0]


def test_cache_aware_sends_unknown_prompts_to_the_smallest_tree():
    """Whatever the loads, as long as they are within 2 of each other: a fresh engine is flooded so far."""
    workers = _workers(0, 0, 2)
    for worker, tokens in zip(workers, (5000, 4000, 100), strict=True):
        worker.tree_tokens = worker.loose_tokens = tokens
    assert cache_aware(_choice(workers, PLAIN)) is workers[2]
    assert workers[2].loose_tokens == 260


@pytest.mark.parametrize(
    ("loads", "want"),
    [
        ((1, 4, 3), 0),  # 3 apart and more than 1.2 x
        ((1, 3, 3), 1),  # 2 apart: equal enough, so the smallest tree
        ((30, 36, 33), 1),  # 6 apart, and 1.2 x exactly: equal enough
        ((30, 37, 33), 0),
    ],
)
def test_cache_aware_takes_the_least_loaded_of_unequal_engines(loads, want):
    workers = _workers(*loads)
    for worker, tokens in zip(workers, (900, 0, 900), strict=True):
        worker.tree_tokens = worker.loose_tokens = tokens
    assert cache_aware(_choice(workers, PLAIN)) is workers[want]


def test_cache_aware_follows_a_prefix_that_is_more_than_three_tenths_of_the_prompt():
    """Ten blocks: three that match are not enough, four are; the longest match wins."""
    workers = _workers(0, 0, 0)
    workers[0].remember(Ask(0.0, 48, 1, tuple(range(3))), 1000)
    workers[1].remember(Ask(0.0, 64, 1, tuple(range(4))), 1000)
    hashes = tuple(range(10))
    assert cache_aware(_choice(workers, Ask(0.0, 160, 10, (*hashes[:3], *range(20, 27))))) is workers[2]
    assert cache_aware(_choice(workers, Ask(0.0, 160, 10, hashes))) is workers[1]
    assert list(workers[1].blocks) == list(hashes)


def test_cache_aware_retries_where_it_was_refused_unless_loads_are_unequal():
    workers = _workers(3, 3)
    workers[1].tree_tokens = 500
    assert cache_aware(_choice(workers, PLAIN, tried=(workers[1],))) is workers[1]
    workers[1].in_flight = 9
    assert cache_aware(_choice(workers, PLAIN, tried=(workers[1],))) is workers[0]


def test_a_tree_forgets_what_was_used_longest_ago():
    (worker,) = _workers(0)
    for first in (0, 10, 0, 20):
        worker.remember(Ask(0.0, 160, 1, tuple(range(first, first + 10))), 320)
    assert set(worker.blocks) == {*range(10), *range(20, 30)}
    assert worker.tree_tokens == 320
    worker.remember(Ask(0.0, 100, 1), 320)
    assert (len(worker.blocks), worker.loose_tokens, worker.tree_tokens) == (20, 0, 320)


def test_an_unknown_balance_is_named():
    with pytest.raises(ValueError, match="power_of_two"):
        simulate(settings(10.0, router=RouterSettings(balance="power_of_two")), OpenLoop([]), steady(1))


def test_longer_blocks_of_a_trace_are_blocks_of_the_engine():
    """Two blocks of 64 tokens, the second one cut at 40: four and two full blocks of 16; four are those of another."""
    one = engine_hashes(Ask(0.0, 104, 1, (7, 8), hash_tokens=64), 16)
    other = engine_hashes(Ask(0.0, 128, 1, (7, 9), hash_tokens=64), 16)
    assert (len(one), len(other), len(set(one))) == (6, 8, 6)
    assert one[:4] == other[:4]
    assert one[4:] != other[4:6]
    assert engine_hashes(Ask(0.0, 40, 1, (1, 2, 3)), 16) == (1, 2)


def test_a_full_engine_refuses_and_another_one_takes_the_request():
    """Two engines for four requests each: eight at once are all served, of twelve four are refused after 3 attempts."""

    def ends(requests: int, balance: str) -> Counter[End | None]:
        engine = engine_config(PLANT)
        limited = settings(
            20.0,
            replicas=2,
            engine=type(engine)(kv_blocks=engine.kv_blocks, max_model_len=engine.max_model_len, max_num_queued_reqs=4),
            router=RouterSettings(balance=balance, replicas=1),
        )
        asks = [Ask(1.0 + 0.001 * number, 600, 200) for number in range(requests)]
        found = simulate(limited, OpenLoop(asks), steady(2))
        assert all(each.attempts == 3 for each in found.records if each.end is End.REFUSED)
        return Counter(each.end for each in found.records)

    for balance in ("round_robin", "least_in_flight"):
        assert ends(8, balance) == {End.FINISHED: 8}
        assert ends(12, balance) == {End.FINISHED: 8, End.REFUSED: 4}


def test_no_engine_is_a_refusal_after_all_attempts():
    """A fleet of one that crashed: until it is back, requests are answered 503 or cut."""
    fleet = settings(60.0, faults=(Crash(10.0, 1),), startup_seconds=200.0)
    found = simulate(fleet, OpenLoop(poisson(1.0, 60.0)), steady(1))
    late = [each for each in found.records if each.ask.seconds > 15.0]
    assert {each.end for each in late} == {End.REFUSED}
    assert {each.attempts for each in late} == {3}


def test_the_circuit_of_a_dead_engine_opens_before_its_health_checks_fail():
    """60 requests/s to two engines of which one died: after 30 failures in a row it is left out for a second."""
    fleet = settings(
        30.0,
        replicas=2,
        faults=(Crash(10.0, 1),),
        startup_seconds=200.0,
        router=RouterSettings(replicas=1, balance="least_in_flight", health_interval_seconds=10.0, attempts=2),
    )
    found = simulate(fleet, OpenLoop(poisson(60.0, 14.0, lengths=(20, 2))), steady(2))
    after = [each for each in found.records if 10.5 < each.ask.seconds < 14.0]
    # Without it, all of them would first be tried at the dead engine, which has no load.
    assert sum(1 for each in after if each.attempts == 1) > 0.4 * len(after)
    assert {each.end for each in after} == {End.FINISHED}


@pytest.mark.parametrize(("balance", "most"), [("round_robin", 1.05), ("least_in_flight", 1.3), ("cache_aware", 1.3)])
def test_equal_prompts_are_spread_evenly(balance, most):
    """Three engines, two routers that know their own half: none gets 1.3 times the mean."""
    fleet = settings(200.0, replicas=3, router=RouterSettings(balance=balance))
    found = simulate(fleet, OpenLoop(poisson(6.0, 200.0)), steady(3))
    served = Counter(each.pod for each in found.records)
    assert len(served) == 3
    assert max(served.values()) <= most * found.requests / 3


def test_prefix_affinity_raises_the_hit_rate():
    """Forty prompts, each asked ten times: with affinity one engine computes each, without it all three do."""

    def cached(balance: str) -> float:
        asks = [
            Ask(0.5 * number, 800, 20, tuple(range(100 * (number * 7 % 40), 100 * (number * 7 % 40) + 50)))
            for number in range(400)
        ]
        script = steady(3)
        fleet = settings(200.0, replicas=3, router=RouterSettings(balance=balance, replicas=1))
        simulate(fleet, OpenLoop(asks), script)
        scrapes = script.at(199.0).latest.values()
        return sum(each.cached_tokens for each in scrapes) / sum(each.prompt_tokens for each in scrapes)

    assert cached("cache_aware") > 0.85
    assert cached("cache_aware") > cached("round_robin") + 0.1
