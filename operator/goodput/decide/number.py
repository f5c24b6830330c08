"""How many replicas there are to be: what the law wants, within every limit, and what stands in for lost pods."""

from __future__ import annotations

from goodput.decide import asking, bounds
from goodput.decide.placement import moving
from goodput.decide.work import Work
from goodput.domain.decision import Clamp, Rule
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import PodState, PoolView
from goodput.domain.plan import Placement
from goodput.domain.values import Value


class Count(Value, frozen=True, kw_only=True):
    """Replicas with stand-ins, what the law or minReplicas wants, and what made of the one the other."""

    total: int
    surge: int  # of `total`, those that stand in for others
    wanted: int
    rule: Rule
    certain: int = 0  # of the wanted ones, those for which Models of lower priority are to yield
    clamp: Clamp = Clamp.NONE
    clamp_message: str = ""
    overruled: str = ""  # a cap below minReplicas
    # What is to be told of limits beside the one that moved the number, for as long as it lasts.
    notes: tuple[str, ...] = ()
    room_since: float = 0.0
    loads: tuple[tuple[float, float], ...] = ()


def current(pool: PoolView, memory: LoopMemory) -> tuple[int, int]:
    """(replicas without stand-ins, stand-ins for others) of what the Deployment asks for now."""
    if not pool.exists:
        return 0, 0
    surge = memory.surge if memory.desired == pool.spec_replicas else 0
    return max(0, pool.spec_replicas - surge), surge


def count(work: Work, placement: Placement, beside_per_hour: float) -> Count:
    """What the law asks for, within limits, with stand-ins. `beside_per_hour` is what a canary costs."""
    view, fleet = work.view, work.fleet
    intent, pool, policy, shared = view.intent, view.pool, fleet.policy, fleet.shared
    base, surge_before = current(pool, work.memory)
    asked = asking.wanted(work, base)
    law = asked.law
    work.peak_rps = law.peak_rps
    moves = moving(pool, placement)
    limited = bounds.bound(
        law.replicas,
        intent,
        placement,
        pool,
        shared,
        policy=policy,
        # What does not serve is nothing to protect where it moves.
        runs=0 if moves and not pool.ready else base,
        beside_per_hour=beside_per_hour,
    )
    number, clamp, clamp_message, rule = limited.replicas, limited.clamp, limited.message, law.rule
    short = clamp in bounds.GRANTS and number < intent.min_replicas
    if clamp is Clamp.PRIORITY and number < base:
        rule = Rule.PRIORITY
    elif short or number > law.replicas or (law.replicas == base and number != base):
        rule = Rule.BOUNDS
    notes = [limited.exceeded]
    stays = pool.rolling_out and not moves
    if stays and number < base:
        notes.append(f"{clamp_message}; no replica goes before the roll-out has ended")
        number, clamp, clamp_message, rule = base, Clamp.NONE, "", Rule.HOLD_ROLLOUT
    surge = _stand_ins(pool, work.count.lost, work.slow.replaced, number)
    if surge:
        whole = bounds.with_stand_ins(
            number, surge, intent, placement, pool=pool, shared=shared, policy=policy, beside_per_hour=beside_per_hour
        )
        missing = number + surge - whole.replicas
        if missing:
            whom = "pods on lost nodes" if work.count.lost else work.slow.replaced
            notes.append(f"{missing} more would stand in for {whom}, but {whole.message}")
        notes.append(whole.exceeded)
        surge -= missing
    if stays:
        surge = max(surge, pool.spec_replicas - number)
    if surge != surge_before and number == base and rule is not Rule.BOUNDS:
        rule = Rule.STAND_IN
    return Count(
        total=number + surge,
        surge=surge,
        wanted=max(law.replicas, intent.min_replicas) if short else law.replicas,
        rule=rule,
        clamp=clamp,
        clamp_message=clamp_message,
        overruled=limited.overruled,
        notes=tuple(note for note in notes if note),
        certain=asking.certain(work, law.replicas, law.rule),
        room_since=law.room_since,
        loads=asked.loads,
    )


def _stand_ins(pool: PoolView, lost: int, slow: str, base: int) -> int:
    """Replicas to add for pods on lost nodes, and for a slow one: gone again once enough others are ready."""
    if not lost and not slow:
        return 0
    healthy = sum(1 for pod in pool.pods if pod.state is PodState.READY and not pod.node_lost and pod.name != slow)
    return min(lost + bool(slow), max(0, base - healthy))
