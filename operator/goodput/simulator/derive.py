"""A plant from first principles: a model's architecture on a GPU's data-sheet figures, with drawn efficiencies.

The draws are seeded and independent of anything that the controller assumes, so that a controller is judged against
hardware that it has not been told about.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from goodput.simulator.plant import Plant

GIB = 2**30
# Share of GPU memory that vLLM takes by default, and what activations and CUDA graphs cost beside the weights.
GPU_MEMORY_UTILIZATION = 0.92


@dataclass(frozen=True, slots=True)
class ModelArchitecture:
    """A dense decoder with grouped-query attention; `parameters` counts all weights, embeddings included."""

    name: str
    parameters: float
    layers: int
    hidden_size: int
    kv_heads: int
    head_size: int
    vocabulary: int
    max_model_len: int
    bytes_per_weight: float = 2.0
    bytes_per_kv_value: float = 2.0

    @property
    def kv_bytes_per_token(self) -> float:
        """2 (K and V) x layers x KV heads x head size x bytes."""
        return 2 * self.layers * self.kv_heads * self.head_size * self.bytes_per_kv_value

    @property
    def flops_per_token(self) -> float:
        """Two per weight that multiplies; the embedding look-up does not, the output head does."""
        return 2 * (self.parameters - self.vocabulary * self.hidden_size)

    @property
    def attention_flops_per_token_pair(self) -> float:
        """QK and PV: 2 x 2 x hidden size per layer for each token that a token looks back on."""
        return 4.0 * self.layers * self.hidden_size


@dataclass(frozen=True, slots=True)
class GpuFigures:
    """One GPU: memory as CUDA reports it, data-sheet bandwidth and dense FLOP/s, and efficiencies measured on it."""

    name: str
    memory_bytes: float
    bandwidth_bytes_per_second: float
    flops_per_second: float
    mbu: float
    mfu: float


LLAMA_3_1_8B = ModelArchitecture("meta-llama/Llama-3.1-8B-Instruct", 8.03e9, 32, 4096, 8, 128, 128256, 131072)
QWEN3_32B = ModelArchitecture("Qwen/Qwen3-32B", 32.8e9, 64, 5120, 8, 128, 151936, 40960)
# Efficiencies are what engines reach end to end, with the overheads of `derive`. With MBU .82 and MFU .57 the simulated
# engine replays 300 requests that vLLM 0.19 served on an RTX PRO 6000 (benchmarks/data) within 3 % in TTFT, TPOT and
# makespan; the L40S is a card of the same class. The H100's are of measured points: decode at small batches, and long
# prompts with little to write. Kernels alone reach more: MFU .64 and .80.
L40S = GpuFigures("l40s", 44.4 * GIB, 864e9, 362e12, 0.82, 0.57)
H100_SXM = GpuFigures("h100-sxm", 79.2 * GIB, 3350e9, 989e12, 0.70, 0.52)


def derive(
    model: ModelArchitecture,
    gpu: GpuFigures,
    *,
    gpus: int = 1,
    seed: int | None = None,
    spread: float = 0.2,
    startup_seconds: float = 100.0,
    host_memory_bytes: float = 16e9,
    step_overhead_seconds: float = 0.0012,
    per_sequence_overhead_seconds: float = 0.00002,
    request_overhead_seconds: float = 0.015,
    activation_bytes: float = 1.8 * GIB,
) -> Plant:
    """The plant of `model` on `gpus` x `gpu`.

    With a `seed`, MBU and MFU are drawn uniformly within +-`spread` of the measured ones (at most 1). The overheads
    default to what BLIS fitted on vLLM: 32 us a layer and step, 4-20 us a sequence, 15 ms a request. Raises
    `ValueError` if the weights leave no KV pool.
    """
    draw = random.Random(seed)
    factors = [draw.uniform(1 - spread, 1 + spread) if seed is not None else 1.0 for _ in range(2)]
    weights_bytes = model.parameters * model.bytes_per_weight
    pool_bytes = gpus * (gpu.memory_bytes * GPU_MEMORY_UTILIZATION - activation_bytes) - weights_bytes
    if pool_bytes <= 0:
        raise ValueError(f"{model.name} does not fit on {gpus} x {gpu.name}: {-pool_bytes / GIB:.1f} GiB are missing")
    single = Plant(
        weights_bytes=weights_bytes,
        flops_per_token=model.flops_per_token,
        kv_bytes_per_token=model.kv_bytes_per_token,
        bandwidth_bytes_per_second=gpu.bandwidth_bytes_per_second,
        peak_flops_per_second=gpu.flops_per_second,
        mbu=min(1.0, gpu.mbu * factors[0]),
        mfu=min(1.0, gpu.mfu * factors[1]),
        step_overhead_seconds=step_overhead_seconds,
        per_sequence_overhead_seconds=per_sequence_overhead_seconds,
        kv_pool_tokens=int(pool_bytes // model.kv_bytes_per_token),
        startup_seconds=startup_seconds,
        host_memory_bytes=host_memory_bytes,
        request_overhead_seconds=request_overhead_seconds,
        attention_flops_per_token_pair=model.attention_flops_per_token_pair,
        gpu_memory_bytes=gpu.memory_bytes,
        activation_bytes=activation_bytes,
        max_model_len=model.max_model_len,
        teardown_seconds=5.0,
    )
    return single.with_gpus(gpus)
