"""GPU memory of one replica: weights, activations and CUDA graphs, and what is left for the KV cache.

The rules are those of the engine's own planner (0.33): `requested = total * gpu_memory_utilization`, the KV pool is
what is left of it, KV heads are sharded over tensor ranks up to their number and replicated beyond it.
"""

from __future__ import annotations

from goodput.domain.architecture import Architecture
from goodput.domain.errors import ModelDoesNotFit
from goodput.domain.intent import GpuType
from goodput.domain.values import Value

GPU_MEMORY_UTILIZATION = 0.92  # the engine's default
BLOCK_TOKENS = 16
_GIB = 1024.0**3
# CUDA context, NCCL buffers and allocator slack of one rank.
_RESERVED_BYTES = 0.6 * _GIB
_GRAPH_BYTES_PER_LAYER = 12.0e6
# Live activations of a profiling run, in copies of (batched tokens x hidden size).
_ACTIVATION_COPIES = 14.0
# A replica must hold a request of at least this length (or the model's own limit, if lower).
LEAST_MODEL_LEN = 4096


class KvPool(Value, frozen=True, kw_only=True):
    """Memory of one rank in bytes, and what the pool of the whole replica holds in tokens."""

    weight_bytes: float
    activation_bytes: float
    graph_bytes: float
    pool_bytes: float
    bytes_per_token: float  # on one rank, layers with full attention
    window_bytes: float  # on one rank, fixed cost of a long sequence in windowed layers
    tokens: int  # of full attention, were one long sequence to hold them all
    max_model_len: int  # longest request that fits, at most the model's own

    def sequences(self, context_tokens: float, window_share: float = 1.0) -> float:
        """How many sequences of `context_tokens` fit at once; `window_share` of the windows is filled."""
        cost = context_tokens * self.bytes_per_token + self.window_bytes * window_share
        return self.pool_bytes / cost if cost > 0 else float("inf")


def engine_defaults(gpu: GpuType) -> tuple[int, int]:
    """The engine's own (max-num-seqs, max-num-batched-tokens) for this memory size (vLLM 0.33)."""
    gib = gpu.memory_bytes / _GIB
    if gib >= 160:
        return 1024, 16384
    if gib >= 70 and not gpu.name.startswith("a100"):
        return 1024, 8192
    return 256, 2048


def kv_rank_share(arch: Architecture, tensor_parallel: int) -> float:
    """Share of a token's KV that one tensor rank holds: heads are whole, and latent attention has one."""
    return max(1, arch.kv_heads // tensor_parallel) / arch.kv_heads


def weight_bytes(arch: Architecture) -> float:
    """Bytes of all weights, as stored."""
    return arch.parameters * arch.weight_bytes_per_parameter


def fit(arch: Architecture, gpu: GpuType, tensor_parallel: int = 1, pipeline_parallel: int = 1) -> KvPool:
    """Memory of a replica of `arch` on TP x PP of `gpu`.

    Raises `ModelDoesNotFit`; its `part` is `weights`, `activations` or `kv-cache` (for one request).
    """
    ranks = tensor_parallel * pipeline_parallel
    sequences, batched_tokens = engine_defaults(gpu)
    requested = gpu.memory_bytes * GPU_MEMORY_UTILIZATION
    weights = weight_bytes(arch) / ranks
    shape = f"{arch.name} on {ranks} x {gpu.name} (TP {tensor_parallel}, PP {pipeline_parallel})"
    if weights > requested:
        raise ModelDoesNotFit(
            "weights", f"{shape}: weights need {_gib(weights)} of the {_gib(requested)} that one GPU may use"
        )
    activations = _RESERVED_BYTES + _ACTIVATION_COPIES * 2.0 * batched_tokens * arch.hidden_size
    activations += 4.0 * min(sequences, 256) * arch.vocabulary / tensor_parallel
    graphs = _GRAPH_BYTES_PER_LAYER * arch.layers / pipeline_parallel
    pool = requested - weights - activations - graphs
    if pool <= 0:
        raise ModelDoesNotFit(
            "activations",
            f"{shape}: after weights ({_gib(weights)}), activations and graphs need {_gib(activations + graphs)}"
            f" of the {_gib(requested - weights)} left",
        )
    share = kv_rank_share(arch, tensor_parallel) / pipeline_parallel
    per_token = arch.kv_bytes_per_token * share
    window = arch.kv_window_bytes_per_token * arch.kv_window_tokens * share
    longest = _longest(arch, pool, per_token, arch.kv_window_bytes_per_token * share)
    if longest < min(LEAST_MODEL_LEN, arch.max_model_len):
        raise ModelDoesNotFit(
            "kv-cache",
            f"{shape}: {_gib(pool)} is left for the KV cache, which holds a request of {longest} tokens,"
            f" not of {min(LEAST_MODEL_LEN, arch.max_model_len)}",
        )
    return KvPool(
        weight_bytes=weights,
        activation_bytes=activations,
        graph_bytes=graphs,
        pool_bytes=pool,
        bytes_per_token=per_token,
        window_bytes=window,
        tokens=_longest_unbounded(pool, per_token, window),
        max_model_len=min(arch.max_model_len, longest),
    )


def _longest(arch: Architecture, pool: float, per_token: float, window_per_token: float) -> int:
    """Longest request that the pool holds, in whole blocks."""
    short = pool / (per_token + window_per_token)
    if arch.kv_window_tokens and short > arch.kv_window_tokens:
        rest = pool - window_per_token * arch.kv_window_tokens
        short = rest / per_token if per_token > 0 else float(arch.max_model_len)
    return int(min(short, 1e9)) // BLOCK_TOKENS * BLOCK_TOKENS


def _longest_unbounded(pool: float, per_token: float, window: float) -> int:
    if per_token <= 0:
        return 0
    return int(max(0.0, pool - window) / per_token) // BLOCK_TOKENS * BLOCK_TOKENS


def _gib(value: float) -> str:
    return f"{value / _GIB:.1f} GiB"
