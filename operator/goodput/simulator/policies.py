"""Every policy by its name, and one run of one of them over the same clients on the same fleet.

Ours renders the engines, as the operator does; all others run on these very engines, queue limits included unless
`admission` is off. What a rival's guide has an operator measure is measured on one idle replica of the plant.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from goodput.decide import Policy as Laws
from goodput.domain.intent import GpuType, ModelIntent
from goodput.domain.intent import Objective as SloObjective
from goodput.simulator import bounds, capacity
from goodput.simulator.engine import Engine
from goodput.simulator.fleet.baselines import Oracle, Static, static_peak
from goodput.simulator.fleet.clients import Clients, OpenLoop
from goodput.simulator.fleet.laws import LawPolicy
from goodput.simulator.fleet.ours import GoodputPolicy
from goodput.simulator.fleet.outcome import Outcome
from goodput.simulator.fleet.policy import Policy
from goodput.simulator.fleet.requests import Ask
from goodput.simulator.fleet.settings import FleetSettings
from goodput.simulator.fleet.simulation import simulate
from goodput.simulator.plant import Plant, StepTimeModel
from goodput.simulator.rivals.catalogue import Profile, rivals
from goodput.simulator.rivals.law import Law
from goodput.simulator.rivals.llmd_slo import LlmdSlo
from goodput.simulator.sequences import EngineConfig, EngineRequest

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
    fleet = policy.render(replace(fleet, engine=_unlimited(fleet.engine)))
    placed = policy.last.pool.placement.gpus if policy.last is not None and policy.last.pool is not None else 0
    if placed != fleet.plant.gpus:
        raise ValueError(f"the Model is placed on {placed} GPUs a replica, the plant has {fleet.plant.gpus}")
    if replica_rps is None:
        lengths = [(ask.input_tokens, ask.output_tokens) for ask in asks]
        replica_rps = held_rps(fleet.plant, fleet.engine, lengths, fleet.objective)
    return Experiment(
        fleet=fleet,
        intent=intent,
        gpu_types=tuple(gpu_types),
        replica_rps=replica_rps,
        profile=profile(fleet.plant, fleet.engine, asks),
        laws=laws,
    )


def _unlimited(engine: EngineConfig) -> EngineConfig:
    return replace(engine, max_num_queued_reqs=None, max_num_queued_tokens=None)


def run(
    experiment: Experiment,
    asks: Sequence[Ask],
    name: str,
    law: Law[Any] | None = None,
    clients: Clients | None = None,
) -> Outcome:
    """One policy over `asks`. `law` is a variant of the rival `name`, `clients` who sends them (open loop by default).

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
            lead_seconds=lead_seconds(fleet),
            replicas=fleet.replicas,
        )
    elif name in RIVALS:
        chosen = law if law is not None else rivals(fleet.objective, experiment.profile)[name]
        predicts = isinstance(chosen, LlmdSlo) and chosen.predicted
        fleet, policy = replace(fleet, predictor=predicts), LawPolicy(chosen)
    else:
        raise ValueError(f"policy: {name!r} is none of {', '.join(POLICIES)}")
    return simulate(fleet, clients or OpenLoop(asks), policy)


def lead_seconds(fleet: FleetSettings) -> float:
    """Seconds from asking for a replica until routers use it, at most."""
    startup = fleet.startup_seconds * (1.0 + fleet.startup_spread)
    return fleet.scheduling_seconds + startup + fleet.router.discovery_seconds


def oracle_bound(experiment: Experiment, asks: Sequence[Ask]) -> bounds.Oracle:
    """The exact plan of the oracle for these requests, without the fleet that carries it out."""
    fleet = experiment.fleet
    oracle = Oracle(
        asks,
        experiment.replica_rps,
        seconds=fleet.seconds,
        lead_seconds=lead_seconds(fleet),
        replicas=fleet.replicas,
    )
    return oracle.plan


# ---------------------------------------------------------------- what is measured on one idle replica
def held_rps(
    plant: Plant, engine: EngineConfig, lengths: Sequence[tuple[int, int]], objective: SloObjective, *, seed: int = 0
) -> float:
    """Requests a second up to which one replica holds an objective, by itself. Raises `ValueError` if none does."""
    rate = capacity.max_rate(
        plant,
        engine,
        [pair for pair in lengths if pair[0] < engine.max_model_len],
        capacity.Objective(objective.ttft_seconds, objective.tpot_seconds, objective.e2e_seconds, objective.attainment),
        seed=seed,
    )
    if not rate > 0.0:
        raise ValueError("one replica of the plant holds the objective at no rate")
    return rate


@dataclass(frozen=True, slots=True)
class PlantSteps:
    """The step times of a plant as Dynamo profiles them: prompt tokens, decoding sequences, tokens of context."""

    times: StepTimeModel

    def __call__(self, prompt_tokens: int, sequences: int, context_tokens: float) -> float:
        """Seconds of one forward pass."""
        return self.times.step_seconds(prompt_tokens, sequences, context_tokens, prompt_tokens * prompt_tokens / 2.0)


def profile(plant: Plant, engine: EngineConfig, asks: Sequence[Ask]) -> Profile:
    """What the guides of the rivals have an operator measure before the laws run."""
    return Profile(
        prefill_tokens_per_second=_prefill_tokens_per_second(plant, engine),
        step_seconds=PlantSteps(StepTimeModel.of(plant)),
        uncached_input_tokens=_uncached_tokens(asks, (engine.kv_blocks - 1) * engine.block_size),
    )


def _prefill_tokens_per_second(plant: Plant, engine: EngineConfig) -> float:
    """A full chunk over its time to the first token on an idle engine, as llm-d calibrates."""
    idle = Engine(_unlimited(engine), StepTimeModel.of(plant), plant.request_overhead_seconds)
    tokens = min(engine.max_num_batched_tokens, engine.max_model_len - 1)
    only = idle.submit(EngineRequest("chunk", tokens, 1), 0.0)
    start = 0.0
    while only.first_token_at is None:
        begins = idle.next_start(start)
        assert begins is not None
        step = idle.step(begins)
        start = begins if step is None else step.ends_at
    return tokens / only.first_token_at


def _uncached_tokens(asks: Sequence[Ask], kept_tokens: int) -> float:
    """The mean prompt less what a cache of so many tokens supplies."""
    kept: OrderedDict[int, int] = OrderedDict()
    held = computed = 0
    for ask in asks:
        known = 0
        for each in ask.block_hashes:
            if each not in kept:
                break
            known += 1
        computed += max(1, ask.input_tokens - known * ask.hash_tokens)
        for each in ask.block_hashes:
            held += ask.hash_tokens - kept.pop(each, 0)
            kept[each] = ask.hash_tokens
        while held > kept_tokens:
            held -= kept.popitem(last=False)[1]
    return computed / len(asks) if asks else 1.0
