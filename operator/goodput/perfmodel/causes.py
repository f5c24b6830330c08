"""Why the nearest option misses an SLO, in words: the phase that takes the time, and what binds it there."""

from __future__ import annotations

from enum import StrEnum
from math import ceil

from goodput.domain.percent import percent
from goodput.domain.values import Value
from goodput.perfmodel.binding import Bottleneck, Taken, decode_taken, prefill_taken
from goodput.perfmodel.judging import Option
from goodput.perfmodel.memory import engine_defaults
from goodput.perfmodel.phases import rank_weight_bytes
from goodput.perfmodel.queueing import Latency
from goodput.perfmodel.replica import context_tokens
from goodput.perfmodel.requirements import Requirements
from goodput.perfmodel.verdicts import duration

_GIB = 1024.0**3
_USELESS = {
    Bottleneck.COMPUTE: "whatever the memory bandwidth",
    Bottleneck.BANDWIDTH: "more FLOP/s do not help",
    Bottleneck.LAUNCHES: "whatever FLOP/s and memory bandwidth are",
    Bottleneck.COMMUNICATION: "which neither FLOP/s nor memory bandwidth make shorter",
    Bottleneck.HOST: "whatever the GPU",
}


class Missed(StrEnum):
    """The objective that is missed worst."""

    TTFT = "TTFT"
    TPOT = "TPOT"
    E2E = "end-to-end time"


class Slow(Value, frozen=True, kw_only=True):
    """What takes the time of the objective that is missed: of a lone request on an idle replica."""

    decode: bool  # whether decode takes most of it, not prefill
    taken: Taken  # of that phase: of a prompt, or of one step

    @property
    def binds(self) -> Bottleneck:
        """What takes most of it."""
        return self.taken.most


def slow(wanted: Requirements, option: Option, missed: Missed) -> Slow:
    """The phase that makes `option` miss, and what takes its time."""
    shape, context = option.shape, context_tokens(wanted.lengths)
    prompt = prefill_taken(wanted.arch, option.gpu, shape, wanted.lengths)
    step = decode_taken(wanted.arch, option.gpu, shape, batch=1.0, context_tokens=context)
    if missed is Missed.E2E:
        gained = 1.0 if shape.drafts is None else shape.drafts.tokens_per_step
        decode = (wanted.lengths.output_mean - 1.0) / gained * step.seconds > prompt.seconds
    else:
        decode = missed is Missed.TPOT
    return Slow(decode=decode, taken=step if decode else prompt)


def times(wanted: Requirements, at: Latency) -> dict[Missed, tuple[float | None, float, float]]:
    """Objective -> (its bound, mean of a replica, share that misses)."""
    return {
        Missed.TTFT: (wanted.objective.ttft_seconds, at.ttft_mean_seconds, at.ttft_misses),
        Missed.TPOT: (wanted.objective.tpot_seconds, at.tpot_mean_seconds, at.tpot_misses),
        Missed.E2E: (wanted.objective.e2e_seconds, at.e2e_seconds(wanted.lengths.output_mean), at.e2e_misses),
    }


def causes(wanted: Requirements, nearest: Option, at: Latency, missed: Missed, why: Slow) -> tuple[str, str]:
    """Sentences: what is missed `at` its load and why, and that replicas do not help, or hardly."""
    found = times(wanted, at)
    fine = [
        kind.value
        for kind, (bound, _, misses) in found.items()
        if bound is not None and misses <= 1.0 - wanted.objective.attainment
    ]
    others = f", {' and '.join(fine)} {'is' if len(fine) == 1 else 'are'} not" if fine else ""
    idle = nearest.idle or at
    alone = f"a request that is alone on {nearest.label} already takes {duration(times(wanted, idle)[missed][1])}"
    no_use = f"More replicas do not help: {alone}."
    if nearest.fleet is not None:
        no_use = (
            f"More replicas help little: {alone}, and {percent(1.0 - idle.good, 1)} of such requests are too late. "
            "A replica is given no less than a tenth of the rate that it keeps up with."
        )
    return f"{missed.value} is missed{others}. {_bound(wanted, nearest, why)}", no_use


def _bound(wanted: Requirements, option: Option, why: Slow) -> str:
    """The phase, what binds it, the work that takes the time, its share, and what does not help."""
    binds = why.binds
    share = f"{100.0 * why.taken.share(binds):.0f} % of its time on {option.gpus} x {option.gpu.name}"
    if binds is Bottleneck.HOST:
        return f"The host binds: {_work(wanted, option, why)}, {share}, {_USELESS[binds]}."
    bound = f"{binds.value}-bound" if binds in (Bottleneck.COMPUTE, Bottleneck.BANDWIDTH) else f"bound by {binds.value}"
    joint = ";" if binds is Bottleneck.BANDWIDTH else ","
    phase = "Decode" if why.decode else "Prefill"
    return f"{phase} is {bound}: {_work(wanted, option, why)}, {share}{joint} {_USELESS[binds]}."


def _work(wanted: Requirements, option: Option, why: Slow) -> str:
    arch, shape = wanted.arch, option.shape
    tokens = 1.0 if why.decode else wanted.lengths.input_mean
    what = "each token" if why.decode else f"a prompt of {tokens:.0f} tokens"
    if why.binds is Bottleneck.COMPUTE:
        flops = 2.0 * (arch.active_parameters - arch.embedding_parameters) * tokens
        return f"{what} takes {flops / 1e12:.3g} TFLOP"
    if why.binds is Bottleneck.BANDWIDTH:
        chunk = shape.max_num_batched_tokens or engine_defaults(option.gpu)[1]
        read = ceil(tokens / chunk) * rank_weight_bytes(arch, 1, min(tokens, chunk))
        return f"{what} reads {read / _GIB:.1f} GiB of weights"
    if why.binds is Bottleneck.LAUNCHES:
        return f"{what} waits until the kernels of {arch.layers} layers are launched"
    if why.binds is Bottleneck.COMMUNICATION:
        degrees = (shape.tensor_parallel, "ranks") if shape.tensor_parallel > 1 else (shape.pipeline_parallel, "stages")
        return f"{what} waits while {degrees[0]} {degrees[1]} exchange what they computed"
    return f"{what} is parsed and made into tokens"
