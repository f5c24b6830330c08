"""The fleet loop: observe -> decide -> apply for all Models together, level-triggered, one pass at a time.

It wakes on every tick, and soon after something changed. Telemetry is read on ticks only: counters move no faster than
they are scraped. Nothing happens until every store is in sync, and nothing is written without the Lease.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from msgspec.structs import replace

from goodput.adapters.telemetry import Reading, Telemetry
from goodput.decide import Policy
from goodput.domain.identity import Key
from goodput.domain.intent import ModelIntent
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import Snapshot, Undecided
from goodput.domain.plan import ModelPlan, Plan
from goodput.runtime.metrics import Metrics
from goodput_controllers.memories import Memories
from goodput_controllers.observe import Observer
from goodput_controllers.reconcile import Reconciler

log = logging.getLogger(__name__)

DEBOUNCE_SECONDS = 0.2
# Passes that only changes asked for take at most this share of one core.
BUSY_SHARE = 0.25
# A pass waits this long for a reading of Prometheus.
READING_SECONDS = 2.0
# The first pass of a leadership waits longer, until a reading ends by its own deadline: decided without one it would
# tell of every Model that its metrics are missing, and a moment later that they are not.
FIRST_READING_SECONDS = 9.0
# A pass waits this long for writes; those of a Model that takes longer go on beside the next passes.
WRITES_SECONDS = 5.0

Decide = Callable[[Snapshot, Mapping[Key, LoopMemory], Policy, float], Plan]


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Let the garbage collector rest while values are made that live until the next pass.

    What a pass makes is kept, or goes with its last reference; walking it again and again took a quarter of a pass.
    """
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


@dataclass(slots=True)
class FleetLoop:
    """Everything that one pass needs."""

    observer: Observer
    telemetry: Telemetry
    memories: Memories
    reconciler: Reconciler
    metrics: Metrics
    policy: Policy
    decide: Decide
    leading: Callable[[], bool]
    # Number of the present leadership.
    term: Callable[[], int] = int
    clock: Callable[[], float] = time.time
    # Called before each pass: whether stores are in sync ('' if so, else what is missing).
    unsynced: Callable[[], str] = str
    refresh: Callable[[], Awaitable[None]] | None = None
    # Is told of each pass that decided: the ledger, where one is kept.
    note: Callable[[Snapshot, Plan, float], None] | None = None
    last_pass_at: float = 0.0
    passes: int = 0
    _led: bool = False
    _led_term: int = 0
    _complaint: str = ""
    _reading: Reading | None = None
    _reader: asyncio.Future[Reading] | None = None
    _read_at: float = float("-inf")
    # Seconds of each step of the present pass.
    _took: dict[str, float] = field(default_factory=dict)
    _parse_seconds: float = 0.0

    async def run(self) -> None:
        """Loop until cancelled."""
        dirty = self.observer.world.dirty
        while True:
            started = time.monotonic()
            if not self.unsynced():
                await self._guarded_pass()
            took = time.monotonic() - started
            next_tick = max(self._read_at + self.policy.tick_seconds, started + DEBOUNCE_SECONDS)
            await asyncio.sleep(max(DEBOUNCE_SECONDS, min(took / BUSY_SHARE - took, 2.0)))
            try:
                # Not wait_for: in Python 3.11 it swallows a cancellation that comes together with what it waits for.
                async with asyncio.timeout(max(0.0, next_tick - time.monotonic())):
                    await dirty.wait()
                await asyncio.sleep(DEBOUNCE_SECONDS)
            except TimeoutError:
                pass

    async def _guarded_pass(self) -> None:
        self.observer.world.dirty.clear()
        self._took.clear()
        self._parse_seconds = 0.0
        began, busy = time.monotonic(), time.process_time()
        try:
            await self.run_once()
            self.metrics.passes.labels("ok").inc()
        except Exception:
            # One bad pass must not end the process: the next one starts from the same state.
            log.exception("a pass of the fleet loop failed")
            self.metrics.passes.labels("error").inc()
        self.last_pass_at = time.monotonic()
        self.metrics.last_pass.set(time.time())
        if self._took:
            cpu_seconds = time.process_time() - busy
            data = {
                "read": self._read_at >= began,
                "steps": dict(self._took),
                "parse_seconds": self._parse_seconds,
                "cpu_seconds": cpu_seconds,
            }
            log.debug("a pass took %.3f s", sum(self._took.values()), extra={"data": data})

    async def run_once(self) -> Plan | None:
        """One pass; None if this process does not lead."""
        self.observer.forget_unused()
        leads, term = self.leading(), self.term()
        if self._led and (not leads or term != self._led_term):
            self._led = False
            self.reconciler.hand_over()
        if leads and not self._led:
            self._led, self._led_term = True, term
            self._take_over()
        if not leads:
            return None
        self.passes += 1
        if self.refresh is not None:
            with self._step("1 refresh"):
                await self.refresh()
        with _collector_paused():
            with self._step("2 intents"):
                types = self.observer.gpu_types()
                intents = self.observer.intents(types)
                now = self.clock()
            with self._step("3 telemetry"):
                await self._read(intents, now)
            with self._step("4 observe"):
                now = self.clock()
                snapshot = self.observer.snapshot(intents, types, self.observer.supply(), self._reading, now)
                memory = self.memories.load(intents, now)
            with self._step("5 decide"):
                plan, broken = self._decide(snapshot, memory, now)
            for model in plan.models:
                self.memories.put(model.key, model.memory)
            if self.note is not None:
                self.note(snapshot, plan, now)
            with self._step("6 diff"):
                started = self.reconciler.start(snapshot, plan, broken, now)
        with self._step("7 write"):
            await self.reconciler.finish(started, snapshot, plan, now, wait_seconds=WRITES_SECONDS)
        return plan

    def _take_over(self) -> None:
        """Leadership came. Another leader may have decided and written since: what it left there counts."""
        self.reconciler.take_over()
        if self._reader is not None and self._reader.done():
            self._take_reading()
        self._reading, self._read_at = None, float("-inf")

    async def _read(self, intents: Mapping[Key, ModelIntent], now: float) -> None:
        started = time.monotonic()
        if started - self._read_at < self.policy.tick_seconds - DEBOUNCE_SECONDS:
            self._take_reading()
            return
        first = self._read_at == float("-inf")
        self._read_at = started
        if self._reader is None:
            wanted = self.observer.wanted(intents, now)
            self._reader = asyncio.ensure_future(self.telemetry.read(wanted))
            self._reader.add_done_callback(self.observer.world.touched)
        # A slow Prometheus holds up decisions from metrics, and nothing else: what is late comes with the next pass.
        await asyncio.wait({self._reader}, timeout=FIRST_READING_SECONDS if first else READING_SECONDS)
        self._take_reading()

    def _take_reading(self) -> None:
        if self._reader is None or not self._reader.done():
            return
        reader, self._reader = self._reader, None
        try:
            self._reading = reader.result()
        except Exception as error:
            # Whatever a reading dies of, the next one is begun anew.
            log.exception("telemetry cannot be read")
            self._reading = Reading(error=f"unexpected error: {type(error).__name__}: {error}")
        self._parse_seconds = self._reading.parse_seconds
        self.metrics.telemetry_up.set(0 if self._reading.error else 1)
        complaint = self._reading.error
        if not complaint and self._reading.missing:
            complaint = f"no engine exports {', '.join(self._reading.missing)}"
        if complaint != self._complaint:
            log.warning("telemetry: %s", complaint or "back to normal")
            self._complaint = complaint

    def _decide(
        self, snapshot: Snapshot, memory: Mapping[Key, LoopMemory], now: float
    ) -> tuple[Plan, dict[Key, Exception]]:
        """Plan of the fleet; a Model that the laws stumble over is left out, and named, so that the others go on."""
        try:
            return self.decide(snapshot, memory, self.policy, now), {}
        except Exception:
            log.exception("the fleet cannot be decided as a whole: trying each Model")
        broken: dict[Key, Exception] = {}
        sound, unsound = [], []
        for view in snapshot.models:
            try:
                self.decide(replace(snapshot, models=(view,)), memory, self.policy, now)
            except Exception as error:
                log.exception("%s cannot be decided", view.intent.key)
                self.metrics.errors.labels("decide").inc()
                broken[view.intent.key] = error
                unsound.append(Undecided(key=view.intent.key, pools=(view.pool, view.canary)))
            else:
                sound.append(view)
        plans: tuple[ModelPlan, ...] = ()
        if sound:
            rest = replace(snapshot, models=tuple(sound), undecided=(*snapshot.undecided, *unsound))
            plans = self.decide(rest, memory, self.policy, now).models
        return Plan(models=plans), broken

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._took[name] = time.perf_counter() - started
            self.metrics.steps.labels(name).observe(self._took[name])
