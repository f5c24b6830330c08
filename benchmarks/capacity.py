"""The latency model against the simulated engine: percentiles at a load, and what holds at the rate called capacity.

Each case draws the efficiencies of a plant (seeded). In the "perfect knowledge" variant printed here the model is told
the plant's own step times, so that what is judged is the queueing, not the priors: an engine that schedules step by
step against formulas. At the rate that the model calls capacity the engine should meet the objective for the share
that was asked for; `engine max` is the rate up to which it does (by bisection).

    python benchmarks/capacity.py [--seconds 300] [--case NAME] [--out build/capacity.json]
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from goodput.domain.intent import Objective
from goodput.perfmodel.capacity import capacity_of
from goodput.perfmodel.lengths import Lengths, percentile
from goodput.perfmodel.replica import Replica, context_tokens, replica_of
from goodput.simulator import capacity as judge
from goodput.simulator.derive import H100_SXM, L40S, LLAMA_3_1_8B, QWEN3_32B, GpuFigures, ModelArchitecture, derive
from goodput.simulator.plant import Plant, StepTimeModel

REPOSITORY = Path(__file__).parents[1]
SAMPLES = 2000
_REQUESTS = 4000.0
# The engine's default max-num-batched-tokens on large GPUs.
BIG = 8192
_8B = LLAMA_3_1_8B


@dataclass(frozen=True)
class Case:
    """A model on GPUs, lengths and an objective; the attainment asked for is 95 %."""

    name: str
    model: ModelArchitecture
    gpu: GpuFigures
    lengths: Lengths
    ttft_seconds: float | None = None
    tpot_seconds: float | None = None
    e2e_seconds: float | None = None
    gpus: int = 1
    batched_tokens: int = 2048
    max_num_seqs: int = 256
    seed: int = 1

    @property
    def objective(self) -> Objective:
        """For the model."""
        return Objective(ttft_seconds=self.ttft_seconds, tpot_seconds=self.tpot_seconds, e2e_seconds=self.e2e_seconds)

    @property
    def judged(self) -> judge.Objective:
        """For the engine."""
        return judge.Objective(self.ttft_seconds, self.tpot_seconds, self.e2e_seconds)


CHAT = Lengths(1155, 211)
CASES = (
    Case("chat, TPOT binds", _8B, L40S, CHAT, 0.5, 0.05, seed=1),
    Case("chat, TTFT binds", _8B, L40S, CHAT, 0.4, 0.2, seed=2),
    Case("chat, loose", _8B, L40S, CHAT, 2.0, 0.1, seed=3),
    Case("chat on H100, 8k steps", _8B, H100_SXM, CHAT, 0.5, 0.03, batched_tokens=BIG, seed=4),
    Case("long answers", _8B, L40S, Lengths(300, 800), 1.0, 0.04, seed=5),
    Case("end to end", _8B, L40S, Lengths(300, 300, 0.5, 0.5), e2e_seconds=15.0, seed=6),
    Case("search, short answers", _8B, L40S, Lengths(400, 12), 0.3, None, seed=7),
    Case(
        "code, short answers",
        LLAMA_3_1_8B,
        H100_SXM,
        Lengths(2048, 28, 0.9, 1.2),
        0.5,
        0.06,
        batched_tokens=BIG,
        seed=8,
    ),
    Case("documents, long inputs", _8B, L40S, Lengths(8000, 200, 0.6, 0.5), 5.0, 0.2, seed=9),
    Case(
        "documents on H100",
        LLAMA_3_1_8B,
        H100_SXM,
        Lengths(12000, 340, 1.0, 0.8),
        4.0,
        0.1,
        batched_tokens=BIG,
        seed=10,
    ),
    Case("one token", _8B, L40S, Lengths(1000, 1, 0.5, 0.1), 0.5, None, seed=11),
    Case("KV binds (32B TP2)", QWEN3_32B, H100_SXM, Lengths(4000, 1000, 0.1, 0.1), 3.0, 0.1, gpus=2, seed=12),
    Case("KV binds, lengths vary", QWEN3_32B, H100_SXM, Lengths(2000, 600), 3.0, 0.1, gpus=2, seed=13),
    Case("sequences bind", _8B, L40S, CHAT, 1.0, 0.1, max_num_seqs=16, seed=14),
    Case("equal lengths", _8B, L40S, Lengths(1000, 200, 0.1, 0.1), 0.5, 0.05, seed=15),
    Case("tight TTFT", _8B, L40S, Lengths(500, 150), 0.2, 0.1, seed=16),
)


@dataclass(frozen=True)
class PlantTimes:
    """The true step times of a plant, as the latency model asks for them."""

    steps: StepTimeModel
    request: float
    tokens_per_step: float = 1.0
    token_communication: float = 0.0
    prompt_step: float = 0.0
    request_token: float = 0.0

    def step(self, batch: float, context_tokens: float) -> float:
        """A step that only decodes."""
        reads = batch * context_tokens * self.steps.kv_bytes_per_token * self.steps.seconds_per_byte
        arithmetic = batch * self._token_seconds
        overhead = self.steps.step_overhead_seconds + batch * self.steps.per_sequence_overhead_seconds
        return max(self._weight_seconds + reads, arithmetic) + overhead

    def products(self, batch: float, prompt_tokens: float = 0.0) -> float:
        """Weights are read once, or arithmetic takes longer; KV reads hide it too (`hiding_seconds`)."""
        return max(self._weight_seconds, (batch + prompt_tokens) * self._token_seconds)

    def prompt_attention(self, tokens: float) -> float:
        """The quadratic part."""
        return 0.5 * tokens * tokens * self.steps.attention_flops_per_token_pair * self.steps.seconds_per_flop

    def prefill(self, tokens: float, chunk_tokens: int) -> tuple[float, float]:
        """Steps that only take in a prompt, and what they add to steps that decode."""
        chunks = max(1, -(-int(tokens) // chunk_tokens))
        arithmetic = (tokens * self._token_seconds + self.prompt_attention(tokens)) / chunks
        longer = max(arithmetic, self._weight_seconds)
        overhead = self.steps.step_overhead_seconds
        return chunks * (longer + overhead), chunks * (longer - self._weight_seconds)

    @property
    def _weight_seconds(self) -> float:
        return self.steps.weights_bytes * self.steps.seconds_per_byte

    @property
    def _token_seconds(self) -> float:
        return self.steps.flops_per_token * self.steps.seconds_per_flop


def plant_of(case: Case) -> Plant:
    """Efficiencies drawn within 20 % of the measured ones."""
    return derive(case.model, case.gpu, gpus=case.gpus, seed=case.seed)


def knowing(case: Case, plant: Plant) -> Replica:
    """The latency model, told the truth about the plant."""
    context = context_tokens(case.lengths)
    times = PlantTimes(StepTimeModel.of(plant), plant.request_overhead_seconds)
    return replica_of(
        times,
        times,
        case.lengths,
        batched_tokens=case.batched_tokens,
        max_num_seqs=case.max_num_seqs,
        kv_sequences=plant.kv_pool_tokens / context,
        kv_tokens=plant.kv_pool_tokens,
        # In the plant, arithmetic hides behind KV reads too.
        hiding_seconds=context * plant.kv_bytes_per_token / (plant.bandwidth_bytes_per_second * plant.mbu),
    )


def drawn(lengths: Lengths, seed: int, longest: int) -> list[tuple[int, int]]:
    """Prompt and output tokens of requests: independent, evenly spread over their distributions."""
    draw = random.Random(seed)

    def values(mean: float, variation: float) -> list[int]:
        found = [max(1, round(percentile(mean, variation, (i + 0.5) / SAMPLES))) for i in range(SAMPLES)]
        draw.shuffle(found)
        return found

    pairs = zip(
        values(lengths.input_mean, lengths.input_variation),
        values(lengths.output_mean, lengths.output_variation),
        strict=True,
    )
    return [(min(prompt, longest - output - 1), output) for prompt, output in pairs]


@dataclass(frozen=True)
class Row:
    """What came of a case; times in seconds, p95 of model and engine at the rate that the model calls capacity."""

    case: str
    capacity_rps: float
    wall: str
    model_good: float
    engine_good: float
    engine_max_rps: float
    model_ttft_p95: float
    engine_ttft_p95: float
    model_tpot_p95: float
    engine_tpot_p95: float


def judged(case: Case, seconds: float) -> Row:
    """The model's capacity of a case, offered to the engine."""
    plant = plant_of(case)
    found = capacity_of(knowing(case, plant), case.objective)
    config = judge.engine_config(plant, case.batched_tokens, case.max_num_seqs)
    lengths = drawn(case.lengths, case.seed, config.max_model_len)
    # Long enough for thousands of requests, so that a share of 95 % is known to half a percent.
    run_seconds = max(seconds, _REQUESTS / found.rps)
    run = judge.trial(
        plant, config, lengths, case.judged, rate_per_second=found.rps, seed=case.seed, seconds=run_seconds
    )
    most = judge.max_rate(
        plant, config, lengths, case.judged, seed=case.seed, seconds=max(seconds, 1500.0 / found.rps), tolerance=0.03
    )
    at = found.at_capacity
    return Row(
        case=case.name,
        capacity_rps=found.rps,
        wall=found.wall.value,
        model_good=at.good,
        engine_good=run.attainment,
        engine_max_rps=most,
        model_ttft_p95=at.ttft.quantile(0.95),
        engine_ttft_p95=run.ttft_p95_seconds,
        model_tpot_p95=at.tpot.quantile(0.95),
        engine_tpot_p95=run.tpot_p95_seconds if run.tpot_p95_seconds == run.tpot_p95_seconds else 0.0,
    )


def table(rows: list[Row]) -> str:
    """One line a case; times in milliseconds."""
    lines = [
        f"{'case':26}{'capacity':>9} {'wall':10}{'good: model':>11}{'engine':>8}{'engine max':>11}"
        f"{'TTFT p95 ms':>14}{'engine':>8}{'TPOT p95 ms':>13}{'engine':>8}"
    ]
    lines += [
        f"{row.case:26}{row.capacity_rps:>9.2f} {row.wall:10}{row.model_good:>11.3f}{row.engine_good:>8.3f}"
        f"{row.engine_max_rps:>11.2f}{1e3 * row.model_ttft_p95:>14.0f}{1e3 * row.engine_ttft_p95:>8.0f}"
        f"{1e3 * row.model_tpot_p95:>13.1f}{1e3 * row.engine_tpot_p95:>8.1f}"
        for row in rows
    ]
    ratios = sorted(row.capacity_rps / row.engine_max_rps for row in rows if row.engine_max_rps > 0)
    goods = sorted(row.engine_good for row in rows)
    lines.append(
        f"capacity over engine max: {ratios[0]:.2f} .. {ratios[len(ratios) // 2]:.2f} (median) .. {ratios[-1]:.2f}; "
        f"good at capacity: {goods[0]:.3f} .. {goods[len(goods) // 2]:.3f} (median) .. {goods[-1]:.3f} (asked: 0.95)"
    )
    return "\n".join(lines)


def main() -> int:
    """Print and write every case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0, help="simulated seconds of a run, at least")
    parser.add_argument("--case", action="append", help="only cases whose name contains this")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "build" / "capacity.json")
    arguments = parser.parse_args()
    wanted = [case for case in CASES if not arguments.case or any(each in case.name for each in arguments.case)]
    rows = [judged(case, arguments.seconds) for case in wanted]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n", encoding="utf-8")
    print("perfect knowledge: the model is told the plant's step times")
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
