"""WVA's saturation analyzer V2: k1, k2, demand, RC and SC by hand."""

import pytest
from tests.simulator.rivals.views import ready, run, starting, view

from goodput.simulator.rivals.behaviour import KUBERNETES_DEFAULT
from goodput.simulator.rivals.wva import Observed, Wva, WvaState

# k1 = 0.80 x 100,000 = 80,000. By arguments: N = min(8192 x 1000 / 5000, 256) = 256, k2 = 256 x 4,500 = 1,152,000.
FLEET = {
    "kv_pool_tokens": 100_000,
    "mean_input_tokens": 4000.0,
    "mean_output_tokens": 1000.0,
    "max_num_batched_tokens": 8192,
    "max_num_seqs": 256,
}
LAW = Wva()


def signals(*pods, state=None, **more):
    """What the analyzer says of these pods at t = 0."""
    return LAW.analyse(view(*pods, **{**FLEET, **more}), state or WvaState(), 0.0)[0]


def test_memory_bound_supply_and_demand():
    """Two pods at 0.7 with one waiting each: D = 2 x (70,000 + 5,000) = 150,000; per replica 80,000. RC =
    150,000 / 0.85 - 160,000 = 16,470.6; SC = max(0, 160,000 - 150,000 / 0.70) = 0. One replica more."""
    got = signals(*ready(2, kv_usage=0.7, waiting=1))

    assert (got.capacity, got.demand, got.spare) == (80_000.0, 150_000.0, 0.0)
    assert got.required == pytest.approx(16_470.588)
    assert LAW.optimise(view(*ready(2)), got) == 3


def test_starting_pods_are_anticipated_supply_but_not_spare():
    """The same with two pods starting: RC = 176,470.6 - 4 x 80,000 < 0; SC counts ready ones only."""
    got = signals(*ready(2, kv_usage=0.7, waiting=1), *starting(2))

    assert (got.required, got.spare) == (0.0, 0.0)
    assert LAW.optimise(view(*ready(2), *starting(2)), got) == 4


def test_what_can_be_spared_goes_in_whole_replicas():
    """Four pods at 0.2: D = 80,000, SC = 320,000 - 114,285.7 = 205,714.3: floor(2.57) = 2 go."""
    got = signals(*ready(4, kv_usage=0.2))

    assert got.spare == pytest.approx(205_714.286)
    assert LAW.optimise(view(*ready(4)), got) == 2


def test_the_last_replica_stays():
    """Idle: all could go, one stays."""
    assert LAW.optimise(view(*ready(3)), signals(*ready(3))) == 1


def test_a_saturated_pod_teaches_its_compute_bound():
    """Five wait at 0.5: k2 = 50,000 there, and by history for its neighbour; demand 50,000 + 5 x 5,000 + 10,000."""
    pool = view(*ready(1, kv_usage=0.5, waiting=5), *ready(1, kv_usage=0.1), **FLEET)
    got, state = LAW.analyse(pool, WvaState(), 0.0)

    assert (got.capacity, got.demand) == (50_000.0, 85_000.0)
    assert state.observed[2].tokens == (50_000.0,)
    assert state.observed[0] == Observed()


def test_ten_observations_are_kept_for_a_day():
    """The mean of the newest ten; a day later none."""
    history = Observed()
    for number in range(12):
        history = history.with_one(float(number), float(number))

    assert history.mean(11.0) == pytest.approx(sum(range(2, 12)) / 10)
    assert history.mean(11.0 + 24 * 3600 + 1) is None


def test_arguments_bind_where_prompts_dwarf_outputs():
    """B = 2,048, I = 4,000, O = 50: N = 2048 x 50 / 4050 = 25.28, k2 = 25.28 x 4,025 = 101,768: k1 binds. At 100,000
    tokens of cache and 8,000 of input N = 12.72 x 8,025 = 102,083; with a budget of 512: 3.18 x 8,025 = 25,521."""
    got = signals(*ready(1), mean_input_tokens=8000.0, mean_output_tokens=50.0, max_num_batched_tokens=512)

    assert got.capacity == pytest.approx(512 * 50 / 8050 * 8025)


def test_the_lower_median_of_unlike_pods_counts():
    """Two saturated at 0.5, two memory-bound without history (other lengths unseen): 50,000 is the lower median."""
    pods = (*ready(2, kv_usage=0.1), *ready(2, kv_usage=0.5, waiting=5))

    assert signals(*pods).capacity == 50_000.0


def test_requests_held_at_the_router_are_demand_less_what_is_cached():
    """10 held at a hit rate of 0.5: 10 x (2,000 + 1,000)."""
    assert signals(*ready(1), held=10, prefix_hit_rate=0.5).demand == pytest.approx(30_000.0)


def test_without_a_ready_pod_the_last_capacity_is_remembered():
    """All pods start: a known capacity of 80,000 each covers 3 x 80,000; nothing known holds."""
    known = WvaState(capacity=80_000.0)

    assert signals(*starting(3), state=known).capacity == 80_000.0
    assert LAW.optimise(view(*starting(3)), signals(*starting(3))) == 3


def test_the_gauge_is_kept_between_optimisations_and_the_hpa_follows():
    """Optimised each minute, looked at each 15 s: 3 at once, and no more although the pods stay as they were."""
    busy = view(*ready(2, kv_usage=0.7, waiting=1), **FLEET)
    more = view(*ready(2, kv_usage=0.7, waiting=1), *starting(1), **FLEET)

    assert LAW.behaviour is KUBERNETES_DEFAULT
    assert run(LAW, [busy, more, more, more, more]) == [3, 3, 3, 3, 3]
