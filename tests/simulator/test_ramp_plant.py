"""The plant of the published ramp does on static pools what llm-d reports of its own."""

import pytest

from goodput.simulator.fleet.baselines import Static
from goodput.simulator.fleet.clients import OpenLoop, asks_of
from goodput.simulator.fleet.outcome import Outcome
from goodput.simulator.fleet.simulation import simulate
from goodput.simulator.plant import StepTimeModel
from goodput.simulator.ramp_plant import RAMP_ENGINE, RAMP_PLANT, RAMP_REPLICA_RPS, RAMP_SECONDS, ramp_fleet
from goodput.simulator.traces.generators import PUBLISHED_LENGTHS, published_ramp, steady


def static(rps: float, seconds: float, replicas: int = 1, variation: float = 0.0) -> Outcome:
    fleet = ramp_fleet(seconds=seconds, replicas=replicas, min_replicas=replicas)
    asks = asks_of(steady(rps, seconds, PUBLISHED_LENGTHS, seed=1, variation=variation))
    return simulate(fleet, OpenLoop(asks), Static(replicas))


@pytest.mark.parametrize("rps", [1.25, RAMP_REPLICA_RPS])
def test_one_replica_holds_what_llmds_does(rps):
    """Ten minutes, evenly spaced: every request is good."""
    found = static(rps, 600.0)
    assert found.attainment == 1.0
    assert found.worst_minute_attainment == 1.0


def test_beyond_its_cliff_it_holds_almost_nothing():
    """1.5 requests/s: TTFT grows without end while TPOT stays at half of its bound, for KV is short and not speed."""
    found = static(1.5, 600.0)
    assert found.attainment == pytest.approx(0.22, abs=0.05)
    assert found.ttft.p95 > 30.0
    assert found.tpot.p99 < 0.055


def test_a_full_pool_holds_about_seventy_sequences():
    """315,000 tokens; the youngest sequences are preempted, so that a few more than 70 run at times."""
    found = static(1.55, 400.0)
    starts = sorted((each.first_token_at, each.last_token_at) for each in found.records if each.last_token_at)
    running = [sum(first <= at < last for first, last in starts) for at in range(200, 400, 10)]
    assert sum(running) / len(running) == pytest.approx(70.0, abs=3.0)
    assert RAMP_ENGINE.kv_blocks == 315_000 // 16


def test_eight_replicas_hold_the_peak_of_the_ramp():
    """10 requests/s, 1.25 for each: evenly spaced as published, and by chance."""
    assert static(10.0, 100.0, replicas=8).attainment == 1.0
    assert static(10.0, 100.0, replicas=8, variation=1.0).attainment >= 0.99


def test_an_idle_replica_takes_in_a_mean_prompt_in_a_quarter_of_a_second():
    """4,000 tokens in one step: 15,000 tokens/s, and 14 ms a step to decode alone."""
    times = StepTimeModel.of(RAMP_PLANT)
    assert 4000 / times.step_seconds(4000, 0, 0, 4000 * 2000) == pytest.approx(15_000, rel=0.03)
    assert times.step_seconds(0, 1, 4000) == pytest.approx(0.0142, abs=0.0005)


def test_the_fleet_is_that_of_the_published_run():
    """3 to 8 replicas of two GPUs each, for as long as the ramp takes."""
    fleet = ramp_fleet(startup_seconds=100.0)
    assert (fleet.replicas, fleet.min_replicas, fleet.max_replicas) == (3, 3, 8)
    assert sum(fleet.gpus_per_node) == 8 * fleet.plant.gpus
    assert fleet.seconds == RAMP_SECONDS == 2430.0
    assert fleet.startup_seconds == 100.0
    assert published_ramp(seed=1)[-1].offset_seconds < RAMP_SECONDS
