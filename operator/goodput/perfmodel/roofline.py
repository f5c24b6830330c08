"""Time of one engine step: the slower of compute and weight reads, plus KV reads, communication and overheads.

step = max(weight bytes / (bandwidth * MBU), FLOP / (peak * MFU)) + KV bytes / (bandwidth * MBU_kv)
       + attention FLOP / (peak * MFU_attention) + all-reduces + overhead per layer, step and sequence
"""

from __future__ import annotations

from goodput.domain.architecture import Architecture
from goodput.domain.intent import GpuType
from goodput.domain.values import Value
from goodput.perfmodel.families import (
    LAYER_SECONDS,
    PREFILL_END_TO_END,
    SEQUENCE_SECONDS,
    STEP_SECONDS,
    efficiency,
)
from goodput.perfmodel.memory import kv_rank_share

_BF16 = 2.0


class StepTimes(Value, frozen=True, kw_only=True):
    """Coefficients of a step, in seconds; the correction of decode is already in them."""

    weights: float  # reading the weights that every token needs
    experts: float  # reading all experts of all layers (0: dense)
    expert_share: float  # experts a token visits / experts there are
    token_compute: float  # matrix products of one token
    token_context_attention: float  # attention of one new token over one context token, in prefill
    kv_token: float  # reading one token of context, in decode
    fixed: float  # launches and all-reduces that every step pays
    token_communication: float  # all-reduces, per token of the step
    sequence: float

    def reads(self, tokens: float) -> float:
        """Time to read the weights that a step of `tokens` tokens touches: E*(1-(1-k/E)^t) of E experts."""
        if not self.experts:
            return self.weights
        untouched: float = (1.0 - self.expert_share) ** tokens
        return self.weights + self.experts * (1.0 - untouched)

    def decode(self, batch: float, context_tokens: float) -> float:
        """One token for each of `batch` sequences of `context_tokens` on average."""
        compute = batch * self.token_compute
        return (
            max(self.reads(batch), compute)
            + batch * (context_tokens * self.kv_token + self.sequence + self.token_communication)
            + self.fixed
        )

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a sequence gains in a decode step."""
        return 1.0

    def step(self, batch: float, context_tokens: float) -> float:
        """One engine step of `batch` sequences: what the engine observes as inter-token latency."""
        return self.decode(batch, context_tokens)

    def prefill(self, tokens: float, chunk_tokens: int) -> tuple[float, float]:
        """(time of the steps that take in a prompt of `tokens`, what they cost beyond plain decode steps)."""
        chunks = max(1, -(-int(tokens) // chunk_tokens))
        compute = tokens * (self.token_compute + self.token_communication)
        compute += 0.5 * tokens * tokens * self.token_context_attention
        per_chunk = compute / chunks
        reads = self.reads(tokens / chunks)
        busy = chunks * (max(per_chunk, reads) + self.fixed)
        return busy, chunks * max(0.0, per_chunk - self.reads(8.0))


def step_times(arch: Architecture, gpu: GpuType, tensor_parallel: int = 1, speed: float = 1.0) -> StepTimes:
    """Coefficients for one pipeline stage set (all layers) of `arch` over `tensor_parallel` GPUs.

    `speed` is true over believed speed of decode, as learned from live inter-token times. It moves what decode pays
    for (memory reads, launches), not the arithmetic of prefill: the two efficiencies err independently.
    """
    prior = efficiency(gpu.name)
    fp8 = arch.weight_bytes_per_parameter <= 1.0
    peaks = dict(gpu.flops)
    native_fp8 = fp8 and "fp8" in peaks
    # Every type has bf16; the peak of another precision is never taken for it.
    bf16_peak = peaks["bf16"]
    peak = peaks["fp8"] if native_fp8 else bf16_peak
    mfu = (prior.flops_fp8 if native_fp8 else prior.flops) * PREFILL_END_TO_END
    bandwidth = gpu.memory_bandwidth_bytes_per_second
    weight_bandwidth = bandwidth * (prior.weight_bandwidth_fp8 if fp8 else prior.weight_bandwidth) * tensor_parallel
    multiplied = arch.parameters - arch.embedding_parameters
    active = arch.active_parameters - arch.embedding_parameters
    expert_share = arch.experts_per_token / arch.experts if arch.experts else 0.0
    # total = common + all experts, active = common + share of them.
    expert_parameters = (multiplied - active) / (1.0 - expert_share) if 0.0 < expert_share < 1.0 else 0.0
    bytes_per_parameter = arch.weight_bytes_per_parameter
    ranks = float(tensor_parallel)
    reduces = 2.0 * arch.layers if tensor_parallel > 1 else 0.0
    kv_share = kv_rank_share(arch, tensor_parallel)
    slower = 1.0 / speed
    return StepTimes(
        weights=slower * (multiplied - expert_parameters) * bytes_per_parameter / weight_bandwidth,
        experts=slower * expert_parameters * bytes_per_parameter / weight_bandwidth,
        expert_share=expert_share,
        token_compute=2.0 * active / (peak * mfu * ranks),
        token_context_attention=arch.attention_flops_per_token_per_context_token
        / (bf16_peak * prior.attention_flops * ranks),
        kv_token=slower * arch.kv_bytes_per_token * kv_share / (bandwidth * prior.kv_bandwidth),
        fixed=slower * (LAYER_SECONDS * arch.layers + STEP_SECONDS + reduces * prior.all_reduce_seconds),
        token_communication=reduces * _BF16 * arch.hidden_size / prior.all_reduce_bytes_per_second,
        sequence=slower * SEQUENCE_SECONDS,
    )
