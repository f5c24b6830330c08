"""What each notch of an SLO costs: the same question with one bound halved or doubled, or another attainment."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from goodput.domain.intent import GpuType, Objective
from goodput.domain.values import Value
from goodput.perfmodel.judging import Option
from goodput.perfmodel.options import cheapest
from goodput.perfmodel.requirements import Requirements

_STEPS = (0.5, 2.0)
_ATTAINMENTS = (0.90, 0.95, 0.99)
# Field of an objective -> what it is called.
BOUNDS = {"ttft_seconds": "TTFT", "tpot_seconds": "TPOT", "e2e_seconds": "end-to-end time"}


class Notch(Value, frozen=True, kw_only=True):
    """One changed bound and the cheapest fleet that meets it. `option` None: no type does."""

    bound: str  # TTFT, TPOT, end-to-end time or attainment
    before: float  # seconds, or a share
    after: float
    option: Option | None
    saving: float | None  # share of the cost saved, negative where it costs more; None: unknown


def notches(wanted: Requirements, gpus: Sequence[GpuType], winner: Option) -> tuple[Notch, ...]:
    """Notches around the objective of `wanted`, which `winner` meets the cheapest, in the order of `BOUNDS`."""
    found = []
    for field, name in BOUNDS.items():
        before = getattr(wanted.objective, field)
        if before is not None:
            found += [
                _notch(wanted, gpus, winner, change={field: before * step}, bound=name, before=before)
                for step in _STEPS
            ]
    attainment = wanted.objective.attainment
    found += [
        _notch(wanted, gpus, winner, change={"attainment": share}, bound="attainment", before=attainment)
        for share in _ATTAINMENTS
        if abs(share - attainment) > 1e-6
    ]
    return tuple(found)


def _notch(
    wanted: Requirements,
    gpus: Sequence[GpuType],
    winner: Option,
    *,
    change: dict[str, float],
    bound: str,
    before: float,
) -> Notch:
    (after,) = change.values()
    objective: Objective = replace(wanted.objective, **change)
    option = cheapest(replace(wanted, objective=objective), gpus, winner)
    saving = None
    paid = winner.fleet.cost.per_hour if winner.fleet is not None else None
    if option is not None and option.fleet is not None and option.fleet.cost.per_hour is not None and paid:
        saving = 1.0 - option.fleet.cost.per_hour / paid
    return Notch(bound=bound, before=before, after=after, option=option, saving=saving)


def frontier(
    wanted: Requirements, gpus: Sequence[GpuType], field: str, values: Sequence[float]
) -> tuple[tuple[float, Option | None], ...]:
    """(bound, cheapest option that meets it) for every value of one bound of the objective, such as `tpot_seconds`."""
    found: list[tuple[float, Option | None]] = []
    last: Option | None = None
    for value in sorted(values):
        last = cheapest(replace(wanted, objective=replace(wanted.objective, **{field: value})), gpus, last)
        found.append((value, last))
    return tuple(found)
