"""The law in a loop with simulated engines that it knows nothing of: the demo's ramp, a steady load, a step."""

import dataclasses
import math

import pytest
from tests.decide import closed_loop
from tests.decide.closed_loop import run

from goodput.perfmodel import architecture
from goodput.perfmodel.gpus import gpu_type
from goodput.perfmodel.roofline import step_times

PEAK = 9.6
# What one replica of the plant holds the SLO at, measured by itself (see the simulator), rounded down.
ONE_REPLICA_RPS = 2.9


def test_an_eightfold_ramp_is_followed_both_ways_for_less_than_a_static_peak():
    """450 s up and 450 s down: 95 % of requests good, the bounds hold it, at most 0.85 of the static fleet."""
    seconds = 900.0

    def rate(at: float) -> float:
        return PEAK * (1.0 / 8.0 + 7.0 / 8.0 * (1.0 - abs(at / seconds - 0.5) * 2.0))

    found = run(rate, seconds)
    static = math.ceil(PEAK / ONE_REPLICA_RPS) * seconds
    assert found.attainment >= 0.95
    assert found.good_lower / found.counted - 0.01 <= found.attainment <= found.good_upper / found.counted + 0.01
    assert found.gpu_seconds <= 0.85 * static
    counts = [1, *(replicas for _, replicas in found.changes)]
    assert max(counts) >= 3
    assert counts[-1] < max(counts)
    # Never more than the load can need, whatever was starting: 2-4-8-16 would be 16 here.
    assert max(counts) <= math.ceil(PEAK * 1.5 / ONE_REPLICA_RPS)


def test_a_steady_load_changes_nothing():
    """Ten minutes of constant Poisson load: once the replica's speed is known, no decision changes the fleet."""
    found = run(lambda _: 2.2, 600.0, seed=3)
    assert found.attainment >= 0.95
    assert not [at for at, _ in found.changes if at > 240.0]
    assert found.changes[-1][1] == 1


@pytest.mark.parametrize("mfu", [0.45, 0.8])
def test_the_speed_of_prefill_is_learned_from_how_long_prompts_take(mfu, monkeypatch):
    """A plant that multiplies slower, or faster, than is believed: after 20 minutes the ratio is known to 12 %."""
    monkeypatch.setattr(closed_loop, "PLANT", dataclasses.replace(closed_loop.PLANT, mfu=mfu))
    model, device = architecture("meta-llama/Llama-3.1-8B-Instruct"), gpu_type("l40s")
    assert model is not None
    assert device is not None
    believed = step_times(model, device).token_compute
    true = closed_loop.PLANT.flops_per_token / (closed_loop.PLANT.peak_flops_per_second * mfu)
    found = run(lambda _: 2.2, 1200.0, seed=3)
    assert found.memory.prefill_correction == pytest.approx(believed / true, rel=0.12)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_step_in_load_reaches_the_deployment_within_two_scrapes_and_a_tick(seed):
    """From 1.5 to 6 requests/s at t = 100 s: more replicas are asked for within 2 x 15 s + 10 s."""
    found = run(lambda at: 1.5 if at < 100.0 else 6.0, 160.0, seed=seed)
    at, replicas = next(change for change in found.changes if change[0] >= 100.0)
    assert at <= 100.0 + 2 * 15.0 + 10.0
    assert replicas >= 2
