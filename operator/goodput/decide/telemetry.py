"""From cumulative counters of scrapes to what happened since the last look, and whether it can be trusted.

Counters are compared per pod with the mark that the last look left. A falling counter is a restart: its value is what
came since. A pod without a mark that is younger than the memory started at 0; an older one only sets its mark.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite, isnan
from zlib import crc32

import numpy as np

from goodput.decide.history import window_seconds
from goodput.decide.podcounts import LEAST_SECONDS, NO_COUNTERS, Counted, Look, bounded_columns
from goodput.decide.policy import Policy
from goodput.domain import podtable as pt
from goodput.domain.conditions import ConditionReason
from goodput.domain.identity import LABEL_MODEL, LABEL_POOL, LABEL_REVISION
from goodput.domain.intent import Objective
from goodput.domain.memory import ARRIVAL_RATE, MARKED, LoopMemory, PodMark
from goodput.domain.observed import (
    ModelTelemetry,
    ModelView,
    PodState,
    PodView,
    PoolTelemetry,
    PoolView,
    RouterTelemetry,
)
from goodput.domain.podtable import Column, PodTable
from goodput.domain.samples import Sample

_POD_LABELS = (LABEL_MODEL, LABEL_POOL, LABEL_REVISION)
# What a scrape configuration lacks that does not come from our PodMonitors. Series are told apart by these labels.
RELABELLING = (
    "Prometheus has metrics of engines, but without our pod labels: add to the relabel_configs of the job that scrapes"
    " them {action: labelmap, regex: __meta_kubernetes_pod_label_(goodput_dev_.+)},"
    " {source_labels: [__meta_kubernetes_namespace], target_label: namespace} and"
    " {source_labels: [__meta_kubernetes_pod_name], target_label: pod}, or to a PodMonitor"
    f" {{podTargetLabels: [{', '.join(_POD_LABELS)}]}} (charts/goodput/README.md, Metrics)"
)
# Layout of PodMark.values of a router pod.
REQUESTS, RATE, ERRORS = range(3)
VALUES = 3
# Layout of LoopMemory.pool_mark.
(
    PROMPT,
    CACHED,
    GENERATION,
    ITL_SUM,
    ITL_COUNT,
    PREFILL_SUM,
    PREFILL_COUNT,
    DRAFTS,
    ACCEPTED,
    WHOSE,
) = range(10)


@dataclass(slots=True)
class Reading:
    """What one look at a Model's telemetry gave. `sample` is None where no new scrape arrived."""

    problem: ConditionReason | None = None  # why metrics are not fresh; None: they are
    message: str = ""
    blind: bool = False  # nothing can be decided from it: hold
    nothing_to_measure: bool = False  # no pod that could have been scraped
    unlisted: bool = False  # pods serve that are not known: what is shared by pods has another number of shares
    sample: Sample | None = None
    marks: PodTable = field(default_factory=lambda: pt.empty(MARKED))
    router_marks: tuple[PodMark, ...] = ()
    pool_mark: tuple[float | None, ...] = ()
    demand_at: float = 0.0  # newest scrape that counts demand
    tail: tuple[tuple[float, float], ...] = ()  # per pod that counts demand: (its newest scrape, its last rate)
    waiting: float = 0.0
    running: float = 0.0
    batch: float = 0.0  # sequences that the replica of a mean token runs
    itl_seconds: float | None = None  # mean inter-token latency since the last look
    itl_count: float = 0.0
    prefill_seconds: float | None = None  # mean prefill time of the requests that finished since the last look
    prefill_count: float = 0.0
    drafts: float = 0.0  # since the last look
    accepted_tokens: float = 0.0
    first_rps: float = 0.0  # first tokens per second of all pods together
    engine_seconds: float = 0.0  # mean time between the scrapes of engines that were compared; 0: no new one
    engine_seconds_all: float = 0.0  # the same added up over engines; 0 too where their tokens cannot be compared


def objective_mark(objective: Objective | None) -> tuple[float | None, ...]:
    """Thresholds that `*_within` counters belong to."""
    if objective is None:
        return ()
    return (objective.ttft_seconds, objective.tpot_seconds, objective.e2e_seconds)


def look(view: ModelView, memory: LoopMemory, policy: Policy, telemetry_error: str) -> Look | None:
    """What is to be counted of a Model's engine pods; None: nothing can be."""
    telemetry = view.telemetry
    if telemetry_error or telemetry is None or _invalid(telemetry.pool, telemetry.router):
        return None
    pool, objective = telemetry.pool, view.intent.objective
    return Look(
        view.pool,
        pool.counters if pool is not None else NO_COUNTERS,
        memory,
        objective,
        rebased=memory.objective != objective_mark(objective),
        longest_seconds=window_seconds(pool.request_seconds_p95 if pool is not None else None, policy),
    )


def read(
    view: ModelView, memory: LoopMemory, policy: Policy, now: float, *, counted: Counted | None, telemetry_error: str
) -> Reading:
    """Compare the Model's telemetry with the marks in `memory`; `counted` is what its engine pods did."""
    reading = Reading(marks=memory.marks, router_marks=memory.router_marks, pool_mark=memory.pool_mark)
    telemetry = view.telemetry
    settled = now - policy.settled_seconds
    if telemetry is None and not telemetry_error and not _all_measurable(view.pool, settled):
        # Nobody could have been asked yet.
        reading.nothing_to_measure = reading.blind = True
        return reading
    if telemetry_error or telemetry is None:
        reading.problem = ConditionReason.PROMETHEUS_UNREACHABLE
        reading.message = telemetry_error or "Prometheus did not answer for this Model"
        reading.blind = True
        return reading
    pool = telemetry.pool
    if counted is None:
        return _fail(reading, ConditionReason.METRICS_INVALID, _invalid(pool, telemetry.router))
    sums = counted.sums
    reading.marks, reading.waiting, reading.running = counted.marks, sums.waiting, sums.running
    reading.unlisted = pool is not None and pool.unlisted
    # Replicas that drain, start or idle differ in load. A token comes from a replica in proportion to its batch.
    reading.batch = sums.squares / sums.running if sums.running > 0.0 else 0.0
    offered, failed, end, seconds = _router(reading, view, telemetry.router, memory)
    if not view.routed:
        offered, failed = sums.arrived, sums.rejected
        end = sums.ends / sums.pods if sums.pods else 0.0
        seconds = sums.seconds / sums.pods if sums.pods else 0.0
        _engines_count_demand(reading, view)
    if sums.pods:
        reading.engine_seconds = sums.seconds / sums.pods
        # Pods are scraped at unlike instants: the rate of those that were, for all.
        reading.first_rps = sums.first / sums.seconds * max(1.0, sums.scraped)
    # Token sums move with the engines' scrapes: they are compared only when one of those arrived.
    tokens = _tokens(reading, pool, memory, counted) if sums.pods else (0.0, 0.0, 0.0)
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
            slow_missed=sums.slow_missed,
            engine_seconds=sums.longest,
        )
    _freshness(reading, view, telemetry, counted, policy=policy, now=now)
    return reading


def _measurable(pod: PodView, settled: float) -> bool:
    """Whether a scrape of this pod must be known by now: ready for two scrape intervals at least."""
    return pod.state is PodState.READY and pod.ready_at is not None and pod.ready_at <= settled


def _all_measurable(pool: PoolView, settled: float) -> list[PodView]:
    return [pod for pod in pool.pods if _measurable(pod, settled)]


def _fail(reading: Reading, reason: ConditionReason, message: str) -> Reading:
    reading.problem, reading.message, reading.blind = reason, message, True
    return reading


def _bad(value: float | None) -> bool:
    return value is not None and not 0.0 <= value < pt.MOST_COUNT


def _invalid(pool: PoolTelemetry | None, router: RouterTelemetry | None) -> str:
    """Which value is no count (NaN, infinite or negative); empty where all are."""
    found = (pool.fault or _invalid_sums(pool)) if pool is not None else ""
    if found or router is None:
        return found
    for what, counted in (("request", router.requests), ("error", router.errors)):
        for name, scraped_at, value in counted:
            if _bad(value) or _bad(scraped_at):
                return f"the {what} counter of router pod {name} is {value}"
    return ""


def _invalid_sums(pool: PoolTelemetry) -> str:
    for value in (
        pool.prompt_tokens,
        pool.cached_prompt_tokens,
        pool.generation_tokens,
        pool.itl_sum_seconds,
        pool.itl_count,
        pool.prefill_sum_seconds,
        pool.prefill_count,
        pool.drafts,
        pool.accepted_tokens,
    ):
        if _bad(value):
            return f"a token counter is {value}"
    return ""


def in_flight(view: ModelView) -> dict[str, float]:
    """Requests that run and wait on each engine pod that was scraped."""
    if view.telemetry is None or view.telemetry.pool is None:
        return {}
    table = view.telemetry.pool.counters
    there = np.nansum(table.values[:, [pt.WAITING, pt.RUNNING]], axis=1).tolist()
    return dict(zip(table.pods, there, strict=True))


def _engines_count_demand(reading: Reading, view: ModelView) -> None:
    """Without a router, what arrived at engines is demand. Each that serves goes on at its last rate until the newest
    scrape of all, as router pods do."""
    serving = {pod.name for pod in view.pool.pods if pod.state is PodState.READY}
    marks = reading.marks
    rates = marks.values[:, [pt.SCRAPED_AT, ARRIVAL_RATE]].tolist()
    reading.demand_at = max([scraped_at for scraped_at, _ in rates], default=0.0)
    reading.tail = tuple(
        [(scraped_at, rate) for pod, (scraped_at, rate) in zip(marks.pods, rates, strict=True) if pod in serving]
    )


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
        mark = marks.pop(name, None)
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
            seconds = max(LEAST_SECONDS, scraped_at - (mark.scraped_at if mark is not None else created[name]))
            grown = delta(requests, before)
            rate = grown / seconds
            offered += grown
            failed += delta(error, errors_before)
            ends += scraped_at
            lengths += seconds
            pods += 1
        if known:
            kept.append(PodMark(pod=name, scraped_at=scraped_at, values=(requests, rate, error)))
            tail.append((scraped_at, rate))
    for name, mark in marks.items():
        if name in created:
            # It missed a scrape: it goes on as it was, and its next count is compared with its last one.
            kept.append(mark)
            tail.append((mark.scraped_at, mark.values[RATE] or 0.0))
    reading.router_marks = tuple(sorted(kept, key=lambda mark: mark.pod))
    reading.tail = tuple(tail)
    if not pods:
        return 0.0, 0.0, 0.0, 0.0
    return offered, failed, ends / pods, lengths / pods


def _tokens(
    reading: Reading, pool: PoolTelemetry | None, memory: LoopMemory, counted: Counted
) -> tuple[float, float, float]:
    """(prompt, cached, generated) tokens since the last look; 0 where the sums are not over the same pods as then.

    A pod that missed a scrape leaves its sum and comes back with all that it ever counted: no growth of this interval.
    So do pods that were made, or that went, while the watch of pods was away.
    """
    if pool is None:
        return 0.0, 0.0, 0.0
    if pool.unlisted:
        # All their tokens, for the requests of the pods that are known: a replica would be believed too weak.
        reading.pool_mark = ()
        return 0.0, 0.0, 0.0
    pods = pool.counters.pods
    if not counted.complete:
        first = pool.counters.column(pt.FIRST_TOKENS).tolist()
        pods = tuple([pod for pod, value in zip(pods, first, strict=True) if not isnan(value)])
    now = (
        pool.prompt_tokens,
        pool.cached_prompt_tokens,
        pool.generation_tokens,
        pool.itl_sum_seconds,
        pool.itl_count,
        pool.prefill_sum_seconds,
        pool.prefill_count,
        pool.drafts,
        pool.accepted_tokens,
        float(crc32(",".join(pods).encode())),
    )
    before = memory.pool_mark
    reading.pool_mark = now
    if len(before) != len(now) or before[WHOSE] != now[WHOSE]:
        return 0.0, 0.0, 0.0
    if any(fell(new, old) for new, old in zip(now, before, strict=True)):
        return 0.0, 0.0, 0.0
    if not any(value is None for value in (now[PROMPT], now[GENERATION], now[ITL_SUM], now[ITL_COUNT])):
        reading.engine_seconds_all = counted.sums.seconds
    count = delta(now[ITL_COUNT], before[ITL_COUNT])
    if count > 0.0:
        reading.itl_count = count
        reading.itl_seconds = delta(now[ITL_SUM], before[ITL_SUM]) / count
    ended = delta(now[PREFILL_COUNT], before[PREFILL_COUNT])
    if ended > 0.0:
        reading.prefill_count = ended
        reading.prefill_seconds = delta(now[PREFILL_SUM], before[PREFILL_SUM]) / ended
    reading.drafts = delta(now[DRAFTS], before[DRAFTS])
    reading.accepted_tokens = delta(now[ACCEPTED], before[ACCEPTED])
    return (
        delta(now[PROMPT], before[PROMPT]),
        delta(now[CACHED], before[CACHED]),
        delta(now[GENERATION], before[GENERATION]),
    )


def _router_freshness(
    reading: Reading, view: ModelView, telemetry: ModelTelemetry, *, oldest: float, settled: float
) -> bool:
    """Say which router pods are not counted. False: demand is not known at all, and nothing else matters."""
    expected = [pod.name for pod in _all_measurable(view.router, settled)]
    if not expected:
        if view.router.pods and not any(pod.state is PodState.READY for pod in view.router.pods):
            # Nobody can send requests: that none come says nothing about demand.
            reading.problem = ConditionReason.METRICS_MISSING
            reading.message = "no router pod is ready: what users would send is not known"
        return True
    if not reading.demand_at:
        message = _with_problem("no request counter of a router pod", telemetry)
        _fail(reading, ConditionReason.METRICS_MISSING, message)
        return False
    if reading.demand_at < oldest:
        age = max(0.0, oldest - reading.demand_at)
        _fail(reading, ConditionReason.METRICS_STALE, f"the newest scrape of the router is {age:.0f} s too old")
        return False
    counted = {mark.pod: mark.scraped_at for mark in reading.router_marks}
    mute = [name for name in expected if counted.get(name, 0.0) < oldest]
    if mute:
        # What the others count is a lower bound of demand: it may call for more, never for fewer.
        reading.problem = ConditionReason.METRICS_MISSING
        reading.message = f"no request counter of {len(mute)} of {len(expected)} router pods: {', '.join(mute[:3])}"
    return True


def _freshness(
    reading: Reading,
    view: ModelView,
    telemetry: ModelTelemetry,
    counted: Counted,
    *,
    policy: Policy,
    now: float,
) -> None:
    """Say what is missing or stale. Most of it missing is blindness: nothing is decided then."""
    oldest = now - policy.stale_seconds
    settled = now - policy.settled_seconds
    tally = view.pool.tally
    # Most fleets at most times: whoever is ready was so long ago, and no pod has to be looked at.
    long_ready = tally.ready > 0 and 0.0 < tally.newest_ready_at <= settled
    if not long_ready and not _all_measurable(view.pool, settled):
        reading.nothing_to_measure = True
        return
    if telemetry.unlabelled:
        _fail(reading, ConditionReason.METRICS_UNLABELLED, _with_problem(RELABELLING, telemetry))
        return
    if view.routed and not _router_freshness(reading, view, telemetry, oldest=oldest, settled=settled):
        return
    if counted.whole and counted.complete and counted.oldest_scrape >= oldest:
        return
    measurable = _all_measurable(view.pool, settled)
    missing: list[str] = []
    stale: list[str] = []
    table = telemetry.pool.counters if telemetry.pool is not None else NO_COUNTERS
    scraped, marked = table.index(), reading.marks.index()
    for pod in measurable:
        row = scraped.get(pod.name)
        if row is not None and not _complete(table.values[row], view.intent.objective):
            missing.append(pod.name)
            continue
        # A pod that missed a scrape or two is known as of the one before.
        at = marked.get(pod.name)
        known = table.values[row, pt.SCRAPED_AT] if row is not None else None
        if known is None and at is not None:
            known = reading.marks.values[at, pt.SCRAPED_AT]
        if known is None:
            missing.append(pod.name)
        elif known < oldest:
            (stale if row is not None else missing).append(pod.name)
    gone = missing + stale
    if gone:
        reading.problem = ConditionReason.METRICS_MISSING if missing else ConditionReason.METRICS_STALE
        what = "no metrics of" if missing else f"metrics older than {policy.stale_seconds:.0f} s of"
        message = f"{what} {len(gone)} of {len(measurable)} ready pods: {', '.join(gone[:3])}"
        reading.message = _with_problem(message, telemetry)
        # A single mute pod does not stop the fleet from growing; half of them does.
        reading.blind = 2 * len(gone) >= len(measurable)


def _with_problem(message: str, telemetry: ModelTelemetry) -> str:
    """What is wrong, and what Prometheus lacks beside that."""
    return f"{message} ({telemetry.problem})" if telemetry.problem else message


def _complete(scrape: Column, objective: Objective | None) -> bool:
    """Whether a pod exports all that decisions need."""
    needed = [pt.FIRST_TOKENS, pt.FINISHED, pt.WAITING, *bounded_columns(objective)]
    return not any(isnan(scrape[column]) for column in needed)


def delta(value: float | None, before: float | None) -> float:
    """Growth of a counter; after a restart, what it counted since. No number on either side: nothing known, 0."""
    if value is None or before is None or not isfinite(before):
        return 0.0
    return value - before if value >= before else value


def fell(value: float | None, before: float | None) -> bool:
    """Whether a counter restarted."""
    return value is not None and before is not None and value < before
