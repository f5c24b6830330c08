"""What is believed of a replica moves with the requests that it is learned from: replicas do not move with it."""

import pytest
from msgspec.structs import replace
from tests.decide.builders import START, one
from tests.decide.test_replicas import loaded, replicas, steady

from goodput.decide import Policy
from goodput.decide.replicas import believing, down_window_seconds
from goodput.domain.decision import Rule
from goodput.domain.memory import LoopMemory

POLICY = Policy()


@pytest.mark.parametrize(
    ("capacity_rps", "want"),
    [
        (8.0, 120.0),  # enough came in the shortest window
        (0.5, POLICY.down_requests / 0.5),
        (0.01, POLICY.down_requests_seconds),
        (0.0, 120.0),  # nothing is believed yet
    ],
)
def test_a_scale_down_waits_until_a_replica_was_seen_with_many_requests(capacity_rps, want):
    """Long prompts are few: a minute of them says nothing of the next one."""
    assert down_window_seconds(45.0, 10.0, capacity_rps, POLICY) == want


def test_a_window_is_no_shorter_than_a_start_up_and_a_drain():
    assert down_window_seconds(300.0, 40.0, 8.0, POLICY) == 340.0


def test_loads_call_for_as_many_replicas_whatever_is_believed_later():
    """Two replicas were needed for 2 requests/s when one held 1; now that it holds 4, they are what 8 needs."""
    memory = believing(LoopMemory(loads=((START, 2.0),)), 1.0)
    assert memory.loads == ((START, 2.0),)
    memory = believing(memory, 4.0)
    assert (memory.loads, memory.loads_capacity_rps) == (((START, 8.0),), 4.0)
    assert believing(memory, 0.0) is memory


def test_replicas_stay_for_a_window_after_more_is_believed_of_each():
    """At 0.2 requests/s of each, which was believed until now, 1.09 requests/s need six; now one is enough."""
    memory = steady(1.0, 6)
    believed = one(loaded(1.0, 6), memory)
    assert believed.decision.rule is Rule.SCALE_DOWN_ALLOWED
    capacity = believed.memory.loads_capacity_rps
    assert capacity > 0.0
    doubted = one(loaded(1.0, 6), replace(memory, loads_capacity_rps=0.2))
    assert replicas(doubted) == 6
    assert doubted.decision.rule is Rule.SCALE_DOWN_WAITING
    assert doubted.memory.loads_capacity_rps == capacity
