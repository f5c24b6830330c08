"""Time of one engine step of a replica, from its architecture, its GPUs and what they reach of their peaks.

  step = dense weights and experts, each read (bytes / (bandwidth * MBU)) and multiplied (FLOP / (peak * MFU))
         + KV bytes / (bandwidth * MBU_kv) + attention FLOP of prompts / (peak * MFU_attention)
         + all-reduces + overhead per layer, step and sequence

Reading and multiplying overlap: experts take the longer of the two; dense weights sqrt(read^2 + multiply^2), which is
the longer one but near the ridge, where a matrix product is slower than either roof (kernels at 128 to 512 rows).
Communication is not hidden behind compute.
"""

from __future__ import annotations

from math import ceil, hypot, log2, sqrt
from statistics import NormalDist

from goodput.domain.architecture import Architecture, LayerKind
from goodput.domain.intent import GpuType
from goodput.domain.values import Value
from goodput.perfmodel.efficiency import BLOCK_FP8, WEIGHT_ONLY, Efficiency, efficiency, experts_touched, share_of
from goodput.perfmodel.kvcache import rank_token_bytes
from goodput.perfmodel.precision import WEIGHT_FORMATS, KvFormat, compute_column, kv_format
from goodput.perfmodel.weights import Parallel, rank_weights

_BF16_BYTES = 2.0
# Multiply and add of one parameter for one token.
_FLOP_PER_PARAMETER = 2.0


class StepTimes(Value, frozen=True, kw_only=True):
    """Coefficients of a step, in seconds; corrections are already in them.

    `batch` is the number of sequences that decode in one micro-batch of the replica: with p pipeline stages, 1/p of
    those in flight.
    """

    weights: float  # reading the weights that every token needs
    experts: float  # reading all experts of all layers (0: dense)
    expert_share: float  # experts a token visits / experts there are
    expert_evenness: float  # shape of the gamma distribution of their popularity
    rank_experts: float  # experts that a rank has, whole or a part of each
    rank_visits: float  # of these, how many a token visits
    fullest_rank: float = 0.0  # standard deviations by which the rank that most come to is above the mean one
    token_compute: float  # matrix products of one token with the dense weights
    token_expert_compute: float  # the same with the experts that it visits
    token_moves: float = 0.0  # sorting one token by experts and adding their answers up
    expert_padding: float = 0.0  # products with nothing that fill up tiles, were all experts touched
    kv_token: float  # reading one token of context in the layers that see all of it
    # The same in layers that see a limited number of tokens: (tokens, seconds of one).
    kv_windows: tuple[tuple[float, float], ...] = ()
    token_context_attention: float  # attention of one prompt token over one earlier token, in layers that see all
    attention_windows: tuple[tuple[float, float], ...] = ()
    sequence_state: float = 0.0  # reading and writing the state of a sequence (state-space layers)
    fixed: float  # launches and all-reduces that every step pays
    prompt_step: float  # least time of a step with prompt tokens: the host launches its kernels one by one
    token_communication: float  # all-reduces, for one token of the step
    sequence: float
    data_parallel: float = 1.0  # ranks that hold attention for sequences of their own
    request: float  # what a request pays once, before it is scheduled and after
    request_token: float  # the same for each token of its prompt

    def reads(self, tokens: float) -> float:
        """Time to read the weights that a step of `tokens` tokens touches."""
        if not self.experts:
            return self.weights
        return self.weights + self.experts * experts_touched(self.expert_share, tokens, self.expert_evenness)

    def products(self, batch: float, prompt_tokens: float = 0.0) -> float:
        """Matrix products of a step: reads and compute, of dense weights and of experts.

        The tokens of a prompt are all on one data-parallel rank, and the others wait for it at the experts.
        """
        dense = hypot(self.weights, (batch + prompt_tokens * self.data_parallel) * self.token_compute)
        if not self.experts:
            return dense
        tokens = batch + prompt_tokens
        return dense + self._expert_products(tokens) + tokens * self.token_moves

    def _expert_products(self, tokens: float) -> float:
        """The slower of reads and compute of the experts that `tokens` tokens touch, on the fullest rank."""
        if tokens <= 0.0:
            return 0.0
        mean = experts_touched(self.expert_share, tokens, self.expert_evenness)
        touched = min(1.0, mean + self.fullest_rank * sqrt(mean * (1.0 - mean) / self.rank_experts))
        # How many tokens come to a rank varies as drawing does, and with the popularity of its experts.
        drawing, popularity = tokens * self.rank_visits, self.expert_evenness * self.rank_experts
        fullest = tokens * (1.0 + self.fullest_rank * sqrt(1.0 / drawing + 1.0 / popularity))
        # Grouped products work in tiles of rows, and every expert that is touched fills its last one with nothing.
        compute = fullest * self.token_expert_compute + touched * self.expert_padding
        return max(self.experts * touched, compute)

    def context_reads(self, context_tokens: float) -> float:
        """Time to read what is kept of one sequence of `context_tokens`."""
        seconds = context_tokens * self.kv_token + self.sequence_state
        for window, token in self.kv_windows:
            seconds += min(context_tokens, window) * token
        return seconds

    def prompt_attention(self, tokens: float) -> float:
        """Attention of a prompt of `tokens` over itself: n*n/2 pairs, of which a window w leaves n*w - w*w/2."""
        seconds = 0.5 * tokens * tokens * self.token_context_attention
        for window, pair in self.attention_windows:
            seen = min(tokens, window)
            seconds += (tokens - 0.5 * seen) * seen * pair
        return seconds

    def decode(self, batch: float, context_tokens: float, tokens: float = 1.0) -> float:
        """A step of `batch` sequences of `context_tokens` on average, `tokens` of each (more than one: of a draft).

        What is kept of a sequence is read once for all of its tokens.
        """
        each = self.context_reads(context_tokens) + tokens * (self.sequence + self.token_communication)
        return self.products(batch * tokens) + batch * each + self.fixed

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a sequence gains in a decode step."""
        return 1.0

    def step(self, batch: float, context_tokens: float) -> float:
        """One engine step of `batch` sequences: what the engine observes as inter-token latency."""
        return self.decode(batch, context_tokens)

    def mixed(self, batch: float, context_tokens: float, tokens: float, attention: float) -> float:
        """A decode step that also takes in `tokens` of prompts whose attention costs `attention` seconds."""
        each = self.context_reads(context_tokens) + self.sequence + self.token_communication
        busy = self.products(batch, tokens) + batch * each + tokens * self.token_communication + attention + self.fixed
        return max(busy, self.prompt_step)

    def prefill(self, tokens: float, chunk_tokens: int, batch: float = 0.0) -> tuple[float, float]:
        """(time of the steps that take in a prompt of `tokens`, what they cost beyond plain steps of `batch`).

        The time leaves out what the `batch` sequences that decode meanwhile cost for their contexts.
        """
        chunks = max(1, ceil(tokens / chunk_tokens))
        per_chunk = tokens / chunks
        busy = self.mixed(0.0, 0.0, per_chunk, self.prompt_attention(tokens) / chunks)
        busy += self.products(batch, per_chunk) - self.products(0.0, per_chunk)
        plain = self.products(batch) + self.fixed
        return chunks * busy, max(0.0, chunks * (busy - plain))


def step_times(
    arch: Architecture,
    gpu: GpuType,
    tensor_parallel: int = 1,
    speed: float = 1.0,
    *,
    prefill_speed: float = 1.0,
    pipeline_parallel: int = 1,
    data_parallel: int = 1,
    expert_parallel: bool = False,
    kv_dtype: str = "auto",
    reached: Efficiency | None = None,
) -> StepTimes:
    """Coefficients of all layers of `arch` over `tensor_parallel` * `data_parallel` GPUs a stage.

    With data parallelism each of its ranks holds attention for sequences of its own, and experts are spread over all
    ranks; `batch` of the result counts the sequences of all of them. With pipeline stages a token passes all of them
    one after the other, so the times are those of all layers, for one micro-batch.

    `speed` is true over believed speed of decode, as learned from live inter-token times: it moves what decode pays
    for (memory reads, launches). `prefill_speed` moves arithmetic of prompts: the two efficiencies err independently.
    `reached` replaces the prior of the GPU type. Raises `InvalidObject` for a KV dtype that is not known.
    """
    reach = reached or efficiency(gpu.name, gpu.scale_up_bytes_per_second)
    rank = _Rank(arch, gpu, reach, tensor_parallel, kv_format(kv_dtype))
    weights = rank_weights(arch, Parallel(tensor=tensor_parallel, data=data_parallel, expert=expert_parallel))
    attention_format, dense_format = (
        _format(arch, each) for each in (arch.stored_attention_bytes, arch.stored_dense_bytes)
    )
    attention_parameters = weights.attention / arch.stored_attention_bytes
    dense_parameters = weights.dense / arch.stored_dense_bytes
    head_bytes = arch.head_parameters * arch.plain_bytes / tensor_parallel
    data = float(data_parallel)
    expert_ranks = tensor_parallel * data_parallel if expert_parallel else 1
    expert_compute = rank.multiply(weights.experts / arch.quantised_bytes, expert_format(arch)) / reach.expert_flops
    kv = rank.kept()
    latency, token_communication = _communication(arch, reach, tensor_parallel, data_parallel)
    fixed = reach.layer_seconds * arch.layers + reach.sparse_layer_seconds * arch.sparse_layers + reach.step_seconds
    fixed += reach.block_layer_seconds * arch.layers if BLOCK_FP8 in (attention_format, dense_format) else 0.0
    fixed += reach.data_parallel_seconds if data_parallel > 1 else 0.0
    fixed += latency + reach.hand_over_seconds * (pipeline_parallel - 1)
    prompt_layer = reach.prompt_layer_seconds + reach.prompt_layer_doubling_seconds * log2(tensor_parallel)
    prompt_step = prompt_layer * arch.layers + reach.sparse_prompt_layer_seconds * arch.sparse_layers
    slower, prompt_slower = 1.0 / speed, 1.0 / prefill_speed
    each = slower / data  # what a data-parallel rank does for its own sequences only
    return StepTimes(
        weights=slower
        * (
            rank.read(weights.attention, attention_format)
            + rank.read(weights.dense, dense_format)
            + rank.read(head_bytes, "bf16")
        ),
        experts=slower * weights.experts / (rank.bandwidth * reach.expert_bandwidth),
        expert_share=arch.expert_share,
        expert_evenness=reach.expert_evenness,
        rank_experts=arch.experts / expert_ranks,
        rank_visits=arch.experts_per_token / expert_ranks,
        fullest_rank=_fullest(expert_ranks),
        token_compute=prompt_slower
        / data
        * (rank.multiply(attention_parameters, attention_format) + rank.multiply(dense_parameters, dense_format)),
        token_expert_compute=prompt_slower * expert_compute * arch.expert_share,
        token_moves=prompt_slower / data * _moved_bytes(arch) * reach.expert_copies / rank.bandwidth,
        expert_padding=prompt_slower * expert_compute * reach.expert_padding_tokens,
        kv_token=each * kv.token,
        kv_windows=tuple((window, each * token) for window, token in kv.windows),
        token_context_attention=prompt_slower * kv.pair,
        attention_windows=tuple((window, prompt_slower * pair) for window, pair in kv.pair_windows),
        sequence_state=each * kv.state,
        fixed=slower * fixed,
        prompt_step=prompt_slower * prompt_step,
        token_communication=prompt_slower * token_communication,
        sequence=slower * reach.sequence_seconds,
        data_parallel=data,
        request_token=reach.request_token_seconds,
        request=reach.request_seconds,
    )


def _fullest(ranks: int) -> float:
    """Expected standard deviations of the largest of so many normal numbers above their mean (Blom 1958)."""
    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25)) if ranks > 1 else 0.0


def _moved_bytes(arch: Architecture) -> float:
    """Bytes of one token's vector for each expert that it visits, in all layers; on every tensor rank whole."""
    return arch.sparse_layers * arch.experts_per_token * arch.hidden_size * _BF16_BYTES


def _format(arch: Architecture, parameter_bytes: float) -> str:
    """Format of a part of the checkpoint whose parameters take `parameter_bytes`."""
    if parameter_bytes >= arch.plain_bytes:
        return "bf16"
    if parameter_bytes == WEIGHT_FORMATS["fp8"].bytes_per_parameter != arch.quantised_bytes:
        return "fp8"
    # A mean over modules of which some are left as they were: as most of them are.
    return expert_format(arch) if 2.0 * parameter_bytes < arch.quantised_bytes + arch.plain_bytes else "bf16"


def expert_format(arch: Architecture) -> str:
    """Format of what is quantised as kernels tell them apart: fp8 with a scale for each block has its own."""
    return BLOCK_FP8 if arch.precision == "fp8" and arch.block_scales else arch.precision


class _Kept(Value, frozen=True, kw_only=True):
    """Seconds on one rank: KV reads of a context token in decode, attention of a pair of tokens in prefill, state."""

    token: float
    windows: tuple[tuple[float, float], ...]
    pair: float
    pair_windows: tuple[tuple[float, float], ...]
    state: float


class _Rank(Value, frozen=True):
    """One rank and what it reaches of its peaks."""

    arch: Architecture
    gpu: GpuType
    reach: Efficiency
    tensor_parallel: int
    kv: KvFormat

    @property
    def bandwidth(self) -> float:
        """Bytes/s of the data sheet."""
        return self.gpu.memory_bandwidth_bytes_per_second

    def read(self, weight_bytes: float, stored: str) -> float:
        """Seconds to read weights that every token needs."""
        return weight_bytes / (self.bandwidth * share_of(self.reach.weight_bandwidth, self._kernels(stored)[0]))

    def multiply(self, parameters: float, stored: str) -> float:
        """Seconds of the products of one token."""
        kernels, column = self._kernels(stored)
        peak = share_of(self.gpu.flops, column)
        return _FLOP_PER_PARAMETER * parameters / (peak * share_of(self.reach.flops, kernels))

    def _kernels(self, stored: str) -> tuple[str, str]:
        """(format by which shares are named, column of peaks) for weights as stored.

        What the GPU has no arithmetic for is unpacked to bf16. The activations of mxfp4 are fp8, and so is the rate.
        """
        column = compute_column("fp8" if stored == BLOCK_FP8 else stored, self.gpu)
        if column == "bf16":
            return ("bf16" if stored == "bf16" else WEIGHT_ONLY), column
        return stored, ("fp8" if stored == "mxfp4" else column)

    def kept(self) -> _Kept:
        """Attention over what the layers keep."""
        token, pair, state = 0.0, 0.0, 0.0
        windows: list[tuple[float, float]] = []
        pair_windows: list[tuple[float, float]] = []
        flops = share_of(self.gpu.flops, "bf16") * self.reach.attention_flops
        narrow = self.kv.element_bytes < _BF16_BYTES
        bandwidth = self.bandwidth * (self.reach.kv_bandwidth_fp8 if narrow else self.reach.kv_bandwidth)
        for group in self.arch.kv_layers:
            if group.kind is LayerKind.STATE:
                # Read and written in every step.
                state += 2.0 * group.state_bytes / self.tensor_parallel / bandwidth
                continue
            one = rank_token_bytes(group, self.kv, self.tensor_parallel) * group.reading_layers / bandwidth
            if group.latent and group.elements_per_head:
                # Every head multiplies the one vector, as K and as V: that may take longer than reading it.
                heads = self.arch.attention_heads / self.tensor_parallel
                one = max(one, 4.0 * group.layers * heads * group.elements_per_head / flops)
            products = group.reading_layers * group.attention_flops / self.tensor_parallel / flops
            seen = float(group.window_tokens or group.attended_tokens)
            if group.kind is LayerKind.CHUNK:
                seen *= 0.5  # the mean of a token's place in its chunk
            if seen:
                windows.append((seen, one))
                pair_windows.append((seen, products))
            else:
                token += one
                pair += products
        return _Kept(token=token, windows=tuple(windows), pair=pair, pair_windows=tuple(pair_windows), state=state)


def _communication(
    arch: Architecture, reach: Efficiency, tensor_parallel: int, data_parallel: int
) -> tuple[float, float]:
    """(latency of a step's all-reduces, seconds of their bytes for one token).

    Two a layer with tensor parallelism. With data parallelism the second, round the experts, is a gather and a scatter
    over all ranks: as much as an all-reduce.
    """
    latency, seconds = 0.0, 0.0
    message = _BF16_BYTES * arch.hidden_size / reach.all_reduce_bytes_per_second
    for size in (tensor_parallel, tensor_parallel * data_parallel):
        if size > 1:
            latency += reach.all_reduce_seconds + reach.all_reduce_doubling_seconds * (log2(size) - 1.0)
            seconds += message * 2.0 * (size - 1.0) / size
    return arch.layers * latency, arch.layers * seconds
