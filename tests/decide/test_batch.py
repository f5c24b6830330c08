"""Batch: replicas from what waits and when it is due, none while nothing waits; nobody is refused for latency."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.decide.builders import START, counters, intent, one, pod, pool, telemetry, view
from tests.decide.test_properties import QUICK
from tests.decide.test_replicas import condition, replicas, steady

from goodput.decide import Policy
from goodput.decide.backlog import Queue, backlog, unfinished
from goodput.domain.conditions import ConditionReason, ConditionType
from goodput.domain.decision import Action, Rule
from goodput.domain.intent import Objective
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import ModelView, PodState
from goodput.domain.samples import Sample
from goodput.perfmodel import Lengths
from goodput.perfmodel.requirements import Requirements
from goodput.resources.engine.histogram import bucket_edges

HOUR = 3600.0
LENGTHS = Lengths(1155.0, 211.0)
NIGHTLY = Objective(ttft_seconds=None, tpot_seconds=None, e2e_seconds=4.0 * HOUR, batch=True)


def needed(
    queue: Queue, *, now: float = 0.0, ready: int = 1, starts_in: float = 100.0, running: float = 0.0
) -> tuple[float, float]:
    """(requests/s, seconds) for a deadline of an hour, at half a request a second per replica."""
    found = backlog(
        queue, running, now=now, deadline=HOUR, starts_in=starts_in, ready=ready, capacity_rps=0.5, policy=Policy()
    )
    return found.rps, found.seconds


def test_the_rate_that_gets_it_done_in_time():
    """3,600 requests within 0.8 h = 2,880 s: one replica does 50 until more serve, who have 2,780 s."""
    assert needed(((0.0, 3600.0),)) == (pytest.approx(3550.0 / 2780.0), 2880.0)
    # What runs is half done: 200 of 1,000 are worth 100, and one replica is enough for the 900.
    assert needed(((0.0, 1000.0),), running=200.0) == (pytest.approx(900.0 / 2880.0), 2880.0)
    assert needed(()) == (0.0, 0.0)


def test_the_earliest_deadline_that_binds_counts():
    """1,000 of half an hour ago are due in 1,080 s; the 500 of now may take 2,880 s."""
    queue = ((0.0, 1000.0), (1800.0, 500.0))
    assert needed(queue, now=1800.0) == (pytest.approx(950.0 / 980.0), 1080.0)
    # The later ones bind where they are many: what came first is ahead of them.
    queue = ((0.0, 100.0), (1800.0, 5000.0))
    assert needed(queue, now=1800.0) == (pytest.approx(5050.0 / 2780.0), 2880.0)


def test_what_is_late_is_done_within_a_tenth_of_the_deadline():
    """Not at once, which no fleet could, and not never: the next ones wait behind it. One replica does 180 of 1,000."""
    assert needed(((0.0, 1000.0),), now=2.0 * HOUR) == (pytest.approx(0.5 + 820.0 / 360.0), 360.0)


@QUICK
@given(
    queue=st.lists(st.tuples(st.floats(0, 3000), st.floats(0, 500)), max_size=6).map(lambda q: tuple(sorted(q))),
    more=st.floats(0, 1000),
    ready=st.integers(0, 5),
)
def test_more_work_never_needs_fewer(queue, more, ready):
    """Monotone in what waits, whenever it came."""
    base = needed(queue, now=3000.0, ready=ready)[0]
    assert needed((*queue, (3000.0, more)), now=3000.0, ready=ready)[0] >= base - 1e-9
    if queue:
        first = ((queue[0][0], queue[0][1] + more), *queue[1:])
        assert needed(first, now=3000.0, ready=ready)[0] >= base - 1e-9


def came(at: float, requests: float) -> Sample:
    return Sample(at=at, seconds=15.0, offered=requests)


def test_engines_work_in_the_order_of_arrival():
    """Of 100 + 50 that came 80 are left: the 50 and 30 of the first. Unseen ones came half a deadline ago."""
    queue = unfinished(((0.0, 100.0),), came(100.0, 50.0), 80.0, 100.0, HOUR)
    assert queue == ((0.0, 30.0), (100.0, 50.0))
    assert unfinished((), came(5000.0, 50.0), 80.0, 5000.0, HOUR) == ((3200.0, 30.0), (5000.0, 50.0))
    assert unfinished(queue, None, 0.0, 200.0, HOUR) == ()
    # What comes within a 64th of the deadline counts as having come with the first of it.
    assert unfinished(((0.0, 10.0),), came(50.0, 5.0), 15.0, 50.0, HOUR) == ((0.0, 15.0),)


@QUICK
@given(st.lists(st.floats(0, 50), min_size=1, max_size=8), st.integers(1, 1000))
def test_a_queue_stays_small_and_tells_of_all_that_is_in_flight(arrivals, in_flight):
    """It is kept in a ConfigMap."""
    queue: Queue = ()
    for tick in range(240):
        at = 15.0 * tick
        queue = unfinished(queue, came(at, arrivals[tick % len(arrivals)]), float(in_flight), at, 1800.0)
    assert len(queue) <= 130
    assert sum(requests for _, requests in queue) == pytest.approx(in_flight, abs=1.0 + 0.001 * len(queue))


def night(waiting: float, pods: int = 1, *, rps: float = 2.0, **changes: object) -> tuple[ModelView, LoopMemory]:
    """A Batch Model whose engines hold so many waiting requests together, all of now; `rps` more come a second."""
    names = [f"pod-{number}" for number in range(pods)]
    running = 20.0 if waiting else 0.0
    metrics = telemetry(
        *(counters(name, START, running=running, waiting=waiting / pods, e2e_within=0.0) for name in names),
        requests=1000.0,
        at=START,
    )
    memory = steady(rps, pods, objective=(None, None, NIGHTLY.e2e_seconds), queue=((START, waiting + running * pods),))
    return view(pool(*(pod(name) for name in names)), metrics, objective=NIGHTLY, **changes), memory


def rate() -> float:
    """Requests/s of one replica that is loaded as far as it goes."""
    return one(*night(0.0)).figures.capacity_rps_per_replica or 0.0


def test_replicas_follow_from_the_queue_and_the_deadline():
    """So many requests that three replicas need the four fifths of four hours that are planned for."""
    most = 0.8 * 4.0 * HOUR * rate()
    plan = one(*night(2.5 * most, rps=20.0))
    assert (replicas(plan), plan.decision.rule, plan.decision.action) == (3, Rule.DEADLINE, Action.SCALE_UP)
    assert replicas(one(*night(0.9 * most, rps=20.0))) == 1
    inputs = {item.name: item for item in plan.decision.inputs}
    assert inputs["to be done"].unit == "tokens"
    assert inputs["within"].value == round(0.8 * 4.0 * HOUR)
    assert inputs["throughput per replica"].value > 0.0
    assert "forecast" not in inputs
    assert plan.figures.forecast_rps is None


def test_no_replica_is_added_for_what_can_no_longer_move():
    """What waits stays on its engine. Where nothing comes any more, more replicas would idle; the decision says so."""
    most = 0.8 * 4.0 * HOUR * rate()
    plan = one(*night(2.5 * most, rps=0.0))
    assert replicas(plan) == 1
    assert "what waits stays on the engine to which it was sent" in plan.decision.message


def test_replicas_stay_while_they_have_work_and_go_when_nothing_waits():
    """Four that hold 10 requests each stay, however little that is; to minReplicas once the queue is empty."""
    busy, memory = night(40.0, 4, rps=0.0, min_replicas=2)
    assert replicas(one(busy, memory)) == 4
    idle, memory = night(0.0, 4, rps=0.0, min_replicas=2)
    memory = replace(memory, loads=tuple((at, 0.0) for at, _ in memory.loads))
    plan = one(idle, memory)
    assert (replicas(plan), plan.decision.action) == (2, Action.SCALE_DOWN)
    assert plan.memory.queue == ()


def test_pods_on_their_way_are_not_ordered_twice():
    """Two of three start since a while: the same three at each tick, though the work per second that is left grows."""
    most = 0.8 * 4.0 * HOUR * rate()
    model, memory = night(2.9 * most, rps=20.0)
    starting = tuple(pod(f"new-{number}", PodState.STARTING, created_at=START) for number in range(2))
    model = replace(model, pool=pool(*model.pool.pods, *starting))
    for passed in (10.0, 30.0, 44.0):
        memory = replace(memory, last_scale_up_at=START - passed)
        assert replicas(one(model, memory)) == 3


def test_what_was_in_flight_before_it_was_looked_at_is_not_forgotten():
    """Without a queue in memory half of the deadline is taken to be over."""
    most = 0.3 * 4.0 * HOUR * rate()
    model, memory = night(1.5 * most, rps=20.0)
    assert replicas(one(model, replace(memory, queue=()))) == 2
    # Nor is it lost where metrics are missing for a while.
    silent = one(replace(model, telemetry=None), memory)
    assert silent.memory.queue == memory.queue
    assert (replicas(silent), silent.decision.rule) == (1, Rule.HOLD_METRICS)


def test_a_replica_of_a_batch_model_is_sized_for_throughput():
    """Latency has no say, whatever the deadline; it admits what it can prefill until then; the deadline is an edge."""
    arch = intent().architecture
    assert arch is not None
    for deadline in (120.0, 4.0 * HOUR):
        objective = replace(NIGHTLY, e2e_seconds=deadline)
        plan = one(view(pool(exists=False), None, objective=objective))
        assert plan.pool is not None
        placement = plan.pool.placement
        assert placement.max_num_queued_requests is not None
        assert placement.max_num_queued_requests > deadline * placement.capacity_rps
        assert deadline in bucket_edges(objective)["request_latency"]
        wanted = Requirements(arch=arch, objective=objective, lengths=LENGTHS)
        assert wanted.patient
    online = one(view(pool(exists=False), None)).pool
    assert online is not None
    assert placement.capacity_rps > 1.2 * online.placement.capacity_rps


def test_misses_of_a_deadline_are_told_and_ask_for_nothing_by_themselves():
    """They came hours ago: what waits now says what is needed."""
    model, memory = night(0.0, 2, rps=2.0)
    late = replace(
        memory,
        samples=type(memory.samples).of(
            each._replace(e2e_misses=each.finished, good_lower=0.0, good_upper=0.0) for each in memory.samples
        ),
    )
    plan = one(model, late)
    assert replicas(plan) <= 2
    assert condition(plan, ConditionType.SLO_MET)[1] is ConditionReason.MISSING_OBJECTIVE
