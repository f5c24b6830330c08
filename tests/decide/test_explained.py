"""What acts: only misses that capacity explains, and only figures of the same pods over the same time."""

from dataclasses import replace

import pytest
from tests.decide.builders import START, counters, one, pod, pool, telemetry, view
from tests.decide.test_replicas import condition, loaded, replicas, steady

from goodput.domain.conditions import ConditionReason, ConditionType
from goodput.domain.decision import Rule
from goodput.domain.memory import LoopMemory, PodMark
from goodput.domain.observed import ModelView

PROMPT, OUTPUT = 1155.0, 211.0


def serving(now: float, seen: tuple[str, ...], *, batch: float = 20.0) -> ModelView:
    """Two pods at 3 requests/s each, with a long life behind them; sums are over those that were `seen`."""
    so_far = 30_000.0 + 3.0 * (now - START)
    pods = tuple(
        counters(name, now, running=batch, first_tokens=so_far, ttft_within=so_far, finished=so_far, tpot_within=so_far)
        for name in seen
    )
    tokens = len(seen) * so_far * OUTPUT
    metrics = telemetry(
        *pods,
        requests=2.0 * so_far,
        at=now,
        prompt_tokens=len(seen) * so_far * PROMPT,
        cached_prompt_tokens=0.0,
        generation_tokens=tokens,
        itl_sum_seconds=tokens * 0.03,
        itl_count=tokens,
    )
    return view(pool(pod("pod-0"), pod("pod-1")), metrics)


def test_a_pod_that_misses_a_scrape_does_not_bring_all_its_tokens_back_at_once():
    """Its sums leave and return: the lengths of requests stay what they are, and so do replicas."""
    memory: LoopMemory = replace(
        steady(6.0, 2, now=START - 15.0),
        born_at=START - 36_000.0,
        router_marks=(PodMark(pod="router-0", scraped_at=START - 15.0, values=(59_910.0, 6.0, 0.0)),),
    )
    for index in range(8):
        now = START + 15.0 * index
        plan = one(serving(now, ("pod-0",) if index == 4 else ("pod-0", "pod-1")), memory, now)
        memory = plan.memory
        assert replicas(plan) == 2
        if plan.figures.input_tokens_mean is not None:
            assert plan.figures.input_tokens_mean == pytest.approx(PROMPT, rel=0.02)
    assert plan.figures.input_tokens_mean is not None


def test_errors_that_replicas_do_not_heal_leave_the_trigger():
    """4 % errors of engines and 3 % late: within the SLO for what capacity explains, so nothing is added."""
    samples = tuple(
        replace(each, finished=0.96 * each.offered, good_lower=0.93 * each.offered, good_upper=0.93 * each.offered)
        for each in steady(30.0, 10).samples
    )
    erring = tuple(replace(each, failed=0.04 * each.offered) for each in samples)
    plan = one(loaded(30.0, 10), steady(30.0, 10, samples=erring))
    assert plan.decision.rule is not Rule.CERTAIN_MISSES
    refused = tuple(replace(each, rejected=0.04 * each.offered) for each in erring)
    plan = one(loaded(30.0, 10), steady(30.0, 10, samples=refused))
    assert plan.decision.rule is Rule.CERTAIN_MISSES, "what engines refuse for lack of room is lack of capacity"


def test_many_errors_are_failing_not_replicas():
    """A tenth of the requests fail: told, and not acted on."""
    samples = tuple(
        replace(each, finished=0.9 * each.offered, good_lower=0.9 * each.offered, good_upper=0.9 * each.offered)
        for each in steady(3.0, 1).samples
    )
    erring = tuple(replace(each, failed=0.1 * each.offered) for each in samples)
    plan = one(loaded(3.0, 1), steady(3.0, 1, samples=erring))
    assert replicas(plan) == 1
    assert condition(plan, ConditionType.SLO_MET)[1] is ConditionReason.FAILING


def test_one_waiting_request_of_an_idle_fleet_does_not_explain_its_misses():
    """A long prompt holds one request up for a moment at a tenth of the load: that is no lack of replicas."""
    samples = tuple(replace(each, good_lower=0.0, good_upper=0.0) for each in steady(0.4, 1).samples)
    model = loaded(0.4, 1)
    assert model.telemetry is not None
    assert model.telemetry.pool is not None
    for waiting, want in ((1.0, 1), (30.0, 2)):
        pods = tuple(replace(each, waiting=waiting) for each in model.telemetry.pool.pods)
        queued = replace(model.telemetry, pool=replace(model.telemetry.pool, pods=pods))
        assert replicas(one(replace(model, telemetry=queued), steady(0.4, 1, samples=samples))) == want


def test_a_trim_is_given_back_at_the_load_that_a_trimmed_fleet_has():
    """At 0.6 of the capacity a full fleet runs at 0.55 of it: once the objective holds, the trim fades."""
    memory = steady(10.0, 5, trim=0.6, trimmed_at=START - 500.0)
    plan = one(loaded(10.0, 5), memory)
    assert plan.memory.trim == pytest.approx(0.612)


def test_pods_that_drain_do_not_make_the_others_look_fast():
    """The same inter-token time at the same batch teaches the same, however many pods are on their way out."""

    def learned(*states: object) -> float:
        now = START + 15.0
        names = tuple(f"pod-{index}" for index in range(len(states)))
        memory = replace(steady(6.0, 2), born_at=START - 36_000.0)
        for at in (START, now):
            model = serving(at, names)
            pods = tuple(pod(name, state) for name, state in zip(names, states, strict=True))  # type: ignore[arg-type]
            plan = one(replace(model, pool=pool(*pods, spec_replicas=2)), memory, at)
            memory = plan.memory
        return memory.correction

    ready, leaving = pod("a").state, type(pod("a").state).TERMINATING
    assert learned(ready, ready, leaving, leaving) == pytest.approx(learned(ready, ready), abs=0.002)
