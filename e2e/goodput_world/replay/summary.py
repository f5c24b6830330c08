"""A replay in figures: attainment over every offered request, goodput, what was lost, the replayer's own lateness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from goodput_world.replay.records import Objectives, Outcome, Record

# Above this lateness at p99 the replayer itself shaped the load: the run shows nothing, neither good nor bad.
LATENESS_LIMIT_SECONDS = 0.050


@dataclass(frozen=True, slots=True)
class ReplaySummary:
    """Every figure counts all offered requests; rates are per second of the scheduled run. None: no request to tell
    from.
    """

    requests: int
    met: int
    lost: int
    lost_by_outcome: dict[str, int]
    late: int
    attainment: float | None
    goodput_rps: float
    offered_rps: float
    ttft_p50_seconds: float | None
    ttft_p95_seconds: float | None
    tpot_p50_seconds: float | None
    tpot_p95_seconds: float | None
    lateness_p99_seconds: float | None
    last_end_seconds: float | None
    tokens_received: int

    @property
    def valid(self) -> bool:
        """Whether the replayer kept to its schedule closely enough for the figures to mean anything."""
        return self.lateness_p99_seconds is not None and self.lateness_p99_seconds <= LATENESS_LIMIT_SECONDS


def percentile(values: Sequence[float], share: float) -> float | None:
    """Nearest-rank percentile, `share` from 0 to 1; None for no value."""
    if not values:
        return None
    ordered = sorted(values)
    rank = -(-len(ordered) * round(share * 10_000) // 10_000)
    return ordered[min(len(ordered), max(1, rank)) - 1]


def summarise(records: Sequence[Record], objectives: Objectives, seconds: float) -> ReplaySummary:
    """Judge the records of a run of `seconds`; a request that was never sent counts as offered and missed."""
    met = sum(record.met(objectives) for record in records)
    lost = Counter(record.outcome for record in records if record.outcome is not Outcome.OK)
    ttft = [value for record in records if (value := record.ttft_seconds) is not None]
    tpot = [value for record in records if (value := record.tpot_seconds) is not None]
    lateness = [value for record in records if (value := record.lateness_seconds) is not None]
    ends = [record.end_seconds for record in records if record.end_seconds is not None]
    return ReplaySummary(
        requests=len(records),
        met=met,
        lost=lost.total(),
        lost_by_outcome={outcome.value: lost[outcome] for outcome in Outcome if outcome is not Outcome.OK},
        late=len(records) - lost.total() - met,
        attainment=met / len(records) if records else None,
        goodput_rps=met / seconds,
        offered_rps=len(records) / seconds,
        ttft_p50_seconds=percentile(ttft, 0.50),
        ttft_p95_seconds=percentile(ttft, 0.95),
        tpot_p50_seconds=percentile(tpot, 0.50),
        tpot_p95_seconds=percentile(tpot, 0.95),
        lateness_p99_seconds=percentile(lateness, 0.99),
        last_end_seconds=max(ends, default=None),
        tokens_received=sum(record.tokens_received for record in records),
    )
