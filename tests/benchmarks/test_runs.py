"""Rows of the comparison, on a scenario of two minutes."""

from dataclasses import replace

import pytest
from benchmarks.autoscale import runs, setup
from benchmarks.autoscale.compared import base_specs, compared, search_specs, tuned_specs
from benchmarks.autoscale.runs import Spec, execute
from benchmarks.autoscale.scenarios import BY_NAME
from benchmarks.autoscale.store import Store

from goodput.simulator.policies import OURS
from goodput.simulator.traces.generators import steady
from goodput.simulator.traces.lengths import Normal, normal

LENGTHS = normal(Normal(600.0, 100.0), Normal(60.0, 10.0))


@pytest.fixture(scope="module")
def scenario():
    """Two minutes of 8 requests/s, short ones, on L4s that are one when the run begins."""
    short = replace(
        BY_NAME["azure-conversation"],
        name="short",
        seconds=120.0,
        requests=lambda seed: steady(8.0, 120.0, LENGTHS, seed),
        replicas=(1, 6),
        starts_with=1,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BY_NAME, "short", short)
        yield short


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """One for all: what a replica holds is measured once."""
    return Store(tmp_path_factory.mktemp("runs"))


def spec(policy, **changes):
    return Spec(**{"scenario": "short", "startup_seconds": 30.0, "seed": 1, "policy": policy, **changes})


def test_a_run_that_was_made_is_not_made_again(scenario, store, monkeypatch):
    first = execute(spec(runs.STATIC_PEAK), store)
    assert first["requests"] == pytest.approx(960, rel=0.1)
    assert first["cost"] == pytest.approx(first["gpu_hours"] * 0.8048)
    monkeypatch.setattr(runs, "run", lambda *_: pytest.fail("it was run again"))
    again = execute(spec(runs.STATIC_PEAK), store)
    assert (again["attainment"], again["offered"]) == (first["attainment"], first["offered"])


def test_the_fewest_static_replicas_hold_and_one_fewer_does_not(scenario, store):
    least = execute(spec(runs.STATIC_LEAST), store)
    peak = execute(spec(runs.STATIC_PEAK), store)
    assert least["attainment"] >= 0.95
    assert least["gpu_hours"] <= peak["gpu_hours"]
    count = round(least["mean_replicas"])
    made = setup.setup("short", 30.0, 1, store)
    assert count == 1 or _static(made, count - 1) < 0.95


def _static(made, count):
    fleet = replace(made.experiment.fleet, min_replicas=count)
    return runs.run(replace(made.experiment, fleet=fleet), made.asks, "static").attainment


def test_beliefs_are_those_asked_for(scenario, store):
    """A replica holds so much; ours is told 1, 0.8 and 1.2 times that."""
    made = setup.setup("short", 30.0, 1, store)
    for policy, factor in ((runs.KNOWING, 1.0), *list(runs.BELIEFS.items())[:2]):
        found = execute(spec(policy), store)
        assert found["believed_rps"] == pytest.approx(factor * made.experiment.replica_rps, rel=0.04)


def test_a_plant_that_slows_down_at_noon_misses_more_and_costs_a_fixed_fleet_the_same(scenario, store):
    even, slower = (execute(spec(policy), store) for policy in (runs.STATIC_PEAK, runs.STATIC_NOON))
    assert slower["gpu_hours"] == even["gpu_hours"]
    assert slower["tpot"][0] > even["tpot"][0]
    assert slower["good"][0] == even["good"][0]


def test_a_variant_that_is_hopeless_is_left_in_a_search_and_run_to_its_end_in_a_table(scenario, store):
    """One replica whatever comes: KubeAI as published does not add one within two minutes."""
    assert execute(spec("kubeai", swept=True, point=0), store)["given_up"] == "misses"
    assert execute(spec("kubeai", point=0), store)["attainment"] < 0.9


def test_a_table_has_all_rows_of_all_policies(scenario, store):
    wanted = base_specs(scenario, 30.0, [1])
    grids = {("short", 30.0, "hpa-kv"): {0: (0.9, 1.0), 4: (0.97, 2.0)}}
    wanted += tuned_specs({"hpa-kv": {4}}, scenario, 30.0, [1])
    found = compared(
        scenario, 30.0, [1], results={each: execute(each, store) for each in wanted}, grids=grids, store=store
    )
    labels = [each.label for each in found.entries]
    assert labels[:4] == [OURS, *runs.BOUNDS]
    assert sum(label.startswith("hpa-kv") for label in labels) == 2
    assert len(labels) == len(wanted) == len(set(labels))
    assert found.searched[0] == 2
    assert found.searched[1] == len(search_specs(scenario, 30.0, 1, store)) >= 9 * 20
    assert found.verdict.ours.name == OURS
