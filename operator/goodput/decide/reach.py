"""Which GPUs the pods of one Model reach: not those on nodes with a taint that they do not tolerate.

Models share what is free, and each sees only its part of it. What one takes comes first from nodes that anybody
reaches, so that no other Model counts on those: the scheduler may choose them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from goodput.domain.observed import GpuSupply, Tainted
from goodput.domain.taints import Taints, untolerated
from goodput.domain.values import Value


class Reach(Value, frozen=True, kw_only=True):
    """What pods with some tolerations reach, by type.

    `closed` are nodes that they do not tolerate, `beyond` says the same in words.
    """

    supply: Mapping[str, GpuSupply]
    closed: Mapping[str, tuple[Tainted, ...]]
    beyond: Mapping[str, str]


def _told(gpu_type: str, rows: tuple[Tainted, ...]) -> str:
    taints = dict.fromkeys(taint for row in rows for taint in row.taints)
    lasting = [taint for taint in taints if not taint.passing]
    count = sum(row.installed for row in rows)
    named = ", ".join(str(taint) for taint in lasting or taints)
    told = f"{count} GPUs {gpu_type} are on nodes with taint {named}"
    if not lasting:
        return f"{told}, which take no pods now"
    return f"{told}, which its pods do not tolerate: add it to spec.template.tolerations"


def reach(supply: Mapping[str, GpuSupply], tolerations: tuple[str, ...]) -> Reach:
    """What of `supply` pods with `tolerations` reach."""
    closed = {
        name: rows
        for name, there in supply.items()
        if (rows := tuple([row for row in there.tainted if untolerated(row.taints, tolerations)]))
    }
    return Reach(
        supply={**supply, **{name: _without(supply[name], rows) for name, rows in closed.items()}},
        closed=closed,
        beyond={name: _told(name, rows) for name, rows in closed.items()},
    )


def _without(there: GpuSupply, closed: tuple[Tainted, ...]) -> GpuSupply:
    """`there` without nodes that are out of reach.

    Nodes that an autoscaler may still make count where any of the type is within reach: they will be like those.
    """
    nodes = there.nodes - sum(row.nodes for row in closed)
    installed = there.installed - sum(row.installed for row in closed)
    growth = max(0, (there.limit or 0) - there.installed) if nodes else 0
    return replace(
        there,
        nodes=nodes,
        installed=installed,
        used=there.used - sum(row.used for row in closed),
        limit=installed + growth if growth else None,
        tainted=tuple(row for row in there.tainted if row not in closed),
    )


@dataclass(slots=True)
class Free:
    """GPUs that no Model of this tick took yet."""

    supply: Mapping[str, GpuSupply] = field(default_factory=dict)
    # By type; and those of them that are on nodes with taints.
    left: dict[str, int] = field(default_factory=dict)
    behind: dict[str, dict[Taints, int]] = field(default_factory=dict)
    _reaches: dict[tuple[str, ...], Reach] = field(default_factory=dict)

    @classmethod
    def of(cls, supply: Mapping[str, GpuSupply]) -> Free:
        return cls(
            supply=supply,
            left={name: there.free for name, there in supply.items()},
            behind={
                name: {row.taints: row.free for row in there.tainted} for name, there in supply.items() if there.tainted
            },
        )

    def reach(self, tolerations: tuple[str, ...]) -> Reach:
        """What pods with `tolerations` reach, taken or not."""
        if tolerations not in self._reaches:
            self._reaches[tolerations] = reach(self.supply, tolerations)
        return self._reaches[tolerations]

    def by_type(self, tolerations: tuple[str, ...]) -> Mapping[str, int]:
        """What is left for pods with `tolerations`, by type."""
        closed = self.reach(tolerations).closed
        return {**self.left, **{name: self._within(name, tolerations) for name in closed}} if closed else self.left

    def of_type(self, gpu_type: str, tolerations: tuple[str, ...]) -> int | None:
        """What is left of one type for them; None where nothing is known of it."""
        return self._within(gpu_type, tolerations) if gpu_type in self.left else None

    def take(self, gpu_type: str, count: int, tolerations: tuple[str, ...]) -> None:
        """Take as many of `count` GPUs as are left for pods with `tolerations`."""
        if gpu_type not in self.left:
            return
        taken = min(count, self._within(gpu_type, tolerations))
        rows = self.behind.get(gpu_type, {})
        missing = taken - (self.left[gpu_type] - sum(rows.values()))
        closed = {row.taints for row in self.reach(tolerations).closed.get(gpu_type, ())}
        for taints, free in rows.items():
            if missing > 0 and taints not in closed:
                rows[taints] -= min(free, missing)
                missing -= free
        self.left[gpu_type] -= taken

    def _within(self, gpu_type: str, tolerations: tuple[str, ...]) -> int:
        known = self.reach(tolerations)
        closed = known.closed.get(gpu_type, ())
        if not closed:
            return self.left[gpu_type]
        if not known.supply[gpu_type].capacity:
            return 0
        rows = self.behind[gpu_type]
        return max(0, self.left[gpu_type] - sum(rows[row.taints] for row in closed))
