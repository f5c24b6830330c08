"""Simulated replicas and fleets against queueing theory.

Twice: the same requests served by the recursion of the queue, where only the length of a step is left between the two;
and closed forms of means, with the tolerance that the chance of 3,000 requests needs. What these are given are the rate
and the services that were drawn.
"""

import math
import random
from itertools import pairwise

import pytest
from tests.simulator.fleet.fleets import Script, settings, steady
from tests.simulator.queues import (
    TOKEN_SECONDS,
    Served,
    config,
    fifo_waits,
    mdc_wait,
    mean,
    mg1_wait,
    mmc_wait,
    plant,
    poisson,
    replica,
    serve,
    shared_stays,
)

from goodput.simulator.fleet.clients import ClosedLoop, OpenLoop
from goodput.simulator.fleet.requests import Ask
from goodput.simulator.fleet.settings import RouterSettings, ScrapeSettings
from goodput.simulator.fleet.simulation import simulate

COUNT = 3000
# Mean output tokens, and the seconds that they take alone.
TOKENS = 150
SERVICE = TOKENS * TOKEN_SECONDS


def _rate(found: list[Served]) -> float:
    return len(found) / found[-1].arrived


def _busy(found: list[Served]) -> float:
    return _rate(found) * mean([each.alone for each in found])


# ---------------------------------------------------------------- a replica that shares itself
@pytest.fixture(scope="module", params=["equal", "exponential", "mixed"])
def shared(request):
    """M/G/1 with processor sharing at a load of 0.5; services of variation 0, 1 and 2."""
    return serve(replica(10_000, shared=True), poisson(0.5 / SERVICE, request.param, TOKENS, COUNT), shared=True)


def test_a_replica_whose_steps_grow_with_its_batch_shares_itself_evenly(shared):
    """Processor sharing, request by request: mean stays within 1 %, each but for the steps that it came and left in."""
    theory = shared_stays(shared)
    assert mean([each.stay for each in shared]) == pytest.approx(mean(theory), rel=0.01)
    most = max(each.met for each in shared) + 1
    assert all(abs(each.stay - stay) < 4 * most * TOKEN_SECONDS for each, stay in zip(shared, theory, strict=True))


def test_it_stretches_all_requests_alike(shared):
    """M/G/1-PS: what needs x alone stays x / (1 - load), short or long, whatever lengths are (7 %)."""
    stretched = 1.0 / (1.0 - _busy(shared))
    # Below that a request waits for the step under way longer than for itself.
    ordered = sorted((each for each in shared if each.alone >= 0.2 * SERVICE), key=lambda each: each.alone)
    for part in (ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]):
        assert sum(each.stay for each in part) / sum(each.alone for each in part) == pytest.approx(stretched, rel=0.07)


def test_arrivals_there_meet_a_geometric_number(shared):
    """M/G/1-PS: n others with probability (1 - load) load^n, whatever lengths are (0.02); their mean within 10 %."""
    load = _busy(shared)
    assert mean([each.met for each in shared]) == pytest.approx(load / (1.0 - load), rel=0.1)
    for others in range(4):
        share = sum(each.met == others for each in shared) / len(shared)
        assert share == pytest.approx((1.0 - load) * load**others, abs=0.02)


# ---------------------------------------------------------------- a replica with a slot for each sequence
@pytest.mark.parametrize("kind", ["equal", "exponential", "mixed"])
def test_one_slot_waits_as_pollaczek_and_khinchine_say(kind):
    """M/G/1 at a load of 0.5: each wait is Lindley's; their mean rate x E[S^2] / (2 (1 - load)) (10 %)."""
    found = serve(replica(1), poisson(0.5 / SERVICE, kind, TOKENS, COUNT))
    waits = [each.wait for each in found]
    assert waits == pytest.approx(fifo_waits(found, 1), abs=1e-4)
    assert mean(waits) == pytest.approx(mg1_wait(_rate(found), [each.alone for each in found]), rel=0.1)


@pytest.mark.parametrize(("servers", "kind"), [(2, "equal"), (4, "equal"), (4, "exponential")])
def test_requests_wait_for_one_of_several_slots_as_crommelin_and_erlang_say(servers, kind):
    """M/D/c and M/M/c at a load of 0.75, of slots that do not slow each other down: within a step, and 15 %."""
    found = serve(replica(servers), poisson(0.75 * servers / SERVICE, kind, TOKENS, COUNT, seed=3))
    # A request that finds a free slot still waits for the step under way.
    waits = mean([each.wait for each in found])
    assert 0.0 <= waits - mean(fifo_waits(found, servers)) <= TOKEN_SECONDS
    closed = mdc_wait if kind == "equal" else mmc_wait
    service = mean([each.alone for each in found])
    assert waits - 0.5 * TOKEN_SECONDS == pytest.approx(closed(_rate(found), service, servers), rel=0.15)


def test_what_leaves_one_queue_is_poisson_for_the_next():
    """Two M/M/1 in tandem (Burke, Jackson): each stays 1 / (1/S - rate), at loads of 0.5 and 0.4 (8 %)."""
    first = serve(replica(1), poisson(0.5 / SERVICE, "exponential", TOKENS, COUNT))
    draw = random.Random(9)
    left = sorted(each.left for each in first)
    second = serve(replica(1), [(at, max(2, round(draw.expovariate(1.25 / TOKENS)))) for at in left])
    for found in (first, second):
        service = mean([each.alone for each in found])
        assert mean([each.stay for each in found]) == pytest.approx(1.0 / (1.0 / service - _rate(found)), rel=0.08)
    gaps = [after - before for before, after in pairwise(left)]
    assert mean([gap * gap for gap in gaps]) / mean(gaps) ** 2 == pytest.approx(2.0, abs=0.1)


# ---------------------------------------------------------------- fleets
def _asks(rps: float, seconds: float, tokens: int) -> list[Ask]:
    return [Ask(at, 1, tokens) for at, _ in poisson(rps, "equal", tokens, int(1.5 * rps * seconds)) if at < seconds]


def test_replicas_that_take_the_least_loaded_wait_almost_as_one_queue_does():
    """Four of one slot, load 0.8: more than M/D/4 (one queue for all), less than half of M/D/1 (each its own)."""
    seconds, tokens = 600.0, 20
    service = tokens * TOKEN_SECONDS
    fleet = settings(
        seconds,
        replicas=4,
        plant=plant(),
        engine=config(1),
        router=RouterSettings(replicas=1, balance="least_in_flight"),
    )
    rps = 0.8 * 4 / service
    found = simulate(fleet, OpenLoop(_asks(rps, seconds, tokens)), steady(4))
    waits = mean([each.e2e_seconds - service for each in found.records if each.e2e_seconds is not None])
    alone = mg1_wait(found.offered_rps / 4, [service])
    assert mdc_wait(found.offered_rps, service, 4) <= waits <= 0.5 * alone


def test_clients_in_a_closed_loop_keep_a_shared_replica_as_busy_as_theory_says():
    """M/M/1//N: n of N clients there with a chance as N! / (N - n)! (S / Z)^n; busy but for n = 0 (4 %)."""
    clients, think, tokens, seconds = 6, 1.0, 30, 1200.0
    draw = random.Random(5)
    lengths = [(1, max(2, round(draw.expovariate(1.0 / tokens)))) for _ in range(4000)]
    service = mean([(output - 1) * TOKEN_SECONDS for _, output in lengths])
    loop = ClosedLoop(clients, lengths, think_seconds=think, until_seconds=seconds)
    found = simulate(settings(seconds, plant=plant(shared=True), engine=config(100)), loop, steady(1))
    weights = [math.perm(clients, there) * (service / think) ** there for there in range(clients + 1)]
    assert found.offered_rps * service == pytest.approx(1.0 - weights[0] / sum(weights), rel=0.04)


def test_the_scrapes_of_a_fleet_obey_littles_law():
    """What engines have on average is the rate times the time in them: two replicas, looked at every 2 s (6 %)."""
    script = Script([(-1e9, 2)], interval_seconds=2.0)
    asks = [Ask(ask.seconds, 600, 60) for ask in _asks(4.0, 600.0, 60)]
    fleet = settings(600.0, replicas=2, scrape=ScrapeSettings(interval_seconds=2.0, keep_seconds=10.0))
    found = simulate(fleet, OpenLoop(asks), script)
    inside = [sum(each.running + each.waiting for each in view.serving) for view in script.views if view.now > 0.0]
    stays = [each.e2e_seconds for each in found.records if each.e2e_seconds is not None]
    assert mean(inside) == pytest.approx(found.offered_rps * mean(stays), rel=0.06)
