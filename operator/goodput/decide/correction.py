"""What live residuals teach about a replica: its true over its believed speed, and a trim where misses stay.

The speed comes from inter-token times, which are continuous, not from attainment, which is a cliff. The trim is the
slow answer to what the speed cannot see (uneven routing, bursts): it lowers believed capacity a step at a time, and
raises it by a little where hardly anything is missed.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec.structs import replace

from goodput.decide.demand import GAP_INTERVALS
from goodput.decide.history import Attainment
from goodput.decide.policy import Policy
from goodput.domain.architecture import Architecture
from goodput.domain.change import Quality, fingerprint
from goodput.domain.intent import GpuType, ModelIntent, Objective
from goodput.domain.memory import LoopMemory
from goodput.domain.plan import Placement
from goodput.domain.values import Value
from goodput.perfmodel import Lengths, Shape
from goodput.perfmodel.observed import observed_prefill, observed_speed

# Fewer inter-token times than this say nothing about a step, fewer requests nothing about prompts.
_LEAST_TOKENS = 100.0
_LEAST_PROMPTS = 10.0
# What a live time says of prefill is only used where prefill is at least this share of it.
_LEAST_PREFILL_SHARE = 0.3
# One interval pulls the speed of prefill to at most this many times what is believed: a mean of few has outliers.
_MOST_PREFILL_STEP = 1.3
# Fewer drafts than this say nothing of how many of their tokens are accepted.
_LEAST_DRAFTS = 50.0
_CERTAIN_STEP = 0.92
_UNDECIDED_STEP = 0.97
_LEAST_TRIM = 0.6
_LEAST_UNDECIDED_TRIM = 0.88
# Trim given back per trim interval in which the objective certainly held at a real load.
_RECOVERY = 1.02
_RECOVERY_UTILISATION = 0.7
# Where less than this share of the budget is spent at a real load, more is believed of a replica, a step at a time: at
# most by as much as queueing formulas err. What they miss by more is speed, which has its own correction.
_RICH, _RICH_UTILISATION = 0.4, 0.6
_RICH_STEP = 1.03
MOST_TRIM = 1.15
# And taken back where more than this is spent.
_POOR = 0.8


class Observation(Value, frozen=True, kw_only=True):
    """What the engines did since the last look; `batch` and `rps` are of the replica that a mean token came from."""

    itl_seconds: float | None
    itl_count: float
    batch: float  # sequences that decode together
    rps: float  # requests that got a first token
    seconds: float
    waiting: float = 0.0  # requests that wait at one replica
    prefill_seconds: float | None = None  # mean of requests that finished, from being scheduled to the first token
    prefill_count: float = 0.0
    drafts: float = 0.0
    accepted_tokens: float = 0.0
    warm: bool  # no pod turned ready just now, and no roll-out is under way


def _of_now(seen: Observation, policy: Policy) -> bool:
    """Whether warm replicas decoded, and not for so long that the load at the end says nothing of that time."""
    return seen.warm and seen.batch >= 1.0 and seen.seconds <= GAP_INTERVALS * policy.scrape_seconds


def speed(
    memory: LoopMemory,
    arch: Architecture,
    gpu: GpuType,
    shape: Shape,
    lengths: Lengths,
    *,
    observation: Observation,
    policy: Policy,
) -> float:
    """`correction` after one more observation."""
    seen = observation
    if not _of_now(seen, policy) or seen.itl_count < _LEAST_TOKENS:
        return memory.correction
    if seen.itl_seconds is None or seen.itl_seconds <= 0.0:
        return memory.correction
    found = observed_speed(arch, gpu, shape, lengths, batch=seen.batch, rps=seen.rps, itl_seconds=seen.itl_seconds)
    found = min(policy.correction_max, max(policy.correction_min, found))
    weight = 1.0 - 0.5 ** (seen.seconds / policy.correction_halflife_seconds)
    return float(round(memory.correction + weight * (found - memory.correction), 4))


def prefill_speed(
    memory: LoopMemory,
    arch: Architecture,
    gpu: GpuType,
    shape: Shape,
    lengths: Lengths,
    *,
    observation: Observation,
    correction: float,
    policy: Policy,
) -> float:
    """`prefill_correction` after one more observation; `correction` is the speed of decode.

    Prompts of finished requests were taken in a decode time ago, so it moves slower than decode, and only while nothing
    waits: what queues is spoilt by more than arithmetic.
    """
    seen, before = observation, memory.prefill_correction
    if not _of_now(seen, policy) or seen.waiting > 1.0 or seen.prefill_count < _LEAST_PROMPTS:
        return before
    if seen.prefill_seconds is None or seen.prefill_seconds <= 0.0:
        return before
    found = observed_prefill(
        arch,
        gpu,
        shape,
        lengths,
        batch=seen.batch,
        rps=seen.rps,
        prefill_seconds=seen.prefill_seconds,
        correction=correction,
    )
    if found.share < _LEAST_PREFILL_SHARE:
        return before
    target = min(policy.correction_max, max(policy.correction_min, found.speed))
    target = min(before * _MOST_PREFILL_STEP, max(before / _MOST_PREFILL_STEP, target))
    weight = 1.0 - 0.5 ** (seen.seconds / policy.prefill_halflife_seconds)
    return float(round(before + weight * (target - before), 4))


def acceptance(memory: LoopMemory, observation: Observation, policy: Policy) -> tuple[float | None, float | None]:
    """(`accepted_per_draft`, `draft_coverage`) after one more observation; what was counted first is taken as it is."""
    seen = observation
    known = (memory.accepted_per_draft, memory.draft_coverage)
    if not seen.warm or seen.drafts < _LEAST_DRAFTS or seen.itl_count < seen.drafts * 0.5:
        return known
    accepted = seen.accepted_tokens / seen.drafts
    coverage = min(1.0, seen.drafts / seen.itl_count)
    if known[0] is None or known[1] is None:
        return round(accepted, 4), round(coverage, 4)
    weight = 1.0 - 0.5 ** (min(seen.seconds, policy.acceptance_halflife_seconds) / policy.acceptance_halflife_seconds)
    return (
        round(known[0] + weight * (accepted - known[0]), 4),
        round(known[1] + weight * (coverage - known[1]), 4),
    )


@lru_cache(maxsize=4096)
def _mark(quality: Quality) -> str:
    return fingerprint(quality)


def for_placement(memory: LoopMemory, placement: Placement, intent: ModelIntent) -> LoopMemory:
    """`memory` for replicas of `placement` that serve as `intent` asks.

    What was learned of another GPU type, parallelism, checkpoint, precision or speculation says nothing of them.
    Memory that was written before checkpoint and precision stood in it is taken over.
    """
    where = f"{placement.gpu_type}/{placement.tensor_parallel}/{placement.pipeline_parallel}"
    drafts = ""
    if intent.speculation is not None and placement.speculative_tokens:
        drafts = f"/{intent.speculation.method.value} {placement.speculative_tokens}"
    shape = f"{where}/{_mark(intent.quality)}{drafts}"
    if memory.shape == shape:
        return memory
    if memory.shape in ("", f"{where}{drafts}"):
        return replace(memory, shape=shape)
    return replace(
        memory,
        shape=shape,
        correction=1.0,
        prefill_correction=1.0,
        accepted_per_draft=None,
        draft_coverage=None,
        trim=1.0,
        trimmed_at=0.0,
        budget_ended=0.0,
        budget_missed=0.0,
        proven_rps=0.0,
        loads_capacity_rps=0.0,
        startup_seconds=(),
    )


def trim(
    memory: LoopMemory,
    recent: Attainment,
    objective: Objective,
    utilisation: float,
    trimmed_utilisation: float,
    *,
    spent: float,
    certain: bool,
    settled: bool,
    now: float,
    policy: Policy,
) -> tuple[float, float]:
    """(`trim`, `trimmed_at`) at `now`: one step per interval, and only while nothing is starting or rolling out.

    What was taken is given back at a real load of what is believed now, `trimmed_utilisation`: a fleet that was
    trimmed never gets to a high share of the capacity that was believed before. `spent` is the share of the error
    budget that late requests used up.
    """
    if not settled or recent.lower is None or recent.upper is None:
        return memory.trim, memory.trimmed_at
    # Certain misses wait for no slow step: the replica that they add is starting at the next tick, and nothing settled.
    if now - memory.trimmed_at < (2.0 * policy.scrape_seconds if certain else policy.trim_seconds):
        return memory.trim, memory.trimmed_at
    if certain:
        return max(_LEAST_TRIM, memory.trim * _CERTAIN_STEP), now
    if recent.lower < objective.attainment <= recent.upper and utilisation >= policy.explained_utilisation:
        return min(memory.trim, max(_LEAST_UNDECIDED_TRIM, memory.trim * _UNDECIDED_STEP)), now
    if recent.lower >= objective.attainment and trimmed_utilisation >= _RECOVERY_UTILISATION and memory.trim < 1.0:
        return min(1.0, memory.trim * _RECOVERY), now
    if memory.trim > 1.0 and spent > _POOR:
        return max(1.0, memory.trim / _RICH_STEP), now
    held = recent.lower >= objective.attainment and trimmed_utilisation >= _RICH_UTILISATION
    if held and now - memory.born_at >= policy.trim_seconds and spent < _RICH and 1.0 <= memory.trim < MOST_TRIM:
        return min(MOST_TRIM, round(memory.trim * _RICH_STEP, 4)), now
    return memory.trim, memory.trimmed_at
