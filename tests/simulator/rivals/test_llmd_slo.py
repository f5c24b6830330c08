"""llm-d's SLO-aware loop, by hand."""

import pytest
from tests.simulator.rivals.views import ready, run, starting, view

from goodput.simulator.rivals.llmd_slo import LlmdSlo
from goodput.simulator.rivals.view import Histogram

LAW = LlmdSlo(ttft_seconds=3.0, tpot_seconds=0.1)


def at(value):
    """A histogram whose P90 is `value`: nine tenths of the way to the edge of its only bucket."""
    return Histogram((value / 0.9,), (10.0, 0.0))


@pytest.mark.parametrize(
    ("saturation", "ready_pods", "provisioned", "wanted"),
    [
        (0.50, 5, 5, 5),  # in the dead band
        (0.55, 5, 5, 5),  # the threshold itself does not act
        (0.66, 5, 5, 6),  # 5 + ceil(5 x 0.2)
        (1.10, 3, 3, 6),  # 3 + ceil(3 x 1)
        (2.00, 3, 3, 11),  # 3 + ceil(3 x 2.636) = 3 + 8, at the clamp
        (2.00, 3, 6, 11),  # c = 0.5: 6 + ceil(6 x 0.818) = 6 + 5
        (1.00, 3, 6, 6),  # s c = 0.5: credit for three starting pods
        (0.38, 3, 3, 3),  # 3 - floor(3 x 0.05)
        (0.20, 8, 8, 4),  # 8 - floor(8 x 0.5)
        (0.20, 4, 8, 4),  # no credit on the way down
        (0.00, 8, 8, 0),  # no traffic; the bound is the HPA's
    ],
)
def test_the_formula(saturation, ready_pods, provisioned, wanted):
    """n + ceil(n (s c / 0.55 - 1)), n - floor(n (1 - s / 0.40)), else n."""
    pool = view(*ready(ready_pods), *starting(provisioned - ready_pods))

    assert LAW.formula(saturation, pool) == wanted


def test_a_first_crossing_is_averaged_held_for_30_s_and_then_capped():
    """3 replicas, P90 TTFT 0.9 s (s = 0.3 by TTFT, 0.45 by TPOT of 45 ms) then 6 s (2.0): after the step the mean over
    45 s goes 0.967, 1.483, 2.0. Proposals 3 + ceil(3 x 0.758) = 6, then 3 + ceil(3 x 1.697) = 9, then 11. The HPA goes
    up by the lowest of 30 s (two syncs): at the first it keeps 3, at the second min(6, 9) = 6, below max(6, 3 + 4)."""
    calm = view(*ready(3), ttft=at(0.9), tpot=at(0.045))
    late = view(*ready(3), ttft=at(6.0), tpot=at(0.045))

    assert run(LAW, [calm, calm, calm, late, late]) == [3, 3, 3, 3, 6]


def test_the_signal_is_clamped():
    """P90 TTFT at ten times its objective counts as 2."""
    state = LAW.start()
    _, state = LAW.step(view(*ready(3), ttft=at(30.0)), state, 0.0)

    assert state.saturations == ((0.0, 2.0),)


def test_samples_older_than_45_s_are_forgotten():
    """Rules every 15 s: three samples."""
    state = LAW.start()
    for number in range(6):
        _, state = LAW.step(view(*ready(3), ttft=at(3.0 + number)), state, 15.0 * number)

    assert [moment for moment, _ in state.saturations] == [45.0, 60.0, 75.0]


def test_no_traffic_reads_zero_and_shrinks_one_each_two_minutes():
    """The published NaN -> 0: down after 180 s to the bound, one at a time."""
    asked = []
    state, replicas = LAW.start(), 5
    for number in range(30):
        replicas, state = LAW.step(view(*ready(replicas), min_replicas=3), state, 15.0 * number)
        asked.append(replicas)

    assert asked[:12] == [5] * 12
    assert asked[12:20] == [4] * 8
    assert asked[20:] == [3] * 10


def test_a_predictor_is_preferred_and_its_silence_falls_back():
    """Predicted P90 TTFT of 6 s wins over a measured 0.3 s; without predictions the measured one counts."""
    law = LlmdSlo(ttft_seconds=3.0, tpot_seconds=0.1, predicted=True)
    seen = [
        law.step(view(*ready(3), ttft=at(0.3), **more), law.start(), 0.0)[1].saturations[0][1]
        for more in ({"predicted_ttft": at(6.0)}, {})
    ]

    assert law.name == "llmd-slo-predicted"
    assert seen == pytest.approx([2.0, 0.1])


def test_objectives_that_are_not_set_are_not_looked_at():
    """Only TPOT is promised: the TTFT of 30 s says nothing."""
    law = LlmdSlo(ttft_seconds=None, tpot_seconds=0.1)
    _, state = law.step(view(*ready(3), ttft=at(30.0), tpot=at(0.03)), law.start(), 0.0)

    assert state.saturations[0][1] == pytest.approx(0.3)
