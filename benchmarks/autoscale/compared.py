"""All rows of one trace at one start-up, brought together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.autoscale import runs
from benchmarks.autoscale.grids import label, points
from benchmarks.autoscale.runs import Spec
from benchmarks.autoscale.scenarios import Scenario
from benchmarks.autoscale.searched import SEED, Grids, numbers, rows
from benchmarks.autoscale.setup import setup
from benchmarks.autoscale.store import Store
from benchmarks.autoscale.verdicts import Row, Verdict, chosen, mean_row, verdict

from goodput.simulator.policies import OURS, RIVALS
from goodput.simulator.rivals.catalogue import rivals

Results = Mapping[Spec, Mapping[str, Any]]
# At this start-up ours is run with beliefs that are wrong, and so on.
VARIED_SECONDS = 100.0
# A perfect predictor costs ten times the run: that loop is not searched, it gets what the search found for its sibling.
_SIBLINGS = {"llmd-slo-predicted": "llmd-slo"}
SEARCHED = tuple(name for name in RIVALS if name not in _SIBLINGS)


@dataclass(frozen=True)
class Entry:
    """A row of the table: one result for each seed."""

    label: str
    policy: str
    point: int
    results: tuple[Mapping[str, Any], ...]

    def mean(self, what: Callable[[Mapping[str, Any]], float]) -> float:
        """Mean over the seeds that have it; NaN where none has."""
        known = [value for value in map(what, self.results) if not math.isnan(value)]
        return sum(known) / len(known) if known else math.nan

    @property
    def row(self) -> Row:
        """What verdicts are made of."""
        return mean_row(self.label, [(each["attainment"], each["gpu_hours"]) for each in self.results])


@dataclass(frozen=True)
class Compared:
    """One trace at one start-up. `searched` says how many variants of grids are known, of how many."""

    scenario: Scenario
    startup_seconds: float
    entries: tuple[Entry, ...]
    searched: tuple[int, int]

    def entry(self, policy: str) -> Entry:
        """The row of a policy as it comes."""
        return next(each for each in self.entries if each.policy == policy and each.point == 0)

    @property
    def verdict(self) -> Verdict:
        """Ours against the rest."""
        return verdict(
            self.entry(OURS).row,
            static_peak=self.entry(runs.STATIC_PEAK).row,
            bounds=[self.entry(runs.ORACLE).row, self.entry(runs.STATIC_LEAST).row],
            rivals=[each.row for each in self.entries if each.policy in RIVALS],
            objective=self.scenario.objective.attainment,
            startup_seconds=self.startup_seconds,
        )


def base_specs(scenario: Scenario, startup_seconds: float, seeds: Iterable[int]) -> list[Spec]:
    """The rows that need no search."""
    policies = [OURS, *runs.BOUNDS, *RIVALS]
    if startup_seconds == VARIED_SECONDS:
        policies += [*runs.OUR_ROWS[1:], runs.STATIC_NOON]
    return [
        Spec(scenario=scenario.name, startup_seconds=startup_seconds, seed=seed, policy=policy)
        for seed in seeds
        for policy in policies
        if worth(policy, startup_seconds, seed)
    ]


def worth(policy: str, startup_seconds: float, seed: int) -> bool:
    """Whether a row is run for a seed: one that takes ten times as long is run once for each trace."""
    return policy not in _SIBLINGS or (startup_seconds == VARIED_SECONDS and seed == SEED)


def search_specs(scenario: Scenario, startup_seconds: float, seed: int, store: Store) -> list[Spec]:
    """Every variant of every grid."""
    experiment = setup(scenario.name, startup_seconds, seed, store).experiment
    laws = rivals(experiment.fleet.objective, experiment.profile)
    return [
        Spec(scenario=scenario.name, startup_seconds=startup_seconds, seed=seed, policy=name, point=point, swept=True)
        for name in SEARCHED
        for point in range(len(points(laws[name])))
    ]


def tuned(grids: Grids, scenario: Scenario, startup_seconds: float, attainment: float) -> dict[str, set[int]]:
    """The variant of each law that the search found: cheapest at our attainment and the objective, or nearest to it."""
    found: dict[str, set[int]] = {}
    for name in RIVALS:
        known = rows(grids.get((scenario.name, startup_seconds, _SIBLINGS.get(name, name)), {}))
        found[name] = numbers([chosen(known, max(attainment, scenario.objective.attainment))])
    return found


def tuned_specs(
    tuned_points: Mapping[str, set[int]], scenario: Scenario, startup_seconds: float, seeds: Iterable[int]
) -> list[Spec]:
    """Rows of tuned rivals, run to their end."""
    return [
        Spec(scenario=scenario.name, startup_seconds=startup_seconds, seed=seed, policy=policy, point=point)
        for seed in seeds
        for policy, chosen_points in tuned_points.items()
        for point in chosen_points
        if worth(policy, startup_seconds, seed)
    ]


def compared(
    scenario: Scenario, startup_seconds: float, seeds: Sequence[int], *, results: Results, grids: Grids, store: Store
) -> Compared:
    """The rows that there are."""
    experiment = setup(scenario.name, startup_seconds, seeds[0], store).experiment
    laws = rivals(experiment.fleet.objective, experiment.profile)
    order = [*runs.OUR_ROWS, *runs.BOUNDS, runs.STATIC_NOON, *RIVALS]
    groups: dict[tuple[str, int], dict[int, Mapping[str, Any]]] = {}
    for spec, result in results.items():
        if (spec.scenario, spec.startup_seconds) == (scenario.name, startup_seconds) and not spec.swept:
            groups.setdefault((spec.policy, spec.point), {})[spec.seed] = result
    entries = []
    for policy, point in sorted(groups, key=lambda each: (order.index(each[0]), each[1])):
        name = policy
        if point:
            law = laws[policy]
            name = f"{policy}, tuned: {label(points(law)[point], law)}"
        by_seed = groups[policy, point]
        entries.append(Entry(name, policy, point, tuple(by_seed[seed] for seed in seeds if seed in by_seed)))
    known = sum(len(grids.get((scenario.name, startup_seconds, name), {})) for name in SEARCHED)
    total = sum(len(points(laws[name])) for name in SEARCHED)
    return Compared(scenario, startup_seconds, tuple(entries), (known, total))
