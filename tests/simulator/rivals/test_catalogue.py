"""All laws: names, grids, purity, and bounds under any view."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulator.rivals.views import EDGES

from goodput.domain.intent import Objective
from goodput.simulator.rivals.catalogue import Profile, rivals
from goodput.simulator.rivals.view import Histogram, PodPhase, PodView, PoolView

PROFILE = Profile(
    prefill_tokens_per_second=15928.0,
    step_seconds=lambda prefill, decode, read: 0.01 + 1e-5 * prefill + 1e-8 * read + 1e-5 * decode,
    uncached_input_tokens=4000.0,
)
LAWS = rivals(Objective(ttft_seconds=3.0, tpot_seconds=0.1, e2e_seconds=None), PROFILE)

HISTOGRAMS = st.lists(st.floats(0.0, 20.0), max_size=20).map(lambda values: Histogram.of(values, EDGES))
PODS = st.builds(
    PodView,
    phase=st.sampled_from(PodPhase),
    running=st.integers(0, 300),
    waiting=st.integers(0, 300),
    kv_usage=st.floats(0.0, 1.0),
    prefill_backlog_tokens=st.floats(0.0, 1e6),
)
MEANS = st.none() | st.floats(1.0, 1e5)
VIEWS = st.builds(
    PoolView,
    window_seconds=st.just(60.0),
    pods=st.lists(PODS, max_size=12).map(tuple),
    min_replicas=st.just(1),
    max_replicas=st.integers(1, 20),
    held=st.integers(0, 1000),
    arrivals=st.integers(0, 100_000),
    ttft=HISTOGRAMS,
    tpot=HISTOGRAMS,
    predicted_ttft=HISTOGRAMS,
    mean_input_tokens=MEANS,
    mean_output_tokens=MEANS,
    prefix_hit_rate=st.floats(0.0, 1.0),
    kv_pool_tokens=st.integers(0, 10**6),
)


def test_the_policies_of_the_benchmark_are_all_here():
    """By the names of the command line."""
    assert list(LAWS) == [
        "llmd-slo",
        "llmd-slo-predicted",
        "llmd-token",
        "wva",
        "hpa-queue",
        "hpa-kv",
        "aibrix-apa",
        "aibrix-kpa",
        "kubeai",
        "dynamo",
    ]


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
def test_a_grid_has_twenty_different_laws_of_the_same_kind(law):
    """Each can be stepped, and keeps the objective that it was given."""
    grid = law.grid()

    assert len(set(grid)) == len(grid) >= 20
    assert {type(each) for each in grid} == {type(law)}
    assert all(
        getattr(each, name) == getattr(law, name)
        for each in grid
        for name in ("ttft_seconds", "tpot_seconds", "prefill_tokens_per_second")
        if hasattr(law, name)
    )


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
@given(views=st.lists(VIEWS, min_size=1, max_size=6))
def test_any_view_gives_a_number_within_bounds_and_the_same_one_again(law, views):
    """Pure: state in, state out; a pool below its minimum may hold (nothing is ready, nothing is known)."""
    state = law.start()
    for number, each in enumerate(views):
        now = number * law.interval_seconds
        replicas, after = law.step(each, state, now)

        assert (replicas, after) == law.step(each, state, now)
        assert 0 <= replicas <= max(each.max_replicas, each.replicas)
        state = after
