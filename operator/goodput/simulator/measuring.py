"""What is measured on one replica of a plant before a run: the rate that it holds, and what rivals' guides ask for."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd

from goodput.domain.intent import Objective as SloObjective
from goodput.simulator import capacity
from goodput.simulator.engine import Engine
from goodput.simulator.fleet.requests import Ask
from goodput.simulator.plant import Plant, StepTimeModel
from goodput.simulator.rivals.catalogue import Profile
from goodput.simulator.sequences import EngineConfig, EngineRequest
from goodput.simulator.sequences import Sequence as EngineSequence
from goodput.simulator.serving import serve_next

# Requests that are tried alone to find out how many can be good at all.
_FEASIBLE_SAMPLE = 400


def unlimited(engine: EngineConfig) -> EngineConfig:
    """An engine that refuses nobody."""
    return replace(engine, max_num_queued_reqs=None, max_num_queued_tokens=None)


def held_rps(
    plant: Plant, engine: EngineConfig, lengths: Sequence[tuple[int, int]], objective: SloObjective, *, seed: int = 0
) -> float:
    """Requests a second up to which one replica holds an objective, by itself.

    Where more requests than it forgives miss it on an idle replica, the others count: that many of them must be good.
    Raises `ValueError` if there is no such rate.
    """
    # What is drawn from is a distribution: order and number of its entries do not matter.
    counts = Counter(lengths)
    common = gcd(*counts.values())
    entries = tuple(pair for pair, times in sorted(counts.items()) for _ in range(times // common))
    return _held_rps(plant, engine, entries, objective, seed)


@lru_cache(maxsize=64)
def _held_rps(
    plant: Plant, engine: EngineConfig, lengths: tuple[tuple[int, int], ...], objective: SloObjective, seed: int
) -> float:
    possible = feasible_share(plant, engine, lengths, objective)
    wanted = judged_by(objective)
    if possible < objective.attainment:
        wanted = replace(wanted, attainment=possible * objective.attainment) if possible > 0.0 else wanted
    served = [pair for pair in lengths if pair[0] < engine.max_model_len]
    rate = capacity.max_rate(plant, engine, served, wanted, seed=seed) if possible > 0.0 else 0.0
    if not rate > 0.0:
        raise ValueError("one replica of the plant holds the objective at no rate")
    return rate


def judged_by(objective: SloObjective) -> capacity.Objective:
    """An SLO's objective as trials of one engine take it."""
    return capacity.Objective(
        objective.ttft_seconds, objective.tpot_seconds, objective.e2e_seconds, objective.attainment
    )


def feasible_share(
    plant: Plant, engine: EngineConfig, lengths: Sequence[tuple[int, int]], objective: SloObjective
) -> float:
    """Share of requests that meet an objective when they are alone on a replica; of a long list, evenly chosen ones."""
    wanted, idle = judged_by(objective), _Idle(plant, engine)
    chosen = lengths[:: max(1, len(lengths) // _FEASIBLE_SAMPLE)]
    met = sum(prompt < engine.max_model_len and wanted.met_by(idle.serve(prompt, output)) for prompt, output in chosen)
    return met / len(chosen)


class _Idle:
    """One engine that serves one request after the other."""

    def __init__(self, plant: Plant, engine: EngineConfig) -> None:
        self._engine = Engine(unlimited(engine), StepTimeModel.of(plant), plant.request_overhead_seconds)
        self._clock = 0.0

    def serve(self, prompt: int, output: int) -> EngineSequence:
        """A request that is alone."""
        engine, clock = self._engine, self._clock
        only = engine.submit(EngineRequest("only", max(1, prompt), max(1, output)), clock)
        while not only.finished:
            clock = serve_next(engine, clock)
        self._clock = clock
        return only


@dataclass(frozen=True, slots=True)
class PlantSteps:
    """The step times of a plant as Dynamo profiles them: prompt tokens, decoding sequences, tokens of context."""

    times: StepTimeModel

    def __call__(self, prompt_tokens: int, sequences: int, context_tokens: float) -> float:
        """Seconds of one forward pass."""
        return self.times.step_seconds(prompt_tokens, sequences, context_tokens, prompt_tokens * prompt_tokens / 2.0)


def profile(plant: Plant, engine: EngineConfig, asks: Sequence[Ask]) -> Profile:
    """What the guides of the rivals have an operator measure before the laws run."""
    prompts = [prompt for prompt, _ in lengths_of(asks, engine)]
    return Profile(
        prefill_tokens_per_second=_prefill_tokens_per_second(plant, engine),
        step_seconds=PlantSteps(StepTimeModel.of(plant)),
        uncached_input_tokens=sum(prompts) / len(prompts) if prompts else 1.0,
    )


def _prefill_tokens_per_second(plant: Plant, engine: EngineConfig) -> float:
    """A full chunk over its time to the first token on an idle engine, as llm-d calibrates."""
    tokens = min(engine.max_num_batched_tokens, engine.max_model_len - 1)
    only = _Idle(plant, engine).serve(tokens, 1)
    assert only.first_token_at is not None
    return tokens / only.first_token_at


def lengths_of(asks: Sequence[Ask], engine: EngineConfig) -> list[tuple[int, int]]:
    """(prompt tokens that the prefix cache of one replica does not supply, output tokens) of each request."""
    uncached = _uncached(asks, (engine.kv_blocks - 1) * engine.block_size)
    return [(prompt, ask.output_tokens) for prompt, ask in zip(uncached, asks, strict=True)]


def _uncached(asks: Sequence[Ask], kept_tokens: int) -> list[int]:
    """Prompt tokens that a cache of so many tokens does not supply."""
    kept: OrderedDict[int, int] = OrderedDict()
    held, computed = 0, []
    for ask in asks:
        known = 0
        for each in ask.block_hashes:
            if each not in kept:
                break
            known += 1
        computed.append(max(1, ask.input_tokens - known * ask.hash_tokens))
        for each in ask.block_hashes:
            held += ask.hash_tokens - kept.pop(each, 0)
            kept[each] = ask.hash_tokens
        while held > kept_tokens:
            held -= kept.popitem(last=False)[1]
    return computed
