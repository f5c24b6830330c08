"""Numbers as people read them; None is `None`, which a table shows as `-`."""

from __future__ import annotations

from math import floor

from goodput.domain.intent import Objective
from goodput.domain.percent import MOST_DECIMALS, percent
from goodput.perfmodel.verdicts import duration

GIB = 1024.0**3


def count(value: float | None) -> str | None:
    """Whole, with thousands apart: `131,072`."""
    return None if value is None else f"{value:,.0f}"


def gib(value: float | None) -> str | None:
    """Bytes as `15.0 GiB`, small ones as KiB or MiB."""
    if value is None:
        return None
    for unit, size in (("GiB", GIB), ("MiB", 1024.0**2), ("KiB", 1024.0)):
        if value >= 0.95 * size:
            return f"{value / size:,.1f} {unit}"
    return f"{value:.0f} B"


def money(value: float | None) -> str | None:
    """Currency units: two decimals, more of what is small: `5.49`, `0.0042`."""
    if value is None:
        return None
    return f"{value:,.2f}" if value >= 0.1 or value == 0.0 else f"{value:.2g}"


def rate(value: float | None) -> str | None:
    """Of three digits: `0.42`, `5.87`, `1,240`."""
    if value is None:
        return None
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"


def share(value: float) -> str:
    """Of 1, as a percentage of one decimal, rounded down: 100% is said of what is whole."""
    return f"{floor(1000.0 * value + 1e-6) / 10.0:g}%"


def rounded(value: float | None, digits: int = 4) -> float | None:
    """To so many significant digits, for JSON."""
    return None if value is None else float(f"{value:.{digits}g}")


def objective_text(objective: Objective) -> str:
    """`TTFT 500 ms, TPOT 50 ms for 95% of requests`."""
    bounds = [
        f"{name} {duration(seconds)}"
        for name, seconds in (
            ("TTFT", objective.ttft_seconds),
            ("TPOT", objective.tpot_seconds),
            ("deadline" if objective.batch else "end to end", objective.e2e_seconds),
        )
        if seconds is not None
    ]
    return f"{', '.join(bounds)} for {percent(objective.attainment, MOST_DECIMALS)} of requests"
