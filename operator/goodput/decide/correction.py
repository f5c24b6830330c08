"""What live residuals teach about a replica: its true over its believed speed, and a trim where misses stay.

The speed comes from inter-token times, which are continuous, not from attainment, which is a cliff. The trim is the
slow answer to what the speed cannot see (uneven routing, bursts): it lowers believed capacity a step at a time.
"""

from __future__ import annotations

from msgspec.structs import replace

from goodput.decide.demand import GAP_INTERVALS
from goodput.decide.history import Attainment
from goodput.decide.policy import Policy
from goodput.domain.architecture import Architecture
from goodput.domain.intent import GpuType, Objective
from goodput.domain.memory import LoopMemory
from goodput.domain.plan import Placement
from goodput.domain.values import Value
from goodput.perfmodel import Lengths, Shape, observed_speed

# Fewer inter-token times than this say nothing about a step.
_LEAST_TOKENS = 100.0
_CERTAIN_STEP = 0.92
_UNDECIDED_STEP = 0.97
_LEAST_TRIM = 0.6
_LEAST_UNDECIDED_TRIM = 0.88
# Trim given back per trim interval in which the objective certainly held at a real load.
_RECOVERY = 1.02
_RECOVERY_UTILISATION = 0.7


class Observation(Value, frozen=True, kw_only=True):
    """What the engines did since the last look; `batch` and `rps` are of the replica that a mean token came from."""

    itl_seconds: float | None
    itl_count: float
    batch: float  # sequences that decode together
    rps: float  # requests that got a first token
    seconds: float
    warm: bool  # no pod turned ready just now, and no roll-out is under way


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
    if not seen.warm or seen.itl_seconds is None or seen.itl_count < _LEAST_TOKENS:
        return memory.correction
    if seen.seconds > GAP_INTERVALS * policy.scrape_seconds:
        # Tokens of a long time, against the load of its end.
        return memory.correction
    if seen.batch < 1.0 or seen.itl_seconds <= 0.0:
        return memory.correction
    found = observed_speed(arch, gpu, shape, lengths, batch=seen.batch, rps=seen.rps, itl_seconds=seen.itl_seconds)
    found = min(policy.correction_max, max(policy.correction_min, found))
    weight = 1.0 - 0.5 ** (seen.seconds / policy.correction_halflife_seconds)
    return float(round(memory.correction + weight * (found - memory.correction), 4))


def for_placement(memory: LoopMemory, placement: Placement) -> LoopMemory:
    """`memory` for replicas of `placement`: what was learned of another GPU type or parallelism says nothing of it."""
    shape = f"{placement.gpu_type}/{placement.tensor_parallel}/{placement.pipeline_parallel}"
    if memory.shape == shape:
        return memory
    if not memory.shape:
        return replace(memory, shape=shape)
    return replace(memory, shape=shape, correction=1.0, trim=1.0, trimmed_at=0.0, proven_rps=0.0, startup_seconds=())


def trim(
    memory: LoopMemory,
    recent: Attainment,
    objective: Objective,
    utilisation: float,
    trimmed_utilisation: float,
    *,
    certain: bool,
    settled: bool,
    now: float,
    policy: Policy,
) -> tuple[float, float]:
    """(`trim`, `trimmed_at`) at `now`: one step per interval, and only while nothing is starting or rolling out.

    What was taken is given back at a real load of what is believed now, `trimmed_utilisation`: a fleet that was
    trimmed never gets to a high share of the capacity that was believed before.
    """
    if not settled or recent.lower is None or recent.upper is None:
        return memory.trim, memory.trimmed_at
    if now - memory.trimmed_at < (policy.miss_window_seconds if certain else policy.trim_seconds):
        return memory.trim, memory.trimmed_at
    if certain:
        return max(_LEAST_TRIM, memory.trim * _CERTAIN_STEP), now
    if recent.lower < objective.attainment <= recent.upper and utilisation >= policy.explained_utilisation:
        return min(memory.trim, max(_LEAST_UNDECIDED_TRIM, memory.trim * _UNDECIDED_STEP)), now
    if recent.lower >= objective.attainment and trimmed_utilisation >= _RECOVERY_UTILISATION and memory.trim < 1.0:
        return min(1.0, memory.trim * _RECOVERY), now
    return memory.trim, memory.trimmed_at
