"""A plant of any model on any GPU type: what published points say of such GPUs, with efficiencies drawn anew.

Bytes, FLOP and the size of the KV pool are facts of the architecture. What is reached of a data sheet is not known of
a GPU that one has not measured: each of five figures is drawn evenly within `spread` of what published points of its
family say, and a step takes the longer of memory traffic and arithmetic, where the controller adds most of them. So a
controller is judged against hardware that it was not told about.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import isfinite

from goodput.domain.architecture import Architecture
from goodput.domain.intent import GpuType
from goodput.domain.plan import Placement
from goodput.perfmodel.memory import KvPool, fit
from goodput.perfmodel.phases import peak_flops, rank_weight_bytes
from goodput.perfmodel.roofline import StepTimes, step_times
from goodput.simulator.plant import Plant
from goodput.simulator.sequences import EngineConfig

BLOCK_TOKENS = 16
SPREAD = 0.2
# What an engine finds of the KV pool that was planned, at least: graphs and fragments take more than is believed.
_LEAST_POOL = 0.95
# Tokens of a step for which experts are counted: by then a batch touches most of them.
_USUAL_TOKENS = 64.0
# Of a peak; what is read and multiplied is counted so that times stay, and draws stay below all of it.
_MOST_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Draws:
    """True over believed figures of one plant."""

    bandwidth: float = 1.0
    arithmetic: float = 1.0
    kv_traffic: float = 1.0
    step_overhead: float = 1.0
    request_overhead: float = 1.0
    kv_pool: float = 1.0

    @classmethod
    def of(cls, seed: int, spread: float = SPREAD) -> Draws:
        """Drawn from `seed`."""
        draw = random.Random(f"{seed}/plant")

        def figure() -> float:
            return draw.uniform(1.0 - spread, 1.0 + spread)

        return cls(
            bandwidth=figure(),
            arithmetic=figure(),
            kv_traffic=figure(),
            step_overhead=figure(),
            request_overhead=figure(),
            kv_pool=draw.uniform(_LEAST_POOL, 1.0),
        )


@dataclass(frozen=True, slots=True)
class Usual:
    """Mean lengths of requests: windows, states and tokenising are counted for a request of these."""

    input_tokens: float
    output_tokens: float

    @property
    def context_tokens(self) -> float:
        """Tokens that a request holds on average while it decodes."""
        return max(1.0, self.input_tokens + self.output_tokens / 2.0)


def plant_of(
    arch: Architecture,
    gpu: GpuType,
    placement: Placement,
    usual: Usual,
    *,
    kv_dtype: str = "auto",
    draws: Draws | None = None,
    startup_seconds: float = 100.0,
) -> Plant:
    """The plant of one replica of `placement`; without `draws` what published points say, undrawn.

    Pipeline stages work on other requests meanwhile: they divide what each request costs, not what a step reads of
    weights. Draft models cost nothing. Raises `ModelDoesNotFit`.
    """
    drawn = draws or Draws()
    tensor, stages = placement.tensor_parallel, placement.pipeline_parallel
    pool = fit(
        arch,
        gpu,
        tensor,
        stages,
        kv_dtype=kv_dtype,
        max_num_seqs=placement.max_num_seqs,
        max_num_batched_tokens=placement.max_num_batched_tokens,
    )
    times = step_times(arch, gpu, tensor, kv_dtype=kv_dtype)
    bandwidth = gpu.memory_bandwidth_bytes_per_second * tensor
    peak = peak_flops(arch, gpu) * tensor
    reads = times.reads(_USUAL_TOKENS)
    mbu = min(_MOST_SHARE, rank_weight_bytes(arch, tensor, _USUAL_TOKENS) * tensor / (bandwidth * reads))
    token = _token_seconds(times, placement.max_num_batched_tokens)
    flops = 2.0 * (arch.active_parameters - arch.embedding_parameters)
    mfu = min(_MOST_SHARE, flops / (peak * token))
    context = usual.context_tokens
    kv_seconds = (times.context_reads(context) - times.sequence_state) / context
    pair_seconds = times.prompt_attention(usual.input_tokens) / (0.5 * usual.input_tokens**2)
    return Plant(
        weights_bytes=reads * bandwidth * mbu,
        flops_per_token=token * peak * mfu / stages,
        kv_bytes_per_token=max(1e-3, kv_seconds * bandwidth * mbu * drawn.kv_traffic / stages),
        bandwidth_bytes_per_second=bandwidth,
        peak_flops_per_second=peak,
        mbu=min(1.0, mbu * drawn.bandwidth),
        mfu=min(1.0, mfu * drawn.arithmetic),
        step_overhead_seconds=times.fixed * drawn.step_overhead,
        per_sequence_overhead_seconds=(times.sequence + times.sequence_state) * drawn.step_overhead / stages,
        kv_pool_tokens=_pool_tokens(pool, placement, context, drawn.kv_pool),
        startup_seconds=startup_seconds,
        host_memory_bytes=0.0,
        request_overhead_seconds=(times.request + times.request_token * usual.input_tokens) * drawn.request_overhead,
        attention_flops_per_token_pair=pair_seconds * peak * mfu / stages,
        gpus=placement.gpus,
        max_model_len=pool.max_model_len,
        teardown_seconds=5.0,
    )


def _token_seconds(times: StepTimes, chunk_tokens: int) -> float:
    """Arithmetic of one token of a chunk: products, what experts pad, sorting by experts, all-reduces."""
    padding = times.expert_padding / chunk_tokens if times.experts else 0.0
    return times.token_compute + times.token_expert_compute + padding + times.token_moves + times.token_communication


def _pool_tokens(pool: KvPool, placement: Placement, context: float, share: float) -> int:
    """Tokens that the pool holds in usual requests, windows and states counted.

    Where long requests hold less of a token than usual ones do (windows), an engine of this plant takes no request
    that is longer than all of it.
    """
    sequences = pool.sequences(context) * share
    if not isfinite(sequences):
        sequences = float(placement.max_num_seqs)
    return max(int(sequences * context), 4 * BLOCK_TOKENS)


def engine_of(plant: Plant, placement: Placement) -> EngineConfig:
    """An engine on the plant's KV pool; limits of queue and batch are rendered later."""
    blocks = plant.kv_pool_tokens // BLOCK_TOKENS
    return EngineConfig(
        kv_blocks=blocks,
        block_size=BLOCK_TOKENS,
        max_model_len=min(plant.max_model_len or placement.max_model_len, (blocks - 1) * BLOCK_TOKENS),
        speculative_tokens=placement.speculative_tokens,
        draft_acceptance=plant.draft_acceptance,
        draft_coverage=plant.draft_coverage,
    )
