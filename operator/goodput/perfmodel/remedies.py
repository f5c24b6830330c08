"""What helps where no option meets an SLO: why it is missed, what cannot help, and what can, each tried on the model.

The order is by what it asks of the user: other GPUs or more of them change nothing that users see; lower precision may
change answers and begins as a canary; a looser objective changes the promise.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec.structs import replace

from goodput.domain.errors import InvalidObject
from goodput.domain.intent import GpuType
from goodput.domain.speculation import DraftMethod, Speculation, SpeculationMode
from goodput.domain.values import Value
from goodput.perfmodel.capacity import Latency
from goodput.perfmodel.judging import Option, Verdict, judge
from goodput.perfmodel.options import cheapest, options
from goodput.perfmodel.precision import cannot_run, with_precision
from goodput.perfmodel.requirements import Requirements
from goodput.perfmodel.roofline import step_times
from goodput.perfmodel.verdicts import duration

_GIB = 1024.0**3
# Formats that a checkpoint of wider weights may be quantised to, the one that changes answers least first.
_NARROWER = ("fp8", "int4")
# What helps less than this share is not worth a line.
_WORTH = 0.05
_CACHED_SHARES = (0.25, 0.5, 0.75, 0.9)
# When a method of drafting is worth a try.
_WHO = {
    DraftMethod.MTP: "the checkpoint brings layers for it",
    DraftMethod.EAGLE3: "where a head for this model exists",
    DraftMethod.NGRAM: "where answers quote their prompts (edits of code, summaries)",
}
# Steps in which a bound is loosened until it is met.
_LOOSENED = 1.25
_MOST_LOOSENED = 40


class Missed(StrEnum):
    """The objective that is missed worst."""

    TTFT = "TTFT"
    TPOT = "TPOT"
    E2E = "end-to-end time"


class Remedy(Value, frozen=True, kw_only=True):
    """Something that helps: `what` to do, the mean time that an idle replica then takes, and whether that is enough."""

    what: str
    seconds: float
    meets: bool
    option: Option | None = None


class Diagnosis(Value, frozen=True, kw_only=True):
    """Why the nearest option misses the SLO, and what helps, in this order."""

    missed: Missed
    bound_seconds: float
    seconds: float  # mean of an idle replica
    causes: tuple[str, ...]
    remedies: tuple[Remedy, ...]


def diagnose(wanted: Requirements, nearest: Option, every: Sequence[GpuType]) -> Diagnosis | None:
    """Why `nearest`, the best option there is, misses the SLO; None where it does not fit at all.

    `every` are the types that could be used if they were allowed.
    """
    if nearest.verdict is not Verdict.MISSES or nearest.idle is None:
        return None
    missed, bound, seconds = _worst(wanted, nearest.idle)
    return Diagnosis(
        missed=missed,
        bound_seconds=bound,
        seconds=seconds,
        causes=_causes(wanted, nearest, nearest.idle, missed),
        remedies=(
            *_hardware(wanted, nearest, missed, every),
            *_shorter(wanted, nearest, missed),
            *_drafts(wanted, nearest, missed, seconds),
            *_precision(wanted, nearest, missed, seconds),
            _looser(wanted, nearest, missed),
        ),
    )


def _times(wanted: Requirements, idle: Latency) -> dict[Missed, tuple[float | None, float, float]]:
    """Objective -> (its bound, mean of an idle replica, share that misses)."""
    whole = idle.ttft_mean_seconds + (wanted.lengths.output_mean - 1.0) * idle.tpot_mean_seconds
    return {
        Missed.TTFT: (wanted.objective.ttft_seconds, idle.ttft_mean_seconds, idle.ttft_misses),
        Missed.TPOT: (wanted.objective.tpot_seconds, idle.tpot_mean_seconds, idle.tpot_misses),
        Missed.E2E: (wanted.objective.e2e_seconds, whole, idle.e2e_misses),
    }


def _worst(wanted: Requirements, idle: Latency) -> tuple[Missed, float, float]:
    rows = [
        (misses, mean / bound, kind, bound, mean)
        for kind, (bound, mean, misses) in _times(wanted, idle).items()
        if bound is not None
    ]
    _, _, kind, bound, mean = max(rows, key=lambda row: (row[0], row[1]))
    return kind, bound, mean


def _mean(wanted: Requirements, option: Option, missed: Missed) -> float:
    return float("inf") if option.idle is None else _times(wanted, option.idle)[missed][1]


def _causes(wanted: Requirements, nearest: Option, idle: Latency, missed: Missed) -> tuple[str, str]:
    arch, gpu, tensor = wanted.arch, nearest.gpu, nearest.shape.tensor_parallel
    times = _times(wanted, idle)
    fine = [
        kind.value
        for kind, (bound, _, misses) in times.items()
        if bound is not None and misses <= 1.0 - wanted.objective.attainment
    ]
    others = f", {' and '.join(fine)} {'is' if len(fine) == 1 else 'are'} not" if fine else ""
    where = f"{tensor} x {gpu.name}"
    if missed is Missed.TTFT:
        flops = 2.0 * (arch.active_parameters - arch.embedding_parameters) * wanted.lengths.input_mean
        why = (
            f"Prefill is compute-bound: a prompt of {wanted.lengths.input_mean:.0f} tokens takes {flops / 1e12:.3g} "
            f"TFLOP on {where}, whatever the memory bandwidth."
        )
    else:
        context = wanted.lengths.input_mean + wanted.lengths.output_mean / 2.0
        step = step_times(arch, gpu, tensor)
        reading = 100.0 * step.reads(1.0) / step.decode(1.0, context)
        why = (
            f"Decode is bandwidth-bound: each token reads {arch.weight_bytes * _visited(wanted) / _GIB:.1f} GiB of "
            f"weights, which is {reading:.0f} % of its time on {where}; more FLOP/s do not help."
        )
    return (
        f"{missed.value} is missed{others}. {why}",
        f"More replicas do not help: a request that is alone on {nearest.label} already takes "
        f"{duration(times[missed][1])}.",
    )


def _visited(wanted: Requirements) -> float:
    """Share of the weights that one token is multiplied by."""
    arch = wanted.arch
    return (arch.active_parameters - arch.embedding_parameters) / arch.parameters


def _hardware(wanted: Requirements, nearest: Option, missed: Missed, every: Sequence[GpuType]) -> list[Remedy]:
    """More GPUs a replica, then other types."""
    found = []
    free = replace(wanted, tensor_parallel=None, pipeline_parallel=None)
    why = "more memory bandwidth" if missed is not Missed.TTFT else "more FLOP/s"
    larger = next((option for option in options(free, [nearest.gpu]) if option.meets), None)
    if larger is not None:
        found.append(_remedy(free, larger, missed, f"{larger.label}: {why} for one request"))
    others = [gpu for gpu in every if gpu.name != nearest.gpu.name]
    other = cheapest(free, others)
    if other is not None:
        cost = other.fleet.cost.per_hour if other.fleet is not None else None
        price = "" if cost is None else f", {cost:.2f} $/h"
        replicas = other.fleet.replicas if other.fleet is not None else 1
        found.append(_remedy(free, other, missed, f"GPUs with {why}: {replicas} x {other.label}{price}"))
    return found


def _drafts(wanted: Requirements, nearest: Option, missed: Missed, seconds: float) -> list[Remedy]:
    """Speculative decoding, which changes no answer, by published acceptance; the best that the checkpoint brings."""
    if missed is Missed.TTFT or wanted.speculation is not None:
        return []
    found = []
    own = DraftMethod.MTP if wanted.arch.mtp_layers else DraftMethod.EAGLE3
    for method, when in ((own, _WHO[own]), (DraftMethod.NGRAM, _WHO[DraftMethod.NGRAM])):
        speculation = Speculation(method=method, mode=SpeculationMode.ALWAYS)
        changed = replace(wanted, speculation=speculation)
        option = judge(changed, nearest.gpu, nearest.shape)
        if _mean(changed, option, missed) <= (1.0 - _WORTH) * seconds:
            found.append(_remedy(changed, option, missed, f"speculative decoding, {method.value}: {when}"))
    return found


def _precision(wanted: Requirements, nearest: Option, missed: Missed, seconds: float) -> list[Remedy]:
    """Narrower weights on the same GPUs."""
    found = []
    for name in _NARROWER:
        if cannot_run(name, nearest.gpu):
            continue
        try:
            changed = replace(wanted, arch=with_precision(wanted.arch, name))
        except InvalidObject:
            continue
        if changed.arch == wanted.arch:
            continue
        option = judge(changed, nearest.gpu, nearest.shape)
        if _mean(changed, option, missed) <= (1.0 - _WORTH) * seconds:
            what = f"{name} weights on {nearest.label} (answers may change: a canary, checked before traffic moves)"
            found.append(_remedy(changed, option, missed, what))
    return found


def _shorter(wanted: Requirements, nearest: Option, missed: Missed) -> list[Remedy]:
    """Prompts of which a part is in the prefix cache: the least of these shares that is enough."""
    if missed is not Missed.TTFT:
        return []
    for share in _CACHED_SHARES:
        lengths = replace(wanted.lengths, input_mean=max(1.0, wanted.lengths.input_mean * (1.0 - share)))
        changed = replace(wanted, lengths=lengths)
        option = judge(changed, nearest.gpu, nearest.shape)
        if option.meets:
            cached = f"{100.0 * share:.0f} % of each prompt"
            what = f"a prefix cache that holds {cached} (a system prompt that all share, earlier turns of a chat)"
            return [_remedy(changed, option, missed, what)]
    return []


def _looser(wanted: Requirements, nearest: Option, missed: Missed) -> Remedy:
    """The least of some bounds that an idle replica of the nearest option meets."""
    field = {Missed.TTFT: "ttft_seconds", Missed.TPOT: "tpot_seconds", Missed.E2E: "e2e_seconds"}[missed]
    bound = getattr(wanted.objective, field)
    option = nearest
    for _ in range(_MOST_LOOSENED):
        bound = float(f"{bound * _LOOSENED:.2g}")
        changed = replace(wanted, objective=replace(wanted.objective, **{field: bound}))
        option = judge(changed, nearest.gpu, nearest.shape)
        if option.idle is None or _times(changed, option.idle)[missed][2] <= 1.0 - wanted.objective.attainment:
            break
    return _remedy(wanted, option, missed, f"a {missed.value} of {duration(bound)} in the SLO")


def _remedy(wanted: Requirements, option: Option, missed: Missed, what: str) -> Remedy:
    return Remedy(what=what, seconds=_mean(wanted, option, missed), meets=option.meets, option=option)
