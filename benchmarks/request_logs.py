"""Two floods of 300 requests, measured on real vLLM, replayed: how far the model is off, and how far the engine is.

The logs (benchmarks/data) hold when each request was queued, scheduled, and gave its first and last token: ShareGPT
requests at 10.3/s for 29 s on vLLM 0.19, max-num-seqs 128, max_num_batched_tokens 2048, RTX PRO 6000. Arrivals and
lengths are replayed through the simulated scheduler, whose steps take what `perfmodel.roofline` says (`model`) and what
a plant takes (`engine`), as in simulated fleets and in the embedded world. Of the constants only the plants' shares of
bandwidth and arithmetic were chosen by a log, the first. Times count from being queued, all on the engine's own clock.

    python benchmarks/request_logs.py [--out build/request_logs.json]
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from goodput.perfmodel import architecture, built_in_gpu_types, fit
from goodput.perfmodel.roofline import StepTimes, step_times
from goodput.simulator.capacity import engine_config
from goodput.simulator.derive import L40S, LLAMA_3_1_8B, QWEN3_32B, GpuFigures, derive
from goodput.simulator.engine import Engine
from goodput.simulator.plant import Plant, StepTimeModel
from goodput.simulator.ramp_plant import ATTENTION_FLOPS_PER_TOKEN_PAIR
from goodput.simulator.sequences import EngineConfig, EngineRequest

REPOSITORY = Path(__file__).parents[1]
DATA = REPOSITORY / "benchmarks" / "data"
GPU = "rtx-pro-6000"
LOGS = (
    ("requests_rtxpro6000_llama-3.1-8b_tp1.jsonl", "meta-llama/Llama-3.1-8B", 1),
    ("requests_rtxpro6000_qwen3-32b_tp2.jsonl", "Qwen/Qwen3-32B", 2),
)
MAX_NUM_SEQS, MAX_NUM_BATCHED_TOKENS = 128, 2048
# The card of the logs with the efficiencies of its class.
RTX_PRO_6000 = GpuFigures(GPU, 97249 * 2**20, 1597e9, 504e12, L40S.mbu, L40S.mfu)
# All-reduces over PCIe 5.0: what small messages take, and the share of 63 GB/s that large ones reach (decision 14).
_ALL_REDUCE_SECONDS, _LINK_BYTES_PER_SECOND = 24e-6, 0.4 * 63e9
# Relative errors that are aimed at, by quantity and percentile.
LIMITS = {
    ("TTFT", "p50"): 0.25,
    ("TTFT", "p95"): 0.15,
    ("TPOT", "p50"): 0.15,
    ("TPOT", "p95"): 0.15,
    ("end to end", "p50"): 0.15,
    ("end to end", "p95"): 0.15,
    ("makespan", ""): 0.15,
}


@dataclass(frozen=True)
class Request:
    """One request; times in seconds since the first was queued. `first` and `last` are of its tokens."""

    input_tokens: int
    output_tokens: int
    queued: float
    first: float
    last: float


@dataclass(frozen=True)
class AnalyticSteps:
    """The step times of the performance model, as the simulated engine asks for them."""

    times: StepTimes

    def step_seconds(
        self, prefill_tokens: int, decode_seqs: int, kv_tokens_read: float, attention_pairs: float = 0.0
    ) -> float:
        """Seconds of a step of `decode_seqs` sequences that takes in `prefill_tokens`."""
        context = kv_tokens_read / max(1, decode_seqs)
        if not prefill_tokens:
            return self.times.decode(decode_seqs, context)
        attention = attention_pairs * self.times.token_context_attention
        return self.times.mixed(decode_seqs, context, prefill_tokens, attention)

    def flops(self, tokens: int, attention_pairs: float = 0.0) -> float:
        """Not asked for here."""
        return 0.0


def logged(name: str) -> list[Request]:
    """The requests of a log in the order in which they were queued."""
    rows = [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]
    rows.sort(key=lambda row: row["queued_ts"])
    start = rows[0]["queued_ts"]
    return [
        Request(
            row["input_toks"],
            row["output_toks"],
            row["queued_ts"] - start,
            row["first_token_ts"] - start,
            row["last_token_ts"] - start,
        )
        for row in rows
    ]


def llama_plant() -> Plant:
    """Llama-3.1-8B on one card."""
    return derive(LLAMA_3_1_8B, RTX_PRO_6000)


def qwen_plant() -> Plant:
    """Qwen3-32B on two cards without NVLink: two all-reduces a layer wait for PCIe, for each step and each token."""
    model = QWEN3_32B
    reduces = 2 * model.layers
    token_seconds = reduces * 2 * model.hidden_size / _LINK_BYTES_PER_SECOND
    alone = derive(model, RTX_PRO_6000, gpus=2)
    arithmetic_seconds = model.flops_per_token / (alone.peak_flops_per_second * RTX_PRO_6000.mfu)
    slowed = arithmetic_seconds / (arithmetic_seconds + token_seconds)
    return replace(
        alone,
        mbu=RTX_PRO_6000.mbu,
        mfu=RTX_PRO_6000.mfu * slowed,
        attention_flops_per_token_pair=ATTENTION_FLOPS_PER_TOKEN_PAIR * slowed,
        # Twice the layers of what the default is for.
        step_overhead_seconds=2.0 * alone.step_overhead_seconds + reduces * _ALL_REDUCE_SECONDS,
        per_sequence_overhead_seconds=alone.per_sequence_overhead_seconds + token_seconds,
    )


PLANTS = {"meta-llama/Llama-3.1-8B": llama_plant, "Qwen/Qwen3-32B": qwen_plant}


def replayed_by_model(requests: list[Request], model: str, tensor_parallel: int) -> list[Request]:
    """The same arrivals and lengths with analytic step times."""
    arch = architecture(model)
    gpu = next(each for each in built_in_gpu_types() if each.name == GPU)
    assert arch is not None
    pool = fit(arch, gpu, tensor_parallel, max_num_seqs=MAX_NUM_SEQS, max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS)
    config = EngineConfig(
        kv_blocks=pool.tokens // 16,
        max_model_len=min(pool.max_model_len, pool.tokens - 16),
        max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS,
        max_num_seqs=MAX_NUM_SEQS,
    )
    times = AnalyticSteps(step_times(arch, gpu, tensor_parallel))
    return replayed(requests, Engine(config, times))  # type: ignore[arg-type]


def replayed_by_engine(requests: list[Request], model: str) -> list[Request]:
    """The same on the plant of the model."""
    plant = PLANTS[model]()
    config = engine_config(plant, MAX_NUM_BATCHED_TOKENS, MAX_NUM_SEQS)
    return replayed(requests, Engine(config, StepTimeModel.of(plant)))


def replayed(requests: list[Request], engine: Engine) -> list[Request]:
    """Arrivals and lengths of `requests`, with the times of an engine."""
    found: list[Request] = []
    now, following = 0.0, 0
    while len(found) < len(requests):
        while following < len(requests) and requests[following].queued <= now:
            request = requests[following]
            engine.submit(
                EngineRequest(str(following), request.input_tokens, request.output_tokens), request.queued, request
            )
            following += 1
        result = engine.step(now) if engine.next_start(now) is not None else None
        if result is None:
            now = requests[following].queued
            continue
        now = result.ends_at
        for sequence in result.finished:
            first, last = sequence.first_token_at, sequence.last_token_at
            assert first is not None
            assert last is not None
            asked: Request = sequence.owner
            found.append(Request(asked.input_tokens, asked.output_tokens, asked.queued, first, last))
    return found


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least `share` of `values` do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def figures(requests: list[Request]) -> dict[tuple[str, str], float]:
    """Seconds by (quantity, percentile)."""
    series = {
        "TTFT": [each.first - each.queued for each in requests],
        "TPOT": [(each.last - each.first) / (each.output_tokens - 1) for each in requests if each.output_tokens > 1],
        "end to end": [each.last - each.queued for each in requests],
    }
    found = {
        (name, label): percentile(values, share)
        for name, values in series.items()
        for label, share in (("p50", 0.50), ("p95", 0.95))
    }
    found["makespan", ""] = max(each.last for each in requests)
    return found


def main() -> int:
    """Exit code 0 when every figure is within its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=REPOSITORY / "build" / "request_logs.json")
    arguments = parser.parse_args()
    report: list[dict[str, Any]] = []
    print(f"{'log':24}{'by':8}{'quantity':12}{'':5}{'measured s':>11}{'replayed s':>11}{'error':>9}{'limit':>7}")
    for name, model, tensor_parallel in LOGS:
        measured = logged(name)
        truth = figures(measured)
        replays = {
            "model": figures(replayed_by_model(measured, model, tensor_parallel)),
            "engine": figures(replayed_by_engine(measured, model)),
        }
        for (by, found), (key, limit) in product(replays.items(), LIMITS.items()):
            error = found[key] / truth[key] - 1.0
            beyond = "  beyond" if abs(error) > limit else ""
            print(
                f"{model.split('/')[1] + ' TP' + str(tensor_parallel):24}{by:8}{key[0]:12}{key[1]:5}{truth[key]:>11.4g}"
                f"{found[key]:>11.4g}{100 * error:>8.1f}%{100 * limit:>6.0f}%{beyond}"
            )
            report.append(
                {
                    "model": model,
                    "by": by,
                    "quantity": " ".join(key).strip(),
                    "measured_seconds": truth[key],
                    "replayed_seconds": found[key],
                    "error": error,
                    "limit": limit,
                }
            )
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 1 if any(abs(row["error"]) > row["limit"] for row in report) else 0


if __name__ == "__main__":
    sys.exit(main())
