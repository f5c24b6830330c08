"""The quality gate: stage by stage, and under any order of events and crashes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.decide.builders import KEY, START, counters, intent, one, pod, pool, router, telemetry
from tests.decide.gate_plant import POLICY, SERVED, Plant
from tests.placements import placement

from goodput.decide.change import (
    CANARY_MARGIN_SECONDS,
    CHECK_GRACE_SECONDS,
    HANDOVER_SECONDS,
    begin,
    differences,
)
from goodput.decide.change_text import step
from goodput.domain.change import NO_CHANGE, ChangeMark, Serving, Stage, Verdict
from goodput.domain.conditions import ConditionReason, ConditionStatus, ConditionType
from goodput.domain.decision import Action, Clamp, Rule
from goodput.domain.identity import CANARY_POOL
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import ModelView, PodState, PoolView
from goodput.domain.plan import ModelPlan
from goodput.domain.speculation import DraftMethod, Speculation, SpeculationMode
from goodput.perfmodel import architecture
from goodput.perfmodel.precision import with_precision

LLAMA, QWEN = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen2.5-7B-Instruct"
LONG = POLICY.startup_timeout_seconds + CANARY_MARGIN_SECONDS + 1.0


def ready(plant: Plant) -> Plant:
    """The canary of what is asked for answers."""
    plant.tick()
    plant.canary_state = PodState.READY
    plant.tick()
    return plant


def asked(**changes: Any) -> Plant:
    plant = Plant(**changes)
    plant.ask("b", plant.check_seconds)
    return plant


def test_a_change_goes_through_a_canary_and_a_job() -> None:
    """Each stage follows from what is seen, and users get it after the last."""
    plant = asked(check_seconds=60)
    assert plant.tick().stage is Stage.STARTING
    assert (plant.canary != "", plant.job) == (True, None)
    plant.canary_state = PodState.READY
    assert plant.tick().stage is Stage.CHECKING
    assert plant.job is not None
    plant.end_job(True)
    assert plant.tick().stage is Stage.PASSED
    assert (plant.serves, plant.canary) == ("a", "")
    plant.leftover = False
    plant.tick()
    assert plant.serves == "b"
    assert plant.tick().mark == ChangeMark(before=plant.memory.change.before)
    assert (plant.job, plant.canary) == (None, "")


def test_the_roll_out_waits_for_the_gpus_of_the_canary_but_not_for_ever() -> None:
    """Its pod may hang on a node that is gone."""
    plant = ready(asked(check_seconds=60))
    plant.end_job(True)
    assert plant.tick().held
    plant.now += HANDOVER_SECONDS
    assert not plant.tick().held
    assert plant.serves == "b"


@pytest.mark.parametrize(
    ("seconds", "verdict", "events"),
    [
        (0.0, Verdict.CHECK_FAILED, "job"),
        (60.0 + CHECK_GRACE_SECONDS + 1.0, Verdict.CHECK_OVERDUE, ""),
    ],
)
def test_a_check_that_fails_or_never_ends_refuses(seconds: float, verdict: Verdict, events: str) -> None:
    """The Job ends by its own deadline; who is to end it may be gone."""
    plant = ready(asked(check_seconds=60))
    if events:
        plant.end_job(False)
    plant.now += seconds
    change = plant.tick()
    assert (change.stage, change.mark.verdict, change.held) == (Stage.REFUSED, verdict, True)
    assert plant.canary == ""
    assert plant.job is not None, "its log says why"
    assert plant.tick().mark == change.mark


def test_a_canary_that_never_answers_is_given_up_and_one_without_a_node_is_waited_for() -> None:
    """Minutes of loading count, hours without a GPU do not."""
    plant = asked()
    plant.tick()
    plant.canary_state = PodState.PENDING
    plant.now += 10 * LONG
    assert plant.tick().stage is Stage.WAITING
    plant.canary_state = PodState.STARTING
    assert plant.tick().stage is Stage.STARTING
    plant.now += LONG
    change = plant.tick()
    assert (change.stage, change.mark.verdict) == (Stage.REFUSED, Verdict.CANARY_OVERDUE)


def test_what_was_judged_is_believed_without_memory_and_without_a_canary() -> None:
    """The Job of this very change ended: another canary would tell nothing new."""
    plant = ready(asked(check_seconds=60))
    plant.end_job(False)
    plant.memory = plant.written = SERVED
    plant.canary = ""
    assert plant.tick().stage is Stage.REFUSED


@pytest.mark.parametrize("check_seconds", [None, 60])
def test_back_to_what_served_before(check_seconds: int | None) -> None:
    """At once, with no canary; and forth again, for that served too."""
    plant = ready(asked(check_seconds=check_seconds))
    plant.end_job(True)
    plant.tick()
    plant.leftover = False
    plant.tick()
    plant.tick()
    assert plant.serves == "b"
    for back in "abab":
        plant.ask(back, check_seconds)
        change = plant.tick()
        assert (plant.serves, plant.canary) == (back, "")
        assert change.mark.verdict is Verdict.SERVED_BEFORE
        plant.tick()


def test_nothing_is_asked_of_those_who_ask_for_what_runs() -> None:
    """Most Models at most times."""
    change = Plant().look()
    assert (change.mark, change.seen, change.held) == (NO_CHANGE, None, False)


def test_what_an_operator_learns_to_read_is_no_change() -> None:
    """A newer one takes a flag for quality that was there all along: nobody asked for anything."""
    runs = Serving(model=LLAMA, served_name=LLAMA, quality=(("spec.model", LLAMA),), asked="as ever")
    reads_more = {"quality": (("--dtype", "--dtype half"), ("spec.model", LLAMA)), "asked": "as ever"}
    assert begin(model_view(serving=runs, **reads_more), SERVED, POLICY, START).seen is None
    assert begin(model_view(serving=runs, **{**reads_more, "asked": "now"}), SERVED, POLICY, START).seen is not None


def test_differences_name_the_fields() -> None:
    """What came, what went, what is another."""
    have = (("--dtype", "--dtype half"), ("spec.model", "a"), ("spec.revision", "x"))
    want = (("--quantization", "--quantization fp8"), ("spec.model", "b"), ("spec.revision", "x"))
    assert differences(have, want) == (
        "--dtype: --dtype half -> unset; --quantization: unset -> --quantization fp8; spec.model: a -> b"
    )


# --- any order of events ----------------------------------------------------------------------------------------------

MODELS = st.sampled_from("abc")
CHECKS = st.sampled_from([60, 60, None])
# What brings a change to its end, step by step: cut off at any of them, another event finds it in any stage.
COURSE: tuple[tuple[Any, ...], ...] = (
    ("tick",),
    ("canary", PodState.READY),
    ("tick",),
    ("job", True),
    ("tick",),
    ("gone",),
    ("tick",),
    ("tick",),
)
EVENTS = st.one_of(
    st.tuples(st.just("ask"), MODELS, CHECKS),
    st.tuples(st.just("tick")),
    st.tuples(st.just("crash"), st.integers(0, 5)),
    st.tuples(st.just("canary"), st.sampled_from(PodState)),
    st.tuples(st.just("job"), st.booleans()),
    st.tuples(st.just("free"), st.booleans()),
    st.tuples(st.just("gone")),
    st.tuples(st.just("forget")),
    st.tuples(st.just("no job")),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 400.0, LONG])),
)
# Somebody asks for something, it comes so far, and then things happen.
ROUNDS = st.lists(
    st.tuples(MODELS, CHECKS, st.integers(0, len(COURSE)), st.lists(EVENTS, max_size=4)), min_size=1, max_size=8
)


def happen(plant: Plant, event: tuple[Any, ...]) -> None:
    """One event; users never get what the gate does not let through."""
    before = len(plant.history)
    match event:
        case ("ask", model, check_seconds):
            plant.ask(model, check_seconds)
        case ("tick",):
            plant.tick()
        case ("crash", writes):
            plant.tick(writes)
        case ("canary", state):
            plant.turn(state)
        case ("job", succeeded):
            plant.end_job(succeeded)
        case ("free", free):
            plant.free = free
        case ("gone",):
            plant.leftover = False
        case ("forget",):
            plant.memory = plant.written = SERVED
        case ("no job",):
            plant.job = None
        case ("wait", seconds):
            plant.now += seconds
    if len(plant.history) > before:
        assert plant.history[-1] == plant.asked
        assert plant.may_serve, f"{plant.asked} was not checked: {plant.memory.change}"


@settings(max_examples=400)
@given(ROUNDS, st.booleans(), st.booleans())
def test_users_never_get_what_was_to_be_checked_and_was_not(
    rounds: list[tuple[str, int | None, int, list[tuple[Any, ...]]]], canary_comes: bool, passes: bool
) -> None:
    """Whatever happens, in whatever order, with crashes after any write, lost memory and deleted Jobs.

    And once things calm down the change ends: users get it, or it is refused; no canary is left.
    """
    plant = Plant()
    for model, check_seconds, length, events in rounds:
        for event in (("ask", model, check_seconds), *COURSE[:length], *events):
            happen(plant, event)
    plant.free = True
    for _ in range(12):
        happen(plant, ("tick",))
        happen(plant, ("gone",))
        happen(plant, ("canary", PodState.READY if canary_comes else PodState.FAILED))
        happen(plant, ("wait", 1.0 if canary_comes else LONG))
        happen(plant, ("job", passes))
    assert plant.canary == ""
    change = plant.look()
    if change.seen is None:
        assert plant.serves == plant.asked
        assert plant.job is None
    else:
        assert (change.stage, change.held) == (Stage.REFUSED, True)
    assert plant.memory.change == plant.written.change == change.mark, "nothing is left to write"


# --- in the whole decision --------------------------------------------------------------------------------------------


def model_view(*, canary: PoolView | None = None, serving: Serving | None = None, **changes: Any) -> ModelView:
    """A Model that serves Llama on 40 pods' worth of load, and asks for Qwen."""
    runs = serving or Serving(
        model=LLAMA, served_name=LLAMA, quality=(("spec.model", LLAMA),), architecture=architecture(LLAMA)
    )
    wants = {
        "model": QWEN,
        "quality": (("spec.model", QWEN),),
        "asked": "qwen",
        "architecture": architecture(QWEN),
        "check_seconds": 60,
    }
    pods = [pod(f"p{index}") for index in range(2)]
    metrics = telemetry(*(counters(each.name, START) for each in pods), at=START)
    found = ModelView(
        intent=intent(**{**wants, **changes}),
        pool=pool(*pods, serving=runs, placement=placement()),
        router=router(),
        telemetry=metrics,
    )
    return found if canary is None else replace(found, canary=canary)


def condition(plan: ModelPlan, kind: ConditionType) -> tuple[ConditionStatus, ConditionReason, str]:
    found = next(each for each in plan.conditions if each.type is kind)
    return found.status, found.reason, found.message


def test_a_held_pool_is_sized_as_what_it_serves() -> None:
    """The same replicas and capacity as if its author had not touched the Model."""
    change = one(model_view(), SERVED)
    same = model_view()
    runs = same.pool.serving
    assert runs is not None
    untouched = replace(
        same,
        intent=replace(
            same.intent, model=LLAMA, quality=runs.quality, architecture=runs.architecture, served_name=LLAMA
        ),
    )
    plain = one(untouched, SERVED)
    assert change.change is not None
    assert change.change.held
    assert plain.change is None
    assert change.pool is not None
    assert plain.pool is not None
    assert (change.pool.replicas, change.pool.placement) == (plain.pool.replicas, plain.pool.placement)
    assert change.figures.capacity_rps_per_replica == plain.figures.capacity_rps_per_replica


def test_until_a_change_that_passed_rolls_out_pods_are_sized_as_what_they_serve() -> None:
    """Its roll-out may wait for room: what is to be rendered is what passed, and the numbers are of what runs."""
    view = model_view()
    view = replace(view, pool=replace(view.pool, placement=placement(max_num_seqs=16)))
    judged = one(view, SERVED)
    assert judged.change is not None
    mark = ChangeMark(id=judged.change.id, stage=Stage.PASSED, since=START - 500.0, verdict=Verdict.CHECKED)
    passed = one(view, replace(SERVED, change=mark))
    assert passed.change is not None
    assert (judged.change.held, passed.change.held) == (True, False)
    assert passed.figures.capacity_rps_per_replica == judged.figures.capacity_rps_per_replica
    assert passed.pool is not None
    assert passed.pool.placement == judged.change.canary, "rendered anew as what passed"


def test_the_catalogue_helps_where_the_record_names_no_structure() -> None:
    """A Deployment of an older operator says which model it serves, and no more."""
    runs = Serving(model=LLAMA, served_name=LLAMA, quality=(("spec.model", LLAMA),))
    plan = one(model_view(serving=runs), SERVED)
    assert plan.decision.rule is not Rule.HOLD_CHANGE
    assert plan.pool is not None
    assert plan.pool.replicas >= 1


def test_a_held_pool_is_sized_in_the_precision_and_with_the_drafts_that_it_runs() -> None:
    """In fp8 and with lookups a replica carries more than plainly; as much where only the words are left of it."""
    plain = architecture(LLAMA)
    assert plain is not None
    lost = Serving(
        model=LLAMA,
        served_name=LLAMA,
        quality=(("spec.model", LLAMA), ("spec.precision.weights", "fp8"), ("spec.speculative", "ngram")),
        speculation=Speculation(method=DraftMethod.NGRAM, mode=SpeculationMode.ALWAYS, tokens=3),
    )

    def believed(runs: Serving, tokens: int) -> float:
        view = model_view(serving=runs)
        plan = one(replace(view, pool=replace(view.pool, placement=placement(speculative_tokens=tokens))), SERVED)
        assert plan.figures.capacity_rps_per_replica is not None
        return plan.figures.capacity_rps_per_replica

    found = believed(lost, 3)
    assert found == believed(replace(lost, architecture=with_precision(plain, "fp8")), 3)
    in_bf16 = replace(lost, quality=(("spec.model", LLAMA),), architecture=plain)
    assert found > 1.1 * believed(in_bf16, 3)
    assert found > 1.1 * believed(replace(lost, speculation=None), 3)


def test_a_precision_that_the_checkpoint_never_had_is_no_guess() -> None:
    """The catalogue's checkpoint cannot be loaded so: what replicas do is not known, and they stay."""
    runs = Serving(
        model="deepseek-ai/DeepSeek-V3",
        served_name="v3",
        quality=(("spec.model", "deepseek-ai/DeepSeek-V3"), ("spec.precision.weights", "bf16")),
    )
    assert one(model_view(serving=runs), SERVED).decision.rule is Rule.HOLD_CHANGE


def test_replicas_of_what_nobody_knows_stay() -> None:
    """Its structure was edited away with the Model: no replica is added or taken until the change is over."""
    runs = Serving(model="my/own", served_name="own", quality=(("spec.model", "my/own"),))
    plan = one(model_view(serving=runs), SERVED)
    assert plan.decision.rule is Rule.HOLD_CHANGE
    assert plan.pool is not None
    assert plan.pool.replicas == 2
    assert plan.change is not None
    assert plan.change.canary is not None


def test_a_canary_takes_its_gpu_from_what_is_free_for_others() -> None:
    """One GPU is free: the canary of the first Model gets it, that of the second waits and says so."""
    plan = one(model_view(), SERVED, free=1)
    assert plan.change is not None
    assert plan.change.canary is not None
    blocked = one(model_view(), SERVED, free=0)
    assert blocked.change is not None
    assert blocked.change.canary is None
    assert blocked.change.held
    status, reason, message = condition(blocked, ConditionType.STALLED)
    assert (status, reason) == (ConditionStatus.TRUE, ConditionReason.ROLLOUT_BLOCKED)
    assert "1 more free GPUs l40s" in message


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("0/4 nodes are available: 4 Insufficient nvidia.com/gpu.", "the canary is Pending: 1 GPUs l40s are missing"),
        ("0/4 nodes are available: 4 Insufficient memory.", "the canary is Pending: 0/4 nodes are available: 4 Insuf"),
        ("1 node(s) had untolerated taint {nvidia.com/gpu: present}.", "the canary is Pending: 1 node(s) had unto"),
    ],
)
def test_a_canary_that_no_node_takes_says_what_it_lacks(words: str, told: str) -> None:
    """GPUs by number where it lacks those, else what the scheduler says."""
    one_pod = pod("c", PodState.PENDING, pool=CANARY_POOL, trouble="Unschedulable", trouble_message=words)
    canary = PoolView(name=CANARY_POOL, exists=True, revision="r1", change="x", pods=(one_pod,))
    _, reason, message = condition(one(model_view(canary=canary), SERVED, free=8), ConditionType.STALLED)
    assert reason is ConditionReason.ROLLOUT_BLOCKED
    assert told in message


def test_what_cannot_be_placed_waits_and_what_serves_is_scaled() -> None:
    """A checkpoint too large for any GPU that there is: the old one serves on."""
    huge = "meta-llama/Llama-3.1-405B-Instruct"
    plan = one(model_view(model=huge, architecture=architecture(huge), quality=(("spec.model", huge),)), SERVED)
    assert plan.pool is not None
    assert plan.change is not None
    assert plan.change.held
    assert plan.decision.rule is not Rule.HOLD_PROBLEM
    assert condition(plan, ConditionType.STALLED)[1] is ConditionReason.ROLLOUT_BLOCKED
    assert condition(plan, ConditionType.PLACED)[0] is ConditionStatus.TRUE


def test_a_canary_leaves_fewer_replicas_to_the_cap_on_cost() -> None:
    """maxCostPerHour of three replicas, one of which is the canary."""
    price = one(model_view(), SERVED).pool.placement.price_per_hour  # type: ignore[union-attr]
    assert price is not None
    canary = PoolView(
        name=CANARY_POOL,
        exists=True,
        spec_replicas=1,
        gpu_type="l40s",
        change="x",
        pods=(pod("c", PodState.STARTING, pool=CANARY_POOL),),
    )
    plan = one(model_view(canary=canary, min_replicas=1, max_cost_per_hour=2.0 * price), SERVED)
    assert plan.decision.clamp is Clamp.MAX_COST
    assert "beside a canary of" in plan.decision.detail
    assert plan.figures.cost_per_hour == pytest.approx(3.0 * price)


def test_the_clock_going_back_does_not_forget_a_refusal() -> None:
    """Windows begin anew, verdicts stay."""
    first = one(model_view(), SERVED)
    refused = replace(first.memory.change, stage=Stage.REFUSED, verdict=Verdict.CHECK_FAILED, note="Job x: it failed")
    memory = LoopMemory(born_at=START + 1e6, startup_seconds=(45.0,), change=refused)
    plan = one(model_view(), memory)
    assert plan.memory.change.stage is Stage.REFUSED
    assert condition(plan, ConditionType.STALLED)[1] is ConditionReason.QUALITY_CHECK_FAILED


@pytest.mark.parametrize(
    ("stage", "verdict", "told"),
    [
        (Stage.STARTING, Verdict.NONE, (Action.START_CANARY, Rule.CHANGE_ASKED)),
        (Stage.CHECKING, Verdict.NONE, (Action.CHECK_QUALITY, Rule.CANARY_READY)),
        (Stage.PASSED, Verdict.CHECKED, (Action.PROMOTE, Rule.CHECK_PASSED)),
        (Stage.PASSED, Verdict.UNCHECKED, (Action.PROMOTE, Rule.UNCHECKED)),
        (Stage.PASSED, Verdict.SERVED_BEFORE, (Action.PROMOTE, Rule.SERVED_BEFORE)),
        (Stage.REFUSED, Verdict.CHECK_FAILED, (Action.REFUSE, Rule.CHECK_FAILED)),
        (Stage.REFUSED, Verdict.CHECK_OVERDUE, (Action.REFUSE, Rule.CHECK_FAILED)),
        (Stage.REFUSED, Verdict.CANARY_OVERDUE, (Action.REFUSE, Rule.CANARY_FAILED)),
    ],
)
def test_each_step_is_a_decision_and_told_once(stage: Stage, verdict: Verdict, told: tuple[Action, Rule]) -> None:
    """With its reason; standing still is none."""
    change = begin(model_view(), SERVED, POLICY, START)
    change = replace(change, mark=replace(change.mark, stage=stage, verdict=verdict))
    decision = step(KEY, NO_CHANGE, change, START)
    assert decision is not None
    assert (decision.action, decision.rule) == told
    assert f"spec.model: {LLAMA} -> {QWEN}" in decision.message
    assert "replica" not in decision.message.split(":")[0]
    assert step(KEY, change.mark, change, START) is None
