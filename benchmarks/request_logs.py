"""Two floods of 300 requests, measured on real vLLM, replayed with the analytic step times: what the model leaves out.

The logs (benchmarks/data) hold when each request was queued, scheduled, and gave its first and last token: ShareGPT
requests at 10.3/s for 29 s on vLLM 0.19, max-num-seqs 128, max_num_batched_tokens 2048, RTX PRO 6000. Arrivals and
lengths are replayed through the simulated scheduler, whose steps take what `perfmodel.roofline` says. No constant was
fitted to these logs. Times count from being queued, all on the engine's own clock.

    python benchmarks/request_logs.py [--out build/request_logs.json]
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from goodput.perfmodel import architecture, built_in_gpu_types, fit
from goodput.perfmodel.roofline import StepTimes, step_times
from goodput.simulator.engine import Engine
from goodput.simulator.sequences import EngineConfig, EngineRequest

REPOSITORY = Path(__file__).parents[1]
DATA = REPOSITORY / "benchmarks" / "data"
GPU = "rtx-pro-6000"
LOGS = (
    ("requests_rtxpro6000_llama-3.1-8b_tp1.jsonl", "meta-llama/Llama-3.1-8B", 1),
    ("requests_rtxpro6000_qwen3-32b_tp2.jsonl", "Qwen/Qwen3-32B", 2),
)
MAX_NUM_SEQS, MAX_NUM_BATCHED_TOKENS = 128, 2048
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


def replayed(requests: list[Request], model: str, tensor_parallel: int) -> list[Request]:
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
    engine = Engine(config, AnalyticSteps(step_times(arch, gpu, tensor_parallel)))  # type: ignore[arg-type]
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
    report = []
    print(f"{'log':24}{'quantity':12}{'':5}{'measured s':>11}{'model s':>10}{'error':>9}{'limit':>7}")
    for name, model, tensor_parallel in LOGS:
        measured = logged(name)
        truth, believed = figures(measured), figures(replayed(measured, model, tensor_parallel))
        for key, limit in LIMITS.items():
            error = believed[key] / truth[key] - 1.0
            beyond = "  beyond" if abs(error) > limit else ""
            print(
                f"{model.split('/')[1] + ' TP' + str(tensor_parallel):24}{key[0]:12}{key[1]:5}{truth[key]:>11.4g}"
                f"{believed[key]:>10.4g}{100 * error:>8.1f}%{100 * limit:>6.0f}%{beyond}"
            )
            report.append(
                {
                    "model": model,
                    "quantity": " ".join(key).strip(),
                    "measured_seconds": truth[key],
                    "model_seconds": believed[key],
                    "error": error,
                    "limit": limit,
                }
            )
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 1 if any(abs(row["error"]) > row["limit"] for row in report) else 0


if __name__ == "__main__":
    sys.exit(main())
