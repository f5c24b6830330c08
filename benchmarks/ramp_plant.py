"""The plant of the published ramp: fitted to measured points, made as fast as llm-d says, checked on static pools.

1. Shares of bandwidth and arithmetic (MBU, MFU) with which the simulated engine is closest to the TPOT that vLLM 0.12
   was measured at (Qwen3-32B on two H100s, closed loops of 8 to 128 requests).
2. How much faster than that a replica must be to hold 1.4 requests/s, as llm-d's does; it breaks before 1.55.
3. What static pools of the plant that is committed (`goodput.simulator.ramp_plant`) do.

    python benchmarks/ramp_plant.py [--out build/ramp_plant.json]
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from dataclasses import dataclass, replace
from itertools import product
from math import log
from pathlib import Path

from goodput.simulator.engine import Engine
from goodput.simulator.fleet.baselines import Static
from goodput.simulator.fleet.clients import OpenLoop, asks_of
from goodput.simulator.fleet.outcome import Outcome
from goodput.simulator.fleet.simulation import simulate
from goodput.simulator.plant import Plant, StepTimeModel
from goodput.simulator.ramp_plant import (
    FASTER,
    POINTS_MBU,
    POINTS_MFU,
    RAMP_ENGINE,
    RAMP_PLANT,
    RAMP_REPLICA_RPS,
    ramp_fleet,
)
from goodput.simulator.sequences import EngineRequest
from goodput.simulator.traces.generators import PUBLISHED_LENGTHS, published_ramp, steady

REPOSITORY = Path(__file__).parents[1]
POINTS = REPOSITORY / "benchmarks" / "data" / "vllm_points.csv"
MBUS = (0.62, 0.64, 0.66, 0.68, 0.70, 0.72, 0.74)
MFUS = (0.42, 0.44, 0.46, 0.48, 0.50, 0.52, 0.54)
# Requests sent for each one in flight. The benchmark of the points sends more; their mean TPOT is the same.
WAVES = 4
BREAKS_BETWEEN = (1.35, 1.55)
RATES = (1.25, 1.30, 1.35, 1.40, 1.45, 1.50, 1.55)
SECONDS = 600.0
GOOD = 0.95


@dataclass(frozen=True)
class Point:
    """One measured closed loop."""

    input_tokens: int
    output_tokens: int
    concurrency: int
    tpot_seconds: float


def points() -> list[Point]:
    """Those of Qwen3-32B in bf16 on two H100s."""
    with POINTS.open(encoding="utf-8", newline="") as file:
        rows = [
            row
            for row in csv.DictReader(line for line in file if not line.startswith("#"))
            if (row["model_path"], row["system"], row["tp_size"]) == ("Qwen/Qwen3-32B", "h100_sxm", "2")
            and not row["precision"]
        ]
    return [
        Point(int(row["isl"]), int(row["osl"]), int(row["batch_size"]), float(row["tpot_ms"]) / 1e3) for row in rows
    ]


def closed_loop_tpot(plant: Plant, point: Point) -> float:
    """Mean TPOT of the point's loop on simulated engines, seconds."""
    engine = Engine(RAMP_ENGINE, StepTimeModel.of(plant), plant.request_overhead_seconds)
    most = WAVES * point.concurrency
    now, asked = 0.0, 0
    tpots: list[float] = []
    while len(tpots) < most:
        while asked < min(most, len(tpots) + point.concurrency):
            engine.submit(EngineRequest(str(asked), point.input_tokens, point.output_tokens), now)
            asked += 1
        begins = engine.next_start(now)
        assert begins is not None
        result = engine.step(begins)
        assert result is not None
        now = result.ends_at
        for sequence in result.finished:
            assert sequence.first_token_at is not None
            assert sequence.last_token_at is not None
            tpots.append((sequence.last_token_at - sequence.first_token_at) / (sequence.generated - 1))
    return sum(tpots) / most


def errors(plant: Plant, measured: list[Point]) -> list[float]:
    """Simulated over measured TPOT less 1, point by point."""
    return [closed_loop_tpot(plant, point) / point.tpot_seconds - 1.0 for point in measured]


def fitted(measured: list[Point]) -> tuple[float, float]:
    """The MBU and MFU with the least mean |log error|."""

    def off(shares: tuple[float, float]) -> float:
        plant = replace(RAMP_PLANT, mbu=shares[0], mfu=shares[1])
        return sum(abs(log(1.0 + each)) for each in errors(plant, measured))

    return min(product(MBUS, MFUS), key=off)


def static_pool(plant: Plant, rps: float, replicas: int = 1) -> Outcome:
    """A fixed fleet under evenly spaced arrivals."""
    fleet = ramp_fleet(plant=plant, seconds=SECONDS, replicas=replicas, min_replicas=replicas)
    asks = asks_of(steady(rps, SECONDS, PUBLISHED_LENGTHS, seed=1, variation=0.0))
    return simulate(fleet, OpenLoop(asks), Static(replicas))


def breaks_at(plant: Plant) -> float:
    """The lowest rate that one replica does not hold, to 0.01 requests/s."""
    low, high = 100, 250
    while high - low > 1:
        middle = (low + high) // 2
        held = static_pool(plant, middle / 100).attainment >= GOOD
        low, high = (middle, high) if held else (low, middle)
    return high / 100


def sped_up(mbu: float, mfu: float) -> float:
    """The least factor on both shares, in steps of 0.02, with which a replica holds `RAMP_REPLICA_RPS`."""
    for step in range(16):
        factor = 1.0 + 0.02 * step
        if static_pool(replace(RAMP_PLANT, mbu=mbu * factor, mfu=mfu * factor), RAMP_REPLICA_RPS).attainment >= GOOD:
            return factor
    raise ValueError(f"no factor holds {RAMP_REPLICA_RPS} requests/s")


def main() -> int:
    """Exit code 0 when the committed plant is the fitted one and its static pools do what llm-d reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=REPOSITORY / "build" / "ramp_plant.json")
    arguments = parser.parse_args()
    measured = points()
    mbu, mfu = fitted(measured)
    faster = sped_up(mbu, mfu)
    at_points = replace(RAMP_PLANT, mbu=mbu, mfu=mfu)
    off = errors(at_points, measured)
    print(f"points of vLLM 0.12: MBU {mbu:.2f}, MFU {mfu:.2f}; as committed {POINTS_MBU:.2f}, {POINTS_MFU:.2f}")
    print(f"{'input':>6}{'output':>8}{'in flight':>11}{'measured ms':>13}{'error':>8}")
    for point, error in zip(measured, off, strict=True):
        print(
            f"{point.input_tokens:>6}{point.output_tokens:>8}{point.concurrency:>11}{1e3 * point.tpot_seconds:>13.1f}"
            f"{100 * error:>7.1f}%"
        )
    broken, broken_at_points = breaks_at(RAMP_PLANT), breaks_at(at_points)
    mean_error = sum(map(abs, off)) / len(off)
    print(f"mean |error| {100 * mean_error:.1f} %; such a replica breaks at {broken_at_points:.2f}/s")
    print(f"factor to hold {RAMP_REPLICA_RPS:.2f}/s: {faster:.2f}; as committed {FASTER:.2f}")
    pools = [(rate, 1, static_pool(RAMP_PLANT, rate)) for rate in RATES] + [(10.0, 8, static_pool(RAMP_PLANT, 10.0, 8))]
    print(f"{'requests/s':>10}{'replicas':>10}{'good':>8}{'TTFT p95 s':>12}{'TPOT p95 ms':>13}")
    for rate, replicas, found in pools:
        print(
            f"{rate:>10.2f}{replicas:>10}{100 * found.attainment:>7.1f}%{found.ttft.p95:>12.2f}"
            f"{1e3 * found.tpot.p95:>13.1f}"
        )
    whole = simulate(ramp_fleet(replicas=8), OpenLoop(asks_of(published_ramp(seed=1))), Static(8))
    print(f"breaks at {broken:.2f}/s; 8 replicas on the whole ramp: {100 * whole.attainment:.1f} % good")
    report = {
        "fitted": {"mbu": mbu, "mfu": mfu, "faster": faster},
        "points": [{**point.__dict__, "error": error} for point, error in zip(measured, off, strict=True)],
        "breaks_at_rps": {"points": broken_at_points, "committed": broken},
        "static_pools": [
            {"rps": rate, "replicas": replicas, "attainment": found.attainment} for rate, replicas, found in pools
        ],
        "ramp_static_8": whole.attainment,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    reported = BREAKS_BETWEEN[0] < broken <= BREAKS_BETWEEN[1] and pools[0][2].attainment == whole.attainment == 1.0
    return 0 if reported and (mbu, mfu, faster) == (POINTS_MBU, POINTS_MFU, FASTER) else 1


if __name__ == "__main__":
    sys.exit(main())
