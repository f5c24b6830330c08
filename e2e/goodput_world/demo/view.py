"""What the demo shows while it runs: a live table on a terminal, a line every ten seconds without one."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from goodput_world.demo.fleet import ModelView
from goodput_world.demo.ledger import FleetState
from goodput_world.replay.progress import Progress

# Rates on screen are means over this long: long enough to be steady, short enough to be live.
RATE_WINDOW_SECONDS = 15.0
_LINE_PERIOD_SECONDS = 10.0
_SPARK_WIDTH = 60
_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int, top: float | None = None) -> str:
    """The values as bars, the newest last, squeezed to `width` by means; the scale runs from 0 to `top` or their
    maximum.
    """
    if not values:
        return ""
    groups = min(width, len(values))
    bounds = [round(index * len(values) / groups) for index in range(groups + 1)]
    means = [sum(values[start:end]) / (end - start) for start, end in pairwise(bounds) if end > start]
    scale = top or max(means) or 1.0
    return "".join(_BARS[min(len(_BARS) - 1, int(value / scale * len(_BARS)))] for value in means)


@dataclass(slots=True)
class Rates:
    """Offered and good requests per second over the last `RATE_WINDOW_SECONDS`, and their history, one value a
    second.
    """

    demand: list[float] = field(default_factory=list)
    goodput: list[float] = field(default_factory=list)
    latest: Progress | None = None
    _window: deque[Progress] = field(default_factory=deque)

    def add(self, progress: Progress) -> None:
        """Take a second of progress. Goodput counts a request when it ends, so it trails demand by a request's
        length.
        """
        self.latest = progress
        self._window.append(progress)
        while progress.t_seconds - self._window[0].t_seconds > RATE_WINDOW_SECONDS:
            self._window.popleft()
        first = self._window[0]
        passed_seconds = progress.t_seconds - first.t_seconds
        if passed_seconds > 0:
            self.demand.append((progress.offered - first.offered) / passed_seconds)
            self.goodput.append((progress.met - first.met) / passed_seconds)


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything on screen at one instant."""

    seconds: float
    rates: Rates
    fleet: FleetState | None
    replicas: Sequence[int]
    model: ModelView
    gpu_hours: float
    cost: float | None
    static_peak_replicas: int

    @property
    def attainment(self) -> float | None:
        """Share of the requests that ended so far which met the SLO."""
        latest = self.rates.latest
        return latest.met / latest.done if latest is not None and latest.done else None


def line(picture: Picture) -> str:
    """The picture in one line."""
    latest = picture.rates.latest
    if latest is None:
        return "waiting for the first requests"
    return " | ".join(
        (
            f"{latest.t_seconds:5.0f}/{picture.seconds:.0f} s",
            f"demand {_last(picture.rates.demand)}/s",
            f"goodput {_last(picture.rates.goodput)}/s",
            f"met {_share(picture.attainment)} of {latest.done}",
            f"lost {latest.lost}",
            f"in flight {latest.in_flight}",
            f"replicas {_replicas(picture.fleet)}",
            f"{picture.gpu_hours:.2f} GPU-h{_money(picture.cost)}",
            picture.model.decision[:120],
        )
    )


def table(picture: Picture) -> RenderableType:
    """The picture as a table with sparklines."""
    latest = picture.rates.latest
    top = max([*picture.rates.demand, *picture.rates.goodput, 1.0])
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(no_wrap=True, min_width=24)
    grid.add_column(no_wrap=True)
    grid.add_row(
        "demand",
        f"{_last(picture.rates.demand)} requests/s",
        Text(sparkline(picture.rates.demand, _SPARK_WIDTH, top), "cyan"),
    )
    grid.add_row(
        "goodput",
        f"{_last(picture.rates.goodput)} requests/s",
        Text(sparkline(picture.rates.goodput, _SPARK_WIDTH, top), "green"),
    )
    grid.add_row(
        "replicas",
        _replicas(picture.fleet),
        Text(
            sparkline(picture.replicas, _SPARK_WIDTH, max([*picture.replicas, picture.static_peak_replicas])), "magenta"
        ),
    )
    grid.add_row(
        "cost", f"{picture.gpu_hours:.3f} GPU-hours{_money(picture.cost)}", f"now {picture.model.cost_per_hour}/h"
    )
    if latest is not None:
        grid.add_row(
            "requests",
            f"{_share(picture.attainment)} of {latest.done} met the SLO",
            f"{latest.in_flight} in flight, {latest.lost} lost",
        )
        grid.add_row("time", f"{latest.t_seconds:.0f} of {picture.seconds:.0f} s", _lateness(latest))
    grid.add_row("operator", f"attainment {picture.model.attainment or '?'}", _conditions(picture.model))
    return Group(Text("goodput demo", "bold reverse"), grid, Text(f"last decision: {picture.model.decision}", "dim"))


def _last(values: Sequence[float]) -> str:
    return f"{values[-1]:.1f}" if values else "?"


def _share(share: float | None) -> str:
    return "?" if share is None else f"{share * 100:.1f} %"


def _money(cost: float | None) -> str:
    return "" if cost is None else f", {cost:.2f} spent"


def _lateness(progress: Progress) -> str:
    late = progress.lateness_p99_seconds
    return "" if late is None else f"replayer late by {late * 1000:.0f} ms at p99"


def _replicas(fleet: FleetState | None) -> str:
    if fleet is None:
        return "?"
    parts = [f"{fleet.ready}/{'?' if fleet.desired is None else fleet.desired} ready"]
    parts += [f"{fleet.starting} starting"] * bool(fleet.starting) + [f"{fleet.terminating} draining"] * bool(
        fleet.terminating
    )
    return ", ".join(parts)


def _conditions(model: ModelView) -> str:
    shown = ("Ready", "SLOMet", "MetricsFresh")
    return ", ".join(f"{name}={status}" for name, status, _ in model.conditions if name in shown)


class Display:
    """Shows pictures: `with Display(console) as display: display.show(picture)`."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._line_at = 0.0

    def __enter__(self) -> Display:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, picture: Picture) -> None:
        """Show it now on a terminal; elsewhere at most one line in ten seconds."""
        if self._live is not None:
            self._live.update(table(picture), refresh=True)
        elif time.monotonic() - self._line_at >= _LINE_PERIOD_SECONDS:
            self._line_at = time.monotonic()
            print(line(picture), file=sys.stdout, flush=True)
