"""Every policy by its name, and one run of one of them over the same clients on the same fleet.

Ours renders the engines, as the operator does; all others run on these very engines, queue limits included unless
`admission` is off. What a rival's guide has an operator measure is measured on one idle replica of the plant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from goodput.decide import Policy as Laws
from goodput.domain.intent import GpuType, ModelIntent
from goodput.simulator.fleet.baselines import Oracle, Static, static_peak
from goodput.simulator.fleet.clients import Clients, OpenLoop
from goodput.simulator.fleet.laws import LawPolicy
from goodput.simulator.fleet.ours import GoodputPolicy
from goodput.simulator.fleet.outcome import Outcome
from goodput.simulator.fleet.policy import Desired, Policy
from goodput.simulator.fleet.requests import Ask
from goodput.simulator.fleet.settings import FleetSettings
from goodput.simulator.fleet.simulation import simulate
from goodput.simulator.fleet.view import FleetView
from goodput.simulator.measuring import held_rps, lengths_of, profile, unlimited
from goodput.simulator.rivals.catalogue import Profile, rivals
from goodput.simulator.rivals.law import Law
from goodput.simulator.rivals.llmd_slo import LlmdSlo

OURS = "goodput"
BASELINES = ("static", "static-peak", "oracle")
RIVALS = (
    "llmd-slo",
    "llmd-slo-predicted",
    "llmd-token",
    "wva",
    "hpa-queue",
    "hpa-kv",
    "aibrix-apa",
    "aibrix-kpa",
    "kubeai",
    "dynamo",
)
POLICIES = (OURS, *BASELINES, *RIVALS)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What all policies of a comparison have in common.

    `fleet` has engines as they are rendered (`measured` sees to that). `replica_rps` is the rate at which one replica
    of the plant holds the objective alone: static peak and the oracle are told it, ours is not. `laws` are ours.
    """

    fleet: FleetSettings
    intent: ModelIntent
    gpu_types: tuple[GpuType, ...]
    replica_rps: float
    profile: Profile
    laws: Laws | None = None


def measured(
    fleet: FleetSettings,
    intent: ModelIntent,
    gpu_types: Sequence[GpuType],
    asks: Sequence[Ask],
    *,
    admission: bool = True,
    laws: Laws | None = None,
    replica_rps: float | None = None,
) -> Experiment:
    """An experiment on `fleet` with engines as ours renders them; without `admission` they refuse nobody.

    `replica_rps` is measured with the lengths of `asks` unless it is given. Raises `ValueError` where the Model cannot
    be placed, or is placed on another number of GPUs than the plant has.
    """
    intent = intent if admission else msgspec.structs.replace(intent, admission=False)
    policy = GoodputPolicy(intent, gpu_types, fleet.gpu_type, laws)
    fleet = policy.render(replace(fleet, engine=unlimited(fleet.engine)))
    placed = policy.last.pool.placement.gpus if policy.last is not None and policy.last.pool is not None else 0
    if placed != fleet.plant.gpus:
        raise ValueError(f"the Model is placed on {placed} GPUs a replica, the plant has {fleet.plant.gpus}")
    if replica_rps is None:
        replica_rps = held_rps(fleet.plant, fleet.engine, lengths_of(asks, fleet.engine), fleet.objective)
    return Experiment(
        fleet=fleet,
        intent=intent,
        gpu_types=tuple(gpu_types),
        replica_rps=replica_rps,
        profile=profile(fleet.plant, fleet.engine, asks),
        laws=laws,
    )


def run(
    experiment: Experiment,
    asks: Sequence[Ask],
    name: str,
    law: Law[Any] | None = None,
    *,
    clients: Clients | None = None,
    watch: Callable[[float], None] | None = None,
) -> Outcome:
    """One policy over `asks`. `law` is a variant of the rival `name`, `clients` who sends them (open loop by default).
    `watch` is told the second of the run at each decision.

    A fixed fleet serves with all its replicas when the run begins; every other one begins with those of the settings.
    Raises `ValueError` for a name that is none, or a law of another name.
    """
    fleet = experiment.fleet
    policy: Policy
    if law is not None and law.name != name:
        raise ValueError(f"law: {law.name} is no variant of {name}")
    if name == OURS:
        ours = GoodputPolicy(experiment.intent, experiment.gpu_types, fleet.gpu_type, experiment.laws)
        fleet, policy = ours.render(fleet), ours
    elif name in ("static", "static-peak"):
        fixed = Static(fleet.min_replicas) if name == "static" else static_peak(asks, experiment.replica_rps)
        fleet, policy = replace(fleet, replicas=fleet.bounded(fixed.replicas)), fixed
    elif name == "oracle":
        policy = Oracle(
            asks,
            experiment.replica_rps,
            seconds=fleet.seconds,
            lead_seconds=_lead_seconds(fleet),
            replicas=fleet.replicas,
        )
    elif name in RIVALS:
        chosen = law if law is not None else rivals(fleet.objective, experiment.profile)[name]
        predicts = isinstance(chosen, LlmdSlo) and chosen.predicted
        fleet, policy = replace(fleet, predictor=predicts), LawPolicy(chosen)
    else:
        raise ValueError(f"policy: {name!r} is none of {', '.join(POLICIES)}")
    return simulate(fleet, clients or OpenLoop(asks), policy if watch is None else _Watched(policy, watch))


class _Watched:
    """A policy, and somebody who is told how far it is."""

    def __init__(self, policy: Policy, watch: Callable[[float], None]) -> None:
        self.name = policy.name
        self.interval_seconds = policy.interval_seconds
        self._policy = policy
        self._watch = watch

    def decide(self, view: FleetView, now: float) -> int | Desired:
        self._watch(now)
        return self._policy.decide(view, now)


def _lead_seconds(fleet: FleetSettings) -> float:
    """Seconds from asking for a replica until routers use it, at most."""
    startup = fleet.startup_seconds * (1.0 + fleet.startup_spread)
    return fleet.scheduling_seconds + startup + fleet.router.discovery_seconds
