"""Line charts as SVG, made of text: a page with them needs nothing else and no network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import floor, log10

WIDTH, HEIGHT = 920, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 10, 26
_TICKS = 5
# Seconds between marks of the time axis, and the unit in which they are told.
_TIME_STEPS = (
    10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800,
)  # fmt: skip
_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A series of (seconds, value); None breaks it. `steps`: a value holds until the next; `filled`: down to zero."""

    name: str
    colour: str
    points: Sequence[tuple[float, float | None]]
    dashed: bool = False
    steps: bool = False
    filled: bool = False


def chart(title: str, lines: Sequence[Line], *, seconds: float, top: float | None = None, percent: bool = False) -> str:
    """One chart over `seconds`, from zero to `top` (unset: a round number above all values)."""
    highest = max((value for line in lines for _, value in line.points if value is not None), default=0.0)
    step = _step((top or highest) / _TICKS)
    height = top or max(step, step * (floor(highest / step - 1e-9) + 1.0))
    plot = _Plot(seconds, height)
    parts = [
        f'<figure><figcaption>{escape(title)}</figcaption><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(title, quote=True)}">',
        *_value_axis(plot, step, percent),
        *_time_axis(plot),
        *(_drawn(plot, line) for line in lines),
        "</svg></figure>",
    ]
    return "\n".join(parts)


@dataclass(frozen=True, slots=True)
class _Plot:
    """Where a chart puts what."""

    seconds: float
    height: float

    def x(self, at: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * at / self.seconds

    def y(self, value: float) -> float:
        return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * min(value, self.height) / self.height


def _step(rough: float) -> float:
    """The least of 1, 2 or 5 times a power of ten that is `rough` or more."""
    if rough <= 0.0:
        return 1.0
    power = 10.0 ** floor(log10(rough))
    return float(next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= rough * (1.0 - 1e-9)))


def _value_axis(plot: _Plot, step: float, percent: bool) -> Iterator[str]:
    mark = 0
    while mark * step <= plot.height * (1.0 + 1e-9):
        value = mark * step
        text = f"{100.0 * value:.0f} %" if percent else f"{value:g}"
        y = plot.y(value)
        yield f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{WIDTH - _RIGHT}" y2="{y:.1f}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
        mark += 1


def _time_axis(plot: _Plot) -> Iterator[str]:
    step = next((each for each in _TIME_STEPS if plot.seconds / each <= 10.0), _TIME_STEPS[-1])
    unit, name = next((size, name) for size, name in _UNITS if step >= size)
    mark = 0
    while mark * step <= plot.seconds:
        x = plot.x(mark * step)
        text = f"{mark * step / unit:g}{f' {name}' if mark == 0 else ''}"
        yield f'<text x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="{"start" if mark == 0 else "middle"}">{text}</text>'
        mark += 1


def _drawn(plot: _Plot, line: Line) -> str:
    path, begun, last = [], False, 0.0
    for at, value in line.points:
        if value is None:
            begun = False
            continue
        x, y = plot.x(at), plot.y(value)
        if begun and line.steps:
            path.append(f"L{x:.1f} {last:.1f}")
        path.append(f"{'L' if begun else 'M'}{x:.1f} {y:.1f}")
        begun, last = True, y
    if not path:
        return ""
    shape = "".join(path)
    dash = ' stroke-dasharray="6 4"' if line.dashed else ""
    name = escape(line.name, quote=True)
    style = f'fill="{line.colour}" class="area"' if line.filled else f'fill="none" stroke="{line.colour}"{dash}'
    if line.filled:
        ends = [at for at, value in line.points if value is not None]
        shape += f"L{plot.x(ends[-1]):.1f} {plot.y(0.0):.1f}L{plot.x(ends[0]):.1f} {plot.y(0.0):.1f}Z"
    return f'<path data-line="{name}" d="{shape}" {style}><title>{escape(line.name)}</title></path>'
