"""A predictor that serves an arriving request on a copy of its engine."""

import random

import pytest
from msgspec.structs import replace
from tests.simulator.fleet.fleets import CHAT, PLANT, Script, poisson, settings, steady

from goodput.simulator.capacity import engine_config
from goodput.simulator.engine import Engine
from goodput.simulator.fleet.clients import OpenLoop
from goodput.simulator.fleet.laws import pool_view
from goodput.simulator.fleet.prediction import Predictor
from goodput.simulator.fleet.requests import Ask, End
from goodput.simulator.fleet.settings import Edges
from goodput.simulator.fleet.simulation import simulate
from goodput.simulator.plant import StepTimeModel
from goodput.simulator.sequences import EngineConfig, EngineRequest, Sequence


def _loaded(config: EngineConfig, requests: int = 40) -> tuple[Engine, float]:
    """An engine in the middle of its work, with prompts that wait and prompts that are half computed."""
    draw = random.Random(3)
    engine = Engine(config, StepTimeModel.of(PLANT), PLANT.request_overhead_seconds)
    for number in range(requests):
        hashes = tuple(range(number % 4 * 1000, number % 4 * 1000 + 20))
        engine.submit(EngineRequest(str(number), draw.randrange(400, 3000), draw.randrange(2, 200), hashes), 0.0)
    clock = 0.0
    for _ in range(60):
        start = engine.next_start(clock)
        assert start is not None
        step = engine.step(start)
        assert step is not None
        clock = step.ends_at
    return engine, clock


def _serve(engine: Engine, sequence: Sequence, clock: float) -> tuple[float, float]:
    """Serve until a request is done; its times to the first token and per token after it."""
    while not sequence.finished:
        start = engine.next_start(clock)
        assert start is not None
        step = engine.step(start)
        clock = start + 1e-3 if step is None else step.ends_at
    first, last = sequence.first_token_at, sequence.last_token_at
    assert first is not None
    assert last is not None
    return first - sequence.arrived_at, (last - first) / (sequence.generated - 1)


@pytest.mark.parametrize("blocks", [12_000, 2_000])  # all of it fits; sequences are preempted
def test_where_nothing_comes_after_it_a_prediction_is_the_truth(blocks):
    config = EngineConfig(kv_blocks=blocks, max_model_len=8192, max_num_queued_reqs=1000)
    engine, clock = _loaded(config)
    request = EngineRequest("mine", 1500, 100, tuple(range(1000, 1020)))
    arrival = clock - 0.001  # while a step is under way
    predicted = Predictor(replace(CHAT, ttft_seconds=5.0)).predict(engine, clock, request, arrival)
    mine = engine.submit(request, arrival)
    # A copy does not evict: who is preempted finds a little more of its prompt again.
    assert predicted == pytest.approx(_serve(engine, mine, clock), rel=1e-6 if blocks == 12_000 else 5e-3)
    assert mine.cached_tokens == 320
    assert (engine.preemptions > 0) == (blocks == 2_000)


def test_queue_limits_do_not_keep_a_predictor_from_speaking():
    engine, clock = _loaded(EngineConfig(kv_blocks=12_000, max_model_len=8192, max_num_queued_reqs=40))
    assert Predictor(CHAT).predict(engine, clock, EngineRequest("mine", 1000, 10), clock) is not None
    assert Predictor(CHAT).predict(engine, clock, EngineRequest("long", 9000, 10), clock) is None


def test_a_first_token_that_is_far_too_late_is_not_waited_for():
    """Three hundred prompts wait, 25 s of work; ten times the bound is 5 s."""
    engine, clock = _loaded(engine_config(PLANT), 300)
    predicted = Predictor(CHAT).predict(engine, clock, EngineRequest("mine", 1000, 10), clock)
    assert predicted is not None
    assert predicted == (pytest.approx(5.0, abs=0.5), None)


def test_predictions_change_nothing_and_hold_what_comes():
    """3 requests/s on one replica: the same outcome with and without, first tokens as predicted, tokens nearly."""
    asks = [
        Ask(each.seconds, 1200, 200, tuple(range(number % 7 * 10, number % 7 * 10 + 2)), 512)
        for number, each in enumerate(poisson(3.0, 240.0))
    ]
    script, edges = steady(1), tuple(1.05**step for step in range(-120, 60))
    with_it = simulate(settings(260.0, predictor=True, edges=Edges(edges, edges, edges)), OpenLoop(asks), script)
    without = simulate(settings(260.0), OpenLoop(asks), steady(1))
    assert with_it.records == without.records
    assert all(record.end is End.FINISHED for record in with_it.records)
    seen = pool_view(script.at(260.0), 180.0)
    assert seen.predicted_ttft.count == pytest.approx(seen.ttft.count, abs=3.0)
    for share in (0.5, 0.9, 0.99):
        assert seen.predicted_ttft.quantile(share) == pytest.approx(seen.ttft.quantile(share), rel=0.03)
        assert seen.predicted_tpot.quantile(share) == pytest.approx(seen.tpot.quantile(share), rel=0.03)


def test_a_prediction_is_there_before_the_request_is_served():
    """A burst of 60 prompts at 200 s: the view after it knows of their late first tokens before they exist."""
    asks = [Ask(1.0 * number, 1000, 100) for number in range(200)]
    asks += [Ask(200.0 + 0.01 * number, 8000, 50) for number in range(60)]
    script = Script([(-1e9, 1)], interval_seconds=1.0)
    simulate(settings(230.0, predictor=True), OpenLoop(asks), script)
    seen = pool_view(script.at(216.0), 60.0)
    foreseen, measured = seen.predicted_ttft.quantile(0.5), seen.ttft.quantile(0.5)
    assert foreseen is not None
    assert measured is not None
    assert foreseen > 2.0 > measured


def test_without_a_predictor_nothing_is_predicted():
    script = steady(1)
    simulate(settings(60.0), OpenLoop(poisson(1.0, 60.0)), script)
    assert pool_view(script.at(60.0), 60.0).predicted_ttft.count == 0.0
