"""Policies by their names, each over the same clients and engines."""

import pickle
from dataclasses import replace

import pytest
from tests.decide.builders import intent
from tests.simulator.fleet.fleets import CHAT, PLANT, TYPES, poisson, settings

from goodput.simulator.capacity import Objective, trial
from goodput.simulator.fleet.requests import Ask
from goodput.simulator.measuring import feasible_share, held_rps, profile
from goodput.simulator.policies import POLICIES, RIVALS, Experiment, measured, run
from goodput.simulator.rivals.catalogue import rivals
from goodput.simulator.rivals.llmd_slo import LlmdSlo

SLO = Objective(CHAT.ttft_seconds, CHAT.tpot_seconds)
# One minute of 6 requests/s in the middle of five at 1.
ASKS = sorted(
    (
        *poisson(1.0, 300.0, lengths=(1000, 150)),
        *(Ask(120.0 + each.seconds, 1000, 150) for each in poisson(5.0, 60.0, seed=2)),
    ),
    key=lambda ask: ask.seconds,
)


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    fleet = settings(300.0, max_replicas=6, startup_seconds=20.0)
    return measured(fleet, intent(max_replicas=6), TYPES, ASKS, replica_rps=2.8)


def test_names_are_those_of_the_laws(experiment):
    assert tuple(rivals(CHAT, experiment.profile)) == RIVALS
    assert len(POLICIES) == len(set(POLICIES)) == 14


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_runs_over_the_same_requests_within_the_same_bounds(experiment, name):
    found = run(experiment, ASKS, name)
    assert (found.policy, found.requests) == (name, len(ASKS))
    assert all(1 <= event.after <= 6 for event in found.scale_events)
    expected = {"static": 1.0, "static-peak": 3.0}
    if name in expected:
        assert found.mean_replicas == expected[name]
        assert found.timeline[0].ready == expected[name]


def test_static_peak_serves_the_peak_from_the_start_and_the_oracle_pays_less(experiment):
    """However long a start-up is: a fixed fleet was there before."""
    slow = replace(experiment, fleet=replace(experiment.fleet, startup_seconds=250.0))
    peak, oracle = run(slow, ASKS, "static-peak"), run(experiment, ASKS, "oracle")
    assert peak.attainment >= 0.97
    assert peak.attainment - 0.03 <= oracle.attainment
    assert oracle.gpu_seconds < 0.8 * peak.gpu_seconds
    # Scheduling, the longest start-up, and until routers know: they are asked for at least so long before the minute.
    assert 60.0 <= oracle.scale_events[0].at_seconds <= 120.0 - (1.0 + 20.0 * 1.1 + 1.0)


def test_engines_are_as_ours_renders_them_for_all(experiment):
    engine = experiment.fleet.engine
    assert engine.max_num_queued_reqs is not None
    assert engine.max_num_queued_tokens is not None
    waits = measured(settings(300.0), intent(), TYPES, ASKS, admission=False, replica_rps=2.8)
    assert waits.fleet.engine == replace(engine, max_num_queued_reqs=None, max_num_queued_tokens=None)
    burst = [Ask(100.0 + 0.01 * number, 2000, 100) for number in range(200)]
    assert run(experiment, burst, "static").lost > 0
    assert run(waits, burst, "static").lost == 0
    assert run(waits, burst, "goodput").lost == 0


def test_a_tuned_variant_runs_under_the_name_of_its_law(experiment):
    eager = LlmdSlo(ttft_seconds=0.5, tpot_seconds=0.05, threshold_down=0.2, threshold_up=0.3)
    assert run(experiment, ASKS, "llmd-slo", eager).mean_replicas > run(experiment, ASKS, "llmd-slo").mean_replicas
    with pytest.raises(ValueError, match="no variant of wva"):
        run(experiment, ASKS, "wva", eager)
    with pytest.raises(ValueError, match="'magic' is none of goodput, static"):
        run(experiment, ASKS, "magic")


def test_a_replica_is_measured_with_the_lengths_of_the_trace():
    """Below the measured rate one replica holds the objective, above it does not; long prompts never can."""
    asks = [Ask(0.0, 3000, 200)]
    found = measured(settings(300.0), intent(), TYPES, asks)
    below, above = (
        trial(
            PLANT,
            found.fleet.engine,
            [(3000, 200)],
            SLO,
            rate_per_second=found.replica_rps * share,
            seed=5,
            seconds=900.0,
        )
        for share in (0.93, 1.07)
    )
    assert above.attainment < 0.95 <= below.attainment
    with pytest.raises(ValueError, match="at no rate"):
        measured(settings(300.0), intent(), TYPES, [Ask(0.0, 20_000, 100)])


def test_where_too_many_requests_can_never_be_good_the_others_count():
    """A tenth of the prompts takes longer alone than the TTFT allows: 85.5 % of all is 95 % of the others."""
    engine = settings(300.0).engine
    lengths = [(3000, 200)] * 9 + [(12_000, 200)]
    assert feasible_share(PLANT, engine, lengths, CHAT) == 0.9
    rate = held_rps(PLANT, engine, lengths, CHAT)
    seen = trial(PLANT, engine, lengths, SLO, rate_per_second=0.8 * rate, seed=3, seconds=900.0)
    assert 0.855 <= seen.attainment <= 0.9


def test_a_watcher_is_told_how_far_a_run_is(experiment):
    seen: list[float] = []
    assert run(experiment, ASKS, "kubeai", watch=seen.append) == run(experiment, ASKS, "kubeai")
    assert seen == sorted(seen)
    assert 290.0 <= seen[-1] <= 300.0


def test_a_model_that_needs_other_gpus_than_the_plant_is_refused():
    with pytest.raises(ValueError, match="placed on 2 GPUs a replica, the plant has 1"):
        measured(settings(300.0), intent(tensor_parallel=2), TYPES, ASKS, replica_rps=1.0)


def test_what_guides_have_measured_is_measured_on_an_idle_replica():
    """A chunk of 2,048 tokens takes as long as the plant computes it, and the overhead of one request."""
    engine = settings(300.0).engine
    found = profile(PLANT, engine, [Ask(0.0, 1000, 10), Ask(1.0, 500, 10)])
    flops = 2048 * (PLANT.flops_per_token + 1024 * PLANT.attention_flops_per_token_pair)
    seconds = flops / (PLANT.peak_flops_per_second * PLANT.mfu) + PLANT.step_overhead_seconds
    assert found.prefill_tokens_per_second == pytest.approx(2048 / (seconds + PLANT.request_overhead_seconds))
    assert found.step_seconds(2048, 0, 0.0) == pytest.approx(seconds)
    assert found.uncached_input_tokens == 750.0


def test_prompts_that_a_cache_holds_are_no_prefill():
    """Three prompts of 1,024 tokens, the second as the first, the third with its first half; and a cache too small."""
    asks = [Ask(0.0, 1024, 10, (1, 2), 512), Ask(1.0, 1024, 10, (1, 2), 512), Ask(2.0, 1024, 10, (1, 3), 512)]
    engine = settings(300.0).engine
    assert profile(PLANT, engine, asks).uncached_input_tokens == (1024 + 1 + 512) / 3
    small = replace(engine, kv_blocks=33, max_model_len=512)
    assert profile(PLANT, small, asks).uncached_input_tokens == 1024.0


def test_an_experiment_travels_to_other_processes(experiment):
    assert run(pickle.loads(pickle.dumps(experiment)), ASKS, "dynamo") == run(experiment, ASKS, "dynamo")
