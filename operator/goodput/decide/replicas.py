"""How many replicas: feed-forward from the load to provide for; up in one step, down after a window of room.

Replicas are a total, so pods that are pending or starting are in it already: the same load asks for the same number
at every tick, whatever became ready meanwhile.
"""

from __future__ import annotations

from math import ceil

from msgspec.structs import replace

from goodput.decide.policy import Policy
from goodput.domain.decision import Rule
from goodput.domain.memory import LoopMemory
from goodput.domain.values import Value

# Most entries of `loads`; older ones of a long window are merged by their maximum.
_MOST_LOADS = 64
# A scale-down that was taken back within so many windows was a mistake; the next one waits so many.
_SOON_WINDOWS = 2.0
_EDGE_WINDOWS = 3.0


class Wanted(Value, frozen=True):
    """Replicas before clamps, and the rule that asked for them."""

    replicas: int
    rule: Rule
    room_since: float = 0.0
    peak_rps: float = 0.0  # highest load to provide for in the window of a scale-down
    window_seconds: float = 0.0


class Situation(Value, frozen=True, kw_only=True):
    """What the law of replicas looks at. `load_rps` is None where nothing may be decided from load."""

    current: int
    load_rps: float | None
    floor_rps: float  # what must stay served after a scale-down: load, or demand with head-room
    demand_rps: float
    noisy_rps: float  # the highest that noise makes of the load within hours
    lacking: float  # replicas that slow pods lack
    capacity_rps: float
    plain_capacity_rps: float  # without the trim of undecided misses
    certain_misses: bool
    coming: int  # replicas on their way
    rolling_out: bool
    failing: bool  # pods fail, or requests for reasons that replicas do not heal
    fresh: bool
    startup_seconds: float
    drain_seconds: float


def needed(load_rps: float, capacity_rps: float, lacking: float = 0.0) -> int:
    """Replicas for a load; 0 load needs none (the minimum is a bound, not a need). Slow ones lack what others do."""
    if capacity_rps <= 0.0:
        return 1
    return max(0, ceil(load_rps / capacity_rps + lacking - 1e-9))


def remember_load(
    memory: LoopMemory, load_rps: float, now: float, window: float, policy: Policy
) -> tuple[tuple[float, float], ...]:
    """`loads` with one entry more. A gap in looking starts it anew: what happened in it is not known."""
    loads = memory.loads
    if loads and now - loads[-1][0] > max(4.0 * policy.tick_seconds, 3.0 * policy.scrape_seconds):
        loads = ()
    entry = (round(now, 3), round(load_rps, 6))
    if loads and now - loads[-1][0] < window / _MOST_LOADS:
        last = loads[-1]
        loads = (*loads[:-1], (last[0], max(last[1], entry[1])))
    else:
        loads = (*loads, entry)
    # One entry older than the window stays: it proves that the window is covered.
    first = 0
    while first + 1 < len(loads) and loads[first + 1][0] <= now - window:
        first += 1
    return loads[first:]


def down_window_seconds(startup: float, drain: float, capacity_rps: float, policy: Policy) -> float:
    """Time for which load must leave room: a wrong scale-down costs a drain and a start-up, and what a replica holds is
    known from many requests only."""
    enough = policy.down_requests / capacity_rps if capacity_rps > 0.0 else 0.0
    return max(policy.cooldown_seconds, startup + drain, min(enough, policy.down_requests_seconds))


def believing(memory: LoopMemory, capacity_rps: float) -> LoopMemory:
    """`memory` with `loads` as loads of replicas that hold `capacity_rps`.

    Each load keeps the number of replicas that it called for when it came: what is believed of a replica moves with
    the requests that it is learned from, and a scale-down has to hold by all that was believed in its window.
    """
    capacity_rps = round(capacity_rps, 6)
    if capacity_rps <= 0.0 or capacity_rps == memory.loads_capacity_rps:
        return memory
    scale = capacity_rps / memory.loads_capacity_rps if memory.loads_capacity_rps > 0.0 else 1.0
    loads = tuple((at, round(scale * load, 6)) for at, load in memory.loads)
    return replace(memory, loads=loads, loads_capacity_rps=capacity_rps)


def edge_windows(memory: LoopMemory, window: float) -> float:
    """Windows until the last replica too many goes: more where the last scale-down was taken back soon.

    The load lies on the edge between two numbers then, and would be asked for the one and the other in turn.
    """
    stood = memory.last_scale_up_at - memory.last_scale_down_at
    return _EDGE_WINDOWS if memory.last_scale_down_at > 0.0 and 0.0 < stood < _SOON_WINDOWS * window else 1.0


def wanted(
    situation: Situation, loads: tuple[tuple[float, float], ...], memory: LoopMemory, policy: Policy, now: float
) -> Wanted:
    """Replicas that the load calls for. `loads` holds this tick's load already."""
    current = situation.current
    window = down_window_seconds(situation.startup_seconds, situation.drain_seconds, situation.capacity_rps, policy)
    if situation.load_rps is None:
        return Wanted(current, Rule.HOLD_METRICS, 0.0, 0.0, window)
    tolerated = situation.load_rps / (1.0 + policy.up_tolerance)
    up = needed(tolerated, situation.capacity_rps, situation.lacking)
    plain = needed(tolerated, situation.plain_capacity_rps, situation.lacking)
    rule = Rule.DEMAND if plain >= up else Rule.TRIM
    if rule is Rule.TRIM:
        up = min(up, max(plain, current) + 1)
    if situation.certain_misses and situation.coming == 0:
        up, rule = max(up, current + 1), Rule.CERTAIN_MISSES
    if up > current:
        return Wanted(up, rule, 0.0, situation.load_rps, window)
    down, peak, covered = _room(situation, loads, window, now)
    edge = edge_windows(memory, window)
    if edge > 1.0:
        last, _, long_covered = _room(situation, loads, edge * window, now)
        down = min(last, down + 1) if long_covered else down + 1
    # Replicas that were just added serve for a window before one may go: what is believed of them moves meanwhile.
    covered = covered and memory.last_scale_up_at <= now - window
    now_down = needed(situation.floor_rps, situation.capacity_rps, situation.lacking)
    room_since = (memory.room_since or now) if now_down < current else 0.0
    if now_down >= current:
        resting = Rule.HOLD_STARTING if situation.coming else Rule.ENOUGH
        return Wanted(current, resting, 0.0, peak, window)
    if situation.certain_misses:
        return Wanted(current, Rule.HOLD_STARTING, 0.0, peak, window)
    if situation.rolling_out:
        return Wanted(current, Rule.HOLD_ROLLOUT, room_since, peak, window)
    if situation.failing:
        # Fewer serve than the number says, and what they refuse or cut is load that comes back.
        return Wanted(current, Rule.HOLD_FAILING, room_since, peak, window)
    if not situation.fresh:
        return Wanted(current, Rule.HOLD_METRICS, room_since, peak, window)
    if now - memory.born_at < window:
        return Wanted(current, Rule.HOLD_MEMORY, room_since, peak, window)
    if now < memory.steady_until:
        down = max(down, _against_noise(situation, memory, policy))
    if down < current and covered:
        return Wanted(down, Rule.SCALE_DOWN_ALLOWED, room_since, peak, window)
    return Wanted(current, Rule.SCALE_DOWN_WAITING, room_since, peak, window)


def once_fewer(law: Wanted, situation: Situation, capacity_rps: float) -> Wanted:
    """`law` if so few replicas hold the load at `capacity_rps`, which is what each does once there are no more: fewer
    share bursts less evenly, and what was taken away would come back at once."""
    enough = max(law.replicas, needed(situation.floor_rps, capacity_rps, situation.lacking))
    if enough < situation.current:
        return replace(law, replicas=enough)
    return replace(law, replicas=situation.current, rule=Rule.SCALE_DOWN_WAITING)


def once_risen(law: Wanted, situation: Situation, hold: int) -> Wanted:
    """`law` with no fewer than `hold` replicas, of those that there are: what rises faster than replicas start meets
    them, or is spoiled."""
    if hold <= law.replicas:
        return law
    if hold < situation.current:
        return replace(law, replicas=hold)
    return replace(law, replicas=situation.current, rule=Rule.HOLD_RISES)


def _against_noise(situation: Situation, memory: LoopMemory, policy: Policy) -> int:
    """Replicas that a load which does not move needs for good: against the noise of its estimate, and not as strained
    as they were when the last one was added."""
    for_noise = needed(situation.noisy_rps / (1.0 + policy.up_tolerance), situation.capacity_rps, situation.lacking)
    if not memory.strained_rps:
        return for_noise
    return max(for_noise, needed(situation.demand_rps, policy.relieved * memory.strained_rps))


def _room(
    situation: Situation, loads: tuple[tuple[float, float], ...], window: float, now: float
) -> tuple[int, float, bool]:
    """(replicas for the highest load of `window`, that load, whether all of the window was watched)."""
    recent = [load for at, load in loads if at > now - window]
    peak = max(recent, default=situation.floor_rps)
    return needed(peak, situation.capacity_rps, situation.lacking), peak, bool(loads) and loads[0][0] <= now - window
