"""Days of ServeGen's rate curves, compressed in time: counts and burstiness of the file, lengths of another trace.

A file has one row per ten minutes: window_start_s, rate_rps, rate_weighted_iat_cv, active_clients,
mean_input_tokens_6h, mean_output_tokens_6h.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from goodput.simulator.traces import fields
from goodput.simulator.traces.curves import Phase, filled
from goodput.simulator.traces.lengths import Empirical
from goodput.simulator.traces.lines import TraceError, cells, lines, record
from goodput.simulator.traces.request import Trace, TraceRequest

WINDOW_SECONDS = 600.0
_COLUMNS = ("window_start_s", "rate_rps", "rate_weighted_iat_cv", "mean_input_tokens_6h", "mean_output_tokens_6h")


@dataclass(frozen=True, slots=True)
class Window:
    """Ten minutes of a curve: its rate, the coefficient of variation of gaps, and mean lengths."""

    rps: float
    variation: float
    mean_input_tokens: float
    mean_output_tokens: float


def read_curve(path: Path) -> tuple[Window, ...]:
    """The windows of a file, gzip or not. Raises `TraceError` naming the line, also for a window that is missing."""
    rows = lines(path)
    number, text = next(rows, (1, ""))
    header = [name.strip() for name in cells(path, number, text)]
    missing = [name for name in _COLUMNS if name not in header]
    if missing:
        raise TraceError(path, f"the header lacks {', '.join(missing)}", number)
    windows: list[Window] = []
    start = 0.0
    for number, text in rows:
        row = record(path, number, text, header)
        try:
            at, rps, variation, given, made = (fields.seconds(row[name], name) for name in _COLUMNS)
        except ValueError as error:
            raise TraceError(path, str(error), number) from None
        start = at if not windows else start
        if at != start + len(windows) * WINDOW_SECONDS:
            raise TraceError(path, f"window_start_s: {at:g} does not follow the window before by 600 s", number)
        if min(rps, variation, given, made) < 0.0:
            raise TraceError(path, "rates, variations and lengths must not be negative", number)
        windows.append(Window(rps, variation, given, made))
    if not windows:
        raise TraceError(path, "holds no window")
    return tuple(windows)


def compressed(
    windows: tuple[Window, ...], lengths: Empirical, *, mean_rps: float, compression: float, seed: int
) -> Trace:
    """A curve `compression` times as fast, scaled so that its mean rate is `mean_rps`.

    Each window has as many requests as its share of the curve, at gamma gaps with the window's variation, and lengths
    drawn from `lengths` scaled to the window's means. Raises `ValueError` for a curve without any request.
    """
    whole = sum(window.rps for window in windows) / len(windows)
    if not whole > 0.0:
        raise ValueError("curve: no window has a request")
    if not compression > 0.0:
        raise ValueError(f"compression: {compression} must be greater than 0")
    seconds = WINDOW_SECONDS / compression
    curve = [Phase(seconds, window.rps * mean_rps / whole) for window in windows]
    times = filled(curve, [window.variation for window in windows], random.Random(f"{seed}/arrivals"))
    draw = random.Random(f"{seed}/lengths")
    drawn = [lengths.scaled(window.mean_input_tokens, window.mean_output_tokens) for window in windows]
    return tuple(TraceRequest(at, *drawn[min(int(at / seconds), len(windows) - 1)](draw)) for at in times)
