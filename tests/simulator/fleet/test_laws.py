"""Rival laws in the simulated fleet."""

import pytest
from tests.simulator.fleet.fleets import CHAT, Script, poisson, settings, steady

from goodput.simulator.fleet.clients import OpenLoop
from goodput.simulator.fleet.laws import LawPolicy, pool_view
from goodput.simulator.fleet.requests import Ask
from goodput.simulator.fleet.simulation import simulate
from goodput.simulator.rivals.catalogue import Profile, rivals
from goodput.simulator.rivals.view import PodPhase

PROFILE = Profile(
    prefill_tokens_per_second=14_000.0,
    step_seconds=lambda prefill, decode, read: 0.03 + 7e-5 * prefill + 2e-7 * read + 2e-5 * decode,
    uncached_input_tokens=600.0,
)
# The name of each is what tables and the command line call it.
NAMES = (
    "llmd-slo",
    "llmd-token",
    "wva",
    "hpa-queue",
    "hpa-kv",
    "aibrix-apa",
    "kubeai",
    "dynamo",
)


def test_a_law_sees_the_pods_and_what_happened_in_its_window():
    """Two that serve and one that starts, 4 requests/s of 600 and 60 tokens."""
    script = Script([(-1e9, 2), (280.0, 3)])
    found = simulate(settings(300.0, replicas=2, max_replicas=6), OpenLoop(poisson(4.0, 300.0)), script)
    view = script.at(300.0)
    seen = pool_view(view, 180.0)
    assert [pod.phase for pod in seen.pods] == [PodPhase.READY, PodPhase.READY, PodPhase.STARTING]
    assert (seen.min_replicas, seen.max_replicas, seen.held) == (1, 6, 0)
    assert sum(pod.running for pod in seen.pods) == sum(scrape.running for scrape in view.serving) > 0
    recent = [each for each in found.records if each.ask.seconds >= 120.0]
    assert seen.arrivals == pytest.approx(len(recent), rel=0.05)
    assert seen.mean_input_tokens == pytest.approx(600.0)
    assert seen.mean_output_tokens == pytest.approx(60.0, rel=0.05)
    assert seen.ttft.count == pytest.approx(len(recent), rel=0.1)
    assert seen.kv_pool_tokens == pytest.approx(view.engine.kv_blocks * 16, rel=0.01)


def test_without_bounds_a_law_may_have_all_gpus():
    script = steady(1)
    simulate(settings(20.0, gpus_per_node=(4, 4)), OpenLoop([]), script)
    seen = pool_view(script.at(20.0), 60.0)
    assert seen.max_replicas == 8
    assert (seen.mean_input_tokens, seen.mean_output_tokens, seen.prefix_hit_rate) == (None, None, 0.0)
    assert seen.ttft.count == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_every_rival_runs_in_the_fleet_and_stays_within_its_bounds(name):
    """Ten minutes far above what one replica holds, then almost nothing; none of them leaves 1-6 replicas."""
    asks = poisson(12.0, 600.0, lengths=(900, 150))
    asks += [Ask(600.0 + each.seconds, 900, 150) for each in poisson(0.2, 300.0, seed=2)]
    fleet = settings(900.0, max_replicas=6)
    found = simulate(fleet, OpenLoop(asks), LawPolicy(rivals(CHAT, PROFILE)[name]))
    assert found.policy == name
    counts = [1, *(event.after for event in found.scale_events)]
    assert 1 <= min(counts) <= max(counts) <= 6
    if name not in ("kubeai", "hpa-kv"):  # whose targets this load does not reach in time
        assert max(counts) > 1
    assert found.requests == len(asks)
