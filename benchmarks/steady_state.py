"""What the operator writes when nothing changes: constant Poisson load at speed 1, fixed spec, the chart's defaults.

Counted from the API server's audit log. Only Leases are renewed; the status of a Model or SLO may be written once in 5
minutes, the memory of a Model once an hour.

    python benchmarks/steady_state.py [--seconds 600] [--rate 4.5] [--out build/steady_state.json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from goodput_world.cluster import REPOSITORY
from goodput_world.demo.settings import PLANT_FILE
from goodput_world.steady import SELDOM_SECONDS, SteadyLoad, SteadyResult, steady_state
from goodput_world.world import World, WorldConfig

NAMESPACE, MODEL = "steady", "steady"
# Long enough for demand, lengths and the correction to settle, and for one scale-up if the load needs it.
WARM_UP_SECONDS = 300.0
STARTUP_SECONDS = 10.0


def manifests() -> list[dict[str, Any]]:
    """The SLO of the documentation and one Model, that only one GPU type may serve."""
    spec = {"model": "meta-llama/Llama-3.1-8B-Instruct", "servedName": MODEL, "slo": "chat", "gpuTypes": ["l40s"]}
    objective = {"ttft": "500ms", "tpot": "50ms", "attainment": "95%"}
    return [
        {"apiVersion": "goodput.dev/v1alpha1", "kind": "SLO", "metadata": {"name": "chat"}, "spec": objective},
        {"apiVersion": "goodput.dev/v1alpha1", "kind": "Model", "metadata": {"name": MODEL}, "spec": spec},
    ]


async def measure(load: SteadyLoad, folder: Path) -> SteadyResult:
    """One run in a world of its own."""
    plant = json.loads(PLANT_FILE.read_text(encoding="utf-8"))
    async with World(WorldConfig(plant=plant, startup_seconds=STARTUP_SECONDS)) as world:
        await world.create_namespace(NAMESPACE)
        await world.apply(manifests(), namespace=NAMESPACE)
        await world.kubectl(
            *("wait", "--for=condition=Ready", f"models.goodput.dev/{MODEL}", "-n", NAMESPACE, "--timeout=300s"),
            timeout_seconds=310,
        )
        print(f"{load.rate_rps:g} requests/s for {load.warm_up_seconds + load.counted_seconds:.0f} s", flush=True)
        return await steady_state(world, NAMESPACE, MODEL, load, folder)


def table(result: SteadyResult) -> str:
    """Writes by kind, and how many of each object are allowed."""
    minutes = result.counted_seconds / 60
    written = result.by_kind()
    lines = [f"{'written in ' + f'{minutes:g} minutes':34}{'times':>8}  of one object at most"]
    for kind in sorted(written.keys() | SELDOM_SECONDS.keys()):
        allowed = f"once in {SELDOM_SECONDS[kind] / 60:g} minutes" if kind in SELDOM_SECONDS else "never"
        lines.append(f"{kind:34}{written.get(kind, 0):>8}  {allowed}")
    lines.append(f"{result.replay.requests} requests, {result.replay.lost} lost, attainment {result.replay.attainment}")
    return "\n".join(lines)


def main() -> int:
    """Exit code 0 when nothing was written too often."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0, help="counted, after the warm-up")
    parser.add_argument("--warm-up", type=float, default=WARM_UP_SECONDS)
    parser.add_argument("--rate", type=float, default=4.5, help="requests/s")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "build" / "steady_state.json")
    arguments = parser.parse_args()
    load = SteadyLoad(arguments.rate, arguments.warm_up, arguments.seconds)
    result = asyncio.run(measure(load, arguments.out.parent / "steady_state"))
    too_many = result.too_many()
    report = {
        "rate_rps": load.rate_rps,
        "counted_seconds": load.counted_seconds,
        "writes": result.by_kind(),
        "too_many": too_many,
        "requests": result.replay.requests,
        "lost": result.replay.lost,
        "attainment": result.replay.attainment,
        "lateness_p99_seconds": result.replay.lateness_p99_seconds,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(table(result))
    print("\n".join(too_many) or "nothing was written too often")
    return 1 if too_many else 0


if __name__ == "__main__":
    sys.exit(main())
