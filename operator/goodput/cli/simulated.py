"""A what-if: a Model of files, a trace, a plant that neither knows, and the policies over it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import replace as dataclass_replace
from math import ceil
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from goodput.cli.placing import placed
from goodput.domain.architecture import Architecture
from goodput.domain.errors import ModelDoesNotFit
from goodput.domain.intent import GpuType, ModelIntent, Objective, RoutingMode, ScalingMode
from goodput.domain.plan import Placement
from goodput.perfmodel.cost import price_per_hour
from goodput.resources.engine.histogram import bucket_edges
from goodput.simulator import bounds
from goodput.simulator.fleet.clients import asks_of
from goodput.simulator.fleet.outcome import Outcome
from goodput.simulator.fleet.requests import Ask
from goodput.simulator.fleet.settings import Edges, FleetSettings, RouterSettings
from goodput.simulator.measuring import feasible_share, lengths_of
from goodput.simulator.plant import Plant, PlantError
from goodput.simulator.plants import Draws, Usual, engine_of, plant_of
from goodput.simulator.policies import Experiment, measured, run
from goodput.simulator.traces.lines import TraceError
from goodput.simulator.traces.reader import read_trace

# A trace begins in the middle of a day: the fleet that serves then is one for its first minutes.
_FIRST_SECONDS = 300.0
# A law that runs away may have this many times the GPUs of a static peak, and the least number of a small cluster.
_ROOM, _LEAST_GPUS = 4, 64
_SETTLE_SECONDS = 30.0
# What an oracle counts on per replica is raised or lowered by this factor, so many times.
_ORACLE_STEP, _ORACLE_STEPS = 1.2, 6
_TAIL_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What the command line asks. `compress`: the trace is played so many times as fast. None: found out."""

    startup_seconds: float = 100.0
    seed: int = 0
    compress: float = 1.0
    first_seconds: float | None = None
    replicas: int | None = None
    gpus: int | None = None
    plant: Path | None = None
    perfect: bool = False
    admission: bool = True
    seconds: float | None = None  # that the run takes
    learned: Draws | None = None  # true over believed figures of the plant, where they are known


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """All that policies have in common. `gpu_price` is per GPU and hour; `possible` the share of requests that an idle
    replica serves well."""

    name: str
    slo: str
    architecture: Architecture
    gpu: GpuType
    placement: Placement
    plant_source: str
    experiment: Experiment
    asks: tuple[Ask, ...]
    gpu_price: float | None
    possible: float
    notes: tuple[str, ...]

    @property
    def objective(self) -> Objective:
        """What is good."""
        return self.experiment.fleet.objective

    @property
    def peak_replicas(self) -> int:
        """Replicas of a static peak."""
        return bounds.static_peak([ask.seconds for ask in self.asks], self.experiment.replica_rps)

    def cost(self, outcome: Outcome) -> float | None:
        """What a run cost; None where no price is known."""
        return None if self.gpu_price is None else outcome.gpu_hours * self.gpu_price


def what_if(
    name: str, intent: ModelIntent, types: Sequence[GpuType], asks: Sequence[Ask], question: Question
) -> WhatIf:
    """Everything that is known before a policy runs over `asks`; `name` is the Model's.

    Raises:
        click.ClickException: the Model cannot be placed, or no replica holds the SLO.
    """
    arch, objective = intent.architecture, intent.objective
    if arch is None or objective is None:
        raise click.ClickException(f"Model {name}: its architecture or its SLO is not known")
    seconds = question.seconds or float(ceil(asks[-1].seconds + 1.0))
    notes: list[str] = []
    intent = _acting(intent, notes)
    pool = placed(intent, types)
    placement = pool.placement
    gpu = next(each for each in types if each.name == placement.gpu_type)
    intent = replace(
        intent,
        gpu_types=(gpu.name,),
        tensor_parallel=placement.tensor_parallel,
        pipeline_parallel=placement.pipeline_parallel,
    )
    plant, source = _plant(intent, arch, gpu, placement, asks=asks, question=question)
    most = _most_replicas(intent, placement, gpu)
    base = FleetSettings(
        plant=plant,
        engine=engine_of(plant, placement),
        objective=objective,
        seconds=seconds,
        min_replicas=min(intent.min_replicas, most) if most is not None else intent.min_replicas,
        max_replicas=most,
        gpu_type=gpu.name,
        gpus_per_node=_nodes(question.gpus or _LEAST_GPUS, gpu, plant.gpus),
        startup_seconds=question.startup_seconds,
        settle_seconds=_SETTLE_SECONDS,
        # Who may take hours is waited for.
        tail_seconds=max(_TAIL_SECONDS, 2.0 * (objective.e2e_seconds or 0.0)),
        edges=_edges(objective),
        router=_router(intent),
        seed=question.seed,
    )
    try:
        experiment = measured(base, intent, types, asks, admission=question.admission and intent.admission)
    except ValueError as error:
        raise click.ClickException(
            f"Model {name} on {gpu.name} TP{placement.tensor_parallel}: {error}. Loosen the SLO, or see what helps: "
            "kubectl goodput plan"
        ) from error
    engine = experiment.fleet.engine
    found = WhatIf(
        name=name,
        slo=intent.slo.name,
        architecture=arch,
        gpu=gpu,
        placement=placement,
        plant_source=source,
        experiment=experiment,
        asks=tuple(asks),
        gpu_price=price_per_hour(gpu),
        possible=feasible_share(plant, engine, lengths_of(asks, engine), objective),
        notes=tuple(notes),
    )
    return _sized(found, question)


def simulate(found: WhatIf, policies: Sequence[str], watch: Callable[[str, float], None]) -> list[Outcome]:
    """One run of each policy; `watch` is told the policy and the share (0..1) of its run that is over."""
    seconds = found.experiment.fleet.seconds

    def outcome(name: str, experiment: Experiment) -> Outcome:
        return run(experiment, found.asks, name, watch=lambda now: watch(name, max(0.0, now) / seconds))

    return [_oracle(found, outcome) if name == "oracle" else outcome(name, found.experiment) for name in policies]


def _oracle(found: WhatIf, outcome: Callable[[str, Experiment], Outcome]) -> Outcome:
    """The cheapest of the oracle's plans that holds the SLO; where none does, the one that holds it best.

    It may count on more than one replica holds alone: behind a router they even out what comes.
    """
    experiment, wanted = found.experiment, found.objective.attainment

    def planned(step: int) -> Outcome:
        rps = experiment.replica_rps * _ORACLE_STEP**step
        return outcome("oracle", dataclass_replace(experiment, replica_rps=rps))

    best = planned(0)
    way = 1 if best.attainment >= wanted else -1
    for step in range(1, _ORACLE_STEPS + 1):
        tried = planned(way * step)
        if way > 0 and tried.attainment < wanted:
            break
        if way > 0 or tried.attainment > best.attainment:
            best = tried
        if way < 0 and tried.attainment >= wanted:
            break
    return best


def asks_from(path: Path, question: Question) -> tuple[Ask, ...]:
    """The requests of a trace, in the time of the run.

    Raises:
        click.ClickException: it cannot be read.
    """
    try:
        trace = asks_of(read_trace(path))
    except TraceError as error:
        raise click.ClickException(str(error)) from error
    asks = tuple(dataclass_replace(ask, seconds=ask.seconds / question.compress) for ask in trace)
    if question.first_seconds is not None:
        asks = tuple(ask for ask in asks if ask.seconds < question.first_seconds)
    return asks


def _acting(intent: ModelIntent, notes: list[str]) -> ModelIntent:
    """The Model as if it were left to scale."""
    if intent.mode is not ScalingMode.AUTO or intent.paused:
        notes.append("The Model is paused or only advised: simulated as scaling.mode Auto.")
    return replace(intent, mode=ScalingMode.AUTO, paused=False)


def _plant(
    intent: ModelIntent,
    arch: Architecture,
    gpu: GpuType,
    placement: Placement,
    *,
    asks: Sequence[Ask],
    question: Question,
) -> tuple[Plant, str]:
    """The plant, and where it comes from."""
    if question.plant is not None:
        return _plant_file(question.plant), question.plant.name
    usual = Usual(
        max(1.0, sum(ask.input_tokens for ask in asks) / len(asks)),
        max(1.0, sum(ask.output_tokens for ask in asks) / len(asks)),
    )
    draws = question.learned or (None if question.perfect else Draws.of(question.seed))
    try:
        plant = plant_of(
            arch,
            gpu,
            placement,
            usual,
            kv_dtype=intent.precision.kv_cache or "auto",
            draws=draws,
            startup_seconds=question.startup_seconds,
        )
    except ModelDoesNotFit as error:
        raise click.ClickException(str(error)) from error
    if question.learned is not None:
        return plant, "at the speed that was learned"
    return plant, "as published points say, undrawn" if draws is None else f"drawn with seed {question.seed}"


def _plant_file(path: Path) -> Plant:
    try:
        values: Any = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise PlantError("plant: no JSON object")
        return Plant.from_mapping(values)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"--plant {path}: {error}") from error


def _most_replicas(intent: ModelIntent, placement: Placement, gpu: GpuType) -> int | None:
    """The Model's cap: on replicas, or on what they cost."""
    caps = [] if intent.max_replicas is None else [intent.max_replicas]
    price = price_per_hour(gpu)
    if intent.max_cost_per_hour is not None and price:
        caps.append(int(intent.max_cost_per_hour / (price * placement.gpus) + 1e-9))
    return min(caps) if caps else None


def _nodes(gpus: int, gpu: GpuType, replica_gpus: int) -> tuple[int, ...]:
    """Nodes of the type that hold so many GPUs together; one holds a whole replica at least."""
    each = max(gpu.gpus_per_node, replica_gpus)
    whole, rest = divmod(max(gpus, replica_gpus), each)
    return (each,) * whole + ((rest,) if rest else ())


def _edges(objective: Objective) -> Edges:
    """The histogram edges that engines are rendered with."""
    edges = bucket_edges(objective)
    return Edges(
        ttft=tuple(edges["time_to_first_token"]),
        tpot=tuple(edges["inter_token_latency"]),
        e2e=tuple(edges["request_latency"]),
    )


def _router(intent: ModelIntent) -> RouterSettings:
    """The operator's routers; without them a Service, which knows no load and tries once."""
    if intent.routing is RoutingMode.NONE:
        return RouterSettings(balance="round_robin", attempts=1)
    return RouterSettings()


def _sized(found: WhatIf, question: Question) -> WhatIf:
    """With the fleet that serves when the trace begins, and room for laws that run away."""
    experiment = found.experiment
    fleet = experiment.fleet
    gpus = question.gpus or found.gpu.limit or max(_LEAST_GPUS, _ROOM * found.peak_replicas * fleet.plant.gpus)
    fleet = dataclass_replace(fleet, gpus_per_node=_nodes(gpus, found.gpu, fleet.plant.gpus))
    replicas = question.replicas
    if replicas is None:
        early = [ask.seconds for ask in found.asks if ask.seconds < _FIRST_SECONDS]
        replicas = bounds.static_peak(early, experiment.replica_rps)
    fleet = dataclass_replace(
        fleet, replicas=fleet.bounded(min(replicas, sum(fleet.gpus_per_node) // fleet.plant.gpus))
    )
    return dataclass_replace(found, experiment=dataclass_replace(experiment, fleet=fleet))
