"""A small closed loop: simulated engines under a load curve, scraped and decided as in a cluster. No wall clock."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.decide.builders import KEY, START, intent, router, snapshot
from tests.podtables import counters as table

from goodput.decide import Policy, decide
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import (
    ModelTelemetry,
    ModelView,
    PodState,
    PodView,
    PoolTelemetry,
    PoolView,
    RouterTelemetry,
)
from goodput.perfmodel import built_in_gpu_types
from goodput.simulator.engine import Engine
from goodput.simulator.plant import Plant, StepTimeModel
from goodput.simulator.sequences import AdmissionRejectedError, EngineConfig, EngineRequest, Sequence

# Llama-3.1-8B on an L40S whose efficiencies are not those of the prior.
PLANT = Plant(
    weights_bytes=16.06e9,
    flops_per_token=15e9,
    kv_bytes_per_token=131072,
    bandwidth_bytes_per_second=864e9,
    peak_flops_per_second=362e12,
    mbu=0.74,
    mfu=0.62,
    step_overhead_seconds=0.0012,
    per_sequence_overhead_seconds=2e-5,
    kv_pool_tokens=197_353,
    startup_seconds=45.0,
    host_memory_bytes=1e10,
    request_overhead_seconds=0.015,
    attention_flops_per_token_pair=524_288.0,
)
# What the law believes of the GPU are the priors that it ships with.
TYPES = built_in_gpu_types()
_SCRAPE, _TICK, _STEP = 15.0, 10.0, 1.0
_PRE_STOP = 8.0


@dataclass(slots=True, eq=False)
class _Pod:
    """A replica from creation to removal; counters are those of its last scrape."""

    name: str
    created: float
    ready: float
    phase: float
    engine: Engine
    time: float = 0.0
    stopping: float | None = None
    first: list[Sequence] = field(default_factory=list)
    done: list[Sequence] = field(default_factory=list)
    tokens: tuple[int, int] = (0, 0)
    itl: tuple[float, int] = (0.0, 0)
    counted: dict[str, Any] | None = None
    sums: tuple[float, ...] = (0.0,) * 6
    rejected: int = 0

    def advance(self, until: float) -> None:
        while self.time <= until:
            start = self.engine.next_start(self.time)
            if start is None or start > until:
                self.time = max(self.time, until)
                return
            step = self.engine.step(start)
            if step is None:
                self.time = start + 1e-3
                continue
            self.time = step.ends_at
            self.first += step.first_tokens
            self.done += step.finished
            gaps = len(step.emitted) - len(step.first_tokens)
            self.itl = (self.itl[0] + gaps * step.duration_seconds, self.itl[1] + gaps)
            self.tokens = (self.tokens[0] + step.prefill_tokens, self.tokens[1] + len(step.emitted))

    def scrape(self, at: float) -> None:
        self.counted = {
            "pod": self.name,
            "scraped_at": START + at,
            "first_tokens": float(len(self.first)),
            "ttft_within": float(sum(1 for each in self.first if ttft(each) <= 0.5)),
            "finished": float(len(self.done)),
            "tpot_within": float(sum(1 for each in self.done if tpot(each) <= 0.05)),
            "running": float(self.engine.running),
            "waiting": float(self.engine.waiting),
            "rejected": float(self.rejected),
        }
        prefill = sum((each.first_token_at or 0.0) - (each.scheduled_at or 0.0) for each in self.done)
        self.sums = (
            float(self.tokens[0]),
            float(self.tokens[1]),
            self.itl[0],
            float(self.itl[1]),
            prefill,
            float(len(self.done)),
        )


def ttft(sequence: Sequence) -> float:
    return (sequence.first_token_at or math.inf) - sequence.arrived_at


def tpot(sequence: Sequence) -> float:
    gaps = sequence.generated - 1
    return ((sequence.last_token_at or 0.0) - (sequence.first_token_at or 0.0)) / gaps if gaps > 0 else 0.0


@dataclass(slots=True)
class Outcome:
    """What one run gave. Times are seconds from the start of the load."""

    offered: int = 0
    good: int = 0
    good_lower: float = 0.0
    good_upper: float = 0.0
    counted: float = 0.0
    gpu_seconds: float = 0.0
    changes: list[tuple[float, int]] = field(default_factory=list)
    memory: LoopMemory = field(default_factory=LoopMemory)  # at the end

    @property
    def attainment(self) -> float:
        return self.good / self.offered


def run(
    rate: Callable[[float], float],
    seconds: float,
    *,
    seed: int = 1,
    policy: Policy | None = None,
    replicas: int = 1,
    lengths: tuple[float, float] = (1155.0, 211.0),
) -> Outcome:
    """Serve Poisson arrivals of `rate(t)` requests/s for `seconds`, then until the last one ended."""
    policy = policy or Policy()
    draw = random.Random(seed)
    outcome = Outcome()
    pods: list[_Pod] = []
    gone: list[_Pod] = []
    memory: dict[object, LoopMemory] = {}
    serial = arrivals = 0
    admission: int | None = None

    def create(at: float, startup: float) -> None:
        nonlocal serial
        serial += 1
        config = EngineConfig(kv_blocks=12_334, max_num_queued_reqs=admission)
        engine = Engine(config, StepTimeModel.of(PLANT), PLANT.request_overhead_seconds)
        pods.append(_Pod(f"pod-{serial:02d}", at, at + startup, serial * 7.3 % _SCRAPE, engine))

    begin = -120.0
    first = decide(snapshot(ModelView(intent=intent(), pool=PoolView(name="serve", exists=False), router=router(
        created_at=START + begin), telemetry=None), types=TYPES), {}, policy, START + begin).models[0]  # fmt: skip
    memory[KEY] = first.memory
    assert first.pool is not None
    admission = first.pool.placement.max_num_queued_requests
    for _ in range(replicas):
        create(begin, 45.0)
    wanted = replicas
    now, next_tick, routed = begin, begin + _TICK, (START + begin, 0.0, 0.0)
    next_arrival = draw.expovariate(max(1e-9, rate(0.0)))
    errors = 0
    while now < seconds + 200.0 and (now < seconds or any(each.engine.unfinished for each in pods)):
        while next_arrival < min(now + _STEP, seconds):
            arrivals += 1
            live = [each for each in pods if each.ready <= next_arrival and each.stopping is None]
            for each in live:
                each.advance(next_arrival)
            request = EngineRequest(
                str(arrivals), _length(draw, lengths[0], 0.85, 8000), _length(draw, lengths[1], 0.75, 1500)
            )
            for each in sorted(live, key=lambda each: each.engine.unfinished)[:2]:
                try:
                    each.engine.submit(request, next_arrival)
                    break
                except AdmissionRejectedError:
                    each.rejected += 1
            else:
                errors += 1
            next_arrival += draw.expovariate(max(1e-9, rate(next_arrival)))
        now += _STEP
        for each in list(pods):
            each.advance(now)
            if each.ready <= now and (now - each.phase) % _SCRAPE < _STEP:
                each.scrape(now)
            if now > 0.0:
                outcome.gpu_seconds += _STEP
            if each.stopping is not None and now > each.stopping + _PRE_STOP and not each.engine.unfinished:
                pods.remove(each)
                gone.append(each)
        if (now - 4.0) % _SCRAPE < _STEP:
            routed = (START + now, float(arrivals), float(errors))
        if now >= next_tick:
            next_tick += _TICK
            plan = decide(snapshot(_look(pods, now, wanted, routed), types=TYPES), memory, policy, START + now).models[
                0
            ]  # type: ignore[arg-type]
            memory[KEY] = plan.memory
            outcome.counted += plan.figures.offered_delta
            outcome.good_lower += plan.figures.good_lower_delta
            outcome.good_upper += plan.figures.good_upper_delta
            assert plan.pool is not None
            if plan.pool.replicas != wanted and now <= seconds:
                outcome.changes.append((now, plan.pool.replicas))
                victims = {name for name, _ in plan.pool.victims}
                for _ in range(plan.pool.replicas - wanted):
                    create(now, 45.0 + draw.uniform(0.0, 6.0))
                for each in pods:
                    if plan.pool.replicas < wanted and each.name in victims and each.stopping is None:
                        each.stopping = now
                wanted = plan.pool.replicas
    outcome.offered = arrivals
    outcome.memory = memory[KEY]
    outcome.good = sum(1 for each in (*pods, *gone) for done in each.done if ttft(done) <= 0.5 and tpot(done) <= 0.05)
    return outcome


def _length(draw: random.Random, mean: float, variation: float, most: int) -> int:
    sigma = math.sqrt(math.log(1.0 + variation * variation))
    return max(2, min(most, round(mean * math.exp(draw.gauss(0.0, sigma) - sigma * sigma / 2.0))))


def _look(pods: list[_Pod], now: float, wanted: int, routed: tuple[float, float, float]) -> ModelView:
    views = []
    for each in pods:
        ready = each.ready <= now
        state = PodState.TERMINATING if each.stopping is not None else PodState.READY if ready else PodState.STARTING
        views.append(
            PodView(
                name=each.name,
                uid=each.name,
                pool="serve",
                revision="r1",
                state=state,
                node="node-1",
                created_at=START + each.created,
                ready_at=START + each.ready if ready else None,
            )
        )
    counted = [each for each in pods if each.counted is not None]
    return ModelView(
        intent=intent(),
        pool=PoolView(
            name="serve", exists=True, spec_replicas=wanted, revision="r1", gpu_type="l40s", pods=tuple(views)
        ),
        router=router(created_at=START - 120.0),
        telemetry=ModelTelemetry(
            pool=PoolTelemetry(
                counters=table(each.counted for each in counted if each.counted is not None),
                prompt_tokens=sum(each.sums[0] for each in counted),
                cached_prompt_tokens=0.0,
                generation_tokens=sum(each.sums[1] for each in counted),
                itl_sum_seconds=sum(each.sums[2] for each in counted),
                itl_count=sum(each.sums[3] for each in counted),
                prefill_sum_seconds=sum(each.sums[4] for each in counted),
                prefill_count=sum(each.sums[5] for each in counted),
                request_seconds_p95=22.0,
            ),
            router=RouterTelemetry(
                requests=(("router-0", routed[0], routed[1]),), errors=(("router-0", routed[0], routed[2]),)
            ),
        ),
    )
