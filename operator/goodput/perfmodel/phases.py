"""Prefill and decode of a model as points under a roof: arithmetic intensity, and the FLOP/s that are reached.

A phase of FLOP F that moves B bytes has the intensity F / B. Where it is below the ridge point of a GPU (peak FLOP/s
over memory bandwidth) the bytes take longer than the arithmetic: memory bandwidth binds (Williams et al. 2009,
Roofline).
"""

from __future__ import annotations

from goodput.domain.architecture import Architecture, LayerKind
from goodput.domain.intent import GpuType
from goodput.domain.values import Value
from goodput.perfmodel.capacity import Shape, replica_times
from goodput.perfmodel.lengths import Lengths
from goodput.perfmodel.memory import engine_defaults
from goodput.perfmodel.precision import compute_column, kv_format

_FLOP_PER_PARAMETER = 2.0  # multiply and add


class Phase(Value, frozen=True, kw_only=True):
    """Work of one GPU in one phase, and how long it is believed to take."""

    name: str
    flop: float
    bytes: float
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
    flop = batch * (_weight_flop(arch) + _attention_flop(arch, context_tokens))
    moved = _weight_bytes(arch, batch) + batch * _kept_bytes(arch, shape.kv_dtype, context_tokens)
    times = replica_times(arch, gpu, Shape(tensor_parallel=shape.tensor_parallel, kv_dtype=shape.kv_dtype))
    return Phase(
        name=f"decode, batch {batch:.0f}",
        flop=flop / ranks,
        bytes=moved / ranks,
        seconds=times.decode(batch, context_tokens),
    )


def prefill(arch: Architecture, gpu: GpuType, shape: Shape, lengths: Lengths) -> Phase:
    """A mean prompt, alone on the replica."""
    ranks = shape.tensor_parallel * shape.pipeline_parallel
    tokens = lengths.input_mean
    chunk = shape.max_num_batched_tokens or engine_defaults(gpu)[1]
    times = replica_times(arch, gpu, Shape(tensor_parallel=shape.tensor_parallel, kv_dtype=shape.kv_dtype))
    chunks = max(1.0, tokens / chunk)
    # A token attends to the half of the prompt that comes before it, on average.
    flop = tokens * (_weight_flop(arch) + _attention_flop(arch, tokens / 2.0))
    moved = chunks * _weight_bytes(arch, min(tokens, chunk)) + _kept_bytes(arch, shape.kv_dtype, tokens)
    return Phase(name="prefill", flop=flop / ranks, bytes=moved / ranks, seconds=times.prefill(tokens, chunk)[0])


class Use(Value, frozen=True, kw_only=True):
    """What a load makes of a GPU, of wall time (what is paid): shares 0..1 of its peaks, and what takes its steps."""

    mfu: float  # FLOP/s that the model needs over dense peak
    mbu: float  # bytes/s that it moves over memory bandwidth
    prefill_share: float  # of the time that its steps take
    compute_bound: bool  # arithmetic, not memory bandwidth, takes most of the time of its steps


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
    computing = prompting + (decoding if step.intensity > ridge(arch, gpu) else 0.0)
    busy = decoding + prompting
    return Use(
        mfu=min(1.0, (rps * prompt.flop + gaps * step.flop) / peak_flops(arch, gpu)),
        mbu=min(1.0, (rps * prompt.bytes + steps * step.bytes) / gpu.memory_bandwidth_bytes_per_second),
        prefill_share=prompting / busy if busy > 0.0 else 0.0,
        compute_bound=computing > 0.5 * busy,
    )


def _weight_flop(arch: Architecture) -> float:
    """FLOP of one token with all weights that it visits."""
    return _FLOP_PER_PARAMETER * (arch.active_parameters - arch.embedding_parameters)


def _attention_flop(arch: Architecture, context_tokens: float) -> float:
    """FLOP of one token with the tokens that it attends to."""
    return sum(
        group.layers * group.attention_flops * _seen(group.window_tokens, context_tokens)
        for group in arch.kv_layers
        if group.kind is not LayerKind.STATE
    )


def _weight_bytes(arch: Architecture, tokens: float) -> float:
    """Bytes of weights that a step of so many tokens reads: E*(1-(1-k/E)^t) of E experts."""
    experts = arch.expert_parameters * arch.quantised_bytes
    others = arch.weight_bytes - arch.embedding_parameters * arch.plain_bytes - experts
    untouched: float = (1.0 - arch.expert_share) ** tokens
    return others + experts * (1.0 - untouched)


def _kept_bytes(arch: Architecture, kv_dtype: str, context_tokens: float) -> float:
    """Bytes of one sequence in the KV cache, states included."""
    element = kv_format(kv_dtype).element_bytes
    return sum(
        group.state_bytes or group.bytes_per_token(element) * _seen(group.window_tokens, context_tokens)
        for group in arch.kv_layers
    )


def _seen(window_tokens: int, context_tokens: float) -> float:
    return min(context_tokens, float(window_tokens)) if window_tokens else context_tokens
