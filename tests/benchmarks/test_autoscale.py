"""The parts of the autoscaling benchmark that need no whole run: grids, scenarios, beliefs, the store, the tables."""

import math
from dataclasses import replace

import pytest
from benchmarks.autoscale import beliefs, report, runs, searched
from benchmarks.autoscale.bounded import FussyClients, GivenUpError, Thrifty
from benchmarks.autoscale.compared import Compared, Entry, tuned
from benchmarks.autoscale.grids import LEAST, MOST, label, points
from benchmarks.autoscale.runs import Spec
from benchmarks.autoscale.scenarios import BY_NAME, RAMP, SCENARIOS, STARTUPS, kept, kept_conversations
from benchmarks.autoscale.store import Store, key_of, source_hash
from tests.simulator.fleet.fleets import CHAT, poisson, settings, steady

from goodput.perfmodel import Lengths, built_in_gpu_types
from goodput.simulator.derive import L40S, LLAMA_3_1_8B, derive
from goodput.simulator.fleet.simulation import simulate
from goodput.simulator.measuring import PlantSteps
from goodput.simulator.plant import StepTimeModel
from goodput.simulator.policies import OURS, RIVALS
from goodput.simulator.rivals.behaviour import LLMD_SLO_AWARE
from goodput.simulator.rivals.catalogue import Profile, rivals
from goodput.simulator.rivals.hpa_kv import HpaKv
from goodput.simulator.rivals.llmd_slo import LlmdSlo
from goodput.simulator.traces.request import TraceRequest


def laws():
    plant = BY_NAME["azure-conversation"].plant(1)
    return rivals(CHAT, Profile(
        prefill_tokens_per_second=3000.0, step_seconds=PlantSteps(StepTimeModel.of(plant)), uncached_input_tokens=900.0
    ))  # fmt: skip


# ---------------------------------------------------------------- grids
@pytest.mark.parametrize("name", RIVALS)
def test_a_grid_has_at_least_twenty_points_the_published_one_first(name):
    law = laws()[name]
    found = points(law)
    assert LEAST <= len(found) <= MOST
    assert found[0] == law
    assert len({repr(each) for each in found}) == len(found)
    assert label(law, law) == ""
    assert all(label(each, law) for each in found[1:])


def test_a_variant_is_named_by_what_it_changes():
    published = LlmdSlo(ttft_seconds=2.0, tpot_seconds=0.1)
    assert label(replace(published, threshold_up=0.3), published) == "threshold_up=0.3"
    changed = HpaKv(behaviour=LLMD_SLO_AWARE, target_kv_usage=0.5)
    assert label(changed, HpaKv()) == "behaviour=up 30 s down 180 s, target_kv_usage=0.5"


# ---------------------------------------------------------------- scenarios
def test_every_trace_of_the_comparison_is_there():
    assert [each.name for each in SCENARIOS] == [
        "ramp", "azure-conversation", "azure-code", "mooncake", "servegen-large", "servegen-small",
    ]  # fmt: skip
    assert all(set(STARTUPS) <= set(each.startups) for each in SCENARIOS)


@pytest.mark.parametrize(
    ("name", "requests", "mean_rps"),
    [("azure-conversation", 9_770, 2.8), ("azure-code", 4_400, 1.28), ("mooncake", 3_043, 0.86)],
)
def test_published_traces_are_thinned(name, requests, mean_rps):
    trace = BY_NAME[name].requests(1)
    assert len(trace) == pytest.approx(requests, rel=0.02)
    assert len(trace) / BY_NAME[name].seconds == pytest.approx(mean_rps, rel=0.03)
    assert trace == BY_NAME[name].requests(2)
    assert trace[-1].offset_seconds < BY_NAME[name].seconds


def test_curves_last_three_hours_and_differ_by_seed():
    scenario = BY_NAME["servegen-large"]
    trace = scenario.requests(1)
    assert scenario.seconds == pytest.approx(3 * 3600.0)
    assert len(trace) / scenario.seconds == pytest.approx(2.4, rel=0.01)
    assert trace != scenario.requests(2)


def test_thinning_keeps_conversations_together():
    """What goes on after the system prompt's block in the same way is kept or left as a whole."""
    trace = tuple(TraceRequest(float(n), 1500, 1, (0, 1 + n % 40, 100 + n)) for n in range(400))
    found = kept_conversations(trace, 4)
    kept_roots = {each.blocks[1] for each in found}
    assert 4 <= len(kept_roots) <= 18
    assert found == tuple(each for each in trace if each.blocks[1] in kept_roots)
    assert 60 <= len(kept(trace, 4, "x")) <= 140


@pytest.mark.parametrize("scenario", [each for each in SCENARIOS if each is not RAMP], ids=lambda each: each.name)
def test_plants_are_drawn_by_seed_and_the_ramp_is_fitted(scenario):
    first, mirrored, other = (scenario.plant(seed) for seed in (1, 2, 3))
    measured = derive(LLAMA_3_1_8B, L40S)  # the class of both types
    for one, two, mean in ((first.mbu, mirrored.mbu, measured.mbu), (first.mfu, mirrored.mfu, measured.mfu)):
        assert one != two
        assert 0.8 * mean <= min(one, two) <= max(one, two) <= 1.2 * mean
        assert (one + two) / 2.0 == pytest.approx(mean)
    assert other.mbu not in (first.mbu, mirrored.mbu)
    assert RAMP.plant(1) == RAMP.plant(2)


def test_a_fleet_starts_with_what_its_first_minutes_need():
    """240 requests in 120 s at 0.5 a replica and a tenth to spare: 5 of them; the ramp starts with 3."""
    asks = poisson(2.0, 120.0)[:240]
    fleet = BY_NAME["azure-conversation"].fleet(1, 100.0, 0.5 * len(asks) / 240.0, asks)
    assert fleet.replicas == 5
    assert (fleet.startup_seconds, fleet.settle_seconds, fleet.seed) == (100.0, 0.0, 1)
    assert RAMP.fleet(1, 30.0, 1.4, asks).replicas == 3


# ---------------------------------------------------------------- beliefs
def test_what_is_believed_is_as_asked():
    """The figures of the type are scaled until a replica is believed to hold the rate."""
    intent = BY_NAME["azure-conversation"].intent(BY_NAME["azure-conversation"].plant(1))
    gpu = next(each for each in built_in_gpu_types() if each.name == "l4")
    lengths = Lengths(1155.0, 211.0)
    for rps in (0.5, 0.8):
        assert beliefs.believed_rps(beliefs.believing(gpu, intent, lengths, rps), intent, lengths) == pytest.approx(
            rps, rel=0.02
        )


def test_lengths_of_requests():
    found = beliefs.lengths_of([*poisson(1.0, 50.0, lengths=(1000, 10)), *poisson(1.0, 50.0, lengths=(3000, 10))], 0.5)
    assert found.input_mean == pytest.approx(1000.0)
    assert found.input_variation == pytest.approx(0.5)
    assert (found.output_mean, found.output_variation) == (10.0, 0.0)


# ---------------------------------------------------------------- runs that are left
def test_clients_leave_a_fleet_that_misses_too_much():
    """One replica under ten times its load; five misses are allowed."""
    asks = poisson(30.0, 120.0, lengths=(900, 150))
    fleet = settings(120.0)
    with pytest.raises(GivenUpError, match="misses"):
        simulate(fleet, FussyClients(asks, fleet.objective, 5.0), steady(1))
    few = poisson(0.5, 60.0)
    assert simulate(settings(60.0), FussyClients(few, fleet.objective, 5.0), steady(1)).requests == len(few)


def test_a_policy_that_costs_too_much_is_left():
    """Two replicas for 300 s are 600 GPU-seconds."""
    assert simulate(settings(300.0, replicas=2), FussyClients([], CHAT, 0.0), Thrifty(steady(2), 601.0)).requests == 0
    with pytest.raises(GivenUpError, match="cost"):
        simulate(settings(300.0, replicas=2), FussyClients([], CHAT, 0.0), Thrifty(steady(2), 560.0))


# ---------------------------------------------------------------- the store
def test_the_store_keeps_what_is_put_and_forgives_what_is_broken(tmp_path):
    store = Store(tmp_path)
    key = key_of("a", 1, 2.5)
    assert key == key_of("a", 1, 2.5) != key_of("a", 1, 2.0)
    assert store.get(key) is None
    store.put(key, {"x": 1.5, "nothing": math.nan})
    found = store.get(key)
    assert found is not None
    assert found["x"] == 1.5
    assert math.isnan(found["nothing"])
    next(tmp_path.rglob("*.json")).write_text("{", encoding="utf-8")
    assert store.get(key) is None


def test_rivals_do_not_depend_on_our_law_and_ours_does():
    assert source_hash("simulator") != source_hash("laws")
    assert len(source_hash("laws")) == 64


# ---------------------------------------------------------------- what a search found
def test_a_search_is_kept_and_read_again(tmp_path):
    def spec(point):
        return Spec(scenario="ramp", startup_seconds=30.0, seed=1, policy="hpa-kv", point=point, swept=True)

    grids = searched.merged({}, {
        spec(0): {"attainment": 0.97, "gpu_hours": 5.0},
        spec(1): {"attainment": 0.96, "gpu_hours": 4.0},
        spec(2): {"given_up": "misses"},
    })  # fmt: skip
    path = tmp_path / "grids.csv"
    searched.write(grids, path)
    assert searched.read(path) == grids
    assert grids["ramp", 30.0, "hpa-kv"][2] is None
    assert searched.read(tmp_path / "none.csv") == {}
    assert tuned(grids, RAMP, 30.0, 0.97)["hpa-kv"] == {0}
    assert tuned(grids, RAMP, 30.0, 0.95)["hpa-kv"] == {1}
    assert tuned(grids, RAMP, 30.0, 0.95)["hpa-queue"] == set()


def test_a_loop_that_is_not_searched_gets_what_its_sibling_found():
    grids = {("ramp", 30.0, "llmd-slo"): {0: (0.99, 9.0), 5: (0.98, 6.0)}}
    chosen = tuned(grids, RAMP, 30.0, 0.98)
    assert chosen["llmd-slo"] == chosen["llmd-slo-predicted"] == {5}


# ---------------------------------------------------------------- tables
def result(attainment, gpu_hours, **changes):
    base = {
        "attainment": attainment, "gpu_hours": gpu_hours, "goodput_rps": 2.0, "offered_rps": 2.1, "cost": 8.0,
        "mean_replicas": 4.0, "published_replicas": 4.5, "scale_ups": 3, "scale_downs": 2,
        "direction_changes_per_hour": 1.5, "worst_minute": 0.8, "ttft": [0.1, 0.2, 0.3], "tpot": [0.01, 0.02, 0.03],
        "replica_rps": 0.7,
    }  # fmt: skip
    return {**base, **changes}


def made(ours, rival=(0.98, 7.0), scenario="azure-conversation"):
    entries = (
        Entry(OURS, OURS, 0, (result(*ours), result(*ours, worst_minute=0.5))),
        Entry(runs.STATIC_PEAK, runs.STATIC_PEAK, 0, (result(1.0, 10.0),)),
        Entry(runs.STATIC_LEAST, runs.STATIC_LEAST, 0, (result(0.96, 8.0),)),
        Entry(runs.ORACLE, runs.ORACLE, 0, (result(0.951, 6.0),)),
        Entry("hpa-kv, tuned: x=1", "hpa-kv", 3, (result(*rival),)),
    )
    return Compared(BY_NAME[scenario], 100.0, entries, (10, 200))


def test_a_bad_row_is_printed_as_bad():
    """Dearer than a rival that does better, and above 1.25 of the floor."""
    each = made((0.97, 7.9))
    assert report.misses(each.verdict, "azure-conversation") == ["dearer than the best", "1.25 x floor"]
    line = report.verdicts([each]).splitlines()[-1]
    assert line.startswith("| Azure conversation | 100 | 97.00 % | 7.90 | hpa-kv, tuned: x=1 | 7.00 | 6.00 (oracle) |")
    assert line.endswith("| -0.90 | 1.32 | 0.79 | 10 of 200 | dearer than the best, 1.25 x floor |")


def test_what_is_kept_is_said_to_be_kept():
    each = made((0.97, 6.4))
    assert report.misses(each.verdict, "azure-conversation") == []
    assert "| 0.60 | 1.07 | 0.64 | 10 of 200 | nothing |" in report.verdicts([each])


def test_bursts_are_judged_by_static_peak_and_the_ramp_by_its_own_figures():
    each = made((0.999, 10.6))
    assert "1.05 x static peak" in report.misses(each.verdict, "azure-code")
    assert report.misses(each.verdict, "ramp") == ["dearer than the best"]


def test_an_attainment_is_never_rounded_up_to_the_objective():
    assert report.percent(0.94999, 2) == "94.99 %"
    assert report.percent(0.95, 2) == "95.00 %"
    assert report.percent(math.nan) == "-"
    assert report.misses(made((0.9499, 6.0)).verdict, "azure-conversation") == ["objective"]


def test_a_table_has_every_row_and_the_worst_minute_of_all_seeds():
    text = report.table(made((0.97, 6.4)))
    assert "10 of 200 variants were searched" in text
    rows = [line for line in text.splitlines() if line.startswith("| ") and "policy" not in line]
    assert len(rows) == 5
    assert rows[0] == (
        "| goodput | 97.00 % | 2.00 | 6.40 | 8.00 | 4.00 | 3.0/2.0 | 1.5 | 50 % | 0.10/0.20/0.30 | 10/20/30 |"
    )


def test_what_is_asked_on_the_ramp():
    rows = [
        ("start-up 100 s", [result(0.985, 9.0), result(0.979, 9.0)], 0.98, 4.5),
        ("b", [result(0.97, 9.0)], 0.98, 5.5),
    ]
    lines = report.ramp_table(rows).splitlines()
    assert lines[2] == "| start-up 100 s | 2 | 98.20 % | 4.50 | 4.00 | >= 98% at <= 4.5 | yes |"
    assert lines[3].endswith("| no |")


def test_replicas_count_until_the_fleet_is_back():
    """3 for 100 s, 6 for 200 s, then 3 again: 5 on average until back; 3 for the rest does not count."""
    assert runs.mean_until_back([(100.0, 6), (300.0, 3)], 3, 1000.0) == pytest.approx(5.0)
    assert runs.mean_until_back([(100.0, 6)], 3, 1000.0) == pytest.approx(5.7)
    assert runs.mean_until_back([], 3, 1000.0) == 3.0
