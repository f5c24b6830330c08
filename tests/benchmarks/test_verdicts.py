"""The arithmetic of the verdicts, on rows made by hand."""

import pytest
from benchmarks.autoscale.verdicts import Row, chosen, mean_row, verdict


def row(name, attainment, gpu_hours):
    return Row(name=name, attainment=attainment, gpu_hours=gpu_hours)


PEAK = row("static-peak", 1.0, 10.0)
LEAST = row("static, fewest", 0.96, 8.0)
ORACLE = row("oracle", 0.955, 6.0)


def judged(ours, *rivals, startup=100.0, bounds=(ORACLE, LEAST)):
    return verdict(ours, static_peak=PEAK, bounds=bounds, rivals=rivals, objective=0.95, startup_seconds=startup)


def test_the_gap_is_that_between_the_cheapest_that_reaches_ours_and_the_oracle():
    """Of rivals at 8, 7 and 6.5 GPU-hours the last misses more than ours: (7 - 6.4) / (7 - 6) = 0.6."""
    found = judged(row("ours", 0.97, 6.4), row("a", 0.98, 8.0), row("b", 0.97, 7.0), row("c", 0.94, 6.5))
    assert found.best.name == "b"
    assert found.floor.name == "oracle"
    assert found.gap_closed == pytest.approx(0.6)
    assert found.over_floor == pytest.approx(6.4 / 6.0)
    assert found.beats


def test_dearer_than_the_best_closes_less_than_nothing():
    found = judged(row("ours", 0.97, 7.5), row("b", 0.97, 7.0))
    assert found.gap_closed == pytest.approx(-0.5)
    assert not found.beats


def test_a_rival_within_a_thousandth_of_our_attainment_reaches_it():
    """Chance must not put the cheaper one out of the comparison."""
    ours = row("ours", 0.970, 6.4)
    assert judged(ours, row("b", 0.9691, 6.3)).best.name == "b"
    assert judged(ours, row("b", 0.9689, 6.3)).best.name == "static-peak"


def test_half_of_the_gap_is_enough():
    """8 is half way between static peak at 10 and the oracle at 6."""
    assert judged(row("ours", 0.97, 8.0)).beats
    assert not judged(row("ours", 0.97, 8.1)).beats


def test_who_misses_the_objective_beats_nobody_and_is_measured_by_those_who_keep_it():
    found = judged(row("ours", 0.9499, 6.1), row("a", 0.9495, 5.0), row("b", 0.951, 7.0))
    assert found.best.name == "b"
    assert not found.holds
    assert not found.beats


def test_a_fixed_fleet_that_is_cheaper_than_the_plan_is_the_floor():
    """And a plan that misses the objective is none, unless all do."""
    cheap = row("static, fewest", 0.99, 5.0)
    assert judged(row("ours", 0.97, 6.4), bounds=(ORACLE, cheap)).floor.name == "static, fewest"
    low = row("oracle", 0.94, 6.0)
    assert judged(row("ours", 0.97, 6.4), bounds=(low, LEAST)).floor.name == "static, fewest"
    assert judged(row("ours", 0.97, 6.4), bounds=(low, row("static, fewest", 0.93, 8.0))).floor.name == "oracle"


def test_where_nobody_reaches_ours_there_is_no_gap():
    found = verdict(
        row("ours", 0.99, 9.0),
        static_peak=row("static-peak", 0.97, 8.0),
        bounds=(ORACLE,),
        rivals=[row("a", 0.98, 7.0)],
        objective=0.95,
        startup_seconds=30.0,
    )
    assert found.best is None
    assert found.gap_closed is None
    assert found.beats


def test_at_the_floor_there_is_nothing_to_gain_but_to_be_no_dearer():
    best = row("b", 0.97, 6.0)
    assert judged(row("ours", 0.97, 6.0), best).beats
    assert not judged(row("ours", 0.97, 6.1), best).beats


@pytest.mark.parametrize(("startup", "limit"), [(30.0, 1.25), (100.0, 1.25), (135.0, 1.4), (300.0, 1.4)])
def test_slow_starts_may_cost_more(startup, limit):
    found = judged(row("ours", 0.97, 6.0 * limit - 0.01), startup=startup)
    assert found.most_over_floor == limit
    assert not found.dear(against_static_peak=False)
    assert judged(row("ours", 0.97, 6.0 * limit + 0.01), startup=startup).dear(against_static_peak=False)


def test_bursts_shorter_than_a_start_up_are_judged_by_static_peak():
    assert not judged(row("ours", 0.97, 10.5)).dear(against_static_peak=True)
    assert judged(row("ours", 0.97, 10.6)).dear(against_static_peak=True)


def test_a_rival_is_tuned_to_the_cheapest_that_reaches_or_else_to_the_best():
    points = [row("a", 0.99, 9.0), row("b", 0.97, 7.0), row("c", 0.96, 8.0), row("d", 0.90, 3.0)]
    assert chosen(points, 0.97).name == "b"
    assert chosen(points, 0.95).name == "b"
    assert chosen(points, 0.98).name == "a"
    assert chosen(points, 0.995).name == "a"
    assert chosen([], 0.95) is None


def test_rows_are_means_over_seeds():
    assert mean_row("a", [(0.9, 4.0), (1.0, 6.0)]) == row("a", 0.95, 5.0)
