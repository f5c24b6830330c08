"""The rate at which one replica holds an SLO, found by simulating it.

`python -m goodput.simulator.capacity --plant FILE --ttft 0.5 --tpot 0.05 --attainment 0.95 --lengths TRACE.csv`
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from goodput.simulator.engine import Engine
from goodput.simulator.plant import Plant, StepTimeModel
from goodput.simulator.sequences import AdmissionRejectedError, EngineConfig, EngineRequest
from goodput.simulator.sequences import Sequence as EngineSequence

Lengths = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Objective:
    """What a good request is: each limit in seconds is optional, at least one is set; `attainment` is a share 0..1.

    `tpot_seconds` bounds a request's mean time per output token after the first, `e2e_seconds` its whole time.
    """

    ttft_seconds: float | None = None
    tpot_seconds: float | None = None
    e2e_seconds: float | None = None
    attainment: float = 0.95

    def __post_init__(self) -> None:
        """Raise `ValueError` for an objective that says nothing or asks for the impossible."""
        limits = (self.ttft_seconds, self.tpot_seconds, self.e2e_seconds)
        if all(limit is None for limit in limits):
            raise ValueError("objective: set at least one of ttft, tpot, e2e")
        if any(limit is not None and limit <= 0 for limit in limits):
            raise ValueError("objective: limits must be greater than 0 seconds")
        if not 0 < self.attainment <= 1:
            raise ValueError(f"objective: attainment {self.attainment} must be within 0..1")

    def met_by(self, sequence: EngineSequence) -> bool:
        """Whether a finished request met every limit."""
        first, last = sequence.first_token_at, sequence.last_token_at
        if first is None or last is None or not sequence.finished:
            return False
        if self.ttft_seconds is not None and first - sequence.arrived_at > self.ttft_seconds:
            return False
        if self.e2e_seconds is not None and last - sequence.arrived_at > self.e2e_seconds:
            return False
        if self.tpot_seconds is None or sequence.generated < 2:
            return True
        return (last - first) / (sequence.generated - 1) <= self.tpot_seconds


@dataclass(frozen=True, slots=True)
class Trial:
    """One simulated run: shares over the requests that arrived after the warm-up, a tenth of the run."""

    rate_per_second: float
    requests: int
    attainment: float
    goodput_per_second: float
    ttft_p95_seconds: float
    tpot_p95_seconds: float


def poisson(rate_per_second: float, draw: random.Random, one_in: int = 1) -> Iterator[float]:
    """Arrival times from 0 on of a Poisson process, or of each `one_in`-th of a faster one: that of one of so many."""
    now = 0.0
    while True:
        for _ in range(one_in):
            now += draw.expovariate(rate_per_second * one_in)
        yield now


def _quantile(values: list[float], share: float) -> float:
    """The smallest value that at least `share` of `values` do not exceed; NaN of none."""
    if not values:
        return float("nan")
    values.sort()
    return values[min(len(values) - 1, max(0, -int(-share * len(values) // 1) - 1))]


def trial(
    plant: Plant,
    config: EngineConfig,
    lengths: Lengths,
    objective: Objective,
    *,
    rate_per_second: float,
    seed: int,
    seconds: float = 600.0,
    warmup_share: float = 0.1,
    misses_allowed: float = float("inf"),
    replicas: int = 1,
) -> Trial:
    """Offer Poisson arrivals with lengths drawn from `lengths` to one of `replicas` in turn, and judge its requests.

    Rejected requests are misses; requests still unfinished `seconds` after the last arrival are too. Beyond
    `misses_allowed` the run stops: its attainment is then over the requests seen so far, all unfinished ones missed.
    """
    draw = random.Random(seed)
    warmup_seconds = warmup_share * seconds
    engine = Engine(config, StepTimeModel.of(plant), plant.request_overhead_seconds)
    arrivals = poisson(rate_per_second, draw, replicas)
    following = next(arrivals)
    now = 0.0
    serial = offered = met = missed = 0
    ttfts: list[float] = []
    tpots: list[float] = []
    while now < 2 * seconds and missed <= misses_allowed:
        while following <= now and following < seconds:
            prompt, output = lengths[draw.randrange(len(lengths))]
            serial += 1
            offered += following >= warmup_seconds
            try:
                engine.submit(EngineRequest(str(serial), max(1, prompt), max(1, output)), following)
            except AdmissionRejectedError:
                missed += following >= warmup_seconds
            following = next(arrivals)
        start = engine.next_start(now)
        if start is None or (start > following and following < seconds):
            if following >= seconds:
                break
            now = following
            continue
        result = engine.step(start)
        now = start if result is None else result.ends_at
        for sequence in () if result is None else result.finished:
            first, last = sequence.first_token_at, sequence.last_token_at
            if sequence.arrived_at >= warmup_seconds and first is not None and last is not None:
                good = objective.met_by(sequence)
                met += good
                missed += not good
                ttfts.append(first - sequence.arrived_at)
                if sequence.generated > 1:
                    tpots.append((last - first) / (sequence.generated - 1))
    share = met / offered if offered else float("nan")
    return Trial(
        rate_per_second=rate_per_second,
        requests=offered,
        attainment=share,
        goodput_per_second=met / (seconds - warmup_seconds),
        ttft_p95_seconds=_quantile(ttfts, 0.95),
        tpot_p95_seconds=_quantile(tpots, 0.95),
    )


def max_rate(
    plant: Plant,
    config: EngineConfig,
    lengths: Lengths,
    objective: Objective,
    *,
    seed: int = 0,
    seconds: float = 600.0,
    tolerance: float = 0.02,
) -> float:
    """Requests per second up to which one replica holds `objective`, to a relative `tolerance`; 0 if none does.

    Bisection over simulated runs of `seconds` each with common random numbers.
    """

    def holds(rate: float, run_seconds: float = seconds) -> bool:
        # Once more requests missed than a run of this length may lose, the rest of it cannot change the answer.
        allowed = 1.3 * (1 - objective.attainment) * rate * run_seconds + 10
        run = trial(
            plant,
            config,
            lengths,
            objective,
            rate_per_second=rate,
            seed=seed,
            seconds=run_seconds,
            misses_allowed=allowed,
        )
        return run.attainment >= objective.attainment

    low, high = 0.0, 1.0
    while holds(high):
        low, high = high, high * 2
        if high > 4096:
            return low
    if low == 0.0:
        # Slow rates run longer: a share of few requests says nothing.
        low = 0.02
        if not holds(low, 20 * seconds):
            return 0.0
    while high - low > tolerance * high:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle, seconds * max(1.0, 0.5 / middle)) else (low, middle)
    return low


_COLUMNS = (("ContextTokens", "GeneratedTokens"), ("input_tokens", "output_tokens"))


def _opened(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def read_lengths(path: Path) -> list[tuple[int, int]]:
    """Prompt and output tokens of each row of a CSV (perhaps `.gz`).

    Columns are ContextTokens and GeneratedTokens, or input_tokens and output_tokens; raises `ValueError` without them.
    """
    with _opened(path) as file:
        rows = csv.DictReader(file)
        for prompt, output in _COLUMNS:
            if {prompt, output} <= set(rows.fieldnames or ()):
                return [(int(row[prompt]), int(row[output])) for row in rows]
    raise ValueError(f"{path}: no columns {' or '.join(' and '.join(pair) for pair in _COLUMNS)}")


def engine_config(plant: Plant, max_num_batched_tokens: int = 2048, max_num_seqs: int = 256) -> EngineConfig:
    """An engine on the plant's own KV pool with vLLM's block size."""
    blocks = plant.kv_pool_tokens // 16
    longest = min(plant.max_model_len or 131072, (blocks - 1) * 16)
    return EngineConfig(
        kv_blocks=blocks,
        max_model_len=longest,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the rate and the runs beside it as JSON."""
    parser = argparse.ArgumentParser(description="The rate at which one replica of a plant holds an SLO.")
    parser.add_argument("--plant", type=Path, required=True, help="JSON file of the plant")
    parser.add_argument("--lengths", type=Path, help="CSV of a trace, perhaps .gz")
    parser.add_argument("--input", type=int, default=1155, help="prompt tokens, without --lengths")
    parser.add_argument("--output", type=int, default=211, help="output tokens, without --lengths")
    parser.add_argument("--ttft", type=float, help="seconds")
    parser.add_argument("--tpot", type=float, help="seconds")
    parser.add_argument("--e2e", type=float, help="seconds")
    parser.add_argument("--attainment", type=float, default=0.95, help="share 0..1")
    parser.add_argument("--max-num-batched-tokens", type=int, default=2048)
    parser.add_argument("--max-num-seqs", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=600.0, help="simulated seconds per run")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    plant = Plant.from_mapping(json.loads(options.plant.read_text(encoding="utf-8")))
    lengths = read_lengths(options.lengths) if options.lengths else [(options.input, options.output)]
    objective = Objective(options.ttft, options.tpot, options.e2e, options.attainment)
    config = engine_config(plant, options.max_num_batched_tokens, options.max_num_seqs)
    rate = max_rate(plant, config, lengths, objective, seed=options.seed, seconds=options.seconds)
    runs = [
        trial(
            plant,
            config,
            lengths,
            objective,
            rate_per_second=rate * factor,
            seed=options.seed,
            seconds=options.seconds,
        )
        for factor in (0.8, 1.0, 1.1)
        if rate > 0
    ]
    report = {
        "max_rate_per_second": round(rate, 3),
        "runs": [
            {
                "rate_per_second": round(run.rate_per_second, 3),
                "requests": run.requests,
                "attainment": round(run.attainment, 4),
                "goodput_per_second": round(run.goodput_per_second, 3),
                "ttft_p95_seconds": round(run.ttft_p95_seconds, 4),
                "tpot_p95_seconds": round(run.tpot_p95_seconds, 4),
            }
            for run in runs
        ],
    }
    print(json.dumps(report, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
