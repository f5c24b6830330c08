"""When status is written: at once for what matters, rarely for figures, never for noise."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from goodput.adapters.kinds import SLOS
from goodput.decide import decide
from goodput.domain.decision import Action, Clamp, Decision, Rule
from goodput.domain.identity import Key
from goodput.domain.percent import percent
from goodput.domain.plan import Figures
from goodput.domain.usage import Usage
from goodput_controllers.figures import Figure, FigureWindow, attainment_figure, two_digits
from goodput_controllers.status import noteworthy

HOLD = Decision(
    model=Key("a", "m"),
    pool="serve",
    at=1.0,
    action=Action.HOLD,
    rule=Rule.ENOUGH,
    from_replicas=2,
    to_replicas=2,
    wanted_replicas=2,
)
UP = replace(HOLD, action=Action.SCALE_UP, rule=Rule.DEMAND, to_replicas=3, wanted_replicas=3)


@pytest.mark.parametrize(
    ("decision", "last", "told", "want"),
    [
        pytest.param(HOLD, None, None, True, id="the first one"),
        pytest.param(UP, HOLD, HOLD, True, id="a change"),
        pytest.param(replace(UP, at=2.0), UP, UP, False, id="the same change again, before it is seen"),
        pytest.param(UP, HOLD, UP, True, id="the same change later"),
        pytest.param(replace(HOLD, rule=Rule.SCALE_DOWN_WAITING), HOLD, UP, False, id="rules that come and go"),
        pytest.param(replace(HOLD, rule=Rule.HOLD_METRICS), HOLD, HOLD, True, id="a hold begins"),
        pytest.param(
            replace(HOLD, rule=Rule.HOLD_METRICS), HOLD, replace(HOLD, rule=Rule.HOLD_METRICS), False, id="holds on"
        ),
        pytest.param(HOLD, HOLD, replace(HOLD, rule=Rule.HOLD_METRICS), True, id="a hold ends"),
        pytest.param(replace(HOLD, clamp=Clamp.MAX_REPLICAS, wanted_replicas=4), HOLD, HOLD, True, id="a cap begins"),
        pytest.param(
            replace(HOLD, action=Action.ADVISE_UP, to_replicas=3),
            HOLD,
            replace(HOLD, action=Action.ADVISE_UP, to_replicas=3),
            False,
            id="the same advice",
        ),
        pytest.param(replace(HOLD, action=Action.ADVISE_UP, to_replicas=4), HOLD, HOLD, True, id="other advice"),
    ],
)
def test_noteworthy(decision: Decision, last: Decision | None, told: Decision | None, want: bool) -> None:
    """Only what says something new is told."""
    assert noteworthy(decision, last, told) is want


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.0341, "0.034"), (2.66, "2.7"), (41.4, "41"), (384.0, "380"), (0.999, "1.0"), (1234.0, "1200")],
)
def test_two_significant_digits(value: float, text: str) -> None:
    """Figures are for people: two digits, no exponent."""
    assert two_digits(value) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.97, "97%"),
        (0.979, "97%"),
        (1.0, "100%"),
        (0.9954, "99.5%"),
        (0.9996, "99.96%"),
        (0.99996, "99.996%"),
        (1.0 - 1e-9, "99.999%"),
        (1.0 - 1e-16, "99.999%"),
        (0.99, "99%"),
        (0.999, "99.9%"),
        (0.5, "50%"),
        (0.004, "0.4%"),
        (0.0, "0%"),
    ],
)
def test_percentages(share: float, text: str) -> None:
    """Whole percentages, rounded down, and the decimals that a rare miss needs to be seen."""
    assert percent(share) == text


def test_percentages_with_decimals() -> None:
    """What is compared with an objective has a decimal; an objective has those that its author gave it."""
    assert [percent(share, 1) for share in (0.9499, 0.95, 0.99949, 1.0)] == ["94.9%", "95%", "99.94%", "100%"]
    for thousandths in range(1000, 100_000):
        assert percent(float(f"{thousandths / 1000:.3f}") / 100, 3) == f"{thousandths / 1000:g}%"


def test_figures_move_beyond_noise() -> None:
    """Ten per cent or three standard errors, whichever is more."""
    assert not Figure(10.9, error=0.1).differs(10.0)
    assert Figure(11.2, error=0.1).differs(10.0)
    assert not Figure(11.2, error=0.5).differs(10.0)


def test_ten_minutes_of_counts() -> None:
    """A rate is what was counted over the window, unknown before a minute, and forgets what is older."""
    window = FigureWindow()
    window.add(Figures(), 0.0)
    window.add(Figures(offered_delta=30.0, good_lower_delta=20.0, good_upper_delta=25.0), 30.0)
    assert window.demand(30.0) is None
    window.add(Figures(offered_delta=30.0, good_lower_delta=30.0, good_upper_delta=30.0), 60.0)
    demand, goodput = window.demand(60.0), window.goodput(60.0)
    assert demand is not None
    assert goodput is not None
    assert demand.value == pytest.approx(1.0)
    assert (goodput[0].value, goodput[1].value) == (pytest.approx(50 / 60), pytest.approx(55 / 60))
    for at in range(120, 1300, 60):
        window.add(Figures(offered_delta=0.0), float(at))
    later = window.demand(1260.0)
    assert later is not None
    assert later.value == 0.0


def test_ten_minutes_begin_anew_after_a_gap() -> None:
    """An hour of 2 requests/s comes in at once after a gap: it is of no ten minutes. A gap within them is."""
    window = FigureWindow()
    for at in range(0, 3600, 15):
        window.add(Figures(), float(at))
    window.add(Figures(offered_delta=7200.0, delta_seconds=3600.0), 3600.0)
    assert window.demand(3600.0) is None
    for at in range(3615, 3735, 15):
        window.add(Figures(offered_delta=30.0, delta_seconds=15.0), float(at))
    assert window.demand(3720.0) == Figure(2.0, pytest.approx(0.129, abs=0.001))
    window.add(Figures(offered_delta=200.0, delta_seconds=100.0), 3820.0)
    assert window.demand(3820.0) == Figure(2.0, pytest.approx(0.095, abs=0.001))


def test_ten_minutes_of_utilisation() -> None:
    """Sums over sums, of all time and of busy time, with the noise of the requests that it came from."""
    window = FigureWindow()
    window.add(Figures(), 0.0)
    half = Usage(wall_seconds=60.0, busy_seconds=30.0, compute_seconds=6.0, memory_seconds=24.0)
    window.add(Figures(offered_delta=100.0, usage=half), 30.0)
    assert window.use(30.0) == {}
    window.add(Figures(offered_delta=100.0, usage=Usage(wall_seconds=60.0)), 60.0)
    found = window.use(60.0)
    assert {name: figure.value for name, figure in found.items()} == {
        "mfu": pytest.approx(0.05),
        "mbu": pytest.approx(0.2),
        "busy mfu": pytest.approx(0.2),
        "busy mbu": pytest.approx(0.8),
    }
    assert found["mbu"].error == pytest.approx(0.02)
    idle = FigureWindow()
    idle.add(Figures(), 0.0)
    idle.add(Figures(), 90.0)
    assert idle.use(90.0) == {}


def test_attainment_of_no_misses_still_has_an_error() -> None:
    """A hundred good requests do not prove that none is bad."""
    assert attainment_figure(1.0, 100).error == pytest.approx(0.01)


async def written(bench: Any, **spec: Any) -> None:
    bench.apply(bench.model(**spec))
    await bench.tick()
    bench.play_kubelet()
    await bench.tick(2)
    bench.api.writes.clear()


async def test_a_figure_that_moves_waits_five_minutes(bench: Any) -> None:
    """Attainment that falls is written once, within a minute after the quiet time, not at every tick."""
    bench.law.attainment = 0.99
    await written(bench)
    bench.law.attainment = 0.60
    await bench.tick(20)
    assert [write for write in bench.api.writes if write[1] == "Model/status"] == []
    await bench.tick(17)
    assert [write[1] for write in bench.api.writes].count("Model/status") == 1
    assert bench.status()["attainment"] == "60%"


async def test_an_edited_slo_is_judged_at_once(bench: Any) -> None:
    """What was said of the one before it does not stand for five minutes, nor is it written twice."""
    bench.operator.loop.decide = decide
    slo = {"kind": "SLO", "metadata": {"name": "chat", "namespace": "a"}}
    bench.apply({**slo, "spec": {"ttft": "1ms", "tpot": "1ms"}})
    await written(bench)
    assert bench.condition("SLOMet") == ("False", "SLOInfeasible")
    bench.apply({**bench.api.objects[SLOS.plural][Key("a", "chat")], "spec": {"ttft": "2s", "tpot": "100ms"}})
    bench.api.writes.clear()
    await bench.tick()
    assert bench.condition("SLOMet") == ("Unknown", "TooFewRequests")
    await bench.tick(5)
    assert [write[1] for write in bench.api.writes].count("Model/status") == 1


async def test_what_engines_make_of_their_gpus_is_in_status(bench: Any) -> None:
    """Of wall time and of busy time, with what binds; absent while nothing was counted."""
    await written(bench)
    assert "gpuUse" not in bench.status()
    bench.law.usage = Usage(wall_seconds=20.0, busy_seconds=10.0, compute_seconds=2.5, memory_seconds=8.0)
    bench.law.bottleneck = "bandwidth"
    await bench.tick(60)
    want = {"mfu": "12%", "mbu": "40%", "busyMFU": "25%", "busyMBU": "80%", "bottleneck": "bandwidth"}
    assert bench.status()["gpuUse"] == want


async def test_transition_times_move_with_the_status_only(bench: Any) -> None:
    """lastTransitionTime stays when only reason or message change."""
    await written(bench)
    before = {c["type"]: c for c in bench.status()["conditions"]}
    bench.law.wanted["llama"] = 2
    await bench.tick()
    after = {c["type"]: c for c in bench.status()["conditions"]}
    assert bench.status()["lastDecision"]["to"] == 2
    assert after["Ready"]["message"] != before["Ready"]["message"]
    assert after["Ready"]["lastTransitionTime"] == before["Ready"]["lastTransitionTime"]


async def test_an_invalid_model_is_told_once(bench: Any) -> None:
    """A spec that could never be read gets conditions that name the field, and no more writes."""
    bench.apply(bench.model(scaling={"minReplicas": 5, "maxReplicas": 2}))
    await bench.tick(5)
    assert bench.condition("Stalled") == ("True", "InvalidSpec")
    stalled = next(c for c in bench.status()["conditions"] if c["type"] == "Stalled")
    assert "scaling.minReplicas" in stalled["message"]
    assert [write[1] for write in bench.api.writes].count("Model/status") == 1


async def test_an_edit_that_makes_it_invalid_leaves_what_runs(bench: Any) -> None:
    """After a bad edit the last valid spec goes on running, and the condition says so."""
    await written(bench, scaling={"minReplicas": 2})
    bench.apply(bench.model(scaling={"minReplicas": 5, "maxReplicas": 2}))
    await bench.tick(2)
    assert bench.replicas() == 2
    assert bench.condition("Stalled")[0] == "True"
