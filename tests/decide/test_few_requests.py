"""How many requests tell the scaler something, whatever the SLO asks for before status claims anything."""

import pytest
from msgspec.structs import replace
from tests.decide.builders import CHAT, START, one
from tests.decide.test_replicas import condition, loaded, missed, replicas, steady

from goodput.decide import Policy
from goodput.domain import podtable
from goodput.domain.conditions import ConditionReason, ConditionType
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import ModelView
from goodput.domain.podtable import PodTable
from goodput.domain.samples import NO_SAMPLES, Sample, Samples


@pytest.mark.parametrize(
    ("least", "told"),
    [
        (1, ConditionReason.MISSING_OBJECTIVE),
        (1800, ConditionReason.MISSING_OBJECTIVE),
        (2000, ConditionReason.TOO_FEW_REQUESTS),
    ],
)
def test_the_least_number_of_an_slo_is_what_status_claims_not_what_acts(least, told):
    """1,800 requests in ten minutes, all late: a replica at once, and a step of the trim, whatever minRequests says."""
    memory = steady(3.0, 1)
    plan = one(
        loaded(3.0, 1, objective=replace(CHAT, min_requests=least)),
        replace(memory, samples=missed(memory.samples, 1.0)),
    )
    assert (replicas(plan), plan.memory.trim) == (2, 0.92)
    assert condition(plan, ConditionType.SLO_MET)[1] is told


def _queueing(rps: float) -> ModelView:
    """One replica at which thirty requests wait."""
    model = loaded(rps, 1)
    assert model.telemetry is not None
    assert model.telemetry.pool is not None
    counters = model.telemetry.pool.counters
    values = counters.values.copy()
    values[:, podtable.WAITING] = 30.0
    return replace(
        model,
        telemetry=replace(
            model.telemetry, pool=replace(model.telemetry.pool, counters=PodTable(counters.pods, values))
        ),
    )


def _late(rps: float, **changes: float) -> LoopMemory:
    memory = steady(rps, 1, **changes)
    return replace(memory, samples=missed(memory.samples, 1.0))


@pytest.mark.parametrize("rps", [0.04, 0.1, 0.2, 2.0])
def test_few_requests_take_longer_to_say_that_they_are_late(rps):
    """24 to 1,200 requests in ten minutes, all late while others wait: a replica."""
    assert replicas(one(_queueing(rps), _late(rps))) == 2


@pytest.mark.parametrize("changed", ["last_scale_up_at", "last_scale_down_at", "trimmed_at"])
def test_what_was_answered_is_not_answered_again(changed):
    """One request in ten seconds: ten since the last change say nothing yet, 25 do."""
    assert replicas(one(_queueing(0.1), _late(0.1, **{changed: START - 100.0}))) == 1
    assert replicas(one(_queueing(0.1), _late(0.1, **{changed: START - 250.0}))) == 2


def test_no_more_is_looked_back_at_than_it_takes():
    """Samples of 4 requests every 15 s: five of them hold 20; too few reach back to the oldest."""
    samples = Samples.of(
        Sample(at=1000.0 - 15.0 * k, seconds=15.0, offered=4.0, finished=4.0) for k in range(9, -1, -1)
    )
    assert samples.back_to(20.0, 0.0, 30.0) == 1000.0 - 75.0
    assert samples.back_to(17.0, 0.0, 30.0) == 1000.0 - 75.0
    assert samples.back_to(20.0, 990.0, 30.0) == 990.0
    assert samples.back_to(41.0, 100.0, 30.0) == 100.0
    assert NO_SAMPLES.back_to(1.0, 100.0, 30.0) == 100.0


def test_what_engines_refused_has_ended_too():
    refusing = Samples.of([Sample(at=1000.0, seconds=15.0, offered=20.0, finished=5.0, failed=15.0, rejected=45.0)])
    assert refusing.back_to(20.0, 0.0, 30.0) == 985.0
    erring = Samples.of([Sample(at=1000.0, seconds=15.0, offered=20.0, finished=5.0, failed=15.0)])
    assert erring.back_to(20.0, 0.0, 30.0) == 0.0


def test_a_sample_of_engines_alone_is_found_again():
    """It has no length: what is summed since its begin holds it."""
    samples = Samples.of([Sample(at=1000.0, seconds=0.0, offered=0.0, finished=20.0)])
    assert samples.after(samples.back_to(20.0, 0.0, 30.0)).finished == 20.0


def test_the_window_that_acts_is_as_it_was_where_enough_comes():
    """20 requests and more in 90 s: nothing older counts."""
    policy = Policy()
    samples = steady(2.0, 1).samples
    assert samples.back_to(policy.least_requests, 0.0, 30.0) > START - policy.miss_window_seconds
