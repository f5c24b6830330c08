"""One fleet under one load, as all policies meet it, and what is measured on it before they run."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import lru_cache

import msgspec
from benchmarks.autoscale import beliefs
from benchmarks.autoscale.scenarios import BY_NAME, Scenario
from benchmarks.autoscale.store import Store, key_of, source_hash

from goodput.domain.intent import GpuType
from goodput.perfmodel import Lengths, built_in_gpu_types
from goodput.simulator.fleet.faults import Slowdown
from goodput.simulator.fleet.requests import Ask
from goodput.simulator.measuring import held_rps
from goodput.simulator.policies import Experiment, measured

# Of the plant's speed that is left after the middle of a run whose capacity changes.
NOON_SPEED = 0.8


@dataclass(frozen=True, kw_only=True)
class Setup:
    """`experiment.replica_rps` is what one replica of the drawn plant holds alone; `digest` names the requests."""

    scenario: Scenario
    experiment: Experiment
    asks: tuple[Ask, ...]
    digest: str
    computed_share: float  # of prompt tokens; the rest a prefix cache as large as one replica's supplies

    @property
    def gpu(self) -> GpuType:
        """The type that the fleet runs on, as it is believed."""
        name = self.experiment.fleet.gpu_type
        return next(each for each in self.experiment.gpu_types if each.name == name)

    @property
    def believed_rps(self) -> float:
        """What our law believes of one replica before it has seen any, were it told the lengths."""
        return beliefs.believed_rps(self.gpu, self.experiment.intent, self._lengths)

    @property
    def _lengths(self) -> Lengths:
        return beliefs.lengths_of(self.asks, self.computed_share)

    def believing(self, factor: float) -> Setup:
        """The same with our law told that a replica holds `factor` times what it holds."""
        told = beliefs.believing(self.gpu, self.experiment.intent, self._lengths, factor * self.experiment.replica_rps)
        types = tuple(told if each.name == told.name else each for each in self.experiment.gpu_types)
        return replace(self, experiment=replace(self.experiment, gpu_types=types))

    def without_admission(self) -> Setup:
        """Engines that refuse nobody."""
        intent = msgspec.structs.replace(self.experiment.intent, admission=False)
        return replace(self, experiment=replace(self.experiment, intent=intent))

    def slower_at_noon(self) -> Setup:
        """The plant slows down in the middle of the run; nobody is told."""
        fleet = self.experiment.fleet
        faults = (Slowdown(fleet.seconds / 2.0, NOON_SPEED),)
        return replace(self, experiment=replace(self.experiment, fleet=replace(fleet, faults=faults)))

    def holding(self, factor: float) -> Setup:
        """The bounds told that a replica holds `factor` times what it holds alone."""
        return replace(self, experiment=replace(self.experiment, replica_rps=factor * self.experiment.replica_rps))


@lru_cache(maxsize=4)
def _requests(name: str, seed: int) -> tuple[tuple[Ask, ...], str]:
    asks = tuple(BY_NAME[name].asks(seed))
    return asks, hashlib.sha256(repr(asks).encode()).hexdigest()


@lru_cache(maxsize=8)
def setup(name: str, startup_seconds: float, seed: int, store: Store) -> Setup:
    """The fleet of a scenario with the plant, the requests and the start-up times of a seed."""
    scenario = BY_NAME[name]
    asks, digest = _requests(name, seed)
    plant = scenario.plant(seed)
    intent = scenario.intent(plant)
    types = built_in_gpu_types()
    first = measured(scenario.fleet(seed, startup_seconds, 1.0, list(asks)), intent, types, asks, replica_rps=1.0)
    share = first.profile.uncached_input_tokens * len(asks) / sum(ask.input_tokens for ask in asks)
    key = key_of("replica", source_hash("simulator"), plant, first.fleet.engine, scenario.objective, digest)
    known = store.get(key)
    if known is None:
        lengths = [(max(1, round(ask.input_tokens * share)), ask.output_tokens) for ask in asks]
        known = {"rps": held_rps(plant, first.fleet.engine, lengths, scenario.objective)}
        store.put(key, known)
    rps = known["rps"]
    fleet = scenario.fleet(seed, startup_seconds, rps, list(asks))
    return Setup(
        scenario=scenario,
        experiment=replace(first, fleet=replace(fleet, engine=first.fleet.engine), replica_rps=rps),
        asks=asks,
        digest=digest,
        computed_share=share,
    )
