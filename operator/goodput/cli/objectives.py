"""Objectives as words of a command line: `ttft=1s,tpot=80ms,attainment=99%`."""

from __future__ import annotations

import click
from msgspec.structs import replace

from goodput.api.quantities import parse_duration_seconds, parse_percent
from goodput.domain.intent import Objective

_FIELDS = {"ttft": "ttft_seconds", "tpot": "tpot_seconds", "e2e": "e2e_seconds"}
_ATTAINMENT = "attainment"
NONE = "none"


def objective_of(text: str) -> dict[str, float | None]:
    """Fields of an objective that a text names; `tpot=none` is no bound.

    Raises:
        click.BadParameter: it is none.
    """
    found: dict[str, float | None] = {}
    for part in text.split(","):
        name, _, value = (each.strip() for each in part.partition("="))
        if name not in (*_FIELDS, _ATTAINMENT) or not value:
            raise click.BadParameter(
                f"{part!r} is none of {', '.join(f'{each}=..' for each in (*_FIELDS, _ATTAINMENT))}"
            )
        try:
            if name == _ATTAINMENT:
                found[_ATTAINMENT] = parse_percent(value)
            else:
                found[_FIELDS[name]] = None if value == NONE else parse_duration_seconds(value)
        except ValueError as error:
            raise click.BadParameter(f"{name}: {error}") from error
    return found


def varied(objective: Objective, fields: dict[str, float | None]) -> Objective:
    """`objective` with other bounds.

    Raises:
        click.BadParameter: none is left.
    """
    made = replace(objective, **fields)
    if made.ttft_seconds is not None or made.tpot_seconds is not None:
        # Somebody waits for each token then.
        made = replace(made, batch=False)
    if made.ttft_seconds is None and made.tpot_seconds is None and made.e2e_seconds is None:
        raise click.BadParameter("an SLO needs at least one of ttft, tpot and e2e")
    return made
