"""The law in a loop with simulated engines that it knows nothing of: a steady load, a step, and what it learns."""

from dataclasses import replace

import pytest
from tests.simulator.fleet.fleets import PLANT, conversations
from tests.simulator.fleet.watched import ours

from goodput.perfmodel import architecture
from goodput.perfmodel.gpus import gpu_type
from goodput.perfmodel.roofline import step_times
from goodput.simulator.fleet.clients import OpenLoop


def test_a_steady_load_changes_nothing():
    """Ten minutes of constant Poisson load: once the replica's speed is known, no decision changes the fleet."""
    run = ours(OpenLoop(conversations(lambda _: 2.2, 600.0, seed=3)), 600.0)
    assert run.outcome.attainment >= 0.95
    assert set(run.replicas(270.0, 600.0)) == {1}


@pytest.mark.parametrize("mfu", [0.45, 0.8])
def test_the_speed_of_prefill_is_learned_from_how_long_prompts_take(mfu):
    """A plant that multiplies slower, or faster, than is believed: after 20 minutes the ratio is known to 12 %."""
    model, device = architecture("meta-llama/Llama-3.1-8B-Instruct"), gpu_type("l40s")
    assert model is not None
    assert device is not None
    believed = step_times(model, device).token_compute
    true = PLANT.flops_per_token / (PLANT.peak_flops_per_second * mfu)
    load = OpenLoop(conversations(lambda _: 2.2, 1200.0, seed=3))
    run = ours(load, 1200.0, plant=replace(PLANT, mfu=mfu))
    assert run.ticks[-1].plan.memory.prefill_correction == pytest.approx(believed / true, rel=0.12)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_step_in_load_reaches_the_deployment_within_two_scrapes_and_a_tick(seed):
    """From 1.5 to 6 requests/s at t = 100 s: more replicas are asked for within 2 x 15 s + 10 s."""
    load = OpenLoop(conversations(lambda at: 1.5 if at < 100.0 else 6.0, 160.0, seed=seed))
    run = ours(load, 160.0)
    before = run.at(99.0).replicas
    first = next(tick for tick in run.ticks if tick.seconds >= 100.0 and tick.replicas != before)
    assert first.seconds <= 100.0 + 2 * 15.0 + 10.0
    assert first.replicas > before
