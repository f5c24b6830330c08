"""What a load that held says of a replica."""

from goodput.decide.proven import Proven
from goodput.perfmodel import Lengths

LENGTHS = Lengths(1000.0, 200.0)


def test_a_load_that_held_is_believed_with_room_for_its_noise():
    assert Proven().held(2.0, LENGTHS).floor_rps(LENGTHS) == 1.6


def test_a_load_says_nothing_of_longer_requests():
    proven = Proven().held(2.0, LENGTHS)
    assert proven.floor_rps(Lengths(1200.0, 200.0)) == 1.6
    assert proven.floor_rps(Lengths(1300.0, 200.0)) == 0.0
    assert proven.floor_rps(Lengths(1000.0, 300.0)) == 0.0


def test_a_lower_load_of_longer_requests_is_the_proof_from_then_on():
    longer = Lengths(2000.0, 200.0)
    proven = Proven().held(2.0, LENGTHS).held(0.5, longer)
    assert proven == Proven(0.5, 2000.0, 200.0)
    assert proven.held(0.4, LENGTHS) == proven


def test_a_load_that_was_missed_is_proven_no_more():
    proven = Proven().held(2.0, LENGTHS)
    assert proven.missed(1.0).floor_rps(LENGTHS) == 0.8
    assert proven.missed(3.0) == proven
