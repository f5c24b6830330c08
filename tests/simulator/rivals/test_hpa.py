"""What an HPA proposes: External metrics as KEDA makes them, Pods metrics with pods that are not ready."""

from tests.simulator.rivals.views import pending, ready, run, starting, view

from goodput.simulator.rivals.behaviour import KUBERNETES_DEFAULT
from goodput.simulator.rivals.hpa import external_average, pods_average
from goodput.simulator.rivals.hpa_kv import HpaKv
from goodput.simulator.rivals.hpa_queue import HpaQueue


def waiting(pod):
    return float(pod.waiting)


def test_an_external_average_is_the_ceiling_of_value_over_target():
    """7 seconds of backlog at 1.5 each: 4.67, so 5."""
    assert external_average(view(*ready(2)), 7.0, 1.5, 0.1) == 5


def test_an_external_average_within_the_tolerance_changes_nothing():
    """11 asked for of 10 is a ratio of 1.1: held. 12 is 1.2: taken."""
    pool = view(*ready(10))

    assert external_average(pool, 11.0, 1.0, 0.1) == 10
    assert external_average(pool, 12.0, 1.0, 0.1) == 12


def test_a_pods_average_multiplies_the_ready_pods():
    """Mean 6 waiting over a target of 2 with 3 pods: 9."""
    assert pods_average(view(*ready(3, waiting=6)), waiting, 2.0, 0.1) == 9


def test_pods_that_are_not_ready_damp_a_scale_up():
    """3 ready pods with 4 waiting each, 2 starting and 1 pending, target 2: 2 becomes 12 / 6 / 2 = 1: held."""
    pool = view(*ready(3, waiting=4), *starting(2), *pending(1))

    assert pods_average(pool, waiting, 2.0, 0.1) == 6


def test_a_scale_up_that_pods_not_ready_leave_is_taken():
    """3 ready pods with 12 waiting each, 3 starting, target 2: 36 / 6 / 2 = 3, times 6 pods."""
    assert pods_average(view(*ready(3, waiting=12), *starting(3)), waiting, 2.0, 0.1) == 18


def test_pods_that_are_not_ready_count_as_on_target_on_the_way_down():
    """4 ready pods at usage 0.1 and 2 starting, target 0.5: (0.4 + 1.0) / 6 / 0.5 = 0.467, times 6 = 2.8: 3. Pending
    ones are left out: (0.4) / 4 / 0.5 = 0.2, times 4: 1."""

    def usage(pod):
        return pod.kv_usage

    assert pods_average(view(*ready(4, kv_usage=0.1), *starting(2)), usage, 0.5, 0.1) == 3
    assert pods_average(view(*ready(4, kv_usage=0.1), *pending(2)), usage, 0.5, 0.1) == 1


def test_without_any_value_nothing_changes():
    """All pods start: the controller has no metric and holds."""
    assert pods_average(view(*starting(3)), waiting, 2.0, 0.1) == 3


def test_the_queue_law_doubles_and_settles():
    """2 pods with 5 waiting each over a target of 2: 2.5 x 2 = 5, allowed at once (4 in 15 s); at 2 each it stays."""
    law = HpaQueue()

    assert law.behaviour is KUBERNETES_DEFAULT
    assert run(law, [view(*ready(2, waiting=5)), view(*ready(5, waiting=2))]) == [5, 5]


def test_the_kv_law_follows_usage_over_0_7():
    """4 pods at 0.9: 0.9 / 0.7 x 4 = 5.14, so 6; at 0.76 the ratio is 1.086: held."""
    assert run(HpaKv(), [view(*ready(4, kv_usage=0.9)), view(*ready(6, kv_usage=0.76))]) == [6, 6]


def test_an_idle_pool_shrinks_to_the_minimum_after_five_minutes():
    """Nothing waits: 0 proposed, 1 is the bound."""
    asked = run(HpaQueue(), [view(*ready(4))] * 21)

    assert asked[:20] == [4] * 20
    assert asked[20] == 1
