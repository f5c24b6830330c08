"""From cumulative counters of scrapes to what happened since the last look, and whether it can be trusted.

Counters are compared per pod with the mark that the last look left. A falling counter is a restart: its value is what
came since. A pod without a mark that is younger than the memory started at 0; an older one only sets its mark.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite

from goodput.decide.goodput import Window, bounds
from goodput.decide.policy import Policy
from goodput.domain.conditions import ConditionReason
from goodput.domain.intent import Objective, RoutingMode
from goodput.domain.memory import LoopMemory, PodMark, Sample
from goodput.domain.observed import (
    ModelTelemetry,
    ModelView,
    PodCounters,
    PodState,
    PodView,
    PoolTelemetry,
    RouterTelemetry,
)

# Layout of PodMark.values of an engine pod.
FIRST, TTFT_OK, FINISHED, TPOT_OK, E2E_OK, REJECTED, WAITING, RUNNING, CARRY_LOWER, CARRY_UPPER, ABORTED = range(11)
# Layout of PodMark.values of a router pod.
REQUESTS, RATE, ERRORS = range(3)
# Layout of LoopMemory.pool_mark.
PROMPT, CACHED, GENERATION, ITL_SUM, ITL_COUNT = range(5)
# Observed so shortly after a start that a rate means nothing.
_LEAST_SECONDS = 1.0


@dataclass(slots=True)
class Reading:
    """What one look at a Model's telemetry gave. `sample` is None where no new scrape arrived."""

    problem: ConditionReason | None = None  # why metrics are not fresh; None: they are
    message: str = ""
    blind: bool = False  # nothing can be decided from it: hold
    nothing_to_measure: bool = False  # no pod that could have been scraped
    sample: Sample | None = None
    marks: tuple[PodMark, ...] = ()
    router_marks: tuple[PodMark, ...] = ()
    pool_mark: tuple[float | None, ...] = ()
    demand_at: float = 0.0  # newest scrape that counts demand
    tail: tuple[tuple[float, float], ...] = ()  # per router pod: (its newest scrape, its last rate)
    waiting: float = 0.0
    running: float = 0.0
    itl_seconds: float | None = None  # mean inter-token latency since the last look
    itl_count: float = 0.0
    in_flight: dict[str, float] = field(default_factory=dict)  # running and waiting per engine pod


@dataclass(slots=True)
class _Sums:
    """Sums over the engine pods that have a new scrape."""

    ends: float = 0.0
    seconds: float = 0.0
    pods: int = 0
    first: float = 0.0
    finished: float = 0.0
    ttft_misses: float = 0.0
    tpot_misses: float = 0.0
    e2e_misses: float = 0.0
    lower: float = 0.0
    upper: float = 0.0
    rejected: float = 0.0
    arrived: float = 0.0
    newest: float = 0.0


def objective_mark(objective: Objective | None) -> tuple[float | None, ...]:
    """Thresholds that `*_within` counters belong to."""
    if objective is None:
        return ()
    return (objective.ttft_seconds, objective.tpot_seconds, objective.e2e_seconds)


def read(view: ModelView, memory: LoopMemory, policy: Policy, now: float, telemetry_error: str) -> Reading:
    """Compare the Model's telemetry with the marks in `memory`."""
    reading = Reading(marks=memory.marks, router_marks=memory.router_marks, pool_mark=memory.pool_mark)
    telemetry = view.telemetry
    settled = now - 2.0 * policy.scrape_seconds
    measurable = [pod for pod in view.pool.pods if _measurable(pod, settled)]
    if telemetry is None and not telemetry_error and not measurable:
        # Nobody could have been asked yet.
        reading.nothing_to_measure = reading.blind = True
        return reading
    if telemetry_error or telemetry is None:
        reading.problem = ConditionReason.PROMETHEUS_UNREACHABLE
        reading.message = telemetry_error or "Prometheus did not answer for this Model"
        reading.blind = True
        return reading
    objective = view.intent.objective
    pool = telemetry.pool
    if pool is not None:
        invalid = _invalid(pool, telemetry.router)
        if invalid:
            return _fail(reading, ConditionReason.METRICS_INVALID, invalid)
    sums = _engine(reading, view, pool, memory, policy, objective) if pool is not None else _Sums()
    offered, failed, end, seconds = _router(reading, view, telemetry.router, memory)
    if view.intent.routing is RoutingMode.NONE:
        offered, failed = sums.arrived, sums.rejected
        end = sums.ends / sums.pods if sums.pods else 0.0
        seconds = sums.seconds / sums.pods if sums.pods else 0.0
        reading.demand_at = sums.newest
    # Token sums move with the engines' scrapes: they are compared only when one of those arrived.
    tokens = _tokens(reading, pool, memory) if sums.pods else (0.0, 0.0, 0.0)
    if sums.pods or seconds:
        reading.sample = Sample(
            at=end or sums.ends / sums.pods,
            seconds=seconds,
            offered=offered,
            finished=sums.finished,
            ttft_misses=sums.ttft_misses,
            tpot_misses=sums.tpot_misses,
            e2e_misses=sums.e2e_misses,
            good_lower=sums.lower,
            good_upper=sums.upper,
            rejected=sums.rejected,
            prompt_tokens=tokens[0],
            cached_tokens=tokens[1],
            generation_tokens=tokens[2],
            first_tokens=sums.first,
            failed=failed,
        )
    _freshness(reading, view, telemetry, measurable, policy, now)
    return reading


def _measurable(pod: PodView, settled: float) -> bool:
    """Whether a scrape of this pod must exist by now: ready for two scrape intervals at least."""
    return pod.state is PodState.READY and pod.ready_at is not None and pod.ready_at <= settled


def _fail(reading: Reading, reason: ConditionReason, message: str) -> Reading:
    reading.problem, reading.message, reading.blind = reason, message, True
    return reading


def _bad(value: float | None) -> bool:
    return value is not None and not (value >= 0.0 and isfinite(value))


def _invalid(pool: PoolTelemetry, router: RouterTelemetry | None) -> str:
    """Which value is no count (NaN, infinite or negative); empty where all are."""
    for pod in pool.pods:
        # One sum finds what is not finite; the names are looked for only then.
        total = 0.0
        for value in (pod.first_tokens, pod.ttft_within, pod.finished, pod.tpot_within, pod.e2e_within, pod.running,
                      pod.waiting, pod.rejected):  # fmt: skip
            if value is not None:
                if value < 0.0:
                    return f"a counter of pod {pod.pod} is {value}: counts are never negative"
                total += value
        if not isfinite(total):
            return f"a counter of pod {pod.pod} is not a number"
    for value in (pool.prompt_tokens, pool.generation_tokens, pool.itl_sum_seconds, pool.itl_count):
        if _bad(value):
            return f"a token counter is {value}"
    for name, _, requests in router.requests if router is not None else ():
        if _bad(requests):
            return f"the request counter of router pod {name} is {requests}"
    return ""


def _engine(
    reading: Reading,
    view: ModelView,
    pool: PoolTelemetry,
    memory: LoopMemory,
    policy: Policy,
    objective: Objective | None,
) -> _Sums:
    sums = _Sums()
    marks = {mark.pod: mark for mark in memory.marks}
    alive = {pod.name: pod for pod in view.pool.pods}
    rebased = memory.objective != objective_mark(objective)
    kept: list[PodMark] = []
    in_flight = reading.in_flight
    waiting = running = 0.0
    for counters in pool.pods:
        name = counters.pod
        mark = marks.pop(name, None)
        pod = alive.get(name)
        if pod is None and mark is None:
            continue
        pod_waiting = counters.waiting or 0.0
        pod_running = counters.running or 0.0
        if pod is not None:
            waiting += pod_waiting
            running += pod_running
            in_flight[name] = pod_waiting + pod_running
        if mark is not None and counters.scraped_at <= mark.scraped_at:
            if pod is not None:
                kept.append(mark)
            else:
                sums.upper += _lost(mark)
            continue
        new = _pod(sums, counters, mark, pod, memory.born_at, objective, rebased, pool.threshold_error)
        if pod is not None:
            kept.append(new)
        else:
            sums.upper += _lost(new)
    for name, mark in marks.items():
        if name in alive:
            kept.append(mark)
        else:
            # It went away: what was in flight at its last scrape may have finished well, unseen.
            sums.upper += _lost(mark)
    kept.sort(key=lambda mark: mark.pod)
    reading.marks = tuple(kept)
    reading.waiting = waiting
    reading.running = running
    return sums


def _lost(mark: PodMark) -> float:
    values = mark.values
    return max(0.0, (values[RUNNING] or 0.0) + (values[WAITING] or 0.0) - (values[CARRY_UPPER] or 0.0))


def _pod(
    sums: _Sums,
    now: PodCounters,
    mark: PodMark | None,
    pod: PodView | None,
    born_at: float,
    objective: Objective | None,
    rebased: bool,
    error: float,
) -> PodMark:
    first, finished = now.first_tokens, now.finished
    waiting, running = now.waiting or 0.0, now.running or 0.0
    old: tuple[float | None, ...]
    started = mark.scraped_at if mark is not None else 0.0
    carry_lower = carry_upper = aborted_before = 0.0
    if mark is None:
        if pod is None or pod.created_at < born_at:
            # Older than our memory: what it counted so far was counted before, or never.
            return PodMark(pod=now.pod, scraped_at=now.scraped_at, values=_values(now, 0.0, 0.0, 0.0))
        old, started = _ZEROS, pod.created_at
    else:
        old = mark.values
        carry_lower, carry_upper, aborted_before = old[CARRY_LOWER] or 0.0, old[CARRY_UPPER] or 0.0, old[ABORTED] or 0.0
        if _fell(first, old[FIRST]) or _fell(finished, old[FINISHED]):
            # The engine restarted: what was in flight may have finished well before it, unseen.
            sums.upper += _lost(mark)
            old, carry_lower, carry_upper, aborted_before = _ZEROS, 0.0, 0.0, 0.0
            rebased = False
    scraped_at = now.scraped_at
    sums.pods += 1
    sums.ends += scraped_at
    sums.seconds += max(_LEAST_SECONDS, scraped_at - started)
    sums.newest = max(sums.newest, scraped_at)
    got_first = _delta(first, old[FIRST])
    ended = _delta(finished, old[FINISHED])
    rejected = _delta(now.rejected, old[REJECTED])
    sums.first += got_first
    sums.finished += ended
    sums.rejected += rejected
    arrived = got_first + rejected + waiting - (old[WAITING] or 0.0)
    if arrived > 0.0:
        sums.arrived += arrived
    in_flight = running + waiting
    aborted = 0.0
    if first is not None and finished is not None and first - finished > running:
        aborted = first - finished - running
    if objective is None:
        return PodMark(pod=now.pod, scraped_at=now.scraped_at, values=_values(now, 0.0, 0.0, aborted))
    late = slow = late_end = 0.0
    unknown = rebased
    if objective.ttft_seconds is not None:
        unknown |= now.ttft_within is None
        late = got_first - _delta(now.ttft_within, old[TTFT_OK])
        late = late if late > 0.0 else 0.0
    if objective.tpot_seconds is not None:
        unknown |= now.tpot_within is None
        slow = _missed(ended, now.tpot_within, old[TPOT_OK])
    if objective.e2e_seconds is not None:
        unknown |= now.e2e_within is None
        late_end = _missed(ended, now.e2e_within, old[E2E_OK])
    if unknown:
        # Counted against another threshold, or not at all: anything between none and all was good.
        sums.upper += ended
        return PodMark(pod=now.pod, scraped_at=now.scraped_at, values=_values(now, in_flight, 0.0, aborted))
    result = bounds(
        Window(ended, late, slow, late_end, in_flight, aborted - aborted_before if aborted > aborted_before else 0.0),
        carry_lower,
        carry_upper,
    )
    sums.ttft_misses += late
    sums.tpot_misses += slow
    sums.e2e_misses += late_end
    if error > 0.0:
        slack = error * ended
        sums.lower += max(0.0, result.lower - slack)
        sums.upper += min(ended, result.upper + slack)
    else:
        sums.lower += result.lower
        sums.upper += result.upper
    return PodMark(
        pod=now.pod,
        scraped_at=now.scraped_at,
        values=_values(now, result.carry_lower, result.carry_upper, aborted),
    )


_ZEROS: tuple[float | None, ...] = (0.0,) * 11


def _values(now: PodCounters, carry_lower: float, carry_upper: float, aborted: float) -> tuple[float | None, ...]:
    return (
        now.first_tokens,
        now.ttft_within,
        now.finished,
        now.tpot_within,
        now.e2e_within,
        now.rejected,
        now.waiting,
        now.running,
        carry_lower,
        carry_upper,
        aborted,
    )


def _fell(value: float | None, before: float | None) -> bool:
    return value is not None and before is not None and value < before


def _delta(value: float | None, before: float | None) -> float:
    """Growth of a counter; after a restart, what it counted since. Absent on either side: nothing known, 0."""
    if value is None or before is None:
        return 0.0
    return value - before if value >= before else value


def _missed(ended: float, within: float | None, before: float | None) -> float:
    """Of `ended` requests, those that were not within the objective."""
    missed = ended - _delta(within, before)
    return 0.0 if missed < 0.0 else ended if missed > ended else missed


def _router(
    reading: Reading, view: ModelView, router: RouterTelemetry | None, memory: LoopMemory
) -> tuple[float, float, float, float]:
    """(requests, errors, mean end and mean length of the intervals) of the router pods that have a new scrape."""
    if router is None:
        return 0.0, 0.0, 0.0, 0.0
    marks = {mark.pod: mark for mark in memory.router_marks}
    created = {pod.name: pod.created_at for pod in view.router.pods}
    errors = {name: value for name, _, value in router.errors}
    offered = failed = ends = lengths = 0.0
    pods = 0
    kept: list[PodMark] = []
    tail: list[tuple[float, float]] = []
    for name, scraped_at, requests in router.requests:
        mark = marks.get(name)
        known = name in created
        if not known and mark is None:
            continue
        reading.demand_at = max(reading.demand_at, scraped_at)
        if mark is not None and scraped_at <= mark.scraped_at:
            if known:
                kept.append(mark)
                tail.append((mark.scraped_at, mark.values[RATE] or 0.0))
            continue
        rate = 0.0
        error = errors.get(name, 0.0)
        if mark is not None or created[name] >= memory.born_at:
            before = (mark.values[REQUESTS] or 0.0) if mark is not None else 0.0
            errors_before = (mark.values[ERRORS] or 0.0) if mark is not None else 0.0
            seconds = max(_LEAST_SECONDS, scraped_at - (mark.scraped_at if mark is not None else created[name]))
            grown = _delta(requests, before)
            rate = grown / seconds
            offered += grown
            failed += _delta(error, errors_before)
            ends += scraped_at
            lengths += seconds
            pods += 1
        if known:
            kept.append(PodMark(pod=name, scraped_at=scraped_at, values=(requests, rate, error)))
            tail.append((scraped_at, rate))
    reading.router_marks = tuple(sorted(kept, key=lambda mark: mark.pod))
    reading.tail = tuple(tail)
    if not pods:
        return 0.0, 0.0, 0.0, 0.0
    return offered, failed, ends / pods, lengths / pods


def _tokens(reading: Reading, pool: PoolTelemetry | None, memory: LoopMemory) -> tuple[float, float, float]:
    """(prompt, cached, generated) tokens since the last look; 0 where a sum fell, as it does when a pod goes."""
    if pool is None:
        return 0.0, 0.0, 0.0
    now = (
        pool.prompt_tokens,
        pool.cached_prompt_tokens,
        pool.generation_tokens,
        pool.itl_sum_seconds,
        pool.itl_count,
    )
    before = memory.pool_mark
    reading.pool_mark = now
    if len(before) != len(now) or any(_fell(new, old) for new, old in zip(now, before, strict=True)):
        return 0.0, 0.0, 0.0
    count = _delta(now[ITL_COUNT], before[ITL_COUNT])
    if count > 0.0:
        reading.itl_count = count
        reading.itl_seconds = _delta(now[ITL_SUM], before[ITL_SUM]) / count
    return (
        _delta(now[PROMPT], before[PROMPT]),
        _delta(now[CACHED], before[CACHED]),
        _delta(now[GENERATION], before[GENERATION]),
    )


def _freshness(
    reading: Reading,
    view: ModelView,
    telemetry: ModelTelemetry,
    measurable: list[PodView],
    policy: Policy,
    now: float,
) -> None:
    """Say what is missing or stale. Most of it missing is blindness: nothing is decided then."""
    oldest = now - policy.stale_scrapes * policy.scrape_seconds
    if not measurable:
        reading.nothing_to_measure = True
        return
    if telemetry.unlabelled:
        _fail(
            reading,
            ConditionReason.METRICS_UNLABELLED,
            telemetry.problem or "Prometheus has the engine's metrics, but without our pod labels: add the relabelling",
        )
        return
    routed = view.intent.routing is RoutingMode.ROUTER
    if routed:
        expected = sum(1 for pod in view.router.pods if _measurable(pod, now - 2.0 * policy.scrape_seconds))
        if expected and not reading.demand_at:
            _fail(reading, ConditionReason.METRICS_MISSING, telemetry.problem or "no request counter of a router pod")
            return
        if expected and reading.demand_at < oldest:
            _fail(
                reading,
                ConditionReason.METRICS_STALE,
                f"the newest scrape of the router is {now - reading.demand_at:.0f} s old",
            )
            return
    missing, stale = [], []
    scraped = {pod.pod: pod for pod in telemetry.pool.pods} if telemetry.pool is not None else {}
    for pod in measurable:
        counters = scraped.get(pod.name)
        if counters is None or counters.first_tokens is None or counters.finished is None:
            missing.append(pod.name)
        elif counters.scraped_at < oldest:
            stale.append(pod.name)
    gone = missing + stale
    if gone:
        reading.problem = ConditionReason.METRICS_MISSING if missing else ConditionReason.METRICS_STALE
        what = "no metrics of" if missing else f"metrics older than {policy.stale_scrapes:.0f} scrapes of"
        reading.message = f"{what} {len(gone)} of {len(measurable)} ready pods: {', '.join(gone[:3])}"
        if telemetry.problem:
            reading.message += f" ({telemetry.problem})"
        # A single mute pod does not stop the fleet from growing; half of them does.
        reading.blind = 2 * len(gone) >= len(measurable)
    elif telemetry.problem:
        _fail(reading, ConditionReason.METRICS_MISSING, telemetry.problem)
