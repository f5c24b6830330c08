"""Prefill and decode of a model as points under a roof: arithmetic intensity, and the FLOP/s that are reached.

A phase of FLOP F that moves B bytes has the intensity F / B. Where it is below the ridge point of a GPU (peak FLOP/s
over memory bandwidth) the bytes take longer than the arithmetic: memory bandwidth binds (Williams et al. 2009,
Roofline).
"""

from __future__ import annotations

from goodput.domain.architecture import Architecture, KvLayers, LayerKind
from goodput.domain.intent import GpuType
from goodput.domain.values import Value
from goodput.perfmodel.capacity import Shape, replica_times
from goodput.perfmodel.kvcache import rank_token_bytes
from goodput.perfmodel.lengths import Lengths
from goodput.perfmodel.memory import engine_defaults
from goodput.perfmodel.precision import compute_column, kv_format
from goodput.perfmodel.weights import Parallel, rank_weights

_FLOP_PER_PARAMETER = 2.0  # multiply and add


class Phase(Value, frozen=True, kw_only=True):
    """Work of one GPU in one phase, and how long it is believed to take."""

    name: str
    flop: float  # that the model needs: an equal share, whatever ranks repeat
    bytes: float  # that the GPU moves, what every rank reads whole included
    seconds: float

    @property
    def intensity(self) -> float:
        """FLOP for each byte moved."""
        return self.flop / self.bytes

    @property
    def flop_per_second(self) -> float:
        """FLOP/s that are reached."""
        return self.flop / self.seconds


def peak_flops(arch: Architecture, gpu: GpuType) -> float:
    """Dense FLOP/s of one GPU in the precision that multiplies the weights of `arch`."""
    return dict(gpu.flops)[compute_column(arch.precision, gpu)]


def ridge(arch: Architecture, gpu: GpuType) -> float:
    """FLOP per byte at which memory bandwidth and arithmetic take equally long."""
    return peak_flops(arch, gpu) / gpu.memory_bandwidth_bytes_per_second


def decode(arch: Architecture, gpu: GpuType, shape: Shape, *, batch: float, context_tokens: float) -> Phase:
    """One plain step of one token for each of `batch` sequences of `context_tokens`."""
    ranks = shape.tensor_parallel * shape.pipeline_parallel
    flop = batch * (_weight_flop(arch) + _head_flop(arch) + _attention_flop(arch, context_tokens))
    moved = rank_weight_bytes(arch, shape.tensor_parallel, batch) + batch * _kept_bytes(arch, shape, context_tokens)
    times = replica_times(arch, gpu, Shape(tensor_parallel=shape.tensor_parallel, kv_dtype=shape.kv_dtype))
    return Phase(
        name=f"decode, batch {batch:.0f}",
        flop=flop / ranks,
        bytes=moved / shape.pipeline_parallel,
        seconds=times.decode(batch, context_tokens),
    )


def prefill(arch: Architecture, gpu: GpuType, shape: Shape, lengths: Lengths) -> Phase:
    """A mean prompt, alone on the replica."""
    ranks = shape.tensor_parallel * shape.pipeline_parallel
    tokens = lengths.input_mean
    chunk = shape.max_num_batched_tokens or engine_defaults(gpu)[1]
    times = replica_times(arch, gpu, Shape(tensor_parallel=shape.tensor_parallel, kv_dtype=shape.kv_dtype))
    chunks = max(1.0, tokens / chunk)
    # A token attends to the half of the prompt that comes before it, on average. The last one alone goes to the head.
    flop = tokens * (_weight_flop(arch) + _attention_flop(arch, tokens / 2.0)) + _head_flop(arch)
    moved = chunks * rank_weight_bytes(arch, shape.tensor_parallel, min(tokens, chunk))
    moved += _kept_bytes(arch, shape, tokens)
    return Phase(
        name="prefill",
        flop=flop / ranks,
        bytes=moved / shape.pipeline_parallel,
        seconds=times.prefill(tokens, chunk)[0],
    )


class Use(Value, frozen=True, kw_only=True):
    """What a load makes of a GPU, of wall time (what is paid): shares 0..1 of its peaks."""

    mfu: float  # FLOP/s that the model needs over dense peak
    mbu: float  # bytes/s that it moves over memory bandwidth
    prefill_share: float  # of the time that its steps take


def use(
    arch: Architecture,
    gpu: GpuType,
    shape: Shape,
    lengths: Lengths,
    *,
    rps: float,
    batch: float,
    tokens_per_step: float = 1.0,
) -> Use:
    """MFU and MBU of a replica at `rps` that decodes `batch` sequences together.

    Steps of decode a second follow from tokens a second and the batch; below one sequence each step serves one. Of
    drafts only what is emitted counts: FLOP on rejected tokens are no use. With pipeline stages, `batch` is that of one
    micro-batch.
    """
    sequences = max(1.0, batch)
    context = lengths.input_mean + lengths.output_mean / 2.0
    prompt = prefill(arch, gpu, shape, lengths)
    step = decode(arch, gpu, shape, batch=sequences, context_tokens=context)
    gaps = rps * max(0.0, lengths.output_mean - 1.0) / sequences
    steps = gaps / tokens_per_step
    decoding, prompting = steps * step.seconds, rps * prompt.seconds
    busy = decoding + prompting
    return Use(
        mfu=min(1.0, (rps * prompt.flop + gaps * step.flop) / peak_flops(arch, gpu)),
        mbu=min(1.0, (rps * prompt.bytes + steps * step.bytes) / gpu.memory_bandwidth_bytes_per_second),
        prefill_share=prompting / busy if busy > 0.0 else 0.0,
    )


def _weight_flop(arch: Architecture) -> float:
    """FLOP of one token with all weights of the layers that it visits."""
    return _FLOP_PER_PARAMETER * (arch.active_parameters - arch.embedding_parameters - arch.head_parameters)


def _head_flop(arch: Architecture) -> float:
    """FLOP of one token with the output head."""
    return _FLOP_PER_PARAMETER * arch.head_parameters


def _attention_flop(arch: Architecture, context_tokens: float) -> float:
    """FLOP of one token with the tokens that it attends to, or with the state that stands for them."""
    return sum(
        group.reading_layers
        * group.attention_flops
        * (1.0 if group.kind is LayerKind.STATE else _seen(group, context_tokens))
        for group in arch.kv_layers
    )


def rank_weight_bytes(arch: Architecture, tensor_parallel: int, tokens: float) -> float:
    """Bytes of weights that one tensor rank reads in a step of so many tokens: E*(1-(1-k/E)^t) of E experts.

    That is what equally popular experts need; how few of them a step does with is fitted to times (`efficiency`).
    """
    weights = rank_weights(arch, Parallel(tensor=tensor_parallel))
    untouched: float = (1.0 - arch.expert_share) ** tokens
    head = arch.head_parameters * arch.plain_bytes / tensor_parallel
    return weights.attention + weights.dense + head + weights.experts * (1.0 - untouched)


def _kept_bytes(arch: Architecture, shape: Shape, context_tokens: float) -> float:
    """Bytes of one sequence that one tensor rank reads of the KV cache; states are read and written."""
    form, tensor = kv_format(shape.kv_dtype), shape.tensor_parallel
    return sum(
        2.0 * group.state_bytes / tensor
        if group.kind is LayerKind.STATE
        else group.reading_layers * rank_token_bytes(group, form, tensor) * _seen(group, context_tokens)
        for group in arch.kv_layers
    )


def _seen(group: KvLayers, context_tokens: float) -> float:
    """Tokens of a context that these layers attend to; of a chunk, half on average."""
    limit = float(group.window_tokens or group.attended_tokens)
    if group.kind is LayerKind.CHUNK:
        limit *= 0.5
    return min(context_tokens, limit) if limit else context_tokens
