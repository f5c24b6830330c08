"""What the comparison must show, as arithmetic on rows: nothing here simulates or prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# A rival that comes this near to our attainment counts as reaching it.
NEAR = 0.001
HALF = 0.5
# GPU-hours over the oracle's, up to a start-up of 100 s and beyond; and over static peak's where bursts are shorter
# than any start-up.
MOST_OVER_ORACLE, MOST_OVER_ORACLE_SLOW, SLOW_SECONDS = 1.25, 1.4, 100.0
MOST_OVER_STATIC_PEAK = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A policy under one trace and start-up: means over seeds."""

    name: str
    attainment: float
    gpu_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Ours against everybody. `best` is None where nobody reaches our attainment, `gap_closed` where there is none."""

    ours: Row
    floor: Row
    static_peak: Row
    best: Row | None
    objective: float
    startup_seconds: float

    @property
    def holds(self) -> bool:
        """Whether ours keeps the objective."""
        return self.ours.attainment >= self.objective

    @property
    def gap_closed(self) -> float | None:
        """(best - ours) / (best - floor) in GPU-hours: 1 at the floor, 0 at the best of the others, below 0 dearer."""
        if self.best is None or self.best.gpu_hours <= self.floor.gpu_hours:
            return None
        return (self.best.gpu_hours - self.ours.gpu_hours) / (self.best.gpu_hours - self.floor.gpu_hours)

    @property
    def over_floor(self) -> float:
        """Our GPU-hours over those of the floor."""
        return self.ours.gpu_hours / self.floor.gpu_hours

    @property
    def over_static_peak(self) -> float:
        """Our GPU-hours over those of static peak."""
        return self.ours.gpu_hours / self.static_peak.gpu_hours

    @property
    def most_over_floor(self) -> float:
        """What `over_floor` may be at this start-up."""
        return MOST_OVER_ORACLE if self.startup_seconds <= SLOW_SECONDS else MOST_OVER_ORACLE_SLOW

    @property
    def beats(self) -> bool:
        """Never dearer than the best of the others, and at least half of what there is to gain is gained.

        Where nobody else reaches our attainment ours is the best, if it keeps the objective.
        """
        if not self.holds:
            return False
        if self.best is None:
            return True
        gap = self.gap_closed
        return self.ours.gpu_hours <= self.best.gpu_hours if gap is None else gap >= HALF

    def dear(self, *, against_static_peak: bool) -> bool:
        """Whether ours costs more than it may beside the floor, or beside static peak."""
        if against_static_peak:
            return self.over_static_peak > MOST_OVER_STATIC_PEAK
        return self.over_floor > self.most_over_floor


def verdict(
    ours: Row,
    *,
    static_peak: Row,
    bounds: Sequence[Row],
    rivals: Iterable[Row],
    objective: float,
    startup_seconds: float,
) -> Verdict:
    """The floor is the cheapest of `bounds` (the oracle, the fewest static replicas) that keeps the objective, or the
    one that misses it least; best the cheapest of `rivals` and static peak that reaches our attainment and keeps the
    objective."""
    holding = [row for row in bounds if row.attainment >= objective]
    floor = min(holding, key=lambda row: row.gpu_hours) if holding else max(bounds, key=lambda row: row.attainment)
    goal = max(objective, ours.attainment - NEAR)
    reaching = [row for row in (static_peak, *rivals) if row.attainment >= goal]
    return Verdict(
        ours=ours,
        floor=floor,
        static_peak=static_peak,
        best=min(reaching, key=lambda row: row.gpu_hours, default=None),
        objective=objective,
        startup_seconds=startup_seconds,
    )


def chosen(points: Sequence[Row], attainment: float) -> Row | None:
    """The variant of a grid that a rival is tuned to: the cheapest that reaches an attainment, else the nearest to it.

    None: of no variant is anything known.
    """
    reaching = [row for row in points if row.attainment >= attainment - NEAR]
    if reaching:
        return min(reaching, key=lambda row: row.gpu_hours)
    return max(points, key=lambda row: (row.attainment, -row.gpu_hours), default=None)


def mean_row(name: str, rows: Sequence[tuple[float, float]]) -> Row:
    """Means over (attainment, GPU-hours) of the seeds."""
    return Row(
        name=name,
        attainment=sum(attainment for attainment, _ in rows) / len(rows),
        gpu_hours=sum(hours for _, hours in rows) / len(rows),
    )
