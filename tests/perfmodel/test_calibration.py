"""The fit of the time model: what it leaves out and why, and that it finds constants that are known."""

import json
from math import isnan

import pytest
from benchmarks import calibration
from benchmarks.calibration import Measured, corrected, fit_constants, load, loops, split, tpot_error

from goodput.perfmodel.closedloop import Loop
from goodput.perfmodel.efficiency import constants
from goodput.perfmodel.points import predict

KNOWN = {name: entry["value"] for name, entry in constants()["fitted"].items()}


@pytest.fixture(scope="module")
def points() -> list[Measured]:
    return load()[0]


def test_rows_are_left_out_by_rule_only_and_all_are_counted() -> None:
    kept, excluded, duplicates = load()
    assert len(kept) + len(excluded) + duplicates == 738
    assert all(each.ttft_seconds <= calibration.MOST_TTFT_SECONDS for each in kept)
    rules = ("TTFT above 5 s", "weights above 90%", "prefill and decode on separate replicas")
    assert {each.reason.startswith(rules) for each in excluded} == {True}


def test_the_committed_constants_are_those_of_the_fit_and_within_physics() -> None:
    assert list(KNOWN) == [each.name for each in calibration.CONSTANTS]
    assert all(0.0 < KNOWN[each.name] <= each.limit * 1.001 for each in calibration.CONSTANTS)


def test_the_fit_says_of_a_point_what_predict_says(points: list[Measured]) -> None:
    """One model: calibration has no formulas of its own."""
    few = points[::40]
    for each, loop in zip(few, loops(few, KNOWN), strict=True):
        assert predict(each.point, mean_length=each.mean_length).tpot_seconds == pytest.approx(loop.tpot_seconds)


@pytest.mark.parametrize(("sparse", "most"), [(False, 5.0), (True, 7.0)])
def test_the_committed_constants_describe_the_points(points: list[Measured], sparse: bool, most: float) -> None:
    chosen, found = split(points, loops(points, KNOWN), sparse=sparse)
    assert tpot_error(chosen, [each.tpot_seconds for each in found]) < most


@pytest.mark.parametrize("over_lengths", [False, True])
@pytest.mark.parametrize(("sparse", "most"), [(False, 5.0), (True, 9.0)])
def test_a_correction_of_three_points_holds_at_other_batches_and_lengths(
    points: list[Measured], sparse: bool, most: float, over_lengths: bool
) -> None:
    kept, values = corrected(points, loops(points, KNOWN), over_lengths=over_lengths)
    chosen, found = split(kept, values, sparse=sparse)
    assert tpot_error(chosen, found) < most


def test_what_the_fits_never_saw_is_within_the_limits(points: list[Measured]) -> None:
    """TPOT: 10 and 20 % of a model, 12 and 20 % of a GPU (dense, experts); the committed fits that left it out."""
    fits = json.loads((calibration.ROOT / "benchmarks" / "data" / "held_out.json").read_text(encoding="utf-8"))
    for name_of, limits in ((_model, (10.0, 20.0)), (_gpu, (12.0, 20.0))):
        found: dict[int, Loop] = {}
        for name in {name_of(each) for each in points}:
            places = [place for place, each in enumerate(points) if name_of(each) == name]
            found |= zip(places, loops([points[place] for place in places], fits[name]), strict=True)
        for sparse, most in zip((False, True), limits, strict=True):
            chosen, of = split(points, [found[place].tpot_seconds for place in range(len(points))], sparse=sparse)
            assert tpot_error(chosen, of) < most


def test_a_correction_of_three_points_takes_a_constant_factor_away(points: list[Measured]) -> None:
    found = loops(points, KNOWN)
    slower = [Loop(**{name: getattr(each, name) for name in Loop.__struct_fields__}) for each in found]
    truth = [_measured(each, 1.3 * loop.tpot_seconds) for each, loop in zip(points, slower, strict=True)]
    for over in (False, True):
        kept, values = corrected(truth, found, over_lengths=over)
        assert len(kept) > 100
        assert tpot_error(kept, values) == pytest.approx(0.0, abs=1e-9)
    assert isnan(tpot_error([], []))


def test_constants_that_made_the_points_are_found_again(points: list[Measured]) -> None:
    """Times made by 20 % less bandwidth: the fit starts from other constants and reproduces them."""
    few = [each for each in points if not each.sparse][::3]
    wanted = KNOWN | {"weight_bandwidth.hopper": 0.75, "layer_seconds": 6e-5}
    truth = [_measured(each, loop.tpot_seconds) for each, loop in zip(few, loops(few, wanted), strict=True)]
    found = fit_constants(truth, KNOWN)
    before = tpot_error(truth, [each.tpot_seconds for each in loops(truth, KNOWN)])
    after = tpot_error(truth, [each.tpot_seconds for each in loops(truth, found)])
    assert after < 0.35 * before


def _model(each: Measured) -> str:
    return each.point.model


def _gpu(each: Measured) -> str:
    return each.gpu.name


def _measured(each: Measured, tpot_seconds: float) -> Measured:
    values = {name: getattr(each, name) for name in each.__dataclass_fields__}
    return Measured(**(values | {"tpot_seconds": tpot_seconds}))
