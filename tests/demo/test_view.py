"""The live display, and the picture at the end."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from goodput_world.demo.fleet import ModelView
from goodput_world.demo.ledger import FleetState
from goodput_world.demo.plot import binned_rps, plot
from goodput_world.demo.view import Display, Picture, Rates, line, sparkline, table
from goodput_world.replay import Objectives, Outcome, Record
from goodput_world.replay.progress import Progress


def progress(t: float, offered: int, met: int) -> Progress:
    return Progress(t, 1000.0, offered, offered, met + 1, met, 1, offered - met - 1, 10 * met, 0.004)


def picture(rates: Rates) -> Picture:
    return Picture(
        seconds=600.0,
        rates=rates,
        fleet=FleetState(1.0, 3, 1, 2, 1),
        replicas=[1, 1, 2],
        model=ModelView(
            "ScaleUp · Demand · 1 to 3", "97%", "~3.3", (("Ready", "True", ""), ("SLOMet", "Unknown", "TooFew"))
        ),
        gpu_hours=0.123,
        cost=0.5,
        static_peak_replicas=4,
    )


def filled() -> Rates:
    rates = Rates()
    for second in range(40):
        rates.add(progress(float(second), 3 * second, 2 * second))
    return rates


def test_rates_are_means_over_the_window() -> None:
    """Three offered and two good a second, whatever the totals."""
    rates = filled()

    assert rates.demand[-1] == pytest.approx(3.0)
    assert rates.goodput[-1] == pytest.approx(2.0)


def test_a_line_names_all_that_matters() -> None:
    """Without a terminal: demand, goodput, replicas, cost, the last decision."""
    text = line(picture(filled()))

    for part in (
        "demand 3.0/s",
        "goodput 2.0/s",
        "1/3 ready, 2 starting, 1 draining",
        "0.12 GPU-h, 0.50 spent",
        "1 to 3",
    ):
        assert part in text
    assert line(picture(Rates())) == "waiting for the first requests"


def test_the_table_fits_and_shows_the_same() -> None:
    """On a terminal: the same figures with their history."""
    out = io.StringIO()
    Console(file=out, width=120, force_terminal=False).print(table(picture(filled())))

    for part in ("3.0 requests/s", "2.0 requests/s", "1/3 ready", "~3.3/h", "SLOMet=Unknown", "ScaleUp"):
        assert part in out.getvalue()
    assert max(map(len, out.getvalue().splitlines())) <= 120


def test_no_terminal_means_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Pictures come every second; lines come every ten."""
    with Display(Console(file=io.StringIO(), force_terminal=False)) as display:
        for _ in range(5):
            display.show(picture(filled()))

    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize(
    ("values", "width", "expected"),
    [
        pytest.param([], 10, "", id="nothing"),
        pytest.param([0.0, 0.0], 10, "▁▁", id="zeros"),
        pytest.param([0.0, 4.0, 8.0], 10, "▁▅█", id="rising"),
        pytest.param([1.0, 1.0, 8.0, 8.0], 2, "▂█", id="squeezed"),
    ],
)
def test_a_sparkline_is_to_scale(values: list[float], width: int, expected: str) -> None:
    """From 0 to the maximum, squeezed by means."""
    assert sparkline(values, width) == expected


def test_the_picture_counts_good_requests_where_they_were_offered(tmp_path: Path) -> None:
    """Bins of 15 s by scheduled instant; the last, shorter one is a rate too. Both formats are drawn."""
    objectives = Objectives(ttft_seconds=0.5)
    records = [
        Record(f"{at}", at, 1, 2, at, at + 0.1, at + (0.1 if at < 16 else 0.9), at + 1, at + 1, 2, 1, 200, Outcome.OK)
        for at in (0.0, 5.0, 14.9, 15.1, 29.0, 31.0)
    ]

    offered, good = binned_rps(records, objectives, 36.0)

    assert offered == pytest.approx([3 / 15, 2 / 15, 1 / 6])
    assert good == pytest.approx([3 / 15, 1 / 15, 0.0])
    summary = {
        "replay_seconds": 36.0,
        "duration_seconds": 40.0,
        "replicas_timeline": [{"t": 0.0, "desired": 1, "ready": 1, "starting": 0, "terminating": 0}],
        "static_peak_replicas": 2,
        "replicas_max": 1,
        "requests": 6,
        "attainment": 4 / 6,
        "requests_lost": 0,
        "gpu_hours": 0.1,
        "static_peak_gpu_hours": 0.2,
    }
    plot(summary, records, objectives, [tmp_path / "demo.svg", tmp_path / "demo.png"])
    assert (tmp_path / "demo.svg").read_text().count("<svg") == 1
    assert (tmp_path / "demo.png").stat().st_size > 10_000
