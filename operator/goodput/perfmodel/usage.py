"""What counted tokens and steps make of GPUs: MFU and MBU, of wall time (what is paid) and of busy time (what binds).

FLOP and bytes are counted by the architecture, not by the engine's estimates: those count min(t*k, E) experts of a step
of t tokens, not E*(1-(1-k/E)^t), and no state-space layers. FLOP on drafts that are rejected are no use.
"""

from __future__ import annotations

from functools import lru_cache

from goodput.domain.architecture import Architecture
from goodput.domain.intent import GpuType
from goodput.domain.remembered import for_each_model
from goodput.domain.usage import Usage
from goodput.domain.values import Value
from goodput.perfmodel.lengths import Lengths
from goodput.perfmodel.memory import engine_defaults
from goodput.perfmodel.phases import decode, peak_flops, prefill, rank_weight_bytes
from goodput.perfmodel.replica import Shape, context_tokens


class Counts(Value, frozen=True, kw_only=True):
    """What the replicas of a pool did in an interval, all of them together."""

    replica_seconds: float  # intervals of all replicas, added up
    prompt_tokens: float  # that were computed: not those found in the prefix cache
    prompts: float  # requests that got their first token
    generated_tokens: float  # the first of each request included
    # Inter-token latency: an output of a step for each sequence in it.
    itl_seconds: float
    itl_count: float
    batch: float  # sequences that the replica of a mean token decodes together


class _Work(Value, frozen=True, kw_only=True):
    """Work of one GPU: of a token of a prompt, of a prompt, of a decoded token, of a sequence in a step."""

    peak_flops: float
    prompt_token_flop: float
    prompt_reads: float  # bytes of weights, where no decode step reads them anyway
    prompt_kept: float  # bytes of KV cache
    prompt_seconds: float  # alone on the replica
    token_flop: float
    sequence_bytes: float


@lru_cache(maxsize=for_each_model(1))
def _work(arch: Architecture, gpu: GpuType, shape: Shape, lengths: Lengths) -> _Work:
    prompt = prefill(arch, gpu, shape, lengths)
    chunk = shape.max_num_batched_tokens or engine_defaults(gpu)[1]
    reads = max(1.0, lengths.input_mean / chunk) * _weights(arch, shape, min(lengths.input_mean, chunk))
    step = decode(arch, gpu, shape, batch=1.0, context_tokens=context_tokens(lengths))
    return _Work(
        peak_flops=peak_flops(arch, gpu),
        prompt_token_flop=prompt.flop / lengths.input_mean,
        prompt_reads=reads,
        prompt_kept=prompt.bytes - reads,
        prompt_seconds=prompt.seconds,
        token_flop=step.flop,
        sequence_bytes=step.bytes - _weights(arch, shape, 1.0),
    )


def _weights(arch: Architecture, shape: Shape, tokens: float) -> float:
    """Bytes of weights that one GPU reads in a step of so many tokens, over all stages of a pipeline equally."""
    return rank_weight_bytes(arch, shape.tensor_parallel, tokens) / shape.pipeline_parallel


def usage(arch: Architecture, gpu: GpuType, shape: Shape, lengths: Lengths, counts: Counts) -> Usage:
    """What `counts` make of the GPUs of replicas of this shape; `lengths` are the mean ones of their requests.

    A step gives an inter-token time for each sequence in it, so there were count / batch steps of the mean time. Where
    none decodes, prompts take steps of their own, as long as they are believed to take.
    """
    seen, stages = counts, shape.pipeline_parallel
    work = _work(arch, gpu, shape, lengths.rounded())
    # What runs is seen at instants: it is no fewer than decode on average.
    running = seen.itl_count * seen.itl_seconds / seen.replica_seconds if seen.replica_seconds > 0.0 else 0.0
    batch = max(1.0, max(seen.batch, running) / stages)
    verified = 1.0 if shape.drafts is None else shape.drafts.verified_per_step
    steps = seen.itl_count / batch
    decoding = min(seen.replica_seconds, steps * seen.itl_seconds / stages)
    alone = 1.0 - decoding / seen.replica_seconds if seen.replica_seconds > 0.0 else 0.0
    prompts = seen.prompts * alone
    decoded = max(0.0, seen.generated_tokens - seen.prompts)
    flop = seen.prompt_tokens * work.prompt_token_flop + decoded * work.token_flop
    moved = steps * (_weights(arch, shape, batch * verified) + batch * work.sequence_bytes)
    moved += prompts * work.prompt_reads + seen.prompts * work.prompt_kept
    return Usage(
        wall_seconds=seen.replica_seconds,
        busy_seconds=min(seen.replica_seconds, decoding + prompts * work.prompt_seconds),
        compute_seconds=flop / work.peak_flops,
        memory_seconds=moved / gpu.memory_bandwidth_bytes_per_second,
    )
