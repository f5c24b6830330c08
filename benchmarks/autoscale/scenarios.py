"""What the policies are compared on: traces, the fleets that serve them, and what is good.

Rates are scaled so that an hour of a fleet of a few replicas is some thousands of requests: a share of the requests of
a trace is kept (of Mooncake: of its conversations, so that what shares a prefix stays together), a curve is given a
mean rate. Bursts, lengths and the shape over time are those of the file. GPUs are chosen slow for the same reason.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from benchmarks.autoscale import vendored

from goodput.domain.identity import Key
from goodput.domain.intent import ModelIntent, Objective
from goodput.perfmodel import architecture
from goodput.simulator.capacity import engine_config
from goodput.simulator.derive import GIB, L40S, LLAMA_3_1_8B, GpuFigures, derive
from goodput.simulator.fleet.clients import asks_of
from goodput.simulator.fleet.requests import Ask
from goodput.simulator.fleet.settings import FleetSettings
from goodput.simulator.plant import Plant
from goodput.simulator.ramp_plant import (
    RAMP_ENGINE,
    RAMP_GPU_TYPE,
    RAMP_MODEL,
    RAMP_OBJECTIVE,
    RAMP_PLANT,
    RAMP_REPLICAS,
    RAMP_SECONDS,
)
from goodput.simulator.sequences import EngineConfig
from goodput.simulator.traces.curves import POISSON
from goodput.simulator.traces.generators import published_ramp
from goodput.simulator.traces.lengths import Empirical
from goodput.simulator.traces.request import Trace
from goodput.simulator.traces.servegen import WINDOW_SECONDS, compressed, read_curve

# An L4 is an Ada card as the L40S is: its data sheet, the efficiencies measured on that class.
L4 = GpuFigures("l4", 22.0 * GIB, 300e9, 121e12, L40S.mbu, L40S.mfu)
STARTUPS = (30.0, 100.0, 300.0)
SPREAD = 0.2
# 14 days in three hours: a day is 13 minutes, ten minutes are 5.4 s. A start-up of 100 s is three hours of the curve.
COMPRESSION = 112.0
_LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
_FIRST_SECONDS = 120.0
_MOST = 20


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One trace on one kind of fleet. `requests` and `plant` follow from a seed; `notes` say what was scaled."""

    name: str
    title: str
    notes: str
    model: str
    gpu_type: str
    objective: Objective
    seconds: float
    requests: Callable[[int], Trace]
    plant: Callable[[int], Plant]
    engine: Callable[[Plant], EngineConfig] = engine_config
    startups: tuple[float, ...] = STARTUPS
    replicas: tuple[int, int] = (1, _MOST)  # the bounds of the Model
    starts_with: int | None = None  # None: what the first two minutes need
    idle_seconds: float = 0.0  # for which the fleet was there before the load began

    def asks(self, seed: int) -> list[Ask]:
        """The requests, as clients send them."""
        return asks_of(self.requests(seed))

    def fleet(self, seed: int, startup_seconds: float, replica_rps: float, asks: list[Ask]) -> FleetSettings:
        """The fleet at the start of a run: nobody begins with a load that is too much for it."""
        plant = self.plant(seed)
        least, most = self.replicas
        first = sum(1 for ask in asks if ask.seconds < _FIRST_SECONDS) / _FIRST_SECONDS
        needed = self.starts_with or math.ceil(1.1 * first / replica_rps)
        return FleetSettings(
            plant=plant,
            engine=self.engine(plant),
            objective=self.objective,
            seconds=self.seconds,
            replicas=max(least, min(most, needed)),
            min_replicas=least,
            max_replicas=most,
            gpu_type=self.gpu_type,
            startup_seconds=startup_seconds,
            settle_seconds=self.idle_seconds,
            seed=seed,
        )

    def intent(self, plant: Plant) -> ModelIntent:
        """What the user of the Model asks for."""
        return ModelIntent(
            key=Key("default", self.name),
            uid=self.name,
            generation=1,
            model=self.model,
            served_name=self.model,
            slo=Key("default", self.name),
            objective=self.objective,
            architecture=architecture(self.model),
            gpu_types=(self.gpu_type,),
            tensor_parallel=plant.gpus,
            min_replicas=self.replicas[0],
            max_replicas=self.replicas[1],
        )


def kept(trace: Trace, one_in: int, name: str) -> Trace:
    """One in `one_in` requests, chosen by chance, always the same ones; times count from the first of all."""
    draw = random.Random(f"kept/{name}")
    return tuple(each for each in trace if draw.randrange(one_in) == 0)


def kept_conversations(trace: Trace, one_in: int) -> Trace:
    """All requests of one in `one_in` conversations: prompts that go on alike after the system prompt's block."""

    def root(blocks: tuple[int, ...]) -> int:
        return blocks[1] if len(blocks) > 1 else blocks[0]

    return tuple(each for each in trace if random.Random(root(each.blocks)).randrange(one_in) == 0)


def drawn(plant: Plant, seed: int) -> Plant:
    """`plant` with MBU and MFU drawn evenly within `SPREAD`; those of seeds 1 and 2, 3 and 4, ... mirror each other.

    So the plants of a pair are no faster and no slower than those of the class.
    """
    draw = random.Random(f"{(seed + 1) // 2}/plant")
    side = 1.0 if seed % 2 else -1.0
    mbu, mfu = (1.0 + side * draw.uniform(-SPREAD, SPREAD) for _ in range(2))
    return replace(plant, mbu=min(1.0, plant.mbu * mbu), mfu=min(1.0, plant.mfu * mfu))


def _l4(seed: int) -> Plant:
    return drawn(derive(LLAMA_3_1_8B, L4, activation_bytes=1.0 * GIB), seed)


def _l40s(seed: int) -> Plant:
    return drawn(derive(LLAMA_3_1_8B, L40S), seed)


def _long_prompts(plant: Plant) -> EngineConfig:
    """Blocks of 128 tokens: a prompt of 12,000 has 94 of them, not 750."""
    engine = engine_config(plant)
    return replace(engine, block_size=128, kv_blocks=plant.kv_pool_tokens // 128)


@lru_cache(maxsize=8)
def _conversation() -> Trace:
    return vendored.read(vendored.AZURE_CONVERSATION)


@lru_cache(maxsize=8)
def _azure(code: bool) -> Trace:
    trace = vendored.read(vendored.AZURE_CODE) if code else _conversation()
    return kept(trace, 2, "code" if code else "conversation")


@lru_cache(maxsize=1)
def _mooncake() -> Trace:
    return kept_conversations(vendored.read(vendored.MOONCAKE_CONVERSATION), 4)


@lru_cache(maxsize=4)
def _servegen(large: bool, seed: int) -> Trace:
    windows = read_curve(vendored.SERVEGEN_LARGE if large else vendored.SERVEGEN_SMALL)
    return compressed(
        windows,
        Empirical.of(_conversation()),
        mean_rps=2.4 if large else 8.0,
        compression=COMPRESSION,
        seed=seed,
    )


def _objective(ttft_seconds: float, tpot_seconds: float) -> Objective:
    return Objective(ttft_seconds=ttft_seconds, tpot_seconds=tpot_seconds, e2e_seconds=None)


_DAYS = 14.0 * 86_400.0 / COMPRESSION
_WINDOW = f"10 minutes are {WINDOW_SECONDS / COMPRESSION:.1f} s"

RAMP = Scenario(
    name="ramp",
    title="Published ramp",
    notes="llm-d's, as published: Qwen3-32B on 2 H100 a replica, 2 to 10 requests/s evenly spaced, bounds 3 to 8; "
    "the fitted plant, not drawn, since the bounds leave no room for a slower one",
    model=RAMP_MODEL,
    gpu_type=RAMP_GPU_TYPE,
    objective=RAMP_OBJECTIVE,
    seconds=RAMP_SECONDS,
    requests=published_ramp,
    plant=lambda seed: RAMP_PLANT,
    engine=lambda plant: RAMP_ENGINE,
    startups=(30.0, 100.0, 135.0, 300.0),
    replicas=RAMP_REPLICAS,
    starts_with=RAMP_REPLICAS[0],
    idle_seconds=120.0,
)
SCENARIOS: tuple[Scenario, ...] = (
    RAMP,
    Scenario(
        name="azure-conversation",
        title="Azure conversation",
        notes="1 of 2 requests; Llama-3.1-8B on L4",
        model=_LLAMA,
        gpu_type="l4",
        objective=_objective(2.0, 0.15),
        seconds=3_510.0,
        requests=lambda seed: _azure(code=False),
        plant=_l4,
    ),
    Scenario(
        name="azure-code",
        title="Azure code",
        notes="1 of 2 requests; Llama-3.1-8B on L4",
        model=_LLAMA,
        gpu_type="l4",
        objective=_objective(4.0, 0.3),
        seconds=3_450.0,
        requests=lambda seed: _azure(code=True),
        plant=_l4,
    ),
    Scenario(
        name="mooncake",
        title="Mooncake conversation",
        notes="1 of 4 conversations, prefixes shared as published; Llama-3.1-8B on L40S",
        model=_LLAMA,
        gpu_type="l40s",
        objective=_objective(15.0, 0.2),
        seconds=3_550.0,
        requests=lambda seed: _mooncake(),
        plant=_l40s,
        engine=_long_prompts,
    ),
    Scenario(
        name="servegen-large",
        title="ServeGen m-large",
        notes=f"14 days in {_DAYS / 3600.0:.0f} h ({_WINDOW}), mean 2.4 requests/s; Llama-3.1-8B on L4",
        model=_LLAMA,
        gpu_type="l4",
        objective=_objective(2.0, 0.12),
        seconds=_DAYS,
        requests=lambda seed: _servegen(True, seed),
        plant=_l4,
    ),
    Scenario(
        name="servegen-small",
        title="ServeGen m-small",
        notes=f"14 days in {_DAYS / 3600.0:.0f} h ({_WINDOW}), mean 8 requests/s; Llama-3.1-8B on L4",
        model=_LLAMA,
        gpu_type="l4",
        objective=_objective(0.2, 0.12),
        seconds=_DAYS,
        requests=lambda seed: _servegen(False, seed),
        plant=_l4,
    ),
)
# The ramp with arrivals by chance: not a trace of the comparison, but of what is asked of ours.
RAMP_BY_CHANCE = replace(
    RAMP,
    name="ramp-poisson",
    title="Published ramp, Poisson arrivals",
    requests=lambda seed: published_ramp(seed, POISSON),
)
BY_NAME = {scenario.name: scenario for scenario in (*SCENARIOS, RAMP_BY_CHANCE)}
