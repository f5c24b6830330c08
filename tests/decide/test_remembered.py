"""What one pass works out for each Model is remembered for the next one, for as many Models as there may be."""

from __future__ import annotations

import sys
from typing import Any

from msgspec.structs import replace
from tests.decide.builders import GPUS, START, counters, gpu, intent, pod, pool, telemetry, view
from tests.decide.test_replicas import steady

from goodput.decide import Policy, decide
from goodput.decide.engine import replica_of
from goodput.domain.identity import Key
from goodput.domain.intent import Workload
from goodput.domain.observed import GpuSupply, ModelView, Snapshot
from goodput.domain.plan import Plan
from goodput.domain.remembered import FLEET_MODELS
from goodput.domain.speculation import DraftMethod, Speculation

MODELS, PODS = 24, 3
LLAMA = intent().architecture
assert LLAMA is not None


def unlike(number: int, now: float) -> ModelView:
    """A Model on three L40S of which nothing is like any other: checkpoint, lengths, load, speed."""
    prompt, output, rps = 300.0 + 170.0 * number, 40.0 + 11.0 * number, 1.0 + 0.07 * number
    found = intent(
        key=Key("default", f"m-{number:03d}"),
        architecture=replace(LLAMA, name=f"own-{number}"),
        quality=(("spec.model", f"own-{number}"),),
        workload=Workload(input_tokens=prompt),
        speculation=Speculation(method=DraftMethod.NGRAM) if number % 2 else None,
    )
    placed = replica_of(found, gpu("l40s"), 1, 1, policy=Policy())
    each = 30_000.0 + rps * (now - START)
    late = 0.9 + 0.001 * number
    pods = [
        counters(f"p{index}", now, running=9.0, first_tokens=each, ttft_within=late * each, finished=each)
        for index in range(PODS)
    ]
    metrics = telemetry(
        *pods,
        requests=PODS * each,
        prompt_tokens=PODS * each * prompt,
        cached_prompt_tokens=0.0,
        generation_tokens=PODS * each * output,
        itl_sum_seconds=PODS * each * output * 0.03,
        itl_count=PODS * each * output,
        prefill_sum_seconds=PODS * each * 0.4,
        prefill_count=PODS * each,
    )
    there = pool(*(pod(f"p{index}") for index in range(PODS)), placement=placed)
    return replace(view(there, metrics), intent=found)


def caches() -> dict[str, Any]:
    """Every cache of the functions of Goodput, by name."""
    found = {}
    for name, module in sorted(sys.modules.items()):
        if name.startswith("goodput."):
            for each in vars(module).values():
                if hasattr(each, "cache_parameters"):
                    found[f"{each.__module__}.{each.__qualname__}"] = each
    return found


def test_a_pass_over_a_whole_fleet_forgets_nothing_that_the_next_one_asks_for() -> None:
    """Asked once more, all is known; and were all Models of a fleet so, each cache would hold what they ask for."""
    memories = {
        unlike(number, START).intent.key: replace(
            steady(1.0 + 0.07 * number, PODS, now=START - 15.0),
            born_at=START - 36_000.0,
            correction=1.0 + 0.01 * number,
            prefill_correction=1.0 + 0.01 * number,
        )
        for number in range(MODELS)
    }

    def look(now: float) -> Plan:
        models = tuple(unlike(number, now) for number in range(MODELS))
        supply = (GpuSupply(type="l40s", nodes=100, installed=1000, used=0),)
        return decide(Snapshot(models=models, gpu_types=GPUS, supply=supply), memories, Policy(), now)

    memories = {plan.key: plan.memory for plan in look(START).models}
    look(START + 15.0)
    before = {name: each.cache_info() for name, each in caches().items()}
    look(START + 15.0)
    asked = {}
    for name, each in caches().items():
        now, then = each.cache_info(), before[name]
        assert now.misses == then.misses, name
        if now.maxsize is not None and now.hits > then.hits:
            asked[name] = (now.hits - then.hits) / MODELS
    assert {"goodput.perfmodel.capacity._capacity", "goodput.perfmodel.observed._prompt"} <= asked.keys()
    sizes = {name: each.cache_parameters()["maxsize"] for name, each in caches().items()}
    assert [name for name, results in asked.items() if sizes[name] < results * FLEET_MODELS] == []
