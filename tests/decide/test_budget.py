"""What was missed of late, and how much more is believed of a replica where that is next to nothing."""

import pytest
from msgspec.structs import replace
from tests.decide.builders import CHAT, START
from tests.decide.test_replicas import loaded, steady

from goodput.decide import Policy
from goodput.decide.budget import Budget
from goodput.decide.correction import MOST_TRIM, trim
from goodput.decide.history import Attainment
from goodput.decide.model import recalled
from goodput.decide.work import Fleet
from goodput.domain.memory import LoopMemory
from goodput.domain.samples import Sample

POLICY = Policy()
FLEET = Fleet(gpus={}, shared=None, policy=POLICY, now=START, telemetry_error="")  # type: ignore[arg-type]
GOOD = Attainment(500.0, 0.99, 1.0)


def test_misses_weigh_half_after_a_half_life():
    begun = Budget(1000.0, 40.0, START)
    later = begun.after(None, START + POLICY.budget_halflife_seconds, POLICY)
    assert (later.ended, later.missed) == (500.0, 20.0)


def test_the_share_that_is_spent():
    """40 of 1,000 missed where 50 are forgiven, beside 200 requests that are taken to have spent 60 %."""
    assert Budget(1000.0, 40.0, START).spent(0.95) == pytest.approx((40.0 + 6.0) / 60.0)
    assert Budget().spent(0.95) == pytest.approx(0.6)


def test_errors_and_late_requests_are_missed_and_unknown_ones_count_as_missed():
    seen = Sample(START, 15.0, 50.0, finished=40.0, failed=5.0, good_lower=38.0, good_upper=40.0)
    assert Budget().after(seen, START, POLICY) == Budget(45.0, 7.0, START)


def _trim(memory: LoopMemory, spent: float, utilisation: float = 0.8, recent: Attainment = GOOD) -> float:
    found, _ = trim(
        memory,
        recent,
        CHAT,
        utilisation,
        utilisation / memory.trim,
        spent=spent,
        certain=False,
        settled=True,
        now=START,
        policy=POLICY,
    )
    return found


def test_more_is_believed_of_a_replica_only_where_next_to_nothing_is_missed_at_a_real_load():
    memory = LoopMemory(born_at=START - 3600.0)
    assert _trim(memory, spent=0.1) == pytest.approx(1.03)
    assert _trim(memory, spent=0.5) == 1.0
    assert _trim(memory, spent=0.1, utilisation=0.4) == 1.0
    assert _trim(memory, spent=0.1, recent=Attainment(500.0, 0.90, 0.96)) < 1.0
    assert _trim(LoopMemory(born_at=START - 60.0), spent=0.1) == 1.0


def test_it_ends_at_what_formulas_err_by_and_is_taken_back_where_the_budget_goes():
    memory = LoopMemory(born_at=START - 3600.0, trim=MOST_TRIM)
    assert _trim(memory, spent=0.1) == MOST_TRIM
    assert _trim(memory, spent=0.9) == pytest.approx(MOST_TRIM / 1.03)
    assert _trim(LoopMemory(born_at=START - 3600.0, trim=1.01), spent=0.9) == 1.0


def test_what_held_under_a_laxer_attainment_is_forgotten_under_a_stricter_one():
    """Proof and trim are of 95 %; 99 % of the same requests need more replicas. Asked for less, they stay."""
    memory = steady(10.0, 4, proven_rps=4.0, trim=1.1, attainment=0.95)
    for attainment, proven, trimmed in ((0.99, 0.0, 1.0), (0.9, 4.0, 1.1), (0.95, 4.0, 1.1)):
        asked = loaded(10.0, 4, objective=replace(CHAT, attainment=attainment))
        found = recalled(asked, memory, FLEET)
        assert (found.proven_rps, found.trim, found.attainment) == (proven, trimmed, attainment)


def test_what_was_learned_under_other_objectives_is_no_trust():
    memory = steady(10.0, 4, proven_rps=4.0, trim=1.1, attainment=0.95, budget_ended=900.0, budget_missed=1.0)
    tighter = loaded(10.0, 4, objective=replace(CHAT, tpot_seconds=0.03))
    found = recalled(tighter, memory, FLEET)
    assert (found.proven_rps, found.trim, found.budget_ended) == (0.0, 1.0, 0.0)
