"""What acts: only misses that capacity explains, and only figures of the same pods over the same time."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.decide.builders import (
    CHAT,
    GPUS,
    KEY,
    START,
    counters,
    engine_mark,
    gpu,
    intent,
    marks,
    one,
    pod,
    pool,
    snapshot,
    telemetry,
    view,
)
from tests.decide.test_replicas import condition, loaded, missed, replicas, steady

from goodput.decide import Policy, decide
from goodput.domain import podtable
from goodput.domain.conditions import ConditionReason, ConditionType
from goodput.domain.decision import Rule
from goodput.domain.intent import RoutingMode
from goodput.domain.memory import LoopMemory, PodMark
from goodput.domain.observed import ModelView
from goodput.domain.podtable import PodTable
from goodput.domain.samples import Samples
from goodput.perfmodel import Lengths, Shape, architecture, capacity

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
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


def growing(now: float, seen: tuple[str, ...], each: float, **changes: Any) -> ModelView:
    """Three replicas, ready a minute before START, that have served `each`; `seen` are those that the watch told of."""
    pods = tuple(
        counters(name, now, running=5.0, first_tokens=each, ttft_within=each, finished=each, tpot_within=each)
        for name in seen
    )
    metrics = telemetry(
        *pods,
        requests=3.0 * each,
        at=now,
        unlisted=len(seen) < 3,
        prompt_tokens=3.0 * each * PROMPT,
        cached_prompt_tokens=0.0,
        generation_tokens=3.0 * each * OUTPUT,
    )
    there = pool(*(pod(name, created_at=START - 70.0, ready_at=START - 60.0) for name in seen), spec_replicas=3)
    return view(there, metrics, **changes)


def watching() -> LoopMemory:
    """Memory of an operator that began to lead a short while ago, and asked for three replicas."""
    return LoopMemory(
        born_at=START - 100.0,
        desired=3,
        last_scale_up_at=START - 90.0,
        objective=(0.5, 0.05, None),
        router_marks=(PodMark(pod="router-0", scraped_at=START - 15.0, values=(360.0, 8.0, 0.0)),),
    )


def test_tokens_of_pods_that_are_not_known_make_no_replica_weaker():
    """The watch of pods is away after a scale-up: sums are over three replicas, requests are known of one."""
    memory = watching()
    # What the others did before they were known is of no moment. 90 s later six samples of 105 s are of all three.
    for index in range(13):
        now = START + 15.0 * index
        seen = ("pod-0",) if index < 5 else ("pod-0", "pod-1", "pod-2")
        plan = one(growing(now, seen, 160.0 + 40.0 * index), memory, now)
        memory = plan.memory
        assert replicas(plan) == 3
        assert memory.proven_rps < 3.0
        if plan.figures.input_tokens_mean is not None:
            assert plan.figures.input_tokens_mean == pytest.approx(PROMPT, rel=0.02)
    assert plan.figures.input_tokens_mean is not None
    assert memory.proven_rps == pytest.approx(8.0 / 3.0 * 90.0 / 105.0, rel=0.05)


def test_load_on_pods_that_are_not_known_is_no_room():
    """Without a router only the pods that the watch has told of count demand: the third of it lets none of three go."""
    memory = watching()
    for index in range(60):
        now = START + 15.0 * index
        # All are known when nothing comes any more: the window of room begins then.
        seen = ("pod-0",) if index < 40 else ("pod-0", "pod-1", "pod-2")
        plan = one(growing(now, seen, 160.0 + 40.0 * min(index, 40), routing=RoutingMode.NONE), memory, now)
        memory = plan.memory
        assert replicas(plan) == 3 or index >= 48
    assert replicas(plan) == 1


def test_errors_that_replicas_do_not_heal_leave_the_trigger():
    """4 % errors of engines and 3 % late: within the SLO for what capacity explains, so nothing is added."""
    samples = Samples.of(
        each._replace(
            finished=0.96 * each.offered,
            ttft_misses=0.03 * each.offered,
            good_lower=0.93 * each.offered,
            good_upper=0.93 * each.offered,
        )
        for each in steady(30.0, 10).samples
    )
    erring = Samples.of(each._replace(failed=0.04 * each.offered) for each in samples)
    plan = one(loaded(30.0, 10), steady(30.0, 10, samples=erring))
    assert plan.decision.rule is not Rule.CERTAIN_MISSES
    refused = Samples.of(each._replace(rejected=0.04 * each.offered) for each in erring)
    plan = one(loaded(30.0, 10), steady(30.0, 10, samples=refused))
    assert plan.decision.rule is Rule.CERTAIN_MISSES, "what engines refuse for lack of room is lack of capacity"


def test_many_errors_are_failing_not_replicas():
    """A tenth of the requests fail: told, and not acted on."""
    samples = Samples.of(
        each._replace(finished=0.9 * each.offered, good_lower=0.9 * each.offered, good_upper=0.9 * each.offered)
        for each in steady(3.0, 1).samples
    )
    erring = Samples.of(each._replace(failed=0.1 * each.offered) for each in samples)
    plan = one(loaded(3.0, 1), steady(3.0, 1, samples=erring))
    assert replicas(plan) == 1
    assert condition(plan, ConditionType.SLO_MET)[1] is ConditionReason.FAILING


def test_one_waiting_request_of_an_idle_fleet_does_not_explain_its_misses():
    """A long prompt holds one request up for a moment at a tenth of the load: that is no lack of replicas."""
    samples = missed(steady(0.4, 1).samples, 1.0)
    model = loaded(0.4, 1)
    assert model.telemetry is not None
    assert model.telemetry.pool is not None
    for waiting, want in ((1.0, 1), (30.0, 2)):
        seen = model.telemetry.pool.counters
        values = seen.values.copy()
        values[:, podtable.WAITING] = waiting
        queued = replace(model.telemetry, pool=replace(model.telemetry.pool, counters=PodTable(seen.pods, values)))
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


def test_a_strict_percentile_does_not_ask_for_idle_replicas():
    """Almost every request of 8,000 tokens is late on an idle L40S: a third of its throughput counts."""
    strict = replace(CHAT, attainment=0.999)
    able = capacity(architecture(LLAMA), gpu("l40s"), Shape(), Lengths(8000.0, 200.0), strict)
    assert not able.feasible
    assert able.rps > 0.1
    exact = replace(CHAT, attainment=1.0)
    assert capacity(architecture(LLAMA), gpu("l40s"), Shape(), Lengths(1155.0, 211.0), exact).rps > 0.3


def test_a_clock_that_goes_back_keeps_what_was_learned_and_begins_its_windows_anew():
    """An hour back: no scale-down for a window, and start-up time and speed are known as before."""
    memory = steady(1.0, 6, now=START + 3600.0, correction=0.9)
    plan = one(loaded(1.0, 6), memory)
    assert replicas(plan) == 6
    assert plan.memory.born_at == START
    assert (plan.memory.startup_seconds, plan.memory.correction) == (memory.startup_seconds, 0.9)


def test_misses_of_the_old_objective_do_not_act_on_the_new_one():
    """A TTFT of 0.5 s was missed by half; it was relaxed to 5 s: nothing is known yet, so nothing is added."""
    bad = missed(steady(2.5, 1).samples, 0.5)
    memory = steady(2.5, 1, samples=bad)
    assert replicas(one(loaded(2.5, 1), memory)) == 2
    relaxed = one(loaded(2.5, 1, objective=replace(CHAT, ttft_seconds=5.0)), memory)
    assert replicas(relaxed) == 1
    assert condition(relaxed, ConditionType.SLO_MET)[1] is ConditionReason.UNDECIDED


def test_a_pod_without_a_new_scrape_when_the_objective_changes_is_not_compared_across_it():
    """Its mark counts against the old threshold: 30 requests end, anything between none and all of them was good."""
    seen = engine_mark("pod-0", START, first_tokens=300.0, ttft_within=300.0, finished=300.0, tpot_within=300.0)
    memory = steady(2.0, 1, marks=seen)
    strict = replace(CHAT, ttft_seconds=0.1)
    still = counters("pod-0", START, first_tokens=300.0, ttft_within=10.0, finished=300.0, tpot_within=300.0)
    plan = one(view(pool(pod("pod-0")), telemetry(still, requests=1000.0), objective=strict), memory, START + 10.0)
    later = {**still, "scraped_at": START + 15.0, "first_tokens": 330.0, "ttft_within": 12.0, "finished": 330.0}
    model = view(pool(pod("pod-0")), telemetry(later, requests=1030.0), objective=strict)
    figures = one(model, plan.memory, START + 20.0).figures
    assert (figures.good_lower_delta, figures.good_upper_delta) == (0.0, 30.0)


def test_what_a_pod_served_between_its_last_scrape_and_its_crash_may_have_been_good():
    """It ran 10 of 20 requests and nobody saw its last seconds: the upper bound holds them, the lower one does not."""
    before = {"first_tokens": 300.0, "ttft_within": 300.0, "finished": 300.0, "tpot_within": 300.0, "running": 10.0}
    seen_last = marks(*(engine_mark(name, START, **before) for name in ("pod-0", "pod-1")))
    memory = steady(4.0, 2, marks=seen_last)
    seen = {"first_tokens": 330.0, "ttft_within": 330.0, "finished": 330.0, "tpot_within": 330.0, "running": 10.0}
    model = view(pool(pod("pod-0")), telemetry(counters("pod-0", START + 15.0, **seen), requests=1060.0))
    figures = one(model, memory, START + 20.0).figures
    assert figures.good_lower_delta == 30.0
    # What ran, and what came after it at 30 requests in 15 s for 10 in flight.
    assert figures.good_upper_delta == pytest.approx(30.0 + 10.0 + 30.0)
    # At a look without a new scrape nothing is forgotten: it is counted with the next one.
    still = view(pool(pod("pod-0")), telemetry(counters("pod-0", START, running=10.0), requests=1000.0, at=START))
    held = one(still, memory, START + 5.0)
    assert held.memory.marks.pods == ("pod-0", "pod-1")


def test_requests_between_two_edges_of_a_histogram_may_be_on_either_side():
    """A threshold that is no edge: long calm, then 20 of 30 requests fall between its neighbours."""
    known = {"first_tokens": 3000.0, "ttft_within": 3000.0, "finished": 3000.0, "tpot_within": 3000.0}
    calm = engine_mark("pod-0", START, **known, unsure=10.0)
    memory = steady(2.0, 1, marks=calm)
    seen = {"first_tokens": 3030.0, "ttft_within": 3020.0, "finished": 3030.0, "tpot_within": 3030.0, "unsure": 30.0}
    model = view(pool(pod("pod-0")), telemetry(counters("pod-0", START + 15.0, **seen), requests=1030.0))
    figures = one(model, memory, START + 20.0).figures
    assert (figures.good_lower_delta, figures.good_upper_delta) == (0.0, 30.0)


def test_a_cost_limit_without_a_price_is_told_not_passed_over():
    """maxCostPerHour on a GPU type whose price nobody set: the condition says that it limits nothing."""
    model = loaded(3.0, 1, max_cost_per_hour=2.0)
    free = tuple(replace(each, price_per_hour=None) for each in GPUS)
    plan = decide(snapshot(model, types=free), {KEY: steady(3.0, 1)}, Policy(), START).models[0]
    placed = next(each for each in plan.conditions if each.type is ConditionType.PLACED)
    assert placed.reason is ConditionReason.PRICE_UNKNOWN
    assert "spec.scaling.maxCostPerHour limits nothing" in placed.message


def test_what_engines_make_of_their_gpus_is_counted_from_their_tokens():
    """Two pods for 15 s: 1,266 tokens a second, 20 sequences each, steps of 30 ms; the first look compares nothing."""
    memory: LoopMemory = replace(steady(6.0, 2, now=START - 15.0), born_at=START - 36_000.0)
    first = one(serving(START, ("pod-0", "pod-1")), memory, START)
    assert (first.figures.usage.mfu, first.figures.usage.mbu) == (None, None)
    second = one(serving(START + 15.0, ("pod-0", "pod-1")), first.memory, START + 15.0)
    used = second.figures.usage
    assert used.wall_seconds == pytest.approx(30.0)
    assert used.busy_seconds == pytest.approx(15.0 * 1266.0 * 0.03 / 20.0, rel=0.1)
    arch, l40s = intent().architecture, gpu("l40s")
    assert arch is not None
    tokens = 6.0 * (PROMPT + OUTPUT)
    weights = 2.0 * (arch.parameters - arch.embedding_parameters)
    assert used.mfu == pytest.approx(tokens * weights / dict(l40s.flops)["bf16"] / 2.0, rel=0.1)
    assert used.busy_mfu is not None
    assert used.mfu < used.busy_mfu < 1.0
    assert second.figures.bottleneck == "bandwidth"


def test_without_counted_tokens_utilisation_is_unknown():
    """No counter of inter-token times, or none of prompts: not 0 %."""
    memory: LoopMemory = replace(steady(6.0, 2, now=START - 15.0), born_at=START - 36_000.0)
    for lacking in ("itl_sum_seconds", "itl_count", "prompt_tokens", "generation_tokens"):
        seen = memory
        for now in (START, START + 15.0):
            model = serving(now, ("pod-0", "pod-1"))
            assert model.telemetry is not None
            assert model.telemetry.pool is not None
            engines = replace(model.telemetry.pool, **{lacking: None})
            plan = one(replace(model, telemetry=replace(model.telemetry, pool=engines)), seen, now)
            seen = plan.memory
        assert plan.figures.usage.mfu is None, lacking
