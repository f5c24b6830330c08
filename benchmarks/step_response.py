"""From a step in load to the patched Deployment, on the embedded world with the chart's defaults.

Ten Models, each with a replica of its own, get a constant Poisson load; then the load of each jumps, one after the
other at instants spread over the scrape interval and the tick. The response is the time from the first request at the
new rate to the change of the Deployment's replicas. It should be at most two scrape intervals and one tick.

    python benchmarks/step_response.py [--steps 10] [--at-once 5] [--out build/step_response.json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from goodput_world.cluster import REPOSITORY
from goodput_world.demo.fleet import FleetReader
from goodput_world.demo.settings import PLANT_FILE
from goodput_world.replay import Objectives, Request
from goodput_world.replay.client import Target
from goodput_world.replay.poisson import poisson
from goodput_world.replay.replayer import Replay, ReplayPlan
from goodput_world.world import World, WorldConfig

SCRAPE_SECONDS = 15.0
TICK_SECONDS = 10.0
LIMIT_SECONDS = 2 * SCRAPE_SECONDS + TICK_SECONDS
# Short answers keep the number of streamed chunks low, so that many Models fit on a small machine.
INPUT_TOKENS, OUTPUT_TOKENS = 1000, 32
LOW_RPS, HIGH_RPS = 1.0, 8.0
SETTLE_SECONDS = 120.0
AFTER_SECONDS = 90.0
SLO = Objectives(ttft_seconds=0.5, tpot_seconds=0.05)
NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `response_seconds` is None when the replicas did not change within `AFTER_SECONDS`."""

    model: str
    response_seconds: float | None
    before: int | None
    after: int | None
    lateness_p99_seconds: float | None


def load(step_seconds: float, seed: int) -> list[Request]:
    """Low until the step, high after it; the first request of the high load comes at the step itself."""
    rng = random.Random(seed)
    end_seconds = step_seconds + AFTER_SECONDS
    instants = [
        *poisson(LOW_RPS, 0.0, step_seconds, rng),
        step_seconds,
        *poisson(HIGH_RPS, step_seconds, end_seconds, rng),
    ]
    return [Request(at, INPUT_TOKENS, OUTPUT_TOKENS, f"{seed}-{index}") for index, at in enumerate(instants)]


def manifests(name: str) -> list[dict[str, Any]]:
    """A Model that only one GPU type may serve; the SLO is shared."""
    spec = {"model": "meta-llama/Llama-3.1-8B-Instruct", "servedName": name, "slo": "step", "gpuTypes": ["l40s"]}
    return [
        {
            "apiVersion": "goodput.dev/v1alpha1",
            "kind": "SLO",
            "metadata": {"name": "step"},
            "spec": {"ttft": "500ms", "tpot": "50ms", "attainment": "95%"},
        },
        {"apiVersion": "goodput.dev/v1alpha1", "kind": "Model", "metadata": {"name": name}, "spec": spec},
    ]


async def one_step(world: World, number: int, step_seconds: float, folder: Path) -> Step:
    """Apply a Model, load it, step the load, and wait for its Deployment to change; delete it again."""
    name = f"step-{number}"
    await world.apply(manifests(name), namespace=NAMESPACE)
    await world.kubectl(
        *("wait", "--for=condition=Ready", f"models.goodput.dev/{name}", "-n", NAMESPACE, "--timeout=300s"),
        timeout_seconds=310,
    )
    reader = FleetReader(world.api, NAMESPACE, name)
    watching = asyncio.create_task(reader.run(period_seconds=0.5))
    requests = load(step_seconds, number)
    plan = ReplayPlan(requests, step_seconds + AFTER_SECONDS, number, SLO, grace_seconds=10.0)
    replay = Replay(plan, Target(await world.service_url(NAMESPACE, name), name), folder / name)
    try:
        summary = await replay.run()
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await world.kubectl("delete", f"models.goodput.dev/{name}", "-n", NAMESPACE)
    stepped_epoch = replay.started_epoch + step_seconds
    grown = [each for each in reader.ledger.resizes if each.at_epoch >= stepped_epoch and each.after > each.before]
    first = grown[0] if grown else None
    return Step(
        model=name,
        response_seconds=None if first is None else first.at_epoch - stepped_epoch,
        before=None if first is None else first.before,
        after=None if first is None else first.after,
        lateness_p99_seconds=summary.lateness_p99_seconds,
    )


async def measure(steps: int, at_once: int, folder: Path) -> list[Step]:
    """All steps, `at_once` at a time; their instants are spread evenly over a scrape interval and a tick."""
    config = WorldConfig(plant=json.loads(PLANT_FILE.read_text(encoding="utf-8")), startup_seconds=5.0)
    gate = asyncio.Semaphore(at_once)
    async with World(config) as world:

        async def gated(number: int) -> Step:
            async with gate:
                spread_seconds = number / steps * (SCRAPE_SECONDS + TICK_SECONDS)
                step = await one_step(world, number, SETTLE_SECONDS + spread_seconds, folder)
                print(step, flush=True)
                return step

        return list(await asyncio.gather(*(gated(number) for number in range(steps))))


def main() -> int:
    """Exit code 0 when every step was answered within the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--at-once", type=int, default=5)
    parser.add_argument("--out", type=Path, default=REPOSITORY / "build" / "step_response.json")
    arguments = parser.parse_args()
    folder = arguments.out.parent / "step_response"
    started = time.monotonic()
    steps = asyncio.run(measure(arguments.steps, arguments.at_once, folder))
    answered = [step.response_seconds for step in steps if step.response_seconds is not None]
    median = statistics.median(answered) if answered else None
    worst = max(answered) if answered and len(answered) == len(steps) else None
    result = {
        "steps": [asdict(step) for step in steps],
        "median_seconds": median,
        "worst_seconds": worst,
        "limit_seconds": LIMIT_SECONDS,
        "took_seconds": time.monotonic() - started,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(f"median {median} s, worst {worst} s of {len(steps)} steps; limit {LIMIT_SECONDS:g} s")
    return 0 if worst is not None and worst <= LIMIT_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
