"""Values of one Model on their way to a decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from goodput.decide import bounds, history
from goodput.decide.backlog import Backlog
from goodput.decide.change import Change
from goodput.decide.demand import Demand, Intervals
from goodput.decide.forecast import Forecast
from goodput.decide.placement import Placed
from goodput.decide.policy import Policy
from goodput.decide.proven import UNPROVEN, Proven
from goodput.decide.rises import NO_RISES, Rises
from goodput.decide.slow import Slow
from goodput.decide.telemetry import Reading
from goodput.domain.intent import GpuType
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import ModelView, PodView, Tally
from goodput.domain.samples import Samples
from goodput.domain.values import Value
from goodput.perfmodel import Capacity, Lengths, Shape


class Fleet(Value, frozen=True, kw_only=True):
    """What all Models of one tick have in common. `shared` is used up as Models are decided."""

    gpus: Mapping[str, GpuType]
    shared: bounds.Shared
    policy: Policy
    now: float
    telemetry_error: str
    strangers: str = ""


@dataclass(slots=True)
class Work:
    """Values of one Model on their way to a decision; filled step by step."""

    view: ModelView
    memory: LoopMemory
    fleet: Fleet
    reading: Reading
    placed: Placed
    samples: Samples
    startup: float
    lengths: Lengths
    lengths_requests: float
    attainment: history.Attainment
    recent: history.Totals  # of the last moments, since the last change took effect
    recent_seconds: float  # that those are of, at most
    window: float  # seconds of the attainment
    seen_seconds: float  # of those, the ones of which outcomes are known
    count: Tally
    change: Change
    slow: Slow
    failed: tuple[PodView, ...]
    asked: Placed  # of what is asked for, whether or not it may serve yet
    withheld: str = ""  # why what serves does not move there; empty: it does, or is there
    counts: Intervals | None = None
    demand: Demand | None = None
    distinct: float = 1.0  # requests that are meant, over requests that come
    outlook: Forecast | None = None
    shape: Shape | None = None  # of the replicas that run, with their drafts as counted
    able: Capacity | None = None  # of one replica, at the learned speed
    capacity_rps: float = 0.0  # believed, trim included
    plain_rps: float = 0.0  # believed, without the trim
    backlog: Backlog | None = None  # of a Batch Model
    load_rps: float | None = None
    floor_rps: float = 0.0
    noisy_rps: float = 0.0
    peak_rps: float = 0.0
    rises: Rises = NO_RISES
    utilisation: float | None = None
    certain: bool = False
    correction: float | None = None
    prefill_correction: float = 1.0
    accepted_per_draft: float | None = None
    draft_coverage: float | None = None
    tokens_per_step: float | None = None  # where replicas speculate
    proven: Proven = UNPROVEN
    trim: float = 1.0
    trimmed_at: float = 0.0
    failing: str = ""
