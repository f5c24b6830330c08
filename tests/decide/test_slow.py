"""A pod that is slower than the others: seen, counted for what it does, replaced; its misses add nothing."""

import pytest
from msgspec.structs import replace
from tests.decide.builders import START, counters, engine_mark, marks, one, pod, pool, telemetry, view
from tests.decide.test_replicas import loaded, replicas, steady

from goodput.decide import Policy
from goodput.decide.slow import find
from goodput.domain.conditions import ConditionType
from goodput.domain.decision import Action, Rule
from goodput.domain.memory import BUSY, SERVED, SLOW_SINCE, LoopMemory
from goodput.domain.observed import PodState
from goodput.domain.plan import ModelPlan
from goodput.domain.podtable import PodTable
from goodput.domain.samples import Samples

POLICY = Policy()
NAMES = ("pod-0", "pod-1", "pod-2")


def speeds(*served: float, since: float = 0.0) -> PodTable:
    """Marks of pods that finished so many requests of late, each with twenty running; the first is slow `since`."""
    each = [
        engine_mark(name, START, served=count, busy=1700.0, slow_since=since if name == "pod-0" else 0.0)
        for name, count in zip(NAMES, served, strict=False)
    ]
    return marks(*each)


@pytest.mark.parametrize(
    ("served", "share"),
    [((100.0, 200.0, 200.0), 0.5), ((140.0, 200.0, 210.0), 0.7), ((100.0, 200.0), 0.5)],
    ids=["half", "0.7", "one of two"],
)
def test_a_pod_below_three_quarters_of_the_others_is_suspected_at_once_and_known_after_five_minutes(served, share):
    """Finished for each second that one ran, against the median: 5 minutes later it is known."""
    engines = pool(*(pod(name) for name in NAMES[: len(served)]))
    after, slow = find(speeds(*served), engines, START, POLICY)
    assert slow.suspected == (("pod-0", share),)
    assert (slow.known, slow.lacking, slow.replaced) == ((), 0.0, "")
    assert after.column(SLOW_SINCE).tolist() == [START, *([0.0] * (len(served) - 1))]
    _, later = find(after, engines, START + 300.0, POLICY)
    assert later.known == (("pod-0", share),)
    assert later.lacking == pytest.approx(1.0 - share)
    assert later.replaced == "pod-0"


@pytest.mark.parametrize(
    "served",
    [(160.0, 200.0, 210.0), (200.0, 200.0, 200.0), (0.5, 0.5, 0.5), (10.0, 20.0, 20.0)],
    ids=["0.8", "equal", "idle", "few"],
)
def test_noise_makes_no_pod_slow(served):
    """Above three quarters, where hardly anything was served, and where 10 instead of 20 are chance, nobody is."""
    engines = pool(*(pod(name) for name in NAMES))
    _, slow = find(speeds(*served), engines, START, POLICY)
    assert slow.suspected == ()


def test_a_slow_pod_recovers_at_a_clearly_higher_speed():
    """0.8 is slow for one that was (0.75 times 1.15), 0.9 is not."""
    engines = pool(*(pod(name) for name in NAMES))
    _, slow = find(speeds(160.0, 200.0, 200.0, since=START - 60.0), engines, START, POLICY)
    assert slow.suspected == (("pod-0", 0.8),)
    after, slow = find(speeds(180.0, 200.0, 200.0, since=START - 60.0), engines, START, POLICY)
    assert slow.suspected == ()
    assert after.column(SLOW_SINCE)[0] == 0.0


def test_a_pod_alone_and_a_pod_that_just_started_are_compared_with_nobody():
    """What a young pod has finished says nothing yet."""
    _, slow = find(speeds(10.0), pool(pod("pod-0")), START, POLICY)
    assert slow.suspected == ()
    young = pod("pod-0", created_at=START - 100.0, ready_at=START - 50.0)
    _, slow = find(speeds(10.0, 200.0, 200.0), pool(young, pod("pod-1"), pod("pod-2")), START, POLICY)
    assert slow.suspected == ()


def test_what_a_pod_finished_and_ran_of_late_is_counted():
    """30 finished in 15 s at 20 in flight: 30 requests, 300 seconds; half as much counts a minute later."""
    memory = replace(steady(2.0, 1), marks=engine_mark("pod-0", START - 15.0, running=20.0, served=40.0, busy=400.0))
    seen = counters("pod-0", START, first_tokens=30.0, ttft_within=30.0, finished=30.0, tpot_within=30.0, running=20.0)
    plan = one(view(pool(pod("pod-0")), telemetry(seen, requests=1000.0, at=START)), memory)
    kept = 0.5 ** (15.0 / 60.0)
    assert plan.memory.marks.column(SERVED)[0] == pytest.approx(40.0 * kept + 30.0, abs=0.01)
    assert plan.memory.marks.column(BUSY)[0] == pytest.approx(400.0 * kept + 300.0, abs=0.01)


def _throttled(rps: float, pods: int, since: float) -> tuple[LoopMemory, ModelPlan]:
    """Pod 0 is at half of the speed of the others since then."""
    names = [f"pod-{index}" for index in range(pods)]
    seen = marks(
        *(
            engine_mark(
                name,
                START,
                running=1.0,
                served=100.0 if name == "pod-0" else 200.0,
                busy=1700.0,
                slow_since=since if name == "pod-0" else 0.0,
            )
            for name in names
        )
    )
    memory = steady(rps, pods, marks=seen)
    return memory, one(loaded(rps, pods), memory)


def test_a_slow_pod_is_replaced_once_a_new_one_serves():
    """Three hold the load: a fourth stands in for the slow one, which goes when it is ready, and is named."""
    memory, plan = _throttled(6.0, 3, START - 301.0)
    assert (replicas(plan), plan.decision.action) == (4, Action.REPLACE)
    assert "pod-0 at 50% of the speed of the others: pod-0 is replaced" in plan.decision.message
    told = next(each for each in plan.conditions if each.type is ConditionType.READY)
    assert "pod-0 at 50%" in told.message
    starting = loaded(6.0, 3, extra=(pod("new", PodState.STARTING, created_at=START),), spec_replicas=4)
    waiting = one(starting, plan.memory)
    assert replicas(waiting) == 4
    there = loaded(6.0, 4, spec_replicas=4)
    back = one(there, replace(waiting.memory, samples=memory.samples))
    assert replicas(back) == 3
    assert back.pool is not None
    assert [name for name, _ in back.pool.victims] == ["pod-0"]


def test_one_slow_pod_is_replaced_in_an_hour():
    """The next in its place may be slow for the same reason; the one under way is not changed for a slower one."""
    engines = pool(*(pod(name) for name in NAMES))
    seen = speeds(100.0, 200.0, 200.0, since=START - 400.0)
    memory = LoopMemory(born_at=START - 9000.0, slow_pod="gone", slow_replaced_at=START - 3000.0)
    _, slow = find(seen, engines, START, POLICY, memory)
    assert (slow.replaced, slow.lacking) == ("", pytest.approx(0.5))
    assert slow.message == "pod-0 at 50% of the speed of the others: one was replaced within the last hour"
    _, slow = find(seen, engines, START + 601.0, POLICY, memory)
    assert slow.replaced == "pod-0"
    _, slow = find(seen, engines, START, POLICY, replace(memory, slow_pod="pod-0"))
    assert slow.replaced == "pod-0"


def test_a_suspect_is_not_replaced_yet():
    """Three minutes may be chance."""
    _, plan = _throttled(7.5, 3, START - 200.0)
    assert (replicas(plan), plan.decision.action) == (3, Action.HOLD)


def test_a_slow_pod_counts_for_what_it_does():
    """Half a replica is lacking: where the load just needs two, it needs three."""
    needed_by = 7.0
    _, whole = _throttled(needed_by, 2, 0.0)
    assert whole.decision.to_replicas == 2 or whole.decision.rule is Rule.DEMAND
    _, plan = _throttled(needed_by, 2, START - 301.0)
    assert plan.decision.wanted_replicas == 3


def test_misses_on_a_slow_pod_alone_add_no_replicas():
    """Every fifth request missed, all of them there: attainment tells it, and the law does not act on it."""
    bad = [
        each._replace(ttft_misses=0.2 * each.finished, good_lower=0.8 * each.finished, good_upper=0.8 * each.finished)
        for each in steady(5.0, 2).samples
    ]
    for slow_missed, want in ((0.0, 3), (15.0, 2)):
        samples = Samples.of(each._replace(slow_missed=slow_missed) for each in bad)
        plan = one(loaded(5.0, 2), steady(5.0, 2, samples=samples))
        assert replicas(plan) == want
        assert plan.figures.attainment_upper == pytest.approx(0.8)


@pytest.mark.parametrize("slow", [False, True])
def test_a_slow_pod_teaches_nothing_of_a_replica(slow):
    """The mean time between tokens is that of all pods: while one is suspected, the speed stays as it was."""
    names, memory = NAMES[:2], replace(steady(5.0, 2), correction=0.9)
    for look in range(3):
        now, count = START + 15.0 * look, 25.0 * look
        seen = [
            counters(name, now, finished=count, first_tokens=count, ttft_within=count, tpot_within=count, running=20.0)
            for name in names
        ]
        sums = {
            "prompt_tokens": 1e6 + 5e4 * look,
            "generation_tokens": 1e5 + 1e4 * look,
            "itl_sum_seconds": 4e3 + 8e2 * look,
            "itl_count": 1e5 + 1e4 * look,
        }
        engines = pool(*(pod(name) for name in names))
        if look == 2:
            values = memory.marks.values.copy()
            values[:, SERVED], values[:, BUSY] = (50.0 if slow else 200.0, 200.0), 1700.0
            memory = replace(memory, marks=PodTable(names, values), correction=0.9)
        memory = one(view(engines, telemetry(*seen, requests=1000.0 + 3 * count, at=now, **sums)), memory, now).memory
    assert (memory.correction == 0.9) is slow
