"""Pods that fail, and start once more between two failures."""

from msgspec.structs import replace
from tests.decide.builders import pod, pool

from goodput.decide.failed import failed_pods, remembered
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import PodState, PodView

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
