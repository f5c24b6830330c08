"""Who asks, and when again."""

import pytest
from tests.simulator.fleet.fleets import poisson, settings, steady

from goodput.simulator.fleet.clients import ClosedLoop, OpenLoop, asks_of
from goodput.simulator.fleet.events import Events
from goodput.simulator.fleet.faults import ServerErrors
from goodput.simulator.fleet.requests import Ask, End, Record
from goodput.simulator.fleet.simulation import simulate
from goodput.simulator.traces.request import TraceRequest

TRACE = (TraceRequest(2.0, 600, 10, (1, 2)), TraceRequest(3.5, 700, 20, (1, 3)))
ASKS = [Ask(5.0, 100, 10), Ask(1.0, 200, 20)]


def test_an_open_loop_asks_in_order_of_time_and_never_waits():
    clients = OpenLoop(ASKS)
    assert [ask.seconds for ask in clients.start()] == [1.0, 5.0]
    assert not clients.reactive
    assert clients.after(Record(ASKS[0], End.REFUSED), 9.0) is None


@pytest.mark.parametrize(
    ("end", "tries", "again"),
    [
        (End.REFUSED, 0, True),
        (End.FAILED, 4, True),
        (End.REFUSED, 5, False),
        (End.FINISHED, 0, False),
        (End.ABORTED, 0, False),
        (End.INVALID, 0, False),
    ],
)
def test_a_client_repeats_what_failed_a_few_times(end, tries, again):
    clients = OpenLoop(ASKS, retries=5, retry_seconds=2.0)
    following = clients.after(Record(Ask(5.0, 100, 10, tries=tries), end), 9.0)
    assert clients.reactive
    assert following == (Ask(11.0, 100, 10, tries=tries + 1) if again else None)


def test_a_trace_is_asked_with_its_blocks():
    """Blocks of 512 tokens: the second request finds the block of the first one cached, as 32 of the engine."""
    asks = asks_of(TRACE)
    assert [(ask.seconds, ask.input_tokens, ask.output_tokens) for ask in asks] == [(2.0, 600, 10), (3.5, 700, 20)]
    script = steady(1)
    simulate(settings(60.0), OpenLoop(asks), script)
    (scrape,) = script.at(59.0).latest.values()
    assert (scrape.prompt_tokens, scrape.cached_tokens) == (1300, 512)


def test_half_of_the_clients_go_away():
    asks = list(
        OpenLoop([Ask(float(n), 100, 10) for n in range(1000)], abort_share=0.5, abort_after_seconds=3.0).start()
    )
    leaving = [ask for ask in asks if ask.abort_after_seconds == 3.0]
    assert len(leaving) == pytest.approx(500, abs=50)
    assert all(ask.abort_after_seconds is None for ask in asks if ask not in leaving)


def test_clients_who_leave_a_timely_answer_are_on_neither_side():
    """All of them stop reading after 0.7 s, in the middle of their answer: nothing is good, and nothing is missed."""
    asks = poisson(1.0, 100.0, lengths=(300, 200))
    found = simulate(settings(100.0), OpenLoop(asks, abort_share=1.0, abort_after_seconds=0.7), steady(1))
    assert found.aborted == found.requests == len(asks)
    assert found.counted < 0.05 * len(asks)
    assert found.lost == 0


def test_a_closed_loop_begins_with_times_to_think_and_ends_with_the_run():
    clients = ClosedLoop(50, [(100, 10), (200, 20)], think_seconds=10.0, until_seconds=60.0, seed=3)
    first = list(clients.start())
    assert 45 <= len(first) <= 50  # some think longer than the run
    assert first == sorted(first, key=lambda ask: ask.seconds)
    assert {ask.input_tokens for ask in first} == {100, 200}
    assert list(clients.start()) == first
    following = clients.after(Record(first[0], End.FINISHED), 30.0)
    assert following is None or (following.seconds >= 30.0 and following.client == first[0].client)
    assert clients.after(Record(first[0], End.FINISHED), 60.0) is None


def test_a_fifth_of_answers_that_fail_are_repeated_by_routers():
    """20 % HTTP 500 with three attempts: 0.8 % of the requests fail, the others are served."""
    asks = poisson(5.0, 400.0, lengths=(100, 5))
    fleet = settings(400.0, replicas=2, faults=(ServerErrors(0.0, 400.0, 0.2),))
    found = simulate(fleet, OpenLoop(asks), steady(2))
    assert found.lost / found.requests == pytest.approx(0.008, abs=0.006)
    assert sum(each.attempts for each in found.records) / found.requests == pytest.approx(1.24, abs=0.04)


def test_what_is_planned_first_comes_first_and_never_in_the_past():
    events, done = Events(10.0), []
    events.at(20.0, done.append, "b")
    events.at(20.0, done.append, "c")
    events.at(5.0, done.append, "a")
    assert events.next_at == 10.0
    while events.next_at < 100.0:
        events.act()
    assert (done, events.now) == (["a", "b", "c"], 20.0)
