"""Carries a plan out, Model by Model: writes, status, events, metrics. A broken Model never holds up its neighbours."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from goodput.adapters.kube_errors import Conflict, KubeError, NotFound, Refused, SchemaOutdated
from goodput.domain.conditions import ConditionReason, ConditionType
from goodput.domain.decision import Decision
from goodput.domain.errors import GoodputError
from goodput.domain.identity import Key
from goodput.domain.intent import ModelIntent, Problem
from goodput.domain.observed import ModelView, Snapshot
from goodput.domain.plan import ModelPlan, Plan
from goodput.resources.inputs import RenderInput, RenderSettings, Terms
from goodput.runtime.metrics import Metrics
from goodput.runtime.rendering import RenderKey, render_input, render_key, render_settings
from goodput.runtime.settings import Settings
from goodput_controllers.applying import Applier, NameTaken, NotLeading, Outcome, StillThere, VictimsUnseen
from goodput_controllers.memories import Memories
from goodput_controllers.observe import Observer
from goodput_controllers.rollout import Rollouts
from goodput_controllers.side_status import SideStatus
from goodput_controllers.status import StatusBook
from goodput_controllers.status_writer import StatusWriter
from goodput_controllers.telling import Teller

log = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS = 1.0
LAST_BACKOFF_SECONDS = 120.0
# Models that are written at the same time; the others wait with nothing rendered yet. Some may hang, so there are more
# of them than writes at the same time.
MODELS_AT_ONCE = 64
DRAIN_SECONDS = 10.0


@dataclass(slots=True)
class _Backoff:
    failures: int = 0
    until: float = 0.0


@dataclass(slots=True)
class Reconciler:
    """One task per Model that needs one; a Model whose last task still runs is left to it."""

    observer: Observer
    applier: Applier
    memories: Memories
    book: StatusBook
    statuses: StatusWriter
    teller: Teller
    metrics: Metrics
    settings: Settings
    side: SideStatus
    rollouts: Rollouts = field(default_factory=Rollouts)
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MODELS_AT_ONCE))
    _tasks: dict[Key, asyncio.Task[None]] = field(default_factory=dict)
    _side: asyncio.Task[None] | None = None
    _backoffs: dict[Key, _Backoff] = field(default_factory=dict)
    # When a memory that could not be written is tried again.
    _memory_retry_at: dict[Key, float] = field(default_factory=dict)
    # Decisions that say something new and were not told yet: writes that they ask for come first.
    _untold: dict[Key, Decision] = field(default_factory=dict)
    # Likewise the last step of a change of checkpoint, precision or speculation.
    _steps: dict[Key, Decision] = field(default_factory=dict)
    # Whom all that is kept by Model is of: one that was made again under its name is another one.
    _uids: dict[Key, str] = field(default_factory=dict)
    _settings_with: dict[bool, RenderSettings] = field(default_factory=dict)

    def take_over(self) -> None:
        """On gaining leadership: what was written or failed under an earlier one says nothing of what is there now."""
        for known in (self.book, self.statuses, self.side, self.teller, self.memories):
            known.clear()
        self._backoffs.clear()
        self._memory_retry_at.clear()
        self._untold.clear()
        self._steps.clear()
        self.observer.apply_problems.clear()

    def hand_over(self) -> None:
        """On losing leadership: who leads now publishes what is to be known of Models, and writes to them alone."""
        for task in self._tasks.values():
            task.cancel()
        self.metrics.forget_others(set())
        self.teller.clear()

    def start(
        self, snapshot: Snapshot, plan: Plan, broken: dict[Key, Exception], now: float
    ) -> list[asyncio.Task[None]]:
        """Find out what is to be done, and start it; what was started."""
        views = {view.intent.key: view for view in snapshot.models}
        plans = {model.key: model for model in plan.models}
        entries = {entry.key: entry for entry in self.observer.world.models.entries()}
        self._forget({key: entry.uid for key, entry in entries.items()})
        candidates = [
            key
            for key, entry in entries.items()
            if entry.value is not None
            and entry.value.spec.engine.update == "Automatic"
            and self.book.update_available(key)
            # The turn of one that takes nothing would never end.
            and key in plans
            and plans[key].pool is not None
            and not _left_alone(views[key].intent)
            and not self._backing_off(key, now)
        ]
        self.rollouts.look(snapshot, plan, candidates, now)
        started: list[asyncio.Task[None] | None] = []
        for model in plan.models:
            self.metrics.show(model.key, model.figures)
            self.statuses.decided(model.key)
            self.book.count(model, now)
            if model.step is not None:
                self._steps[model.key] = model.step
            if model.key in self._tasks:
                # Left to its last task: what was decided meanwhile is not carried out, and decided again after it.
                continue
            if self.book.observe(model) or model.key in self._untold:
                self._untold[model.key] = self._news(views[model.key], model)
            try:
                work = self._work(views[model.key], model, now)
            except Exception as error:
                work = self._failed(views[model.key], model, error, now)
            if work is not None:
                started.append(self._start(model.key, work))
        for key, why in broken.items():
            started.append(self._start(key, self.statuses.undecided(views[key].intent, why, now)))
        started += [
            self._start(entry.key, self.statuses.invalid(entry, now))
            for entry in entries.values()
            if entry.value is None and entry.error is not None and self.statuses.invalid_due(entry)
        ]
        return [task for task in started if task is not None]

    async def finish(
        self, started: list[asyncio.Task[None]], snapshot: Snapshot, plan: Plan, now: float, *, wait_seconds: float
    ) -> None:
        """Wait for what this pass started, but not for long; then write what is not of one Model."""
        # Those of earlier passes are slow: they go on beside this one.
        if self._side is None or self._side.done():
            self._side = asyncio.create_task(
                self._guarded_side(snapshot, plan, now), name="status of SLOs and GPUTypes"
            )
        await asyncio.wait([*started, self._side], timeout=wait_seconds)
        self.teller.count_conditions()

    async def drain(self) -> None:
        """Wait for the writes that are on their way (before giving up the Lease), and end those that take too long."""
        running = [task for task in (*self._tasks.values(), self._side) if task is not None and not task.done()]
        if running:
            _, hanging = await asyncio.wait(running, timeout=DRAIN_SECONDS)
            # They would write beside the next leader.
            for task in hanging:
                log.warning("%s hangs and is given up", task.get_name())
                task.cancel()
            await asyncio.gather(*hanging, return_exceptions=True)

    def _forget(self, uids: dict[Key, str]) -> None:
        """Drop what is known of Models that are gone, and what is still being done for them."""
        present = {key for key, uid in uids.items() if self._uids.get(key, uid) == uid}
        self._uids = uids
        for key in self._tasks.keys() - present:
            self._tasks[key].cancel()
        for known in (self.applier, self.book, self.teller, self.rollouts, self.statuses):
            known.forget(present)
        self.metrics.forget_others(present)
        by_model: tuple[dict[Key, Any], ...] = (
            self._backoffs,
            self._memory_retry_at,
            self._untold,
            self._steps,
            self.observer.apply_problems,
        )
        for kept in by_model:
            for key in kept.keys() - present:
                del kept[key]
        for key in [key for key, task in self._tasks.items() if task.done()]:
            del self._tasks[key]

    def _start(self, key: Key, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        if key in self._tasks:
            work.close()
            return None
        task = self._tasks[key] = asyncio.create_task(self._guarded(key, work), name=f"reconcile {key}")
        return task

    async def _guarded(self, key: Key, work: Coroutine[Any, Any, None]) -> None:
        try:
            async with self.slots:
                await work
        except NotLeading:
            log.info("%s: stopped writing, leadership was lost", key)
        except asyncio.CancelledError:
            work.close()
            raise
        except KubeError as error:
            log.warning("%s: %s", key, error)
        except Exception:
            log.exception("%s: unexpected error", key)
            self.metrics.errors.labels("reconcile").inc()

    async def _guarded_side(self, snapshot: Snapshot, plan: Plan, now: float) -> None:
        try:
            await self.side.write(snapshot, plan, now)
        except KubeError as error:
            log.warning("status of SLOs and GPUTypes: %s", error)
        except Exception:
            log.exception("status of SLOs and GPUTypes: unexpected error")
            self.metrics.errors.labels("side").inc()

    def _work(self, view: ModelView, plan: ModelPlan, now: float) -> Coroutine[Any, Any, None] | None:
        """What is to be done for one Model, or None: most passes find nothing for most Models."""
        held_up = False
        key = self._render_key(view, plan)
        if key is None:
            self._nothing_to_write(plan.key)
            self.rollouts.withheld(plan.key, waits=False)
        else:
            update = self.applier.settled(plan.key, key)
            held_up = update is None
            if update is not None:
                self.book.note_update(plan.key, update)
                self._nothing_to_write(plan.key)
            elif not self._backing_off(plan.key, now):
                render = self._render(view, plan)
                if render is not None:
                    return self._apply(view, plan, render, now)
        tell = self._to_tell(plan, held_up=held_up)
        problems = self._problems(plan.key)
        step = plan.key in self._steps and not held_up
        if tell is not None or step or self._memory_due(plan.key, now) or self.statuses.due(view, plan, problems, now):
            return self._finish(view, plan, tell, now, held_up=held_up)
        return None

    def _news(self, view: ModelView, plan: ModelPlan) -> Decision:
        """What is to be told of a Model: this decision, or an earlier one that came about although its pass failed.

        The write got through and its answer did not, or a write after it was refused.
        """
        earlier = self._untold.get(plan.key)
        if (
            earlier is not None
            and earlier.changes
            and not plan.decision.changes
            and earlier.from_replicas != earlier.to_replicas == view.pool.spec_replicas
        ):
            return earlier
        return plan.decision

    def _to_tell(self, plan: ModelPlan, *, held_up: bool) -> Decision | None:
        """The decision to tell now, if any; one that changes what runs is told when it does."""
        decision = self._untold.get(plan.key)
        return None if held_up and decision is plan.decision and decision.changes else decision

    def _nothing_to_write(self, key: Key) -> None:
        """What a write met that is no longer wanted holds nobody up."""
        self.observer.apply_problems.pop(key, None)
        self._backoffs.pop(key, None)

    def _render_key(self, view: ModelView, plan: ModelPlan) -> RenderKey | None:
        """What to render depends on this; None where what runs is to be left alone."""
        if plan.pool is None or _left_alone(view.intent):
            return None
        return render_key(
            view.intent,
            plan.pool.placement,
            replicas=plan.pool.replicas,
            settings=self._render_settings(),
            terms=self._terms(view),
            change=plan.change,
        )

    def _render(self, view: ModelView, plan: ModelPlan) -> RenderInput | None:
        """What to render; None if the Model went meanwhile, or is another one by now.

        It may be edited while telemetry is read: what was decided of the text before says nothing of this one, and what
        is to be checked first would get to users.
        """
        entry = self.observer.world.models.get(plan.key)
        if plan.pool is None or entry is None or entry.value is None:
            return None
        if (entry.uid, entry.generation) != (view.intent.uid, view.intent.generation):
            self.observer.world.dirty.set()
            return None
        return render_input(
            entry.value,
            view.intent,
            plan.pool.placement,
            replicas=plan.pool.replicas,
            settings=self._render_settings(),
            terms=self._terms(view),
            change=plan.change,
        )

    def _terms(self, view: ModelView) -> Terms:
        key = view.intent.key
        return Terms(
            take_update=self.rollouts.take_update(key),
            unserved=self.rollouts.unserved(key),
            surge=self.rollouts.surge(key),
            room=self.rollouts.room(key),
            routers_ready=_routers_ready(view),
            keeps_router_replicas=view.router.foreign_scaler is not None,
            routers_roll=view.router.rolling_out,
        )

    def _render_settings(self) -> RenderSettings:
        pod_monitor = self.observer.cluster.has_pod_monitors
        known = self._settings_with.get(pod_monitor)
        if known is None:
            known = self._settings_with[pod_monitor] = render_settings(self.settings, pod_monitor=pod_monitor)
        return known

    async def _apply(self, view: ModelView, plan: ModelPlan, render: RenderInput, now: float) -> None:
        key = plan.key
        problem: Problem | None = None
        outcome = Outcome()
        try:
            change = self.memories.change(key)
            remember = self.memories.change_untold(key)
            outcome = await self.applier.apply(render, plan, self._memory(view), remember=remember)
        except Conflict as error:
            # Decided from an old state: the present one is in the store by now.
            log.info("%s: deciding again: %s", key, error)
            self._retry(key, now, FIRST_BACKOFF_SECONDS)
            return
        except VictimsUnseen as error:
            log.info("%s: deciding again: %s", key, error)
            self._retry(key, now, FIRST_BACKOFF_SECONDS)
            await self._finish(view, plan, self._to_tell(plan, held_up=True), now, held_up=True)
            return
        except SchemaOutdated as error:
            problem = _stalled(ConditionReason.CRD_OUTDATED, f"{error}: upgrade the CRDs")
        except NameTaken as error:
            problem = _stalled(ConditionReason.NAME_CONFLICT, str(error))
        except (Refused, NotFound) as error:
            if "being terminated" in str(error):
                # Its namespace goes, and the Model with it.
                self._retry(key, now, LAST_BACKOFF_SECONDS)
                return
            problem = _stalled(ConditionReason.API_REFUSED, str(error))
        except StillThere as error:
            log.info("%s: %s", key, error)
            self._retry(key, now, LAST_BACKOFF_SECONDS)
            await self._finish(view, plan, self._to_tell(plan, held_up=True), now, held_up=True)
            return
        except NotLeading:
            raise
        except KubeError as error:
            # What it met may be the trouble of one kind of objects (a webhook): status is another.
            log.warning("%s: %s", key, error)
            self._retry(key, now, LAST_BACKOFF_SECONDS)
            await self._finish(view, plan, self._to_tell(plan, held_up=True), now, held_up=True)
            return
        except Exception as error:
            await self._failed(view, plan, error, now)
            return
        if problem is not None:
            log.warning("%s: %s", key, problem.message)
            self.observer.apply_problems[key] = (problem,)
            self._retry(key, now, LAST_BACKOFF_SECONDS)
        else:
            self._nothing_to_write(key)
            self.book.note_update(key, outcome.update_available or "")
            if self.rollouts.withheld(key, waits=outcome.withheld):
                # Whether there is room for it is found out by the next pass.
                self.observer.world.dirty.set()
            if outcome.memory_written:
                self.memories.written(key, change, now)
        held_up = problem is not None
        await self._finish(view, plan, self._to_tell(plan, held_up=held_up), now, held_up=held_up)

    async def _finish(
        self, view: ModelView, plan: ModelPlan, tell: Decision | None, now: float, *, held_up: bool = False
    ) -> None:
        """What follows writes, or stands alone: telling, memory, status."""
        taken = self._steps.get(plan.key)
        # One of a later pass waits for the writes that it asks for.
        if taken is not None and taken.at <= now and not held_up:
            await self.teller.tell(view.intent, taken)
            # A later pass may have put another in its place by now.
            if self._steps.get(plan.key) is taken:
                del self._steps[plan.key]
            self.book.tell_step(taken)
        if tell is not None:
            await self.teller.tell(view.intent, tell)
            self._untold.pop(plan.key, None)
            self.book.tell(tell)
        if self._memory_due(plan.key, now) and view.pool.exists:
            await self._write_memory(view, now)
        await self.statuses.write(view, plan, self._problems(plan.key), now)

    def _memory_due(self, key: Key, now: float) -> bool:
        return self.memories.due(key, now) and now >= self._memory_retry_at.get(key, float("-inf"))

    async def _write_memory(self, view: ModelView, now: float) -> None:
        """Write the memory for its own sake: if it cannot be, nothing else has to wait for it."""
        key = view.intent.key
        change = self.memories.change(key)
        try:
            await self.applier.write_memory(view.intent, self._memory(view))
        except NotLeading:
            raise
        except GoodputError as error:
            log.warning("%s: its memory is not written: %s", key, error)
            self._memory_retry_at[key] = now + LAST_BACKOFF_SECONDS
        else:
            self._memory_retry_at.pop(key, None)
            self.memories.written(key, change, now)

    async def _failed(self, view: ModelView, plan: ModelPlan, error: Exception, now: float) -> None:
        """Something that nobody foresaw: logged whole, shown to the Model's author, retried with patience."""
        log.error("%s: unexpected error", plan.key, exc_info=error)
        self.metrics.errors.labels("apply").inc()
        message = f"unexpected error, see the log of the operator: {type(error).__name__}: {error}"
        self.observer.apply_problems[plan.key] = (_stalled(ConditionReason.INTERNAL_ERROR, message[:1000]),)
        self._retry(plan.key, now, LAST_BACKOFF_SECONDS)
        await self.statuses.write(view, plan, self._problems(plan.key), now)

    def _memory(self, view: ModelView) -> Any:
        return self.memories.config_map(view.intent, self.observer.world.slo_of(view.intent.key, view.intent.slo))

    def _problems(self, key: Key) -> tuple[Problem, ...]:
        rollout = self.rollouts.problem(key)
        return (*self.observer.apply_problems.get(key, ()), *((rollout,) if rollout else ()))

    def _backing_off(self, key: Key, now: float) -> bool:
        backoff = self._backoffs.get(key)
        return backoff is not None and now < backoff.until

    def _retry(self, key: Key, now: float, longest_seconds: float) -> None:
        backoff = self._backoffs.setdefault(key, _Backoff())
        pause = min(longest_seconds, FIRST_BACKOFF_SECONDS * 2**backoff.failures)
        backoff.failures = min(backoff.failures + 1, 10)
        if longest_seconds <= FIRST_BACKOFF_SECONDS:
            backoff.until = now
            self.observer.world.dirty.set()
        else:
            backoff.until = now + pause


def _left_alone(intent: ModelIntent) -> bool:
    """Whether what runs stays as it is, whatever it would be rendered to."""
    return intent.paused or any(problem.fatal for problem in intent.problems)


def _routers_ready(view: ModelView) -> bool:
    """Whether users may be sent to routers: one is ready, or no engine is that they could be sent to instead."""
    return view.router.ready > 0 or view.pool.ready == 0


def _stalled(reason: ConditionReason, message: str) -> Problem:
    # Not fatal: a fatal problem plans nothing, and then nothing would ever find out that it is gone.
    return Problem(type=ConditionType.STALLED, reason=reason, message=message, fatal=False)
