"""GPU memory of one replica: weights, activations and CUDA graphs, and what is left for the KV cache.

The rules are those of the engine's own planner (0.33): `requested = total * gpu_memory_utilization`, and the KV pool is
what weights, activations, graphs and the context leave of it, on the rank that has least.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec.structs import replace

from goodput.domain.architecture import Architecture
from goodput.domain.errors import ModelDoesNotFit
from goodput.domain.intent import GpuType
from goodput.domain.values import Value
from goodput.perfmodel.kvcache import BLOCK_TOKENS, LATENT_BLOCK_TOKENS, KvSettings, plan_kv
from goodput.perfmodel.kvlayout import KvPlan
from goodput.perfmodel.precision import cannot_keep, cannot_run, with_precision
from goodput.perfmodel.weights import Parallel, RankWeights, cannot_split, expert_rank_share, rank_weights

GPU_MEMORY_UTILIZATION = 0.92  # the engine's default
_GIB = 1024.0**3
# CUDA context and allocator slack of one rank; with more than one, buffers of collectives too.
_CONTEXT_BYTES = 0.6 * _GIB
_COLLECTIVE_BYTES = 0.4 * _GIB
_GRAPH_BYTES_PER_LAYER = 12.0e6
# Live tensors as wide as the residual stream at the peak of a profiling run (residual, norm, Q/K/V and output).
_RESIDUAL_COPIES = 6.0
# Gate and up projections, and their product.
_FEED_FORWARD_COPIES = 3.0
_ACTIVATION_BYTES = 2.0
# Logits in float32, and one copy for sampling.
_LOGIT_BYTES = 8.0
_PROFILED_SEQUENCES = 256  # of the sampler's profiling run, at most
# A replica must hold a request of at least this length (or the model's own limit, if lower).
LEAST_MODEL_LEN = 4096
# What more GPUs of a node or a narrower checkpoint mend, and the formats that are suggested.
_HELPED = frozenset({"weights", "activations", "kv-cache"})
_NARROWER = ("fp8", "int4")


class KvPool(Value, frozen=True, kw_only=True):
    """Memory of one rank in bytes, and what the pool of the whole replica holds in tokens."""

    weight_bytes: float
    activation_bytes: float
    graph_bytes: float
    pool_bytes: float
    bytes_per_token: float  # on one rank, layers with full attention
    window_bytes: float  # on one rank, fixed cost of a long sequence: windows, chunks and states
    tokens: int  # of full attention, were one long sequence to hold them all; without any, as the engine reports them
    max_model_len: int  # longest request that fits, at most the model's own
    max_concurrency: float  # requests of `max_model_len` at once, as the engine reports it
    blocks: int  # of the pool, one of which the engine keeps for itself
    weights: RankWeights
    plan: KvPlan
    data_parallel: int = 1  # pools of the replica, each with sequences of its own

    def sequences(self, context_tokens: float) -> float:
        """How many sequences of `context_tokens` the replica decodes at once; infinite where they keep nothing."""
        held = self.plan.held_blocks(context_tokens)
        return self.data_parallel * max(0, self.blocks - 1) / held if held > 0 else float("inf")


class _Unfit(Value, frozen=True, kw_only=True):
    part: str
    message: str


class _Request(Value, frozen=True, kw_only=True):
    parallel: Parallel
    kv_dtype: str
    max_num_seqs: int
    max_num_batched_tokens: int
    utilisation: float
    extra_weight_bytes: float
    speculative_tokens: int
    prefix_caching: bool
    max_model_len: int | None


def engine_defaults(gpu: GpuType) -> tuple[int, int]:
    """The engine's own (max-num-seqs, max-num-batched-tokens) for this memory size (vLLM 0.33)."""
    gib = gpu.memory_bytes / _GIB
    if gib >= 160:
        return 1024, 16384
    if gib >= 70 and not gpu.name.startswith("a100"):
        return 1024, 8192
    return 256, 2048


def fit(
    arch: Architecture,
    gpu: GpuType,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    *,
    parallel: Parallel | None = None,
    kv_dtype: str = "auto",
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    utilisation: float = GPU_MEMORY_UTILIZATION,
    extra_weight_bytes: float = 0.0,
    speculative_tokens: int = 0,
    prefix_caching: bool = True,
    max_model_len: int | None = None,
) -> KvPool:
    """Memory of a replica of `arch` on TP x PP (x DP) of `gpu`; results are remembered.

    `parallel` replaces the two degrees. Unset limits are the engine's own. `extra_weight_bytes` are those of a draft
    model on each rank, `speculative_tokens` its tokens a step. With `max_model_len` that length must fit; else the
    longest that does is found, at least 4,096 tokens.
    Raises `ModelDoesNotFit`, whose `part` is `weights`, `activations`, `kv-cache` (for one request), `precision` (which
    the GPU does not run) or `parallelism` (into which heads or layers cannot be cut), and `InvalidObject` for a KV
    dtype that is not known.
    """
    sequences, batched_tokens = engine_defaults(gpu)
    request = _Request(
        parallel=parallel or Parallel(tensor=tensor_parallel, pipeline=pipeline_parallel),
        kv_dtype=kv_dtype,
        max_num_seqs=max_num_seqs or sequences,
        max_num_batched_tokens=max_num_batched_tokens or batched_tokens,
        utilisation=utilisation,
        extra_weight_bytes=extra_weight_bytes,
        speculative_tokens=speculative_tokens,
        prefix_caching=prefix_caching,
        max_model_len=max_model_len,
    )
    found = _fit(arch, gpu, request)
    if isinstance(found, _Unfit):
        raise ModelDoesNotFit(found.part, found.message + _what_helps(arch, gpu, request, found.part))
    return found


@lru_cache(maxsize=8192)
def _fit(arch: Architecture, gpu: GpuType, request: _Request) -> KvPool | _Unfit:
    parallel = request.parallel
    reason = cannot_run(arch.precision, gpu) or cannot_keep(request.kv_dtype, gpu)
    if reason:
        return _Unfit(part="precision", message=f"{arch.name} on {gpu.name}: {reason}")
    refused = cannot_split(arch, parallel)
    if refused is not None:
        return _Unfit(part="parallelism", message=f"{arch.name}: {refused[1]}")
    requested = gpu.memory_bytes * request.utilisation
    weights = rank_weights(arch, parallel)
    stored = weights.total + request.extra_weight_bytes
    shape = f"{arch.name} on {parallel.gpus} x {gpu.name} (TP {parallel.tensor}, PP {parallel.pipeline}"
    shape += f", DP {parallel.data})" if parallel.data > 1 else ")"
    if stored > requested:
        return _Unfit(
            part="weights",
            message=f"{shape}: weights need {_gib(stored)} of the {_gib(requested)} that one GPU may use",
        )
    activations = activation_bytes(
        arch, parallel, max_num_seqs=request.max_num_seqs, max_num_batched_tokens=request.max_num_batched_tokens
    )
    graphs = _GRAPH_BYTES_PER_LAYER * arch.layers / parallel.pipeline
    pool = requested - stored - activations - graphs
    if pool <= 0:
        return _Unfit(
            part="activations",
            message=f"{shape}: after weights ({_gib(stored)}), activations and graphs need "
            f"{_gib(activations + graphs)} of the {_gib(requested - stored)} left",
        )
    plan = plan_kv(arch, _settings(arch, request))
    limit = request.max_model_len or arch.max_model_len
    longest = plan.longest(pool, limit)
    least = request.max_model_len or min(LEAST_MODEL_LEN, arch.max_model_len)
    if longest < least:
        return _Unfit(
            part="kv-cache",
            message=f"{shape}: {_gib(pool)} is left for the KV cache, which holds a request of {longest} tokens,"
            f" not of {least}",
        )
    if longest < limit:
        longest = longest // BLOCK_TOKENS * BLOCK_TOKENS
    per_token, fixed = _costs(plan)
    if per_token > 0:
        tokens = int(max(0.0, pool - fixed) / per_token) // BLOCK_TOKENS * BLOCK_TOKENS
    else:
        tokens = plan.size_tokens(pool, longest)
    return KvPool(
        weight_bytes=stored,
        activation_bytes=activations,
        graph_bytes=graphs,
        pool_bytes=pool,
        bytes_per_token=per_token,
        window_bytes=fixed,
        tokens=tokens,
        max_model_len=longest,
        max_concurrency=parallel.data * plan.max_concurrency(pool, longest),
        blocks=plan.blocks(pool),
        weights=weights,
        plan=plan,
        data_parallel=parallel.data,
    )


def activation_bytes(
    arch: Architecture, parallel: Parallel, *, max_num_seqs: int, max_num_batched_tokens: int
) -> float:
    """Context, collectives and the peak of live activations of one rank in the engine's profiling run, in bytes."""
    hidden, tensor = float(arch.hidden_size), parallel.tensor
    dense_layers = arch.layers - arch.sparse_layers or arch.layers
    dense_width = (arch.dense_parameters - arch.replicated_dense_parameters) / (3.0 * hidden * dense_layers)
    wide = _FEED_FORWARD_COPIES * min(dense_width, 8.0 * hidden) / tensor
    if arch.experts:
        # Each token is copied for every expert it visits; the ranks of an expert group hold their share of the copies.
        width = arch.expert_parameters / (3.0 * hidden * arch.sparse_layers * arch.experts)
        visits = arch.experts_per_token * max(1.0 / parallel.tensor, expert_rank_share(arch, parallel))
        wide = max(wide, arch.experts_per_token * hidden + visits * _FEED_FORWARD_COPIES * width)
    live = max_num_batched_tokens * _ACTIVATION_BYTES * (_RESIDUAL_COPIES * hidden + wide)
    logits = _LOGIT_BYTES * min(max_num_seqs, _PROFILED_SEQUENCES) * arch.vocabulary / tensor
    return _CONTEXT_BYTES + (_COLLECTIVE_BYTES if parallel.gpus > 1 else 0.0) + live + logits


def _settings(arch: Architecture, request: _Request) -> KvSettings:
    parallel = request.parallel
    return KvSettings(
        tensor_parallel=parallel.tensor,
        pipeline_parallel=parallel.pipeline,
        context_parallel=parallel.context,
        kv_dtype=request.kv_dtype,
        block_tokens=LATENT_BLOCK_TOKENS if any(group.latent for group in arch.kv_layers) else BLOCK_TOKENS,
        max_num_batched_tokens=request.max_num_batched_tokens,
        # One batch is scheduled ahead (asynchronous scheduling is the engine's default).
        max_concurrent_batches=parallel.pipeline + 1,
        prefix_caching=request.prefix_caching,
        speculative_tokens=request.speculative_tokens,
    )


def _costs(plan: KvPlan) -> tuple[float, float]:
    """Bytes of one rank's pool for each token of full attention, and for what a long sequence holds besides."""
    far = 1 << 40
    per_token = plan.block_bytes * (plan.held_blocks(2.0 * far) - plan.held_blocks(float(far))) / far
    return per_token, plan.block_bytes * (plan.held_blocks(0.0) + _windows(plan))


def _windows(plan: KvPlan) -> float:
    return sum(group.held(1e12) - group.held(0.0) for group in plan.groups if group.window_tokens)


@lru_cache(maxsize=4096)
def _what_helps(arch: Architecture, gpu: GpuType, request: _Request, part: str) -> str:
    """The fewest of these GPUs that hold it, and a narrower checkpoint that would fit where it was tried."""
    if part not in _HELPED:
        return ""
    helps: list[str] = []
    tensor = 2 * request.parallel.tensor
    while tensor <= gpu.gpus_per_node and not helps:
        wider = replace(request, parallel=replace(request.parallel, tensor=tensor))
        if isinstance(_fit(arch, gpu, wider), KvPool):
            helps.append(f"TP {tensor} would fit")
        tensor *= 2
    narrower = [name for name in _NARROWER if isinstance(_narrowed(arch, gpu, request, name), KvPool)]
    if narrower:
        helps.append(f"a checkpoint in {' or '.join(narrower)} would fit")
    if helps:
        return f"; {'; '.join(helps)}"
    if gpu.slice_of:
        return f"; a replica has one slice, and no narrower checkpoint fits {gpu.name}"
    return f"; no tensor parallelism on a node of {gpu.gpus_per_node} GPUs holds it"


def _narrowed(arch: Architecture, gpu: GpuType, request: _Request, precision: str) -> KvPool | _Unfit | None:
    if arch.precision != "bf16":
        return None
    return _fit(with_precision(arch, precision), gpu, request)


def _gib(value: float) -> str:
    return f"{value / _GIB:.1f} GiB"
