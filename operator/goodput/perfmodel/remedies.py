"""What helps where no option meets an SLO: why it is missed, what cannot help, and what can, each tried on the model.

The order is by what it asks of the user: other GPUs, more of them or drafts change no answer; lower precision may
change answers and begins as a canary; a looser objective changes the promise. Drafts come first where launches bind,
which no GPU makes shorter.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from goodput.domain.errors import InvalidObject
from goodput.domain.intent import GpuType
from goodput.domain.speculation import DraftMethod, Speculation, SpeculationMode
from goodput.domain.values import Value
from goodput.perfmodel.binding import Bottleneck
from goodput.perfmodel.capacity import Latency
from goodput.perfmodel.causes import Missed, Slow, causes, slow, times
from goodput.perfmodel.cost import saved_prefill_tokens_per_day
from goodput.perfmodel.efficiency import efficiency
from goodput.perfmodel.judging import Option, Verdict, judge
from goodput.perfmodel.options import cheapest, options
from goodput.perfmodel.precision import cannot_run, with_precision
from goodput.perfmodel.requirements import Requirements
from goodput.perfmodel.verdicts import duration, short_of

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
# What there is more of where less time is spent on a part.
_GAINS = {
    Bottleneck.COMPUTE: "more FLOP/s",
    Bottleneck.BANDWIDTH: "more memory bandwidth",
    Bottleneck.COMMUNICATION: "less to wait for between GPUs",
    Bottleneck.LAUNCHES: "fewer launches",
    Bottleneck.HOST: "a faster host",
}
# Steps in which a bound is loosened until it is met.
_LOOSENED = 1.25
_MOST_LOOSENED = 40


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
    binds: Bottleneck  # what takes most of the phase that is too slow
    causes: tuple[str, ...]
    remedies: tuple[Remedy, ...]


def diagnose(wanted: Requirements, nearest: Option, every: Sequence[GpuType]) -> Diagnosis | None:
    """Why `nearest`, the best option there is, misses the SLO; None where it does not fit at all.

    `every` are the types that could be used if they were allowed.
    """
    at = _loaded(nearest)
    if nearest.verdict not in (Verdict.BUSY_MISSES, Verdict.MISSES) or nearest.idle is None or at is None:
        return None
    missed, bound = _worst(wanted, at)
    seconds = _mean(wanted, nearest, missed)
    why = slow(wanted, nearest, missed)
    hardware = _hardware(wanted, nearest, missed, why, every)
    drafts = _drafts(wanted, nearest, missed, seconds)
    return Diagnosis(
        missed=missed,
        bound_seconds=bound,
        seconds=seconds,
        binds=why.binds,
        causes=causes(wanted, nearest, at, missed, why),
        remedies=(
            *(drafts if why.binds is Bottleneck.LAUNCHES else []),
            *hardware,
            *_shorter(wanted, nearest, missed),
            *([] if why.binds is Bottleneck.LAUNCHES else drafts),
            *_precision(wanted, nearest, missed, seconds),
            _looser(wanted, nearest, missed),
        ),
    )


def _loaded(option: Option) -> Latency | None:
    """Latency at the load of its fleet; idle where it has none, for even so it misses the SLO."""
    return option.idle if option.fleet is None else option.fleet.at_load


def _worst(wanted: Requirements, at: Latency) -> tuple[Missed, float]:
    rows = [
        (misses, mean / bound, kind, bound)
        for kind, (bound, mean, misses) in times(wanted, at).items()
        if bound is not None
    ]
    _, _, kind, bound = max(rows, key=lambda row: (row[0], row[1]))
    return kind, bound


def _mean(wanted: Requirements, option: Option, missed: Missed) -> float:
    return float("inf") if option.idle is None else times(wanted, option.idle)[missed][1]


def _hardware(
    wanted: Requirements, nearest: Option, missed: Missed, why: Slow, every: Sequence[GpuType]
) -> list[Remedy]:
    """Other replicas of the same GPUs, then other types; each with what it has more of."""
    found = []
    free = replace(wanted, tensor_parallel=None, pipeline_parallel=None)
    same = next((option for option in options(free, [nearest.gpu]) if option.meets), None)
    if same is not None:
        gain = _GAINS[_shorter_part(wanted, nearest, same, missed, why)]
        found.append(_remedy(free, same, missed, f"{same.label}: {gain} for one request"))
    others = [gpu for gpu in every if gpu.name != nearest.gpu.name]
    other = cheapest(free, others)
    if other is not None and other.fleet is not None:
        cost = other.fleet.cost.per_hour
        price = "" if cost is None else f", {cost:.2f} $/h"
        part = _shorter_part(wanted, nearest, other, missed, why)
        fewer = part is Bottleneck.COMMUNICATION and other.gpus < nearest.gpus
        kind = "fewer, larger GPUs to a replica" if fewer else f"GPUs with {_GAINS[part]}"
        found.append(_remedy(free, other, missed, f"{kind}: {other.fleet.replicas} x {other.label}{price}"))
    return found


def _shorter_part(wanted: Requirements, nearest: Option, option: Option, missed: Missed, why: Slow) -> Bottleneck:
    """What a lone request spends less on than on `nearest`, most of all."""
    before, after = why.taken.by_part, slow(wanted, option, missed).taken.by_part
    return max(before, key=lambda part: before[part] - after[part])


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
    """Prompts of which a part is in the prefix cache: the least of these shares that is enough.

    The host reads all of a prompt, whatever part of it the cache holds.
    """
    bound = wanted.objective.ttft_seconds
    if missed is not Missed.TTFT or bound is None:
        return []
    token = efficiency(nearest.gpu.name, nearest.gpu.scale_up_bytes_per_second).request_token_seconds
    for share in _CACHED_SHARES:
        cached = min(share * wanted.lengths.input_mean, wanted.lengths.input_mean - 1.0)
        if cached * token >= bound:
            break
        changed = replace(
            wanted,
            lengths=replace(wanted.lengths, input_mean=wanted.lengths.input_mean - cached),
            objective=replace(wanted.objective, ttft_seconds=bound - cached * token),
        )
        option = judge(changed, nearest.gpu, nearest.shape)
        if option.meets:
            held = f"{100.0 * share:.0f} % of each prompt"
            what = f"a prefix cache that holds {held} (a system prompt that all share, earlier turns of a chat)"
            if wanted.rps > 0.0:
                saved = saved_prefill_tokens_per_day(cached, wanted.rps)
                what += f", which spares {saved / 1e6:,.0f}M tokens of prefill a day"
            seconds = _mean(changed, option, missed) + cached * token
            return [Remedy(what=what, seconds=seconds, meets=True, option=option)]
    return []


def _looser(wanted: Requirements, nearest: Option, missed: Missed) -> Remedy:
    """The least of some bounds that the nearest option meets."""
    field = {Missed.TTFT: "ttft_seconds", Missed.TPOT: "tpot_seconds", Missed.E2E: "e2e_seconds"}[missed]
    bound = getattr(wanted.objective, field)
    option = nearest
    for _ in range(_MOST_LOOSENED):
        bound = float(f"{bound * _LOOSENED:.2g}")
        changed = replace(wanted, objective=replace(wanted.objective, **{field: bound}))
        option = judge(changed, nearest.gpu, nearest.shape)
        at = _loaded(option)
        if at is None or _loose_enough(changed, at, missed):
            break
    article = "an" if missed is Missed.E2E else "a"
    return _remedy(wanted, option, missed, f"{article} {missed.value} of {duration(bound)} in the SLO")


def _loose_enough(wanted: Requirements, at: Latency, missed: Missed) -> bool:
    """Whether no looser bound is needed: requests meet all, or this one, and others alone spoil too many of them."""
    misses, asked = times(wanted, at)[missed][2], wanted.objective.attainment
    return not short_of(wanted.objective, at) or (misses <= 1.0 - asked and at.good < asked * (1.0 - misses))


def _remedy(wanted: Requirements, option: Option, missed: Missed, what: str) -> Remedy:
    return Remedy(what=what, seconds=_mean(wanted, option, missed), meets=option.meets, option=option)
