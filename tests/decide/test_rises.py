"""Load that rises faster than replicas start: what following it spoils, what is held, and what a person is told."""

import random

from msgspec.structs import replace
from tests.decide.builders import START, one
from tests.decide.test_replicas import loaded, missed, replicas, steady

from goodput.decide import Policy
from goodput.decide.demand import Intervals
from goodput.decide.rises import NO_RISES, Rises, packed, rises, unpacked, watch
from goodput.domain.conditions import ConditionType
from goodput.domain.decision import Rule
from goodput.domain.plan import ModelPlan

POLICY = Policy()


def rows(came: list[float], provided: list[float] | None = None, now: float = START) -> bytes:
    """What was watched in each scrape interval, newest last; as much was provided for as had come."""
    number = len(came)
    load = came if provided is None else provided
    return packed((now - 15.0 * (number - 1 - k), came[k], load[k]) for k in range(number))


def bursts(number: int, high: float, low: float = 0.2, every: int = 20, length: int = 2) -> list[float]:
    """A burst of `length` intervals every `every`."""
    return [high if k % every >= every - length else low for k in range(number)]


def seen(watched: bytes, *, lead: float = 100.0, window: float = 120.0, wait: float = 4.0) -> Rises:
    """For replicas of 1 request/s, where 5 % may be missed."""
    return rises(watched, 1.0, lead, window, allowed=0.04, wait=wait, policy=POLICY)


def test_bursts_that_are_over_before_a_replica_starts_are_held_for():
    """Half a minute of 8 requests/s every five minutes, replicas after 100 s: nearly all of it comes too early."""
    found = seen(rows(bursts(120, 8.0)))
    assert found.share > 0.6
    assert 6 <= found.hold <= 8
    assert found.lead_seconds == 100.0


def test_the_same_bursts_are_followed_where_replicas_stay_from_one_to_the_next():
    """Where scale-downs wait for ten minutes, what the last burst called for is still there."""
    watched = rows([8.0, 8.0, *bursts(120, 8.0)])
    assert seen(watched, window=120.0).hold > 0
    assert seen(watched, window=600.0).hold == 0
    assert seen(watched, window=600.0).share == 0.0


def test_bursts_that_may_wait_are_no_reason_to_hold():
    """The objective lets a first token come after a minute: a queue carries half a minute of 3 requests/s over."""
    watched = rows(bursts(120, 3.0, low=1.0))
    assert seen(watched, wait=1.0).hold > 0
    assert seen(watched, wait=60.0).hold == 0


def test_a_load_that_grows_over_an_hour_is_followed():
    """From 1 to 9 requests/s in an hour, with the forecast a little ahead of it."""
    came = [1.0 + 8.0 * k / 240.0 for k in range(240)]
    assert seen(rows(came, [1.1 * rps for rps in came])).hold == 0


def test_noise_of_a_steady_load_is_no_rise():
    """Poisson counts of 6 requests/s with 10 % kept free, twenty hours: nothing is held in any of them."""
    draw = random.Random(3)
    for _ in range(20):
        came = [sum(1 for _ in range(1000) if draw.random() < 0.09) / 15.0 for _ in range(240)]
        assert seen(rows(came, [6.6] * 240)).hold == 0


def test_a_rise_is_forgotten_as_more_of_the_load_is_followed():
    """One burst in an hour of a load that is followed is within what the objective lets be missed."""
    steady_load = [4.0] * 200
    assert seen(rows([*[4.0] * 30, 12.0, 12.0, *steady_load])).hold == 0
    twice = [*[4.0] * 30, 12.0, 12.0, *[4.0] * 30, 12.0, 12.0, *[4.0] * 10]
    assert seen(rows(twice)).hold > 4


def test_one_jump_is_no_way_of_a_load_to_be():
    """However much of a young fleet's requests came in it: replicas follow it, up and down again."""
    assert seen(rows([*[1.0] * 20, *[9.0] * 12, *[1.0] * 20], [*[1.1] * 21, *[9.9] * 31])).hold == 0


def test_nothing_is_said_of_what_was_not_watched():
    assert seen(b"") == NO_RISES
    assert seen(rows([5.0])) == NO_RISES
    # No replica that this load called for could be there yet.
    assert seen(rows([0.1, 9.0, 9.0])) == NO_RISES
    assert rises(rows(bursts(40, 8.0)), 0.0, 100.0, 120.0, allowed=0.04, wait=4.0, policy=POLICY) == NO_RISES


def test_a_row_is_added_each_scrape_interval_and_kept_for_an_hour():
    watched = b""
    for tick in range(800):
        watched = watch(watched, Intervals([30.0, 60.0], 2), START + 10.0 * tick, 3.0, POLICY)
    found = unpacked(watched)
    # Ticks of 10 s: a row every 20 s, of the newest interval (20 s are nearer to one than to two).
    assert found[-1][1:] == (2.0, 3.0)
    assert found[-1][0] - found[-2][0] == 20.0
    assert 3600.0 <= found[-1][0] - found[0][0] <= 3640.0
    # What came between two looks that are further apart is averaged over them.
    after = watch(packed([(START, 1.0, 1.0)]), Intervals([30.0, 60.0], 2), START + 30.0, 3.0, POLICY)
    assert unpacked(after)[-1][1] == 3.0


def between_bursts(pods: int, high: float, **changes: object) -> ModelPlan:
    """Little load for ten minutes on so many replicas, after an hour with bursts of `high` requests/s."""
    memory = replace(steady(0.5, pods), startup_seconds=(100.0,) * 5, watched=rows(bursts(240, high)))
    memory = replace(memory, born_at=START - 7200.0)
    return one(loaded(0.5, pods, **changes), memory)


def test_replicas_are_held_between_bursts_and_the_decision_says_why():
    without = one(loaded(0.5, 8), replace(steady(0.5, 8), startup_seconds=(100.0,) * 5, born_at=START - 7200.0))
    assert without.decision.rule is Rule.SCALE_DOWN_ALLOWED
    capacity = without.figures.capacity_rps_per_replica
    assert capacity is not None
    plan = between_bursts(8, 8.5 * capacity)
    assert plan.decision.rule is Rule.HOLD_RISES
    assert replicas(plan) == 8
    assert "load rises faster than replicas start" in plan.decision.message
    assert "set spec.scaling.minReplicas to " in plan.decision.message
    # Of more than bursts need, the others go.
    more = between_bursts(12, 4.5 * capacity)
    assert more.decision.rule is Rule.SCALE_DOWN_ALLOWED
    assert replicas(without) < replicas(more) < 8


def test_who_set_min_replicas_as_advised_is_not_told_again():
    capacity = one(loaded(0.5, 8), steady(0.5, 8)).figures.capacity_rps_per_replica
    assert capacity is not None
    advised = between_bursts(12, 6.0 * capacity)
    number = int(advised.decision.message.split("minReplicas to ")[1].split(",")[0])
    assert replicas(advised) == number
    assert "minReplicas to" not in between_bursts(12, 6.0 * capacity, min_replicas=number).decision.message


def test_an_objective_that_is_missed_for_rises_says_so_in_its_condition():
    memory = steady(2.0, 2)
    capacity = one(loaded(2.0, 2), memory).figures.capacity_rps_per_replica
    assert capacity is not None
    bad = replace(memory, samples=missed(memory.samples, 0.3), watched=rows(bursts(240, 8.0 * capacity)))
    met = {condition.type: condition for condition in one(loaded(2.0, 2), bad).conditions}[ConditionType.SLO_MET]
    assert "came in such rises" in met.message
    plain = replace(bad, watched=b"")
    met = {condition.type: condition for condition in one(loaded(2.0, 2), plain).conditions}[ConditionType.SLO_MET]
    assert "rises" not in met.message


def test_the_advice_names_its_numbers():
    told = Rises(9, 0.123, 4000.0, 103.0).advice(1, None)
    assert told == (
        "load rises faster than replicas start, which takes 103 s: 12.3% of 4000 requests came in such rises. No "
        "scaling can follow it: set spec.scaling.minReplicas to 9, or make replicas start faster"
    )
    assert not Rises(9, 0.123, 4000.0, 103.0).advice(9, None)
    assert not NO_RISES.advice(0, None)


def test_what_is_advised_can_be_done():
    """Fewer replicas than may run are not asked for without saying so; where number and bounds are one, nothing is."""
    found = Rises(64, 0.5, 4000.0, 103.0)
    assert "set spec.scaling.minReplicas to 64 or more, and maxReplicas, which is 4, to no less" in found.advice(1, 4)
    assert found.advice(4, 4) == ""
