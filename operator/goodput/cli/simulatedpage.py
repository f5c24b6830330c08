"""A what-if as one HTML file: figures, and what happened when. It opens offline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil
from typing import Any

from goodput.cli.charts import Line, chart
from goodput.cli.simulated import WhatIf
from goodput.cli.simulatedtext import COLUMNS, heading, row, told
from goodput.simulator.fleet.outcome import Minute, Outcome

# Points of a line, at most: minutes are put together where there are more.
_MOST_POINTS = 240
_MINUTE = 60.0
# Okabe and Ito's colours, which most colour-blind people tell apart; dashed from the second round on.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6d00")
_OFFERED = "#b9b9b9"
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:960px;margin:2em auto;padding:0 1em;color:#222;background:#fff}
h1{font-size:1.35em}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13px;width:100%}
th,td{text-align:right;padding:.25em .5em;border-bottom:1px solid #e3e3e3;white-space:nowrap}
th:first-child,td:first-child{text-align:left}figure{margin:1.4em 0}figcaption{font-weight:600}
svg{width:100%;height:auto}svg text{font-size:12px;fill:#555}.grid{stroke:#e3e3e3}.area{opacity:.45}
path{stroke-width:1.8;vector-effect:non-scaling-stroke}path.off{display:none}
label{display:inline-block;margin-right:1em;white-space:nowrap}i{display:inline-block;width:1.4em;height:.3em;
vertical-align:middle;margin:0 .3em}.scroll{overflow-x:auto}
"""
# A policy is shown or not in all charts at once.
_SCRIPT = """
for(const box of document.querySelectorAll("input[data-of]"))box.addEventListener("change",()=>{
for(const path of document.querySelectorAll("path[data-line]"))
if(path.dataset.line===box.dataset.of)path.classList.toggle("off",!box.checked)});
"""


@dataclass(frozen=True, slots=True)
class _Span:
    """Some minutes of a run together."""

    at_seconds: float
    seconds: float
    offered: int
    good: int
    replicas: float


def page(
    found: WhatIf,
    outcomes: Sequence[Outcome],
    *,
    first: Sequence[Any] | None = None,
    said: tuple[Sequence[str], Sequence[str]] | None = None,
) -> str:
    """The whole file; `first` is a row above the policies, `said` what stands above and below the table."""
    title = f"{found.name}: {len(found.asks):,} requests simulated"
    above, below = said if said is not None else (tuple(heading(found)), tuple(told(found, outcomes)))
    lines = [escape(line) for line in above]
    notes = "".join(f"<p>{escape(line)}</p>" for line in below)
    return "\n".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1><p>{'<br>'.join(lines)}</p>",
            _table([*([first] if first is not None else []), *(row(found, outcome) for outcome in outcomes)]),
            notes,
            _legend(outcomes),
            *_charts(found, outcomes),
            f"<script>{_SCRIPT}</script></body></html>",
        )
    )


def _table(rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in COLUMNS)
    body = ""
    for each in rows:
        cells = ("-" if cell is None else str(cell) for cell in each)
        body += f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _look(place: int) -> tuple[str, bool]:
    """(colour, dashed) of the n-th policy."""
    return _COLOURS[place % len(_COLOURS)], place >= len(_COLOURS)


def _legend(outcomes: Sequence[Outcome]) -> str:
    labels = [
        f'<label><input type="checkbox" checked data-of="{escape(outcome.policy, quote=True)}">'
        f'<i style="background:{_look(place)[0]}{";opacity:.5" if _look(place)[1] else ""}"></i>'
        f"{escape(outcome.policy)}</label>"
        for place, outcome in enumerate(outcomes)
    ]
    return f'<p>{"".join(labels)}<label><i style="background:{_OFFERED}"></i>offered</label></p>'


def _charts(found: WhatIf, outcomes: Sequence[Outcome]) -> list[str]:
    seconds = found.experiment.fleet.seconds
    spans = [_spans(outcome.timeline, seconds) for outcome in outcomes]
    offered = Line(
        name="offered",
        colour=_OFFERED,
        filled=True,
        points=[(span.at_seconds + span.seconds / 2.0, span.offered / span.seconds) for span in spans[0]],
    )

    def lines(value: str) -> list[Line]:
        return [
            Line(
                name=outcome.policy,
                colour=_look(place)[0],
                dashed=_look(place)[1],
                steps=value == "replicas",
                points=_points(value, spans[place], _bill(found, outcome)),
            )
            for place, outcome in enumerate(outcomes)
        ]

    wanted = found.objective.attainment
    bill = "Cost so far" if found.gpu_price is not None else "GPU-hours so far (no price is known)"
    asked = Line(name="wanted", colour=_OFFERED, dashed=True, points=[(0.0, wanted), (seconds, wanted)])
    return [
        chart("Requests a second: offered (grey), and good", [offered, *lines("good")], seconds=seconds),
        chart("Replicas asked for", lines("replicas"), seconds=seconds),
        chart(
            "Attainment (grey: what the SLO wants)",
            [asked, *lines("attainment")],
            seconds=seconds,
            top=1.0,
            percent=True,
        ),
        chart(bill, lines("cost"), seconds=seconds),
    ]


def _bill(found: WhatIf, outcome: Outcome) -> float:
    cost = found.cost(outcome)
    return outcome.gpu_hours if cost is None else cost


def _points(value: str, spans: Sequence[_Span], bill: float) -> list[tuple[float, float | None]]:
    """Figures of the spans; what was paid is dealt out by the replicas that were asked for."""
    middle = [span.at_seconds + span.seconds / 2.0 for span in spans]
    if value == "good":
        return [(at, span.good / span.seconds) for at, span in zip(middle, spans, strict=True)]
    if value == "attainment":
        return [
            (at, span.good / span.offered if span.offered else None) for at, span in zip(middle, spans, strict=True)
        ]
    end = spans[-1].at_seconds + spans[-1].seconds
    if value == "replicas":
        return [*((span.at_seconds, span.replicas) for span in spans), (end, spans[-1].replicas)]
    whole = sum(span.replicas * span.seconds for span in spans)
    paid, points = 0.0, [(0.0, 0.0)]
    for span in spans:
        paid += span.replicas * span.seconds
        points.append((span.at_seconds + span.seconds, bill * paid / whole if whole else 0.0))
    return list(points)


def _spans(minutes: Sequence[Minute], seconds: float) -> list[_Span]:
    size = ceil(len(minutes) / _MOST_POINTS)
    spans = []
    for first in range(0, len(minutes), size):
        part = minutes[first : first + size]
        begin = part[0].at_seconds
        length = min(seconds, part[-1].at_seconds + _MINUTE) - begin
        spans.append(
            _Span(
                begin,
                length,
                sum(each.offered for each in part),
                sum(each.good for each in part),
                sum(each.desired for each in part) / len(part),
            )
        )
    return spans
