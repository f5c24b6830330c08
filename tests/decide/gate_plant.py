"""A cluster of a few lines around the quality gate: it does what is planned, write by write, or crashes in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace
from tests.decide.builders import START, intent, pod, pool, router
from tests.placements import placement

from goodput.decide import Policy
from goodput.decide.change import Change, begin, plan_of, with_room
from goodput.domain.change import CheckView, Serving, Stage, Verdict, fingerprint
from goodput.domain.identity import CANARY_POOL
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import NO_CANARY, ModelView, PodState, PoolView
from goodput.domain.plan import CheckRun

POLICY = Policy()
# Of an engine that served: what was learned of its start-ups.
SERVED = LoopMemory(startup_seconds=(45.0,))


@dataclass
class Plant:
    """One Model. `serves` is what users get, `history` all of it.

    `answered` are changes whose canary got ready, `judged` those whose Job succeeded.
    """

    asked: str = "a"
    check_seconds: int | None = None
    serves: str = "a"
    history: list[str] = field(default_factory=lambda: ["a"])
    answered: set[str] = field(default_factory=set)
    judged: set[str] = field(default_factory=set)
    memory: LoopMemory = SERVED
    written: LoopMemory = SERVED
    canary: str = ""  # id of the change that it is of
    canary_state: PodState = PodState.STARTING
    leftover: bool = False  # a pod of a canary that is on its way out
    job: CheckView | None = None
    free: bool = True
    now: float = START

    def view(self) -> ModelView:
        """What an operator sees."""
        runs = Serving(model=self.serves, served_name="m", quality=(("spec.model", self.serves),))
        wants = intent(
            model=self.asked,
            quality=(("spec.model", self.asked),),
            asked=self.asked,
            judge=str(self.check_seconds),
            check_seconds=self.check_seconds,
        )
        return ModelView(
            intent=wants,
            pool=pool(pod("p"), serving=runs),
            router=router(),
            telemetry=None,
            canary=self._canary(),
            checks=(self.job,) if self.job else (),
        )

    def _canary(self) -> PoolView:
        if not self.canary:
            leaving = pod("old", PodState.TERMINATING, pool=CANARY_POOL)
            return replace(NO_CANARY, pods=(leaving,)) if self.leftover else NO_CANARY
        one = pod("c", self.canary_state, pool=CANARY_POOL)
        if self.canary_state is PodState.PENDING:
            one = replace(one, trouble="Unschedulable")
        return PoolView(name=CANARY_POOL, exists=True, revision="r1", change=self.canary, pods=(one,))

    def look(self) -> Change:
        """The decision of one tick."""
        change = begin(self.view(), self.memory, POLICY, self.now)
        if change.stage is Stage.WAITING and not self.canary:
            change = with_room(change, "" if self.free else "a GPU is missing", self.now)
        return change

    def tick(self, writes: int | None = None) -> Change:
        """Look and carry out; with `writes` the operator crashes after so many, and another one begins."""
        change = self.look()
        self.memory = replace(self.memory, change=change.mark)
        steps = self._writes(change)
        for step in steps if writes is None else steps[:writes]:
            step()
        if writes is not None:
            self.memory = self.written
        return change

    def _writes(self, change: Change) -> list[Callable[[], None]]:
        plan = plan_of(change, placement())
        steps: list[Callable[[], None]] = []
        remembered = self.memory
        if remembered.change != self.written.change:
            steps.append(lambda: setattr(self, "written", remembered))
        if change.seen is not None and not change.held:
            steps.append(self._serve)
        identity = plan.id if plan is not None else ""
        if plan is not None and plan.canary is not None:
            if self.canary != identity:
                steps.append(lambda: self._start(identity))
        elif self.canary:
            steps.append(self._stop)
        kept = plan is not None and self.job and self.job.change == identity
        if self.job is not None and not kept:
            steps.append(lambda: setattr(self, "job", None))
        if plan is not None and plan.check is CheckRun.RUN and not kept:
            steps.append(lambda: setattr(self, "job", CheckView(change=identity, name=f"m-check-{identity}")))
        return steps

    def _serve(self) -> None:
        self.serves = self.asked
        self.history.append(self.asked)

    def _start(self, identity: str) -> None:
        self.canary, self.canary_state = identity, PodState.STARTING

    def _stop(self) -> None:
        self.canary, self.leftover = "", True

    # --- what others do ----------------------------------------------------------------------------------------------

    def ask(self, model: str, check_seconds: int | None) -> None:
        """Its author edits the Model."""
        self.asked, self.check_seconds = model, check_seconds

    def turn(self, state: PodState) -> None:
        """The pod of the canary, if there is one, turns so."""
        self.canary_state = state
        if self.canary and state is PodState.READY:
            self.answered.add(self.canary)

    def end_job(self, succeeded: bool) -> None:
        """The Job, if there is one that runs, ends."""
        if self.job is not None and not self.job.ended:
            self.job = replace(self.job, ended=True, succeeded=succeeded, message="" if succeeded else "it failed")
            if succeeded:
                self.judged.add(self.job.change)

    def change_id(self) -> str:
        """Of what is asked for now."""
        return fingerprint(self.asked, str(self.check_seconds), fingerprint((("spec.model", self.asked),)))

    @property
    def may_serve(self) -> bool:
        """Whether users may get what is asked for, by the promise of the gate."""
        mark = self.memory.change
        back = mark.verdict is Verdict.SERVED_BEFORE and self.asked in self.history[:-1]
        seen = self.answered if self.check_seconds is None else self.judged
        return back or self.change_id() in seen
