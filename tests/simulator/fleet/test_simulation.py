"""Whole runs: the same seed gives the same run, every request ends once, queues are as theory says."""

from collections import Counter

import pytest
from tests.simulator.fleet.fleets import PLANT, Script, poisson, settings, steady

from goodput.simulator.capacity import engine_config
from goodput.simulator.fleet.clients import ClosedLoop, OpenLoop
from goodput.simulator.fleet.faults import Crash, ServerErrors
from goodput.simulator.fleet.requests import Ask, End, Record
from goodput.simulator.fleet.settings import RouterSettings, ScrapeSettings
from goodput.simulator.fleet.simulation import simulate
from goodput.simulator.plant import StepTimeModel


def _facts(records: tuple[Record, ...]) -> list[tuple[object, ...]]:
    return [(each.ask, each.end, each.first_token_at, each.last_token_at, each.pod) for each in records]


def test_equal_seeds_give_equal_runs_and_another_seed_another_one():
    """Scaling, lost scrapes, routers' choices and start-up times all follow from the seed."""

    def once(seed: int) -> list[tuple[object, ...]]:
        fleet = settings(120.0, replicas=2, seed=seed, scrape=ScrapeSettings(lost_share=0.1))
        return _facts(simulate(fleet, OpenLoop(poisson(4.0, 120.0)), Script([(-1e9, 2), (20.0, 3)])).records)

    assert once(1) == once(1)
    assert once(1) != once(2)


def test_every_request_ends_once_whatever_goes_wrong():
    """Refusals, retries, aborts, a crash, errors and a drain: what was asked has ended, each in one way."""
    fleet = settings(
        200.0,
        replicas=3,
        engine=engine_config(PLANT, max_num_seqs=16),
        faults=(Crash(60.0, 1), ServerErrors(80.0, 90.0, 0.5)),
    )
    asks = poisson(9.0, 200.0, lengths=(1000, 100))
    clients = OpenLoop(asks, retries=2, abort_share=0.1, abort_after_seconds=0.8)
    found = simulate(fleet, clients, Script([(-1e9, 3), (120.0, 2)]))
    first = [each for each in found.records if each.ask.tries == 0]
    assert len(first) == len(asks)
    assert all(each.end is not None and each.end is not End.UNFINISHED for each in found.records)
    ends = Counter(each.end for each in found.records)
    assert found.requests == sum(ends.values())
    assert found.aborted == ends[End.ABORTED] > 0
    assert found.lost == ends[End.REFUSED] + ends[End.FAILED] > 0
    # Each that failed was asked again, at most twice.
    repeated = sum(1 for each in found.records if each.ask.tries)
    failed = sum(1 for each in found.records if each.end in (End.REFUSED, End.FAILED) and each.ask.tries < 2)
    assert failed - 3 <= repeated <= failed  # some of the last second were not asked within the run


def test_a_replica_that_serves_one_at_a_time_is_an_m_d_1_queue():
    """Poisson arrivals and equal service times S: the mean wait is load x S / (2 (1 - load))."""
    tokens, load = 1000, 0.8
    step = StepTimeModel.of(PLANT).step_seconds(tokens, 0, 0.0, tokens * tokens / 2.0)
    seconds = 12_000 * step / load
    alone = RouterSettings(replicas=1, balance="round_robin")
    fleet = settings(seconds, engine=engine_config(PLANT, max_num_seqs=1), router=alone)
    asks = poisson(load / step, seconds, seed=5, lengths=(tokens, 1))
    found = simulate(fleet, OpenLoop(asks), steady(1))
    # What passes before the scheduler sees a request overlaps with the service of others.
    alone_seconds = step + PLANT.request_overhead_seconds
    waits = [each.ttft_seconds - alone_seconds for each in found.records if each.ttft_seconds is not None]
    assert len(waits) == len(asks)
    assert sum(waits) / len(waits) == pytest.approx(load * step / (2.0 * (1.0 - load)), rel=0.08)


def test_a_drain_loses_nothing_and_waits_for_long_answers():
    """Two of three replicas go under load: every request finishes, and none of theirs is cut."""
    fleet = settings(240.0, replicas=3)
    asks = poisson(2.0, 240.0, lengths=(500, 400))
    found = simulate(fleet, OpenLoop(asks), Script([(-1e9, 3), (100.0, 1)]))
    assert {each.end for each in found.records} == {End.FINISHED}
    served_by = {each.pod for each in found.records if each.ask.seconds > 105.0}
    assert len(served_by) == 1
    assert [(event.before, event.after) for event in found.scale_events] == [(3, 1)]
    # Three for 100 s, one for 140 s, and two that drained for the 10 s of preStop and the rest of their answers.
    assert found.replica_seconds == pytest.approx(3 * 100.0 + 140.0, abs=10.0)
    assert found.replica_seconds + 2 * 9.0 <= found.gpu_seconds <= found.replica_seconds + 2 * 40.0


def test_a_closed_loop_slows_down_with_its_fleet():
    """Ten clients without time to think keep ten requests under way: rate x time in system = 10, by Little's law."""
    clients = ClosedLoop(10, [(600, 60)], think_seconds=0.0, until_seconds=120.0)
    found = simulate(settings(120.0), clients, steady(1))
    times = [each.e2e_seconds for each in found.records if each.e2e_seconds is not None]
    assert found.offered_rps * sum(times) / len(times) == pytest.approx(10.0, rel=0.05)


def test_thinking_clients_ask_less():
    """With Z seconds to think, a client asks every Z + R seconds."""
    clients = ClosedLoop(8, [(600, 60)], think_seconds=5.0, until_seconds=600.0)
    found = simulate(settings(600.0), clients, steady(1))
    times = [each.e2e_seconds for each in found.records if each.e2e_seconds is not None]
    assert found.offered_rps == pytest.approx(8.0 / (5.0 + sum(times) / len(times)), rel=0.1)


def test_a_request_that_no_engine_can_hold_is_refused_at_once():
    """One prompt beyond the model length: invalid, not tried again, and nobody else suffers."""
    asks = [*poisson(1.0, 60.0), Ask(30.0, 400_000, 10)]
    found = simulate(settings(60.0), OpenLoop(asks), steady(1))
    odd = [each for each in found.records if each.ask.input_tokens == 400_000]
    assert [(each.end, each.attempts) for each in odd] == [(End.INVALID, 1)]
    assert found.lost == 1
    assert found.good == len(asks) - 1
