"""Figures of our law in the simulated fleet that are too long for tests: how steady it is, and what exploits do to it.

    PYTHONPATH=operator:. python -m tests.simulator.fleet.law_figures [steady edge even repeats slow crash loop]

Each row: direction changes, attainment, GPU-hours, the most replicas, and (seconds:replicas) of each change.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from tests.simulator.fleet.fleets import conversations
from tests.simulator.fleet.watched import Run, ours

from goodput.domain.conditions import ConditionType
from goodput.simulator.fleet.clients import ClosedLoop, OpenLoop
from goodput.simulator.fleet.faults import Crash, CrashLoop, Throttle
from goodput.simulator.fleet.requests import Ask

HOUR = 3600.0
STARTUPS = (30.0, 100.0, 300.0)
# About what the law takes one replica for before it has seen one.
PRIOR_RPS = 2.6


def row(name: str, run: Run) -> Run:
    found = run.outcome
    most = max(tick.replicas for tick in run.ticks if tick.seconds >= 0.0)
    changes = " ".join(f"{event.at_seconds:.0f}:{event.after}" for event in found.scale_events)
    print(
        f"{name:44s} {found.direction_changes:2d} {100 * found.attainment:6.1f} % {found.gpu_hours:6.2f} {most:3d} | "
        f"{changes}",
        flush=True,
    )
    return run


def constant(rps: float, startup: float, seed: int, seconds: float = HOUR) -> Run:
    load = conversations(lambda _: rps, seconds, seed=seed)
    replicas = -int(-rps // PRIOR_RPS)
    return ours(OpenLoop(load), seconds, replicas=replicas, startup_seconds=startup, seed=seed)


def steady() -> Iterator[Run]:
    """Constant Poisson load."""
    for startup in STARTUPS:
        for rps in (2.0, 3.0, 4.5, 6.0, 9.0, 14.0, 20.0):
            for seed in (1, 2, 3):
                yield row(f"{rps:g}/s, start-up {startup:.0f} s, seed {seed}", constant(rps, startup, seed))


def edge() -> Iterator[Run]:
    """Demand = k x what is believed of a replica, 2 % less and 2 % more."""
    for count in (1, 2, 3, 5):
        known = constant(3.0 * count, 45.0, 1, 1800.0).ticks[-1].plan.figures.capacity_rps_per_replica
        assert known is not None
        for off in (0.98, 1.0, 1.02):
            for seed in (1, 2):
                rps = count * known * off
                yield row(f"{off:g} x {count} x {known:.2f}/s, seed {seed}", constant(rps, 45.0, seed))


def even() -> Iterator[Run]:
    """Constant spacing, equal requests."""
    for rps in (2.0, 3.5, 6.0, 7.0, 9.0, 14.0):
        asks = [Ask(number / rps, 1155, 211) for number in range(int(rps * HOUR))]
        yield row(f"even {rps:g}/s", ours(OpenLoop(asks), HOUR, replicas=-int(-rps // PRIOR_RPS)))


def repeats() -> Iterator[Run]:
    """6/s become 18/s, and what is refused is asked again up to five times."""
    for retries in (5, 0):
        for startup in (45.0, 100.0):
            load = conversations(lambda at: 18.0 if at >= 600.0 else 6.0, 1500.0, seed=1)
            run = ours(OpenLoop(load, retries=retries), 1500.0, replicas=3, startup_seconds=startup, seed=1)
            yield row(f"6 -> 18/s, {retries} retries, start-up {startup:.0f} s", run)


def slow() -> Iterator[Run]:
    """One of three at half speed from 600 s on."""
    for seed in (1, 2):
        load = conversations(lambda _: 7.0, HOUR, seed=seed)
        faults = (Throttle(600.0, HOUR, 1, 0.5),)
        yield row(f"one at half speed, seed {seed}", ours(OpenLoop(load), HOUR, replicas=3, faults=faults, seed=seed))


def crash() -> Iterator[Run]:
    """Three pods die one after the other and cannot start for half an hour; SLOMet each 300 s."""
    faults = (CrashLoop(600.0, 2400.0), Crash(600.0, 1), Crash(900.0, 2), Crash(1200.0, 3))
    run = row("crash loop", ours(OpenLoop(conversations(lambda _: 7.0, HOUR, seed=1)), HOUR, replicas=3, faults=faults))
    for tick in run.ticks:
        if tick.seconds >= 0.0 and tick.seconds % 300.0 < 10.0:
            told = tick.condition(ConditionType.SLO_MET)
            figures = tick.plan.figures
            bounds = [
                f"{each:.3f}" for each in (figures.attainment_lower, figures.attainment_upper) if each is not None
            ]
            print(f"    {tick.seconds:5.0f} s {told.status} {told.reason} {' to '.join(bounds)}")
    yield run


def loop() -> Iterator[Run]:
    """Clients that ask again at once."""
    lengths = [(ask.input_tokens, ask.output_tokens) for ask in conversations(lambda _: 5.0, 1000.0, seed=9)]
    for clients in (20, 60, 150):
        load = ClosedLoop(clients, lengths, think_seconds=0.0, until_seconds=HOUR)
        yield row(f"closed loop of {clients}", ours(load, HOUR, replicas=2))


GROUPS: dict[str, Callable[[], Iterator[Run]]] = {
    each.__name__: each for each in (steady, edge, even, repeats, slow, crash, loop)
}


def main(names: list[str]) -> None:
    for name in names or list(GROUPS):
        runs = list(GROUPS[name]())
        changes = [run.outcome.direction_changes for run in runs]
        print(
            f"{name}: {len(runs)} runs, direction changes {sum(changes) / len(runs):.2f} on average, {max(changes)} at "
            f"most, {sum(each > 2 for each in changes)} runs with more than 2; attainment "
            f"{100 * sum(run.outcome.attainment for run in runs) / len(runs):.1f} %, least "
            f"{100 * min(run.outcome.attainment for run in runs):.1f} %; GPU-hours "
            f"{sum(run.outcome.gpu_hours for run in runs):.1f}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
