"""One row of the comparison: one policy under one load, kept by all that determines it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks.autoscale.bounded import FussyClients, GivenUpError, Thrifty
from benchmarks.autoscale.grids import points
from benchmarks.autoscale.setup import Setup, setup
from benchmarks.autoscale.store import Store, key_of, source_hash

from goodput.simulator import bounds
from goodput.simulator.fleet.laws import LawPolicy
from goodput.simulator.fleet.outcome import Outcome
from goodput.simulator.fleet.settings import FleetSettings
from goodput.simulator.fleet.simulation import simulate
from goodput.simulator.policies import OURS, RIVALS, run
from goodput.simulator.rivals.catalogue import rivals
from goodput.simulator.rivals.law import Law
from goodput.simulator.rivals.llmd_slo import LlmdSlo

KNOWING, UNADMITTED, NOON = f"{OURS}, knowing", f"{OURS}, no admission", f"{OURS}, slower at noon"
BELIEFS = {f"{OURS}, believes {factor:g} x": factor for factor in (0.8, 1.2, 3.0)}
OUR_ROWS = (OURS, KNOWING, UNADMITTED, *BELIEFS, NOON)
STATIC_PEAK, STATIC_LEAST, ORACLE = "static-peak", "static, fewest that hold", "oracle"
STATIC_NOON = "static-peak, slower at noon"
BOUNDS = (STATIC_PEAK, STATIC_LEAST, ORACLE)
# The oracle may count on more than one replica holds alone (behind a router they even out what comes), or need more.
ORACLE_FACTORS = (1.6, 1.45, 1.3, 1.2, 1.1, 1.0, 0.9, 0.8, 0.7)
# Variants are left when more than this share has missed, or they cost more than this many times static peak.
FLOOR_ATTAINMENT, MOST_COST = 0.9, 1.3


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A row. `point` is a variant of the rival's grid; `swept`: it is left as soon as it is worth nothing."""

    scenario: str
    startup_seconds: float
    seed: int
    policy: str
    point: int = 0
    swept: bool = False


def execute(spec: Spec, store: Store) -> dict[str, Any]:
    """The result of a row, from the store where it was made before."""
    made = setup(spec.scenario, spec.startup_seconds, spec.seed, store)
    if spec.policy in RIVALS:
        return _rival(spec, made, store)
    changed = _changed(spec.policy, made)
    ours = (source_hash("laws"), changed.experiment.intent, changed.gpu) if spec.policy in OUR_ROWS else ()
    act = {STATIC_LEAST: _fewest, ORACLE: _oracle}.get(spec.policy, _plain)
    return _kept(spec, changed, store, ours, lambda: act(spec.policy, changed))


def _changed(policy: str, made: Setup) -> Setup:
    if policy == KNOWING:
        return made.believing(1.0)
    if policy in BELIEFS:
        return made.believing(BELIEFS[policy])
    if policy == UNADMITTED:
        return made.without_admission()
    return made.slower_at_noon() if policy in (NOON, STATIC_NOON) else made


def _kept(
    spec: Spec, made: Setup, store: Store, more: tuple[object, ...], act: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    experiment = made.experiment
    parts = (source_hash("simulator"), spec.policy, made.digest, experiment.fleet, experiment.replica_rps, *more)
    key = key_of(*parts)
    found = store.get(key)
    if found is not None and (spec.swept or "given_up" not in found):
        return {**asdict(spec), **found}
    found = act()
    store.put(key, found)
    return {**asdict(spec), **found}


def _plain(policy: str, made: Setup) -> dict[str, Any]:
    name = OURS if policy in OUR_ROWS else STATIC_PEAK
    found = figures(run(made.experiment, made.asks, name), made)
    return found | {"believed_rps": made.believed_rps} if policy in OUR_ROWS else found


def _fewest(policy: str, made: Setup) -> dict[str, Any]:
    """The fewest static replicas that hold the objective in hindsight, or as many as there may be."""
    fleet = made.experiment.fleet
    most = fleet.max_replicas or 1
    mean = len(made.asks) / fleet.seconds / made.experiment.replica_rps
    count = max(fleet.min_replicas, min(most, math.floor(0.6 * mean)))
    while True:
        fixed = replace(made.experiment, fleet=replace(fleet, min_replicas=count))
        allowed = math.inf if count >= most else (1.0 - fleet.objective.attainment) * len(made.asks)
        clients = FussyClients(made.asks, fleet.objective, allowed)
        try:
            return figures(run(fixed, made.asks, "static", clients=clients), made)
        except GivenUpError:
            count += 1


def _oracle(policy: str, made: Setup) -> dict[str, Any]:
    """The cheapest plan of the oracle that holds the objective; where none does, the one that holds it best."""
    best: dict[str, Any] = {}
    for factor in ORACLE_FACTORS:
        found = figures(run(made.holding(factor).experiment, made.asks, ORACLE), made) | {"counted_on": factor}
        if not best or found["attainment"] > best["attainment"]:
            best = found
        if found["attainment"] >= made.experiment.fleet.objective.attainment:
            break
    return best


def _rival(spec: Spec, made: Setup, store: Store) -> dict[str, Any]:
    experiment = made.experiment
    law = points(rivals(experiment.fleet.objective, experiment.profile)[spec.policy])[spec.point]
    return _kept(spec, made, store, (law,), lambda: _law(law, made, swept=spec.swept))


def _law(law: Law[Any], made: Setup, *, swept: bool) -> dict[str, Any]:
    experiment = made.experiment
    if not swept:
        return figures(run(experiment, made.asks, law.name, law), made)
    fleet = replace(experiment.fleet, predictor=isinstance(law, LlmdSlo) and law.predicted)
    clients = FussyClients(made.asks, fleet.objective, (1.0 - FLOOR_ATTAINMENT) * len(made.asks))
    policy = Thrifty(LawPolicy(law), MOST_COST * static_gpu_seconds(made))
    try:
        return figures(simulate(fleet, clients, policy), made)
    except GivenUpError as reason:
        return {"given_up": str(reason)}


def static_gpu_seconds(made: Setup) -> float:
    """What static peak costs."""
    fleet = made.experiment.fleet
    count = fleet.bounded(bounds.static_peak([ask.seconds for ask in made.asks], made.experiment.replica_rps))
    return count * fleet.plant.gpus * fleet.seconds


def figures(found: Outcome, made: Setup) -> dict[str, Any]:
    """What is kept of a run."""
    fleet = made.experiment.fleet
    return {
        "attainment": found.attainment,
        "goodput_rps": found.goodput_rps,
        "offered_rps": found.offered_rps,
        "requests": found.requests,
        "lost": found.lost,
        "gpu_hours": found.gpu_hours,
        "cost": found.gpu_hours * (made.gpu.price_per_hour or math.nan),
        "mean_replicas": found.mean_replicas,
        "published_replicas": until_back(found, fleet),
        "scale_ups": found.scale_ups,
        "scale_downs": found.scale_downs,
        "direction_changes_per_hour": found.direction_changes / (found.seconds / 3600.0),
        "worst_minute": found.worst_minute_attainment,
        "ttft": [found.ttft.p50, found.ttft.p95, found.ttft.p99],
        "tpot": [found.tpot.p50, found.tpot.p95, found.tpot.p99],
        "e2e": [found.e2e.p50, found.e2e.p95, found.e2e.p99],
        "replica_rps": made.experiment.replica_rps,
        "offered": [minute.offered for minute in found.timeline],
        "good": [minute.good for minute in found.timeline],
        "desired": [round(minute.desired, 3) for minute in found.timeline],
        "ready": [round(minute.ready, 3) for minute in found.timeline],
    }


def until_back(found: Outcome, fleet: FleetSettings) -> float:
    """Mean replicas asked for until the fleet is back at what it started with for good, as llm-d counts its ramp."""
    return mean_until_back(
        [(each.at_seconds, each.after) for each in found.scale_events], fleet.replicas, fleet.seconds
    )


def mean_until_back(changes: list[tuple[float, int]], start: int, seconds: float) -> float:
    """Of replicas that start at `start` and change to (at, count), until the last change if that is back to `start`."""
    end = changes[-1][0] if changes and changes[-1][1] == start else seconds
    area, at, count = 0.0, 0.0, start
    for when, after in changes:
        area += (min(when, end) - at) * count
        at, count = min(when, end), after
    return (area + (end - at) * count) / end if end > 0.0 else float(start)
