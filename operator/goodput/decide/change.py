"""The quality gate: what becomes of a change of checkpoint, precision or speculation.

    none -> waiting -> starting -> checking -> passed | refused

A canary, one replica that no user reaches, is started; the author's Job (`spec.qualityCheck`) judges it; only then does
the pool roll out. Until then what serves keeps its pod template, and is scaled as what it is. Each stage can be told
from what is in the cluster; the loop remembers what cannot: since when, and how it ended.
"""

from __future__ import annotations

from msgspec.structs import replace

from goodput.decide.policy import Policy
from goodput.domain.change import (
    NO_CHANGE,
    ChangeMark,
    CheckView,
    Serving,
    Stage,
    Verdict,
    differences,
    fingerprint,
)
from goodput.domain.intent import ModelIntent, Precision, ScalingMode
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import ModelView, PodState, PoolView
from goodput.domain.plan import ChangePlan, CheckRun, Placement
from goodput.domain.values import Value

# A Job ends by its own deadline. If it does not, whoever is to end it does not work.
CHECK_GRACE_SECONDS = 300.0
# The Deployment of a canary gives an engine its start-up time and this for its image and its node.
CANARY_MARGIN_SECONDS = 600.0
# A roll-out waits so long for the GPUs of the canary that made way for it.
HANDOVER_SECONDS = 120.0
_NOTE_CHARACTERS = 300

_ASKED_FOR = frozenset({Stage.STARTING, Stage.CHECKING})
_NEVER_READY = frozenset({PodState.PENDING, PodState.STARTING, PodState.FAILED})


class Seen(Value, frozen=True, kw_only=True):
    """What decides about the next stage of the change `id`."""

    id: str
    base: str  # fingerprint of the quality that runs
    wanted: str  # and of the one that is asked for
    check_seconds: int | None
    canary: PoolView
    check: CheckView | None  # the Job of this change

    @property
    def started(self) -> bool:
        """Whether there is a Deployment of the canary of this very change."""
        return self.canary.exists and self.canary.change == self.id

    @property
    def unplaced(self) -> bool:
        """Whether the scheduler finds no node for it."""
        return any(pod.unschedulable for pod in self.canary.pods)

    @property
    def ready(self) -> bool:
        """Whether a pod of this very change answers."""
        canary = self.canary
        return self.started and any(
            pod.state is PodState.READY and pod.revision == canary.revision for pod in canary.pods
        )


class Change(Value, frozen=True, kw_only=True):
    """A change in this tick; `mark` is what is remembered of it."""

    mark: ChangeMark
    # What is asked for and not served yet; None: nothing is.
    seen: Seen | None = None
    what: str = ""  # in words
    held: bool = False  # what serves keeps its pod template
    frozen: str = ""  # why nothing goes on, whatever is seen
    waits: str = ""  # what there is no room for, by number

    @property
    def stage(self) -> Stage:
        return self.mark.stage if self.seen is not None else Stage.NONE


def never_served(pool: PoolView, memory: LoopMemory) -> bool:
    """Whether no pod of an engine pool was ever ready: then there is nothing to protect or to compare with.

    Pods tell of themselves only; whether engines before them were ready is remembered by what was learned from them. A
    pod on its way out may have been.
    """
    learned = bool(memory.startup_seconds) or memory.proven_rps > 0.0
    return not learned and all(pod.state in _NEVER_READY for pod in pool.pods)


def begin(view: ModelView, memory: LoopMemory, policy: Policy, now: float) -> Change:
    """The change that is asked for, and how far it is; room for a canary is another question (`with_room`)."""
    intent, runs = view.intent, view.pool.serving
    mark = memory.change
    if not view.pool.exists or runs is None or not _differs(runs, intent) or never_served(view.pool, memory):
        return Change(mark=mark if _left_alone(intent) else _over(mark, intent))
    base, wanted = fingerprint(runs.quality), fingerprint(intent.quality)
    seen = Seen(
        id=fingerprint(intent.asked, intent.judge, wanted),
        base=base,
        wanted=wanted,
        check_seconds=intent.check_seconds,
        canary=view.canary,
        check=None,
    )
    seen = replace(seen, check=next((check for check in view.checks if check.change == seen.id), None))
    what = differences(runs.quality, intent.quality)
    frozen = _frozen(intent)
    if not frozen:
        mark = advance(mark, seen, policy, now)
    elif not _left_alone(intent):
        mark = _asked(mark, seen, now)
    return Change(mark=mark, seen=seen, what=what, held=bool(frozen) or _held(mark, seen, now), frozen=frozen)


def _differs(runs: Serving, intent: ModelIntent) -> bool:
    """Whether its author asks for something else; that an operator reads more out of the same text is no change."""
    return runs.quality != intent.quality and not (intent.asked and runs.asked == intent.asked)


def _left_alone(intent: ModelIntent) -> bool:
    """Whether nothing at all is written for it, the memory included."""
    return intent.paused or any(problem.fatal for problem in intent.problems)


def _frozen(intent: ModelIntent) -> str:
    if _left_alone(intent):
        return "nothing is written for this Model"
    if intent.mode is ScalingMode.ADVISE:
        return (
            "spec.scaling.mode is Advise, which starts no canary and rolls nothing out: set it to Auto for the change"
        )
    return ""


def _over(mark: ChangeMark, intent: ModelIntent) -> ChangeMark:
    """Nothing is asked for but what runs: the change came through, or its author took it back."""
    if mark.stage is Stage.NONE:
        return mark
    passed = mark.stage is Stage.PASSED and mark.base != fingerprint(intent.quality)
    before = mark.base if passed else mark.before
    return replace(NO_CHANGE, before=before)


def advance(mark: ChangeMark, seen: Seen, policy: Policy, now: float) -> ChangeMark:
    """The stage that follows from what is seen: as many steps as it takes, each of them only forward."""
    mark = _asked(mark, seen, now)
    for _ in Stage:
        after = _step(mark, seen, policy, now)
        if after is mark:
            break
        mark = after
    return mark


def _asked(mark: ChangeMark, seen: Seen, now: float) -> ChangeMark:
    """`mark`, begun anew if something else is asked for by now."""
    if mark.id == seen.id:
        return mark
    mark = ChangeMark(id=seen.id, stage=Stage.WAITING, since=now, base=seen.base, before=mark.before)
    if seen.wanted == mark.before:
        return replace(mark, stage=Stage.PASSED, verdict=Verdict.SERVED_BEFORE)
    return mark


def _step(mark: ChangeMark, seen: Seen, policy: Policy, now: float) -> ChangeMark:
    stage, waited = mark.stage, now - mark.since
    ended = seen.check is not None and seen.check.ended
    if stage is Stage.WAITING:
        if ended or (seen.started and not seen.unplaced):
            return replace(mark, stage=Stage.STARTING, since=now)
    elif stage is Stage.STARTING:
        if ended or (seen.ready and seen.check_seconds is not None):
            return replace(mark, stage=Stage.CHECKING, since=now)
        if seen.ready:
            return replace(mark, stage=Stage.PASSED, since=now, verdict=Verdict.UNCHECKED)
        if seen.unplaced:
            return replace(mark, stage=Stage.WAITING, since=now)
        if waited > policy.startup_timeout_seconds + CANARY_MARGIN_SECONDS:
            note = trouble(seen.canary) or f"it was not ready after {waited:.0f} s"
            return _refused(mark, Verdict.CANARY_OVERDUE, note, now)
    elif stage is Stage.CHECKING:
        if seen.check is not None and seen.check.ended:
            if seen.check.succeeded:
                return replace(mark, stage=Stage.PASSED, since=now, verdict=Verdict.CHECKED)
            return _refused(mark, Verdict.CHECK_FAILED, f"Job {seen.check.name}: {seen.check.message}", now)
        if waited > (seen.check_seconds or 0) + CHECK_GRACE_SECONDS:
            job = "its Job" if seen.check is None else f"Job {seen.check.name}"
            return _refused(mark, Verdict.CHECK_OVERDUE, f"{job} has not ended after {waited:.0f} s", now)
    return mark


def _refused(mark: ChangeMark, verdict: Verdict, note: str, now: float) -> ChangeMark:
    return replace(mark, stage=Stage.REFUSED, since=now, verdict=verdict, note=note[:_NOTE_CHARACTERS])


def _held(mark: ChangeMark, seen: Seen, now: float) -> bool:
    """Whether users may not get it: it did not pass, or the canary that makes way for it holds its GPUs still."""
    if mark.stage is not Stage.PASSED:
        return True
    return bool(seen.canary.pods) and now - mark.since < HANDOVER_SECONDS


def trouble(canary: PoolView) -> str:
    """What its pod says is wrong, '' if nothing."""
    for pod in canary.pods:
        if pod.trouble and pod.state is not PodState.TERMINATING:
            return f"pod {pod.name}: {pod.trouble}" + (f" ({pod.trouble_message[:200]})" if pod.trouble_message else "")
    return canary.pods_refused[:_NOTE_CHARACTERS]


def with_room(change: Change, lacking: str, now: float) -> Change:
    """`change`, whose canary starts if nothing is `lacking` for it (what, by number)."""
    if change.stage is not Stage.WAITING or change.frozen or change.seen is None:
        return change
    if lacking or (change.seen.started and change.seen.unplaced):
        return replace(change, waits=lacking)
    return replace(change, mark=replace(change.mark, stage=Stage.STARTING, since=now))


def plan_of(change: Change, placement: Placement | None) -> ChangePlan | None:
    """What is to exist for `change`; `placement` is that of what is asked for. None: nothing."""
    seen, stage = change.seen, change.stage
    if seen is None:
        return None
    # One that waits has a pod already where the scheduler found no node for it.
    canary = stage in _ASKED_FOR or (stage is Stage.WAITING and seen.started)
    run = CheckRun.RUN if stage is Stage.CHECKING else CheckRun.KEEP
    return ChangePlan(id=seen.id, held=change.held, canary=placement if canary else None, check=run)


def as_it_runs(intent: ModelIntent, runs: Serving, pool: PoolView) -> ModelIntent:
    """`intent` as if its author had left alone what serves: what its replicas can do follows from that."""
    return replace(
        intent,
        model=runs.model,
        served_name=runs.served_name,
        architecture=runs.architecture,
        quality=runs.quality,
        precision=Precision(weights=runs.weights, kv_cache=runs.kv_cache),
        speculation=runs.speculation,
        gpu_types=(pool.gpu_type,),
        tensor_parallel=pool.tensor_parallel,
        pipeline_parallel=pool.pipeline_parallel,
    )
