"""AIBrix's APA and KPA by hand, the published defects included."""

import pytest
from tests.simulator.rivals.views import ready, run, starting, view

from goodput.simulator.rivals.aibrix import AibrixApa, AibrixKpa


@pytest.mark.parametrize(
    ("usage", "wanted"),
    [
        (0.90, 8),  # 4 x 1.8 = 7.2
        (0.54, 4),  # within a tenth of the target
        (0.56, 5),  # 4 x 1.12
        (0.46, 4),  # within a tenth
        (0.44, 4),  # 4 x 0.88 = 3.52, rounded up: no change
        (0.30, 3),  # 4 x 0.6 = 2.4
        (0.05, 2),  # 0.4 replicas, but at most halved
    ],
)
def test_apa_follows_use_over_target(usage, wanted):
    """r = use / 0.5; min(ceil(n r), 2 n) above 1.1, max(ceil(n r), floor(n / 2)) below 0.9."""
    assert run(AibrixApa(), [view(*ready(4, kv_usage=usage))]) == [wanted]


def test_apa_at_most_doubles():
    """A target of 0.1 at use 0.9 wants 36."""
    assert run(AibrixApa(target_kv_usage=0.1), [view(*ready(4, kv_usage=0.9))]) == [8]


def test_apa_averages_its_observation_window():
    """0.9 then 0.1 over 180 s is 0.5: the second look holds, the first asked for 8."""
    law = AibrixApa()
    state = law.start()
    _, state = law.step(view(*ready(4, kv_usage=0.9)), state, 0.0)
    replicas, _ = law.step(view(*ready(4, kv_usage=0.1)), state, 10.0)

    assert replicas == 4


def test_pending_pods_do_not_cascade():
    """2 ready of 4, use 0.9, target 0.5: without the guard 8; with it ceil(4 x 0.9 x 2/4 / 0.5) = 4."""
    assert run(AibrixApa(), [view(*ready(2, kv_usage=0.9), *starting(2))]) == [4]


def test_pending_pods_count_as_on_target_on_the_way_down():
    """2 ready of 4 at 0.2: 2 without the guard; with it ceil((0.2 x 2 + 0.5 x 2) / 0.5) = 3."""
    assert run(AibrixApa(), [view(*ready(2, kv_usage=0.2), *starting(2))]) == [3]


def test_a_cooldown_takes_the_lowest_of_its_window():
    """The reverse of an HPA: after one look that wanted 2, a look that wants 3 of 4 gets 2."""
    law = AibrixApa(observe_window_seconds=10.0)
    low, less = view(*ready(4, kv_usage=0.2)), view(*ready(4, kv_usage=0.3))

    assert run(law, [low, less]) == [2, 2]
    assert run(AibrixApa(observe_window_seconds=10.0, scale_down_cooldown_seconds=0.0), [low, less]) == [2, 3]


def test_without_a_metric_nothing_is_done():
    """No pod is ready."""
    assert run(AibrixApa(), [view(*starting(3))]) == [3]


def test_kpa_halves_an_overloaded_fleet():
    """8 pods at KV use 0.9 with a target of 0.5: ceil(0.9 / 0.5) = 2 is taken for a count, clamped to 8 / 2 = 4."""
    assert run(AibrixKpa(), [view(*ready(8, kv_usage=0.9))]) == [4]


def test_kpa_in_a_panic_takes_the_larger_window():
    """Target 0.02, 8 pods: a minute at 0.4 after 120 s at 0.01: stable 0.14 -> 7, panic 0.4 -> 20, at most 16. Panic
    over stable is 2.86."""
    law = AibrixKpa(target_kv_usage=0.02)
    idle, busy = view(*ready(8, kv_usage=0.01)), view(*ready(8, kv_usage=0.4))

    assert run(law, [idle] * 12 + [busy] * 6)[-1] == 16
