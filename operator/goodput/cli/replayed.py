"""A day of a ledger played again: under our law, under others, and under other objectives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from dataclasses import replace as dataclass_replace
from statistics import median

import click
from msgspec.structs import replace

from goodput.cli.recorded import Day
from goodput.cli.simulated import Question, WhatIf, simulate, what_if
from goodput.decide import Policy
from goodput.decide.engine import prior_lengths
from goodput.domain.intent import Objective
from goodput.simulator import rebuilt
from goodput.simulator.fleet.outcome import Outcome
from goodput.simulator.fleet.requests import Ask
from goodput.simulator.plants import Draws

OURS = "goodput"
# Replicas are believed within these bounds of what is published: beyond, something else is wrong.
_LEAST_SPEED, _MOST_SPEED = 0.4, 2.5
_STARTUP_SECONDS = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """How a day is played; None: as it was recorded."""

    startup_seconds: float | None = None
    gpus: int | None = None
    seed: int = 0


def asks_of_day(day: Day, seed: int) -> tuple[Ask, ...]:
    """The requests of a day, as far as counters tell.

    Raises:
        click.ClickException: none was recorded, or nothing is known of the Model.
    """
    intent = day.asked.intent
    if intent.architecture is None or intent.objective is None:
        raise click.ClickException(f"Model {intent.key.name}: its architecture or its SLO was not known")
    asks = rebuilt.load(
        day.samples,
        day.begin,
        expected=prior_lengths(intent.workload, Policy()),
        most_tokens=intent.architecture.max_model_len,
        seed=seed,
    )
    if not asks:
        raise click.ClickException(f"Model {intent.key.name}: no request was recorded in this time")
    return asks


def as_it_was(day: Day, asks: Sequence[Ask], how: Replay, objective: Objective | None = None) -> WhatIf:
    """The load on the fleet of the day, under its objective or another.

    Raises:
        click.ClickException: one replica holds the SLO at no rate.
    """
    asked = day.asked
    intent = replace(
        asked.intent,
        gpu_types=(asked.gpu.name,),
        tensor_parallel=asked.tensor_parallel,
        pipeline_parallel=asked.pipeline_parallel,
        objective=objective or asked.intent.objective,
        problems=(),
    )
    learned = [look.startup_seconds for look in day.looks if look.startup_seconds is not None]
    question = Question(
        startup_seconds=how.startup_seconds or (median(learned) if learned else _STARTUP_SECONDS),
        seed=how.seed,
        replicas=max(1, round(day.looks[0].ready)),
        gpus=how.gpus,
        seconds=day.seconds,
        learned=_speeds(day),
    )
    return what_if(intent.key.name, intent, (asked.gpu,), asks, question)


def _speeds(day: Day) -> Draws:
    """What the operator learned of its replicas, over what it believed."""

    def middle(values: Iterable[float]) -> float:
        return min(_MOST_SPEED, max(_LEAST_SPEED, median(values)))

    decode = middle(look.correction for look in day.looks)
    prefill = middle(look.prefill_correction for look in day.looks)
    return Draws(bandwidth=decode, step_overhead=1.0 / decode, arithmetic=prefill, request_overhead=1.0 / prefill)


def run_all(
    found: WhatIf, policies: Sequence[str], others: Sequence[tuple[str, WhatIf]], watch: Callable[[str, float], None]
) -> list[Outcome]:
    """Runs of the policies, and of ours under each other objective, which are named by it."""
    rows = simulate(found, policies, watch)
    for name, other in others:
        rows += _named(name, other, watch)
    return rows


def _named(name: str, other: WhatIf, watch: Callable[[str, float], None]) -> list[Outcome]:
    runs = simulate(other, (OURS,), lambda _, over: watch(name, over))
    return [dataclass_replace(run, policy=name) for run in runs]
