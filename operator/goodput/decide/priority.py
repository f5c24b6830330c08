"""Who yields when GPUs are short: Models of lower priority, the lowest first, none below its minReplicas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil

from goodput.domain.identity import Key
from goodput.domain.intent import GpuType, ModelIntent, ScalingMode
from goodput.domain.observed import ModelView, PodState, PoolView
from goodput.domain.plan import Placement
from goodput.domain.taints import Taints, untolerated
from goodput.domain.values import Value

_EPSILON = 1e-9


def order(intent: ModelIntent) -> tuple[int, Key]:
    """Models take from what is shared in this order: the highest priority first, then by key."""
    return -intent.priority, intent.key


@dataclass(slots=True)
class Holder:
    """A Model that may yield replicas by a drain."""

    key: Key
    priority: int
    gpus: int  # of one replica
    price: float  # of one replica per hour
    least: int  # minReplicas
    there: int  # replicas on nodes that live
    keeps: int  # replicas that it may keep, of those that it asks for
    leaving: bool = False  # pods on nodes are more than it asks for
    why: str = ""
    tolerations: tuple[str, ...] = ()

    def apart(self, closed: Iterable[Taints]) -> bool:
        """Whether its pods may be on nodes with such sets of taints, where they are in nobody's way."""
        return any(not untolerated(taints, self.tolerations) for taints in closed)

    def spare(self, *, on_nodes: bool) -> int:
        """Replicas that it may still yield; `on_nodes`: those that hold GPUs."""
        return max(0, (min(self.keeps, self.there) if on_nodes else self.keeps) - self.least)


class Lack(Value, frozen=True, kw_only=True):
    """What a Model surely needs and cannot have: GPUs of its type, and of its namespace's grant GPUs and money.

    GPUs on nodes with taints that are `closed` to its pods are no help.
    """

    gpus: int = 0
    granted_gpus: int = 0
    granted_cost: float = 0.0
    closed: tuple[Taints, ...] = ()


class Short(Value, frozen=True):
    """The Model of the highest priority that lacks GPUs of a type, and how many."""

    intent: ModelIntent
    gpus: int
    closed: tuple[Taints, ...] = ()


@dataclass(slots=True)
class _Pot:
    """One thing that is lacking: who may put into it, and what."""

    what: str
    need: float
    unit: float  # of one replica that lacks it
    holders: list[Holder]
    ready: float = 0.0  # of it is there soon without anybody yielding
    granted: bool = False  # by the administrator, to a namespace, for what is asked for; else GPUs on nodes
    money: bool = False

    def worth(self, holder: Holder) -> float:
        return holder.price if self.money else float(holder.gpus)

    def lower(self, priority: int) -> Iterator[Holder]:
        """Who has something to put in, and a lower priority: the lowest first."""
        for holder in reversed(self.holders):
            if holder.priority >= priority:
                return
            if self.worth(holder) > 0.0 and holder.spare(on_nodes=not self.granted):
                yield holder


@dataclass(slots=True)
class Yields:
    """What Models of lower priority give to those of higher within one tick."""

    # The first to yield is the last of each list.
    by_type: dict[str, list[Holder]] = field(default_factory=dict)
    by_namespace: dict[str, list[Holder]] = field(default_factory=dict)
    by_key: dict[Key, Holder] = field(default_factory=dict)
    # GPUs by type that are given back soon: of pods that terminate, and of more pods than are asked for.
    coming: dict[str, int] = field(default_factory=dict)
    short: dict[str, Short] = field(default_factory=dict)
    # GPUs that Models hold by priority, of a GPU type and in a namespace.
    held_of: dict[str, dict[int, int]] = field(default_factory=dict)
    held_in: dict[str, dict[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, views: Iterable[ModelView], undecided: Iterable[PoolView], gpus: Mapping[str, GpuType]) -> Yields:
        found = cls()
        for view in sorted(views, key=lambda each: order(each.intent)):
            found._count(view.pool)
            found._count(view.canary)
            found.hold(view.intent, view.pool.gpu_type, _living(view.pool) * _gpus(view.pool))
            if _may_yield(view):
                found._add(view, gpus.get(view.pool.gpu_type))
        for pool in undecided:
            found._count(pool)
        return found

    def _count(self, pool: PoolView) -> None:
        leaving = max(0, _living(pool) - pool.spec_replicas) if pool.exists else 0
        if pool.tally.leaving:
            leaving += sum(
                pod.state is PodState.TERMINATING and pod.node is not None and not pod.node_lost for pod in pool.pods
            )
        if leaving:
            self.coming[pool.gpu_type] = self.coming.get(pool.gpu_type, 0) + leaving * _gpus(pool)

    def hold(self, intent: ModelIntent, gpu_type: str, gpus: int) -> None:
        """Count GPUs that a Model holds, or just took."""
        for held, where in ((self.held_of, gpu_type), (self.held_in, intent.key.namespace)):
            of_all = held.setdefault(where, {})
            of_all[intent.priority] = of_all.get(intent.priority, 0) + gpus

    @staticmethod
    def above(held: Mapping[int, int] | None, intent: ModelIntent) -> str:
        """What Models of higher priority hold, in words; '' if nothing."""
        gpus = sum(count for priority, count in (held or {}).items() if priority > intent.priority)
        return f"; Models of higher priority hold {gpus} GPUs" if gpus else ""

    def _add(self, view: ModelView, gpu: GpuType | None) -> None:
        pool, intent = view.pool, view.intent
        each = _gpus(pool)
        holder = Holder(
            key=intent.key,
            priority=intent.priority,
            gpus=each,
            price=each * ((gpu.price_per_hour if gpu is not None else None) or 0.0),
            least=intent.min_replicas,
            there=min(_living(pool), pool.spec_replicas),
            keeps=pool.spec_replicas,
            leaving=_living(pool) > pool.spec_replicas,
            tolerations=intent.tolerations,
        )
        self.by_key[intent.key] = holder
        self.by_type.setdefault(pool.gpu_type, []).append(holder)
        self.by_namespace.setdefault(intent.key.namespace, []).append(holder)

    def claim(self, intent: ModelIntent, placement: Placement, certain: int, lack: Lack) -> tuple[int, str]:
        """(replicas that there may be once others have yielded, what they yield in words).

        `lack` is what `certain` replicas need beyond what there is.
        """
        kind = placement.gpu_type
        if lack.gpus > 0:
            self.short.setdefault(kind, Short(intent, lack.gpus, lack.closed))
        pots = self._pots(intent, placement, lack)
        fewer = max((self._beyond(pot, intent.priority) for pot in pots), default=0)
        told = []
        for pot in pots:
            pot.need -= fewer * pot.unit
            soon = max(0.0, min(pot.ready, pot.need))
            if soon:
                self.coming[kind] -= round(soon)
                pot.need -= soon
                told.append(f"{soon:.0f} GPUs {kind} are being given back")
            told += self._collect(pot, pots, intent)
        return certain - fewer, "; ".join(told)

    def _pots(self, intent: ModelIntent, placement: Placement, lack: Lack) -> list[_Pot]:
        kind, gpus, price = placement.gpu_type, placement.gpus, placement.price_per_hour or 0.0
        mine = self.by_namespace.get(intent.key.namespace, [])
        pots = [
            _Pot(
                what=f"{lack.gpus} GPUs {kind}",
                need=lack.gpus,
                unit=gpus,
                # Several smaller replicas may be on several nodes, and GPUs of several nodes make none of this one.
                holders=[
                    each for each in self.by_type.get(kind, ()) if each.gpus >= gpus and not each.apart(lack.closed)
                ],
                ready=self.coming.get(kind, 0),
            ),
            _Pot(
                what=f"{lack.granted_gpus} GPUs of what its namespace may hold",
                need=lack.granted_gpus,
                unit=gpus,
                holders=mine,
                granted=True,
            ),
            _Pot(
                what=f"{lack.granted_cost:.2f} $/h of what its namespace may spend",
                need=lack.granted_cost,
                unit=price,
                holders=mine,
                granted=True,
                money=True,
            ),
        ]
        return [pot for pot in pots if pot.need > _EPSILON and pot.unit > 0.0]

    @staticmethod
    def _beyond(pot: _Pot, priority: int) -> int:
        """Replicas for which lower ones have too little."""
        missing = pot.need - pot.ready
        for holder in pot.lower(priority):
            if missing <= _EPSILON:
                break
            missing -= holder.spare(on_nodes=not pot.granted) * pot.worth(holder)
        return max(0, ceil(missing / pot.unit - _EPSILON))

    @staticmethod
    def _collect(pot: _Pot, pots: list[_Pot], intent: ModelIntent) -> list[str]:
        told = []
        for holder in pot.lower(intent.priority):
            if pot.need <= _EPSILON:
                break
            count = min(holder.spare(on_nodes=not pot.granted), ceil(pot.need / pot.worth(holder) - _EPSILON))
            keeps = (holder.keeps if pot.granted else min(holder.keeps, holder.there)) - count
            given, holder.keeps = holder.keeps - keeps, keeps
            holder.why = f"{named(intent, holder.key)} lacks {pot.what}"
            pot.need -= count * pot.worth(holder)
            for other in pots:
                # What it no longer asks for is granted anew, whatever it was yielded for.
                if other is not pot and other.granted and holder.key.namespace == intent.key.namespace:
                    other.need -= given * other.worth(holder)
            told.append(f"{_whom(holder, intent.key)} yields {count} replica{'' if count == 1 else 's'}")
        return told

    def kept(self, intent: ModelIntent, gpu_type: str) -> tuple[int, str] | None:
        """(replicas that a Model may ask for, why), None where nobody of a higher priority lacks anything."""
        holder, short = self.by_key.get(intent.key), self.short.get(gpu_type)
        if holder is None:
            return None
        waits = holder.leaving or holder.there < holder.keeps
        if short is not None and short.intent.priority > intent.priority and waits and not holder.apart(short.closed):
            # What waits for a node would take the next GPU that is free, and what is about to go is not taken back.
            holder.keeps = max(holder.least, holder.there)
            holder.why = holder.why or f"{named(short.intent, intent.key)} lacks {short.gpus} GPUs {gpu_type}"
        if not holder.why:
            return None
        return holder.keeps, f"{holder.why}, and this one of priority {intent.priority} yields"


def named(intent: ModelIntent, reader: Key) -> str:
    """A Model and its priority, for the status of a Model that may be somebody else's."""
    if intent.key.namespace == reader.namespace:
        return f"Model {intent.key.name} of priority {intent.priority}"
    return f"a Model of another namespace, of priority {intent.priority},"


def _whom(holder: Holder, reader: Key) -> str:
    own = holder.key.namespace == reader.namespace
    return f"{f'Model {holder.key.name}' if own else 'a Model of another namespace'} of priority {holder.priority}"


def _gpus(pool: PoolView) -> int:
    return pool.tensor_parallel * pool.pipeline_parallel


def _living(pool: PoolView) -> int:
    """Pods that hold GPUs of nodes that live, and do not terminate."""
    return max(0, pool.tally.holding - pool.tally.lost) if pool.exists else 0


def _may_yield(view: ModelView) -> bool:
    """Whether its number of replicas is Goodput's to change now."""
    intent, pool = view.intent, view.pool
    return (
        pool.exists
        and intent.mode is ScalingMode.AUTO
        and not intent.paused
        and not pool.foreign_scaler
        and not pool.rolling_out
        # What serves on a cordoned node goes first, and would free nothing.
        and pool.tally.lost == pool.tally.lost_silent
        and intent.architecture is not None
        and intent.objective is not None
        and not any(problem.fatal for problem in intent.problems)
    )
