"""KubeAI's autoscaler by hand."""

import pytest
from tests.simulator.rivals.views import ready, run, starting, view

from goodput.simulator.rivals.kubeai import KubeAi


def test_a_window_of_zeros_makes_the_first_scale_up_slow():
    """1,000 active requests over a target of 100 want 10, but tick k sees a mean of 1,000 k / 60: 2 replicas from
    k = 7 (116.7), 5 at half the window, 10 after all of it."""
    pool = view(*ready(1, running=900, waiting=50), held=50)
    asked = run(KubeAi(), [pool] * 60)

    assert asked[:6] == [1] * 6
    assert asked[6] == 2
    assert asked[29] == 5
    assert asked[59] == 10


def test_a_scale_down_waits_for_its_delay():
    """30 s at 10 s: three ticks are only counted, the fourth acts."""
    assert run(KubeAi(), [view(*ready(4))] * 5) == [4, 4, 4, 1, 1]


def test_a_tick_that_wants_no_less_starts_the_count_anew():
    """Two low ticks, one at its place, then three more are needed."""
    law = KubeAi(time_window_seconds=10.0)
    low, high = view(*ready(2)), view(*ready(2, running=100))

    assert run(law, [low, low, high, low, low, low, low]) == [2, 2, 2, 2, 2, 2, 1]


def test_without_a_ready_pod_the_tick_is_skipped():
    """Nothing enters the window."""
    law = KubeAi()
    replicas, state = law.step(view(*starting(2), held=500), law.start(), 0.0)

    assert (replicas, state) == (2, law.start())


@pytest.mark.parametrize(("window", "samples"), [(600.0, 60), (65.0, 7)])
def test_the_window_is_in_ticks(window, samples):
    """Rounded up."""
    assert len(KubeAi(time_window_seconds=window).start().samples) == samples
