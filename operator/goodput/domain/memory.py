"""What the loop remembers of one Model between ticks and restarts: a small, versioned value in one ConfigMap.

Lost or unreadable memory means priors, and no scale-down for a full window (`born_at` says since when it remembers).
"""

from __future__ import annotations

from goodput.domain.change import NO_CHANGE, ChangeMark
from goodput.domain.podtable import COUNTERS, PodTable, empty
from goodput.domain.samples import NO_SAMPLES, Samples
from goodput.domain.values import Value

MEMORY_VERSION = 2
# Columns of the marks of engine pods, after those of a scrape (`podtable`).
(
    CARRY_LOWER,  # late first tokens still to be charged to the lower bound of goodput
    CARRY_UPPER,  # and to the upper one
    CARRY_OLD,  # of those, as many were seen before CARRY_SINCE
    CARRY_SINCE,  # Unix seconds
    ABORTED,  # requests that got a first token and ended without finishing, cumulative
    ARRIVAL_RATE,  # requests/s at the last scrape
    SERVED,  # requests that finished of late
    BUSY,  # seconds that requests ran of late, added up over requests
    SLOW_SINCE,  # Unix seconds; 0: it is as fast as the others
) = range(COUNTERS, COUNTERS + 9)
MARKED = COUNTERS + 9
# Of older operators, which looked for no slow pods.
MARKED_BEFORE = COUNTERS + 6


class PodMark(Value, frozen=True):
    """Counters of one router pod at its last scrape seen, so that the next one gives a difference."""

    pod: str
    scraped_at: float
    values: tuple[float | None, ...]


class LoopMemory(Value, frozen=True, kw_only=True):
    """Memory of one Model. Times are Unix seconds, 0: never."""

    version: int = MEMORY_VERSION
    born_at: float = 0.0
    last_scale_up_at: float = 0.0
    last_scale_down_at: float = 0.0
    # Since when the load would have allowed fewer replicas (0: it does not).
    room_since: float = 0.0
    desired: int = 0  # replicas last decided (or observed, under Advise)
    startup_seconds: tuple[float, ...] = ()  # learned, newest last, at most 32
    pods_seen_ready: tuple[str, ...] = ()  # uids whose start-up was learned already
    failed: tuple[tuple[str, str], ...] = ()  # (uid, trouble) of pods that failed and are not ready since
    correction: float = 1.0  # true over believed speed of decode, slow
    prefill_correction: float = 1.0  # true over believed speed of prefill, slower
    # Of speculative decoding, None: nothing was counted yet: tokens that a mean draft gains, and the share of steps of
    # a sequence that have a draft.
    accepted_per_draft: float | None = None
    draft_coverage: float | None = None
    max_ratios: tuple[float, ...] = ()  # observed max demand over a horizon / demand at its start
    samples: Samples = NO_SAMPLES  # bounded in time
    marks: PodTable = empty(MARKED)  # engine pods at their last scrapes seen, so that the next ones give differences
    router_marks: tuple[PodMark, ...] = ()  # per router pod
    pool_mark: tuple[float | None, ...] = ()  # pool sums at the last look
    metrics_problem_since: float = 0.0
    # Load to provide for (requests/s, forecast and backlog), one entry a tick: (Unix seconds, requests/s).
    loads: tuple[tuple[float, float], ...] = ()
    loads_capacity_rps: float = 0.0  # of a replica, that `loads` are told for (0: nothing was believed yet)
    # What came, and what was provided for: (Unix seconds, requests/s, requests/s), one row a scrape interval, packed
    # (`decide.rises`).
    watched: bytes = b""
    trim: float = 1.0  # share of the modelled capacity that misses left believable, or more where they are few
    trimmed_at: float = 0.0
    # Requests that ended and that missed, older ones counting less and less, up to this time (`decide.budget`).
    budget_ended: float = 0.0
    budget_missed: float = 0.0
    budget_at: float = 0.0
    proven_rps: float = 0.0  # highest load of one replica at which the objective held, at these mean lengths
    proven_input_tokens: float = 0.0
    proven_output_tokens: float = 0.0
    surge: int = 0  # replicas in `desired` that stand in for pods on lost nodes
    # Objective (TTFT, TPOT, e2e seconds) that the marks were counted against.
    objective: tuple[float | None, ...] = ()
    attainment: float = 0.0  # share that was asked for when trim and proof were learned; 0: not known
    # Replicas of which correction, trim, proven load and start-ups were learned: "type/tensor/pipeline parallelism/
    # fingerprint of checkpoint, precision and speculation", with "/method tokens" where they speculate. The fingerprint
    # is missing in memory of older operators.
    shape: str = ""
    change: ChangeMark = NO_CHANGE  # of checkpoint, precision or speculation
    ratio_at: float = 0.0  # end of the last horizon from which a max-ratio was learned
    # Until then the last scale-up was one of a load that had not moved, and its noise may ask for it again.
    steady_until: float = 0.0
    strained_rps: float = 0.0  # load of one replica when one that had been taken away was added again
    # Of a Batch Model: requests that are not done, by their arrival, oldest first.
    queue: tuple[tuple[float, float], ...] = ()
    slow_pod: str = ""  # that is being replaced
    slow_replaced_at: float = 0.0  # when the last replacement of a slow pod began
