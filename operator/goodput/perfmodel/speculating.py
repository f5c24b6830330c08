"""Whether a replica should speculate, and with how many tokens, at the load at which its objective is just met."""

from __future__ import annotations

from functools import lru_cache

from msgspec.structs import replace

from goodput.domain.architecture import Architecture
from goodput.domain.errors import ModelDoesNotFit
from goodput.domain.intent import GpuType, Objective
from goodput.domain.remembered import for_each_model
from goodput.domain.speculation import Speculation, SpeculationMode
from goodput.domain.values import Value
from goodput.perfmodel.capacity import Capacity, Shape, capacity, replica_times
from goodput.perfmodel.lengths import Lengths
from goodput.perfmodel.replica import context_tokens
from goodput.perfmodel.speculation import SpeculativeTimes, best_tokens, drafts_of, judge

# `Auto` takes what is believed to be faster by this much at least: less would be eaten up by what the model leaves out,
# rejection sampling and host work between steps.
LEAST_SPEEDUP = 1.05


class Choice(Value, frozen=True, kw_only=True):
    """How a replica decodes: `shape` speculates or does not, `message` says why (empty: nobody asked)."""

    shape: Shape
    capacity: Capacity
    message: str = ""

    @property
    def tokens(self) -> int:
        """Tokens drafted at a time; 0: none are."""
        return self.shape.drafts.tokens if self.shape.drafts is not None else 0


def drafting_shape(
    arch: Architecture, gpu: GpuType, plain: Shape, speculation: Speculation, *, batch: float, context_tokens: float
) -> Shape:
    """`plain` with the drafts that are best at this batch, unless their number is given."""

    def shape(tokens: int) -> Shape:
        return replace(
            plain, speculation=speculation, drafts=drafts_of(speculation.method, tokens, speculation.acceptance)
        )

    if speculation.tokens is not None:
        return shape(speculation.tokens)
    times = replica_times(arch, gpu, shape(1))
    assert isinstance(times, SpeculativeTimes)
    tokens = best_tokens(
        times.target,
        times.draft,
        speculation.method,
        batch=batch,
        context_tokens=context_tokens,
        acceptance=speculation.acceptance,
    )
    return shape(tokens)


@lru_cache(maxsize=for_each_model(1))
def choose(
    arch: Architecture,
    gpu: GpuType,
    plain: Shape,
    lengths: Lengths,
    objective: Objective,
    *,
    speculation: Speculation | None,
) -> Choice:
    """Plain or speculative, by the time per output token at the batch at which plain decoding just meets the objective.

    Raises `ModelDoesNotFit`: for a drafter that leaves no room only where `speculation` demands it.
    """
    without = capacity(arch, gpu, plain, lengths, objective)
    if speculation is None:
        return Choice(shape=plain, capacity=without)
    batch, context = max(1.0, without.at_capacity.batch), context_tokens(lengths)
    drafting = drafting_shape(arch, gpu, plain, speculation, batch=batch, context_tokens=context)
    always = speculation.mode is SpeculationMode.ALWAYS
    try:
        within = capacity(arch, gpu, drafting, lengths, objective)
    except ModelDoesNotFit as error:
        if always:
            raise
        return Choice(shape=plain, capacity=without, message=f"no speculation: with its drafter {error}")
    times = replica_times(arch, gpu, drafting)
    assert isinstance(times, SpeculativeTimes)
    verdict = judge(times, batch, context)
    rescues = within.feasible and not without.feasible
    if always or rescues or verdict.speedup >= LEAST_SPEEDUP:
        return Choice(shape=drafting, capacity=within, message=verdict.message)
    little = f"; Auto asks for {LEAST_SPEEDUP:.2f} x" if verdict.helps else ""
    return Choice(shape=plain, capacity=without, message=verdict.message + little)
