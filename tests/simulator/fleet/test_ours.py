"""The operator's law, unchanged, in the simulated fleet: it follows the demo's ramp, and sees what clients send."""

import math

import pytest
from tests.decide.builders import intent
from tests.simulator.fleet.fleets import PLANT, TYPES, conversations, poisson, settings
from tests.simulator.fleet.watched import ours

from goodput.simulator.fleet.clients import OpenLoop
from goodput.simulator.fleet.faults import Crash
from goodput.simulator.fleet.ours import GoodputPolicy
from goodput.simulator.fleet.requests import Ask
from goodput.simulator.fleet.settings import ScrapeSettings

PEAK = 9.6
# What one replica of the plant holds the SLO at, rounded down.
ONE_REPLICA_RPS = 2.9


def _ramp(seconds: float, seed: int) -> list[Ask]:
    """A load that rises eightfold to PEAK and falls again."""
    return conversations(
        lambda at: PEAK * (1.0 / 8.0 + 7.0 / 8.0 * (1.0 - abs(at / seconds - 0.5) * 2.0)), seconds, seed=seed
    )


def test_engines_are_made_with_the_settings_that_the_operator_renders():
    """Queue limits and batch of the first plan, the KV pool of the plant."""
    policy = GoodputPolicy(intent(), TYPES, "l40s")
    engine = policy.render(settings()).engine
    assert policy.last is not None
    assert policy.last.pool is not None
    placement = policy.last.pool.placement
    assert engine.max_num_queued_reqs == placement.max_num_queued_requests is not None
    assert engine.max_num_queued_tokens == placement.max_num_queued_tokens is not None
    assert (engine.max_num_seqs, engine.max_num_batched_tokens) == (
        placement.max_num_seqs,
        placement.max_num_batched_tokens,
    )
    assert engine.kv_blocks == PLANT.kv_pool_tokens // 16


def test_a_model_that_fits_nowhere_is_no_fleet():
    policy = GoodputPolicy(intent(gpu_types=("no-such-type",)), TYPES, "l40s")
    with pytest.raises(ValueError, match="cannot be placed"):
        policy.render(settings())


@pytest.mark.parametrize("seed", [1, 2])
def test_an_eightfold_ramp_is_followed_both_ways_for_less_than_a_static_peak(seed):
    """450 s up and 450 s down: 95 % of requests good, which its own bounds hold, at most 0.85 of a static fleet."""
    seconds = 900.0
    run = ours(OpenLoop(_ramp(seconds, seed)), seconds, startup_spread=0.06, seed=seed)
    found, figures = run.outcome, [tick.plan.figures for tick in run.ticks]
    assert found.attainment >= 0.95
    counted = sum(each.offered_delta for each in figures)
    assert counted == pytest.approx(found.requests, rel=0.05)
    lower, upper = (sum(getattr(each, f"good_{end}_delta") for each in figures) / counted for end in ("lower", "upper"))
    assert lower - 0.01 <= found.attainment <= upper + 0.01
    assert found.gpu_seconds <= 0.85 * math.ceil(PEAK / ONE_REPLICA_RPS) * seconds
    counts = [1, *(event.after for event in found.scale_events)]
    # Never more than the load can need, whatever was starting: 2-4-8-16 would be 16 here.
    assert 3 <= max(counts) <= math.ceil(PEAK * 1.5 / ONE_REPLICA_RPS)
    assert counts[-1] < max(counts)


def test_the_law_sees_what_clients_send():
    """After ten minutes of steady load its demand is the load, and what it counts as good holds the truth."""
    run = ours(OpenLoop(poisson(2.0, 900.0, lengths=(1000, 200))), 900.0)
    figures = run.ticks[-1].plan.figures
    assert figures.demand_rps == pytest.approx(2.0, rel=0.3)
    assert figures.input_tokens_mean == pytest.approx(1000.0, rel=0.05)
    assert figures.output_tokens_mean == pytest.approx(200.0, rel=0.1)
    assert figures.attainment_lower is not None
    assert figures.attainment_upper is not None
    assert figures.attainment_lower - 0.02 <= run.outcome.attainment <= figures.attainment_upper + 0.02
    assert figures.startup_seconds == pytest.approx(46.0, rel=0.15)


def test_lost_scrapes_late_ones_and_a_crash_do_not_blind_the_law():
    """A tenth of the scrapes lost and all of them 5 s late, one crash: the ramp is followed still."""
    run = ours(
        OpenLoop(_ramp(900.0, 1)),
        900.0,
        scrape=ScrapeSettings(lost_share=0.1, delay_seconds=5.0),
        faults=(Crash(500.0, 2),),
        startup_spread=0.06,
    )
    assert run.outcome.attainment >= 0.90
    assert max(event.after for event in run.outcome.scale_events) >= 3
