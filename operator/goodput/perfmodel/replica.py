"""The constants of one replica: what its steps cost, what requests bring, and what bounds the sequences in flight."""

from __future__ import annotations

from functools import lru_cache
from math import hypot, inf
from typing import Protocol

from goodput.domain.architecture import Architecture
from goodput.domain.errors import ModelDoesNotFit
from goodput.domain.intent import GpuType
from goodput.domain.remembered import for_each_model
from goodput.domain.speculation import Speculation
from goodput.domain.values import Value
from goodput.perfmodel.drafters import added_weight_bytes, drafter, with_drafter
from goodput.perfmodel.lengths import INPUT_EDGES, OUTPUT_EDGES, LengthClass, Lengths, classes
from goodput.perfmodel.memory import KvPool, engine_defaults, fit
from goodput.perfmodel.roofline import StepTimes, step_times
from goodput.perfmodel.speculation import Drafts, SpeculativeTimes
from goodput.perfmodel.weights import Parallel, cannot_split

# Share of its token budget beyond which the queue of a replica has no useful average.
BUSY_LIMIT = 0.97


class Shape(Value, frozen=True, kw_only=True):
    """Parallelism and limits of one replica."""

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    max_num_seqs: int | None = None  # None: the engine's default
    max_num_batched_tokens: int | None = None
    kv_dtype: str = "auto"  # precision of the KV cache, as the engine names it
    # Who drafts, which takes memory, and what its drafts are worth. Both or none: plain decoding.
    speculation: Speculation | None = None
    drafts: Drafts | None = None


class Steps(Protocol):
    """What decode steps cost, in seconds."""

    def step(self, batch: float, context_tokens: float) -> float:
        """A step in which each of `batch` sequences of `context_tokens` decodes."""

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a sequence gains in it: more than one where it speculates."""


class PromptTimes(Protocol):
    """What prompts add to steps, in seconds (`roofline.StepTimes`; a simulated plant's in the benchmark)."""

    def products(self, batch: float, prompt_tokens: float = 0.0) -> float:
        """Matrix products of a step: the slower of reads and arithmetic."""

    def prompt_attention(self, tokens: float) -> float:
        """Attention of a prompt over itself."""

    def prefill(self, tokens: float, chunk_tokens: int) -> tuple[float, float]:
        """(time of the steps that take in a prompt of `tokens` alone, what they add to plain steps)."""

    @property
    def token_communication(self) -> float:
        """All-reduces of one token."""

    @property
    def prompt_step(self) -> float:
        """The least time of a step with a prompt."""

    @property
    def request(self) -> float:
        """What a request pays once, before it is scheduled."""

    @property
    def request_token(self) -> float:
        """The same for each token of its prompt."""


class Prompt(Value, frozen=True, kw_only=True):
    """One class of prompts: `share` of requests, tokens, and the seconds of arithmetic with their deviation."""

    share: float
    tokens: float
    compute_seconds: float
    compute_deviation: float
    hideable: float  # share of it that memory reads of the step may hide: products, not attention or communication
    request_seconds: float  # between arrival and scheduler
    alone_seconds: float  # of the steps that take it in on an idle replica


class Replica(Value, frozen=True, kw_only=True):
    """What is constant while the rate varies; of a pipeline, one of its `stages` shares of the work in flight."""

    times: Steps
    prompt_times: PromptTimes
    batched_tokens: int
    prompts: tuple[Prompt, ...]
    outputs: tuple[LengthClass, ...]
    input_mean: float
    output_mean: float
    context: float  # mean tokens of a sequence in flight
    context_variation: float  # their coefficient of variation
    token_seconds: float  # products of one token of a large prompt
    hiding_seconds: float  # KV reads of one sequence that arithmetic of prompts may hide behind
    compute_mean: float  # of a prompt
    compute_square: float  # second moment
    alone_mean: float
    tokens_per_step: float
    sequences_limit: float  # max-num-seqs
    kv_sequences: float  # of mean context that the KV pool holds
    kv_tokens: int
    # Variance over mean of how many requests come while one is served: 1 of a Poisson process, less where a router
    # evens out what several replicas get.
    dispersion: float = 1.0

    @property
    def decode_steps(self) -> float:
        """Steps that a mean request decodes in; its first token comes with the prompt."""
        return max(0.0, self.output_mean - 1.0) / self.tokens_per_step

    @property
    def slots(self) -> float:
        """Sequences that may run at once."""
        return min(self.sequences_limit, self.kv_sequences)

    @property
    def most_arrivals(self) -> float:
        """Requests per step that fill the share of the token budget which a queue can bear."""
        return BUSY_LIMIT * self.batched_tokens / (self.input_mean + self.decode_steps)


def replica_pool(arch: Architecture, gpu: GpuType, shape: Shape) -> KvPool:
    """Memory of one replica, its drafter's weights (spread over the tensor ranks) and KV layers included.

    Raises `ModelDoesNotFit`.
    """
    speculation = shape.speculation
    drafting = None if speculation is None else drafter(arch, speculation)
    refused = None if drafting is None else cannot_split(drafting, Parallel(tensor=shape.tensor_parallel))
    if drafting is not None and refused is not None:
        raise ModelDoesNotFit("parallelism", f"its drafter {drafting.name}: {refused[1]}")
    added = 0.0 if speculation is None else added_weight_bytes(arch, speculation) / shape.tensor_parallel
    return fit(
        with_drafter(arch, speculation),
        gpu,
        shape.tensor_parallel,
        shape.pipeline_parallel,
        kv_dtype=shape.kv_dtype,
        max_num_seqs=shape.max_num_seqs,
        max_num_batched_tokens=shape.max_num_batched_tokens,
        extra_weight_bytes=added,
        speculative_tokens=0 if shape.drafts is None else shape.drafts.tokens,
    )


def replica_times(
    arch: Architecture, gpu: GpuType, shape: Shape, correction: float = 1.0, prefill_correction: float = 1.0
) -> StepTimes | SpeculativeTimes:
    """Step times of one pipeline stage set; `decode` of one that speculates is the time of an emitted token."""
    target = _step_times(arch, gpu, shape, correction, prefill_correction)
    if shape.speculation is None or shape.drafts is None:
        return target
    drafting = drafter(arch, shape.speculation)
    draft = None if drafting is None else _step_times(drafting, gpu, shape, correction, prefill_correction)
    return SpeculativeTimes(target=target, draft=draft, drafts=shape.drafts)


def _step_times(
    arch: Architecture, gpu: GpuType, shape: Shape, correction: float, prefill_correction: float
) -> StepTimes:
    return step_times(
        arch,
        gpu,
        shape.tensor_parallel,
        correction,
        prefill_speed=prefill_correction,
        pipeline_parallel=shape.pipeline_parallel,
        kv_dtype=shape.kv_dtype,
    )


@lru_cache(maxsize=for_each_model(2))
def replica(
    arch: Architecture,
    gpu: GpuType,
    shape: Shape,
    lengths: Lengths,
    *,
    correction: float = 1.0,
    prefill_correction: float = 1.0,
) -> Replica:
    """The constants of a replica; corrections are true over believed speed of decode and of prefill.

    Raises `ModelDoesNotFit`.
    """
    pool = replica_pool(arch, gpu, shape)
    sequences, batched_tokens = engine_defaults(gpu)
    batched_tokens = shape.max_num_batched_tokens or batched_tokens
    times = replica_times(arch, gpu, shape, correction, prefill_correction)
    target = _step_times(arch, gpu, shape, correction, prefill_correction)
    drafting = times.prefill(batched_tokens, batched_tokens)[0] / target.prefill(batched_tokens, batched_tokens)[0]
    return replica_of(
        times,
        target,
        lengths,
        batched_tokens=batched_tokens,
        max_num_seqs=(shape.max_num_seqs or sequences) / shape.pipeline_parallel,
        kv_sequences=pool.sequences(context_tokens(lengths)) / shape.pipeline_parallel,
        kv_tokens=pool.tokens,
        drafting=drafting,
    )


def context_tokens(lengths: Lengths) -> float:
    """Mean tokens of a sequence in flight.

    Long outputs are in flight longer, so E[O^2]/(2 E[O]) of output are there.
    """
    square = lengths.output_mean * (1.0 + lengths.output_variation * lengths.output_variation)
    return lengths.input_mean + 0.5 * square


def replica_of(
    times: Steps,
    prompt_times: PromptTimes,
    lengths: Lengths,
    *,
    batched_tokens: int,
    max_num_seqs: float,
    kv_sequences: float = inf,
    kv_tokens: int = 0,
    hiding_seconds: float = 0.0,
    drafting: float = 1.0,
) -> Replica:
    """The constants of a replica; `drafting` is how much longer prompts take with a drafter that reads them too."""
    half = batched_tokens / 2.0
    unit = (prompt_times.products(0.0, 2.0 * half) - prompt_times.products(0.0, half)) / half
    prompts = []
    for each in classes(lengths.input_mean, lengths.input_variation, INPUT_EDGES):
        visible = each.tokens * prompt_times.token_communication + prompt_times.prompt_attention(each.tokens)
        compute = each.tokens * unit + visible
        prompts.append(
            Prompt(
                share=each.share,
                tokens=each.tokens,
                compute_seconds=drafting * compute,
                compute_deviation=drafting * compute / each.tokens * each.deviation,
                hideable=each.tokens * unit / compute,
                request_seconds=prompt_times.request + each.tokens * prompt_times.request_token,
                alone_seconds=drafting * prompt_times.prefill(each.tokens, batched_tokens)[0],
            )
        )
    context = context_tokens(lengths)
    # Prompts vary as they do; what is there of an output is nearly uniform on it.
    deviation = hypot(
        lengths.input_mean * lengths.input_variation, 0.5 * lengths.output_mean * lengths.output_variation
    )
    return Replica(
        times=times,
        prompt_times=prompt_times,
        batched_tokens=batched_tokens,
        prompts=tuple(prompts),
        outputs=classes(lengths.output_mean, lengths.output_variation, OUTPUT_EDGES),
        input_mean=lengths.input_mean,
        output_mean=lengths.output_mean,
        context=context,
        context_variation=deviation / context,
        token_seconds=unit,
        hiding_seconds=hiding_seconds,
        compute_mean=sum(each.share * each.compute_seconds for each in prompts),
        compute_square=sum(
            each.share * (each.compute_seconds * each.compute_seconds + each.compute_deviation**2) for each in prompts
        ),
        alone_mean=sum(each.share * each.alone_seconds for each in prompts),
        tokens_per_step=times.tokens_per_step,
        sequences_limit=max_num_seqs,
        kv_sequences=kv_sequences,
        kv_tokens=kv_tokens,
    )
