"""The latency model against its judges: the simulated engine, and logs of a real one."""

import pytest
from benchmarks.capacity import CASES, drawn, knowing, plant_of
from benchmarks.request_logs import LIMITS, LOGS, figures, logged, replayed_by_engine, replayed_by_model
from msgspec.structs import replace

from goodput.perfmodel.capacity import Wall, capacity_of
from goodput.perfmodel.load import load_at
from goodput.perfmodel.queueing import latency_of
from goodput.simulator.capacity import engine_config, trial

BY_NAME = {case.name: case for case in CASES}


@pytest.mark.parametrize(
    ("name", "walls"),
    [
        ("chat, TPOT binds", {Wall.TPOT}),
        ("chat, TTFT binds", {Wall.TTFT}),
        ("KV binds (32B TP2)", {Wall.KV}),
        ("sequences bind", {Wall.SEQUENCES}),
        ("equal lengths", {Wall.TPOT, Wall.TTFT}),
    ],
)
def test_an_engine_holds_what_is_called_its_capacity(name, walls):
    """Told the step times of a plant, and nothing of its scheduler: 95 % asked for, at least 92 % good."""
    case = BY_NAME[name]
    plant = plant_of(case)
    found = capacity_of(knowing(case, plant), case.objective)
    config = engine_config(plant, case.batched_tokens, case.max_num_seqs)
    lengths = drawn(case.lengths, case.seed, config.max_model_len)
    run = trial(
        plant, config, lengths, case.judged, rate_per_second=found.rps, seed=case.seed, seconds=3000.0 / found.rps
    )
    assert found.wall in walls
    assert run.attainment >= 0.92


@pytest.mark.parametrize("replicas", [2, 4, 8])
def test_replicas_that_a_router_serves_evenly_hold_more_than_one_alone(replicas):
    """Each meets less of a burst: at least 4 % more is believed, and an engine of such a fleet holds it."""
    case = BY_NAME["chat, TPOT binds"]
    plant = plant_of(case)
    alone = capacity_of(knowing(case, plant), case.objective).rps
    found = capacity_of(replace(knowing(case, plant), dispersion=1.0 / replicas), case.objective).rps
    config = engine_config(plant, case.batched_tokens, case.max_num_seqs)
    lengths = drawn(case.lengths, case.seed, config.max_model_len)
    run = trial(
        plant,
        config,
        lengths,
        case.judged,
        rate_per_second=found,
        seed=case.seed,
        seconds=3000.0 / found,
        replicas=replicas,
    )
    assert found >= 1.04 * alone
    assert run.attainment >= 0.95


@pytest.mark.parametrize(
    ("name", "share"), [("chat, TPOT binds", 0.5), ("chat, TPOT binds", 0.9), ("long answers", 0.7)]
)
def test_percentiles_at_a_load_are_those_of_an_engine(name, share):
    """p95 of TTFT within 20 %, of TPOT within 8 %."""
    case = BY_NAME[name]
    plant = plant_of(case)
    replica = knowing(case, plant)
    rate = share * capacity_of(replica, case.objective).rps
    at = latency_of(replica, load_at(replica, rate), case.objective)
    config = engine_config(plant, case.batched_tokens, case.max_num_seqs)
    lengths = drawn(case.lengths, case.seed, config.max_model_len)
    run = trial(plant, config, lengths, case.judged, rate_per_second=rate, seed=case.seed, seconds=1500.0 / rate)
    assert at.ttft.quantile(0.95) == pytest.approx(run.ttft_p95_seconds, rel=0.2)
    assert at.tpot.quantile(0.95) == pytest.approx(run.tpot_p95_seconds, rel=0.08)


@pytest.mark.parametrize(("name", "model", "tensor_parallel"), LOGS)
def test_a_flood_takes_as_long_as_it_took(name, model, tensor_parallel):
    """300 requests on real vLLM: TPOT, end-to-end time, makespan and TTFT p95 within 15 %, TTFT p50 within 25 %."""
    measured = logged(name)
    truth, believed = figures(measured), figures(replayed_by_model(measured, model, tensor_parallel))
    assert set(truth) == set(LIMITS)
    for key, seconds in truth.items():
        assert believed[key] == pytest.approx(seconds, rel=LIMITS[key]), key


@pytest.mark.parametrize(("name", "model"), [log[:2] for log in LOGS])
def test_a_simulated_engine_takes_as_long_as_a_real_one_took(name, model):
    """The same floods on plants, with the same limits; what the engine gets to serve it serves."""
    measured = logged(name)
    found = replayed_by_engine(measured, model)
    truth, simulated = figures(measured), figures(found)
    assert sorted(each.output_tokens for each in found) == sorted(each.output_tokens for each in measured)
    for key, seconds in truth.items():
        assert simulated[key] == pytest.approx(seconds, rel=LIMITS[key]), key
