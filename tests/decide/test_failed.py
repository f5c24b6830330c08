"""Pods that fail, and start once more between two failures."""

import pytest
from msgspec.structs import replace
from tests.decide.builders import START, one, pod, pool
from tests.decide.test_replicas import loaded, missed, replicas, steady

from goodput.decide.failed import failed_pods, remembered
from goodput.domain.decision import Rule
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import PodState, PodView
from goodput.domain.samples import Samples

SERVES = pod("pod-0")
DOWN = replace(pod("pod-1", PodState.FAILED), trouble="CrashLoopBackOff", restarts=2)


def _after(then: PodView, now: PodView) -> tuple[PodView, ...]:
    """What fails at a look, by what the look before it left."""
    memory = LoopMemory(failed=remembered(failed_pods(pool(SERVES, then), LoopMemory())))
    return failed_pods(pool(SERVES, now), memory)


def test_a_container_that_starts_again_has_the_trouble_that_it_died_of():
    found = _after(DOWN, replace(DOWN, state=PodState.STARTING, trouble="Error", restarts=3))
    assert [(each.name, each.trouble) for each in found] == [("pod-1", "CrashLoopBackOff")]


def test_one_that_is_ready_again_fails_no_more():
    assert _after(DOWN, replace(DOWN, state=PodState.READY, restarts=3)) == ()


def test_another_pod_of_its_name_is_another():
    assert _after(DOWN, replace(DOWN, uid="new", state=PodState.STARTING)) == ()


def test_an_image_that_was_pulled_at_last_is_no_trouble_while_it_starts():
    missing = replace(DOWN, trouble="ImagePullBackOff", restarts=0)
    assert _after(missing, missing) == (missing,)
    assert _after(missing, replace(missing, state=PodState.STARTING, trouble="")) == ()


def test_a_pod_that_starts_after_one_restart_has_not_failed():
    assert _after(SERVES, replace(SERVES, state=PodState.STARTING, restarts=1)) == ()


def _late(share: float, ready: int, *others: PodView, **changes: float) -> tuple[int, Rule]:
    """Replicas that are wanted beyond what is asked for, and why, at 3.2 requests/s on each ready pod."""
    rps = 3.2 * ready
    memory = steady(rps, ready + len(others))
    samples = missed(memory.samples, share)
    if changes:
        samples = Samples.of(
            each._replace(**{name: of * each.offered for name, of in changes.items()}) for each in samples
        )
    plan = one(loaded(rps, ready, extra=others), replace(memory, samples=samples))
    return replicas(plan) - ready - len(others), plan.decision.rule


def _crashed(number: int, created_at: float = START - 1000.0) -> list[PodView]:
    return [
        pod(f"z-{index}", PodState.FAILED, trouble="CrashLoopBackOff", restarts=9, created_at=created_at)
        for index in range(number)
    ]


@pytest.mark.parametrize(("ready", "crashed"), [(3, 0), (3, 1), (10, 1), (10, 9)])
def test_a_crash_loop_does_not_hide_what_is_late_on_the_others(ready, crashed):
    """A crash loop itself asks for nothing; nine of ten first tokens late on the pods that serve is a replica."""
    assert _late(0.0, ready, *_crashed(crashed))[0] == 0
    assert _late(0.9, ready, *_crashed(crashed)) == (1, Rule.CERTAIN_MISSES)


def test_a_fleet_whose_new_pods_fail_does_not_grow_on():
    """As many fail as serve, or the last two that were made: one more would fail as well."""
    assert _late(0.9, 3, *_crashed(3))[0] == 0
    assert _late(0.9, 10, *_crashed(1, START - 60.0)) == (1, Rule.CERTAIN_MISSES)
    assert _late(0.9, 10, *_crashed(2, START - 60.0))[0] == 0


def test_errors_do_not_hide_what_is_late_among_the_rest():
    """A tenth answered with errors: no replica for those, one for the late ones."""
    assert _late(0.0, 3, failed=0.1)[0] == 0
    assert _late(0.9, 3, failed=0.1) == (1, Rule.CERTAIN_MISSES)


def test_what_fails_for_good_lets_the_trim_go_on():
    """Neither certain nor met: the trim takes its step with a failed pod as without one."""

    def trimmed(*others: PodView) -> float:
        memory = steady(9.6, 3 + len(others))
        return one(loaded(9.6, 3, extra=others), replace(memory, samples=missed(memory.samples, 0.04))).memory.trim

    assert trimmed() == trimmed(*_crashed(1)) == 0.97
    assert trimmed(*_crashed(3)) == 1.0
