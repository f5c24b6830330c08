"""The law of replicas, through the whole decision: up in one step, down after a window, holds, pods on their way."""

import pytest
from msgspec.structs import replace
from tests.decide.builders import CHAT, START, counters, engine_mark, intent, one, pod, pool, telemetry, view

from goodput.decide import Policy
from goodput.domain.conditions import ConditionReason, ConditionStatus, ConditionType
from goodput.domain.decision import Action, Clamp, Rule
from goodput.domain.intent import RoutingMode, ScalingMode, Workload
from goodput.domain.memory import LoopMemory, PodMark
from goodput.domain.observed import ModelView, PodState
from goodput.domain.plan import ModelPlan
from goodput.domain.samples import NO_SAMPLES, Sample, Samples


def steady(rps: float, pods: int, seconds: float = 600.0, now: float = START, **changes: object) -> LoopMemory:
    """Memory after `seconds` of constant load on `pods` replicas, as the loop would have written it."""
    samples = Samples.of(
        Sample(
            at=now - 15.0 * k,
            seconds=15.0,
            offered=15.0 * rps,
            finished=15.0 * rps,
            good_lower=15.0 * rps,
            good_upper=15.0 * rps,
        )
        for k in reversed(range(int(seconds / 15)))
    )
    base = LoopMemory(
        born_at=now - seconds,
        desired=pods,
        samples=samples,
        objective=(0.5, 0.05, None),
        startup_seconds=(45.0,) * 5,
        loads=tuple((now - 10.0 * k, 1.09 * rps) for k in reversed(range(1, int(seconds / 10) + 1))),
        router_marks=(PodMark(pod="router-0", scraped_at=now, values=(1000.0, rps, 0.0)),),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def missed(samples: Samples, share: float) -> Samples:
    """`samples` of which a share had a late first token and as many were slow: the same ones, or others."""
    return Samples.of(
        each._replace(
            ttft_misses=share * each.finished,
            tpot_misses=share * each.finished,
            good_lower=max(0.0, 1.0 - 2.0 * share) * each.finished,
            good_upper=(1.0 - share) * each.finished,
        )
        for each in samples
    )


def loaded(rps: float, pods: int, now: float = START, extra: tuple[object, ...] = (), **changes: object) -> ModelView:
    """A pool of ready pods whose metrics are fresh; the newest router interval had `rps`."""
    names = [f"pod-{index}" for index in range(pods)]
    metrics = telemetry(*(counters(name, now, running=1.0) for name in names), requests=1000.0, at=now)
    engines = pool(*(pod(name) for name in names), *extra)  # type: ignore[arg-type]
    if "spec_replicas" in changes:
        engines = replace(engines, spec_replicas=changes.pop("spec_replicas"))  # type: ignore[arg-type]
    return view(engines, metrics, **changes)


def condition(plan: ModelPlan, kind: ConditionType) -> tuple[ConditionStatus, ConditionReason]:
    found = next(each for each in plan.conditions if each.type is kind)
    return found.status, found.reason


def replicas(plan: ModelPlan) -> int:
    assert plan.pool is not None
    return plan.pool.replicas


def test_a_new_model_starts_at_its_minimum():
    """Nothing is known about its load: minReplicas, and the placement says why this type."""
    plan = one(view(pool(exists=False), None, min_replicas=2))
    assert replicas(plan) == 2
    assert (plan.decision.action, plan.decision.rule) == (Action.PLACE, Rule.INITIAL)


def test_a_new_model_starts_with_what_its_expected_load_needs():
    """10 requests/s with a tenth of head-room, within the bounds; Advise changes nothing but the minimum."""
    load = Workload(requests_per_second=10.0)
    plan = one(view(pool(exists=False), None, workload=load))
    needed = replicas(plan)
    assert needed >= 3
    assert (plan.decision.action, plan.decision.rule) == (Action.PLACE, Rule.EXPECTED)
    assert replicas(one(view(pool(exists=False), None, workload=load, max_replicas=2))) == 2
    assert replicas(one(view(pool(exists=False), None, workload=load, min_replicas=9))) == 9
    advised = one(view(pool(exists=False), None, workload=load, mode=ScalingMode.ADVISE))
    assert (replicas(advised), advised.decision.rule) == (1, Rule.INITIAL)
    assert "spec.workload.requestsPerSecond" in plan.decision.message


def test_load_for_five_replicas_asks_for_five_in_one_step():
    """12 requests/s at about 3.2 a replica: from 1 to 4 or 5 at once, not one by one."""
    plan = one(loaded(12.0, 1), steady(12.0, 1))
    assert replicas(plan) in (4, 5)
    assert plan.decision.action is Action.SCALE_UP
    assert "requests/s" in plan.decision.message


def test_pending_and_starting_pods_count_as_capacity_on_its_way():
    """Named test of the pending-counts rule: the same load asks for the same total, whatever is ready meanwhile."""
    memory = steady(12.0, 1)
    first = replicas(one(loaded(12.0, 1), memory))
    waiting = tuple(pod(f"new-{index}", PodState.PENDING, created_at=START) for index in range(first - 1))
    for _ in range(6):
        plan = one(loaded(12.0, 1, extra=waiting), replace(memory, desired=first))
        assert replicas(plan) == first
        assert plan.decision.action is Action.HOLD


def test_certain_misses_wait_for_pods_that_are_on_their_way():
    """Misses while replicas start must not add one more every tick (2-4-8-16)."""
    bad = missed(steady(3.0, 1).samples, 0.5)
    missing = steady(3.0, 1, samples=bad, last_scale_up_at=START - 500.0)
    first = one(loaded(3.0, 1), missing)
    assert (replicas(first), first.decision.rule) == (2, Rule.CERTAIN_MISSES)
    starting = (pod("new-0", PodState.STARTING, created_at=START - 20.0),)
    plan = one(loaded(3.0, 1, extra=starting), first.memory, START + 10.0)
    assert replicas(plan) == 2


def test_misses_add_nothing_while_a_lost_replica_comes_back():
    """Named test of the pending-counts rule for misses: one of two replicas starts anew, so a third is not ordered."""
    bad = missed(steady(3.0, 2).samples, 0.5)
    memory = steady(3.0, 2, samples=bad, last_scale_up_at=START - 500.0)
    again = (pod("again-0", PodState.STARTING, created_at=START - 20.0),)
    assert replicas(one(loaded(3.0, 1, extra=again), memory)) == 2
    waiting = (pod("again-0", PodState.PENDING, created_at=START - 20.0),)
    assert replicas(one(loaded(3.0, 1, extra=waiting), memory)) == 2
    assert replicas(one(loaded(3.0, 2), memory)) == 3, "with all of them serving, one more is what helps"


def test_certain_misses_add_a_replica_even_if_the_model_says_enough():
    """Half of the requests miss at a load that one replica should carry: at least one more."""
    samples = missed(steady(2.0, 1).samples, 0.5)
    plan = one(loaded(2.0, 1), steady(2.0, 1, samples=samples))
    assert replicas(plan) == 2
    assert plan.decision.rule is Rule.CERTAIN_MISSES
    assert plan.memory.trim < 1.0


def test_misses_of_an_idle_fleet_are_not_for_lack_of_replicas():
    """At a tenth of the capacity more replicas would not help: they are shown, not acted on."""
    samples = missed(steady(0.4, 1).samples, 1.0)
    plan = one(loaded(0.4, 1), steady(0.4, 1, samples=samples))
    assert replicas(plan) == 1
    assert condition(plan, ConditionType.SLO_MET) == (ConditionStatus.FALSE, ConditionReason.MISSING_OBJECTIVE)


def test_a_fleet_shrinks_to_what_the_window_allows_several_at_once():
    """Load for one replica, six run, ten minutes of room: down to one in one step, with victims named."""
    plan = one(loaded(1.0, 6), steady(1.0, 6))
    assert replicas(plan) == 1
    assert plan.decision.rule is Rule.SCALE_DOWN_ALLOWED
    assert plan.pool is not None
    assert len(plan.pool.victims) == 5
    assert all(cost < 0 for _, cost in plan.pool.victims)


def test_a_peak_within_the_window_keeps_the_replicas():
    """One minute ago six were needed: the window of 120 s has not passed."""
    memory = steady(1.0, 6)
    peaked = tuple((at, 20.0 if START - at > 60.0 and START - at < 80.0 else load) for at, load in memory.loads)
    plan = one(loaded(1.0, 6), replace(memory, loads=peaked))
    assert replicas(plan) == 6
    assert plan.decision.rule is Rule.SCALE_DOWN_WAITING


def test_replicas_that_were_just_added_stay_for_a_window():
    """What is believed of a replica moves after a scale-up: that alone takes none away again within 120 s."""
    for ago, want in ((60.0, 6), (130.0, 1)):
        plan = one(loaded(1.0, 6), steady(1.0, 6, last_scale_up_at=START - ago))
        assert replicas(plan) == want


def test_a_scale_down_that_was_taken_back_waits_longer_but_keeps_one_replica_only():
    """The load lies on the edge of two numbers: the last one too many stays for three windows, the others go."""
    taken_back = {"last_scale_down_at": START - 250.0, "last_scale_up_at": START - 150.0}
    assert replicas(one(loaded(1.0, 6), steady(1.0, 6, seconds=300.0, **taken_back))) == 2
    assert replicas(one(loaded(1.0, 2), steady(1.0, 2, seconds=300.0, **taken_back))) == 2
    assert replicas(one(loaded(1.0, 2), steady(1.0, 2, seconds=600.0, **taken_back))) == 1


def test_misses_of_a_load_that_has_gone_add_nothing():
    """The average still holds the load of a minute ago, the newest interval is nearly empty."""
    bad = missed(steady(2.5, 1).samples, 0.5)
    gone = Samples.of((*bad[:-1], bad[-1]._replace(offered=2.0)))
    for samples, want in ((bad, 2), (gone, 1)):
        assert replicas(one(loaded(2.5, 1), steady(2.5, 1, samples=samples))) == want


def test_lost_memory_never_scales_down_before_a_full_window():
    """A new operator knows nothing of the last minutes: it holds."""
    plan = one(loaded(1.0, 6), replace(steady(1.0, 6), born_at=START - 60.0))
    assert replicas(plan) == 6
    assert plan.decision.rule is Rule.HOLD_MEMORY
    assert replicas(one(loaded(1.0, 6), None)) == 6


def test_no_scale_down_during_a_roll_out():
    """Pods come and go for another reason: wait."""
    model = loaded(1.0, 6)
    plan = one(replace(model, pool=replace(model.pool, rolling_out=True)), steady(1.0, 6))
    assert replicas(plan) == 6
    assert plan.decision.rule is Rule.HOLD_ROLLOUT


@pytest.mark.parametrize("load", [0.2, 30.0], ids=["room to shrink", "need to grow"])
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("silent", ConditionReason.PROMETHEUS_UNREACHABLE),
        ("no router", ConditionReason.METRICS_MISSING),
        ("no engines", ConditionReason.METRICS_MISSING),
        ("stale", ConditionReason.METRICS_STALE),
        ("nan", ConditionReason.METRICS_INVALID),
        ("negative", ConditionReason.METRICS_INVALID),
        ("unlabelled", ConditionReason.METRICS_UNLABELLED),
    ],
)
def test_missing_or_broken_metrics_hold_the_plan_and_say_so(fault, reason, load):
    """Named test of the hold rule: whatever load was, nothing moves on ignorance."""
    names = [f"pod-{index}" for index in range(3)]
    fresh = [counters(name, START, running=1.0) for name in names]
    metrics = telemetry(*fresh, requests=1000.0 + 15 * load, at=START)
    if fault == "silent":
        metrics = None
    elif fault == "no router":
        metrics = telemetry(*fresh, requests=None)
    elif fault == "no engines":
        metrics = telemetry(requests=1000.0, at=START)
    elif fault == "stale":
        metrics = telemetry(*({**each, "scraped_at": START - 300.0} for each in fresh), requests=1.0, at=START - 300.0)
    elif fault == "nan":
        metrics = telemetry({**fresh[0], "finished": float("nan")}, *fresh[1:], requests=1000.0, at=START)
    elif fault == "negative":
        metrics = telemetry({**fresh[0], "running": -1.0}, *fresh[1:], requests=1000.0, at=START)
    elif fault == "unlabelled":
        metrics = replace(telemetry(requests=None), unlabelled=True, problem="no scrape of 3 of 3 ready pods")
    model = view(pool(*(pod(name) for name in names)), metrics)
    memory = steady(load, 3, router_marks=(PodMark(pod="router-0", scraped_at=START - 315.0, values=(0.0, load, 0.0)),))
    plan = one(model, memory)
    assert replicas(plan) == 3
    assert plan.decision.rule is Rule.HOLD_METRICS
    assert condition(plan, ConditionType.METRICS_FRESH) == (ConditionStatus.FALSE, reason)
    assert plan.figures.offered_delta >= 0.0


def test_one_mute_pod_stops_scale_down_but_not_scale_up():
    """A single pod without metrics is named; the fleet may still grow, never shrink."""
    names = [f"pod-{index}" for index in range(4)]
    for load, want in ((30.0, "more"), (0.5, "same")):
        metrics = telemetry(*(counters(name, START) for name in names[1:]), requests=1000.0, at=START)
        plan = one(view(pool(*(pod(name) for name in names)), metrics), steady(load, 4))
        assert replicas(plan) > 4 if want == "more" else replicas(plan) == 4
        assert condition(plan, ConditionType.METRICS_FRESH)[1] is ConditionReason.METRICS_MISSING
        assert "pod-0" in next(c.message for c in plan.conditions if c.type is ConditionType.METRICS_FRESH)


def test_a_pod_that_just_became_ready_need_not_have_metrics():
    """Within two scrapes of Ready nothing is missing yet."""
    young = pod("pod-9", ready_at=START - 10.0)
    plan = one(loaded(3.0, 2, extra=(young,)), steady(3.0, 3))
    assert condition(plan, ConditionType.METRICS_FRESH)[0] is ConditionStatus.TRUE


def test_a_model_without_ready_pods_has_nothing_to_measure():
    """That is no fault of metrics."""
    plan = one(view(pool(pod("a", PodState.STARTING)), telemetry(requests=None)), LoopMemory(born_at=START - 5.0))
    assert condition(plan, ConditionType.METRICS_FRESH) == (ConditionStatus.UNKNOWN, ConditionReason.NO_PODS)


def test_advise_says_what_it_would_do_and_changes_nothing():
    """The decision is that of Auto; the replicas are those that run."""
    plan = one(loaded(12.0, 1, mode=ScalingMode.ADVISE), steady(12.0, 1))
    assert plan.decision.action is Action.ADVISE_UP
    assert plan.decision.to_replicas in (4, 5)
    assert replicas(plan) == 1
    down = one(loaded(1.0, 6, mode=ScalingMode.ADVISE), steady(1.0, 6))
    assert (down.decision.action, replicas(down)) == (Action.ADVISE_DOWN, 6)


def test_pause_and_a_second_scaler_write_the_observed_number():
    """Replicas are never omitted from an apply: what runs is what is written."""
    paused = one(loaded(12.0, 2, paused=True), steady(12.0, 2))
    assert (replicas(paused), paused.decision.rule) == (2, Rule.HOLD_PAUSED)
    model = loaded(12.0, 2)
    fought = one(replace(model, pool=replace(model.pool, foreign_scaler="HPA/llama")), steady(12.0, 2))
    assert (replicas(fought), fought.decision.rule) == (2, Rule.HOLD_CONFLICT)
    assert condition(fought, ConditionType.STALLED) == (ConditionStatus.TRUE, ConditionReason.SCALER_CONFLICT)


def test_limits_stand_above_the_slo_and_say_what_is_missing():
    """maxReplicas, maxCostPerHour and free GPUs clamp; the decision keeps what was wanted."""
    for changes, free, clamp, want in (
        ({"max_replicas": 3}, 100, Clamp.MAX_REPLICAS, 3),
        ({"max_cost_per_hour": 4.0}, 100, Clamp.MAX_COST, 2),
        ({}, 1, Clamp.GPUS, 2),
    ):
        plan = one(loaded(12.0, 1, **changes), steady(12.0, 1), free=free)
        assert (replicas(plan), plan.decision.clamp) == (want, clamp)
        assert plan.decision.wanted_replicas > want
        assert condition(plan, ConditionType.SLO_MET)[1] is ConditionReason.CAPPED
        assert f"{plan.decision.wanted_replicas} wanted" in plan.decision.message


def test_a_raised_minimum_is_obeyed_without_metrics():
    """Bounds are the author's will, not an inference from metrics."""
    plan = one(view(pool(pod("a")), None, min_replicas=3), steady(1.0, 1))
    assert (replicas(plan), plan.decision.rule) == (3, Rule.BOUNDS)


def test_gpus_that_are_missing_are_reported_by_number_and_not_multiplied():
    """Three Pending pods: the same total next time, and the condition counts GPUs."""
    said = {"trouble": "Unschedulable", "trouble_message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."}
    waiting = tuple(pod(f"new-{k}", PodState.PENDING, created_at=START, **said) for k in range(3))
    plan = one(loaded(12.0, 1, extra=waiting), steady(12.0, 4), free=0)
    assert replicas(plan) == 4
    placed = next(each for each in plan.conditions if each.type is ConditionType.PLACED)
    assert placed.reason is ConditionReason.INSUFFICIENT_GPUS
    assert "3 GPUs l40s" in placed.message


def test_a_lost_node_is_replaced_at_once_and_the_stand_in_goes_again():
    """One of three sits on a lost node: four until three others are ready, then three, at once and by victim."""
    model = loaded(6.0, 2, extra=(pod("lost", node_lost=True),))
    memory = steady(6.0, 3)
    plan = one(model, memory)
    assert (replicas(plan), plan.decision.action) == (4, Action.REPLACE)
    starting = loaded(6.0, 2, extra=(pod("lost", node_lost=True), pod("new", PodState.STARTING, created_at=START)))
    again = one(starting, plan.memory)
    assert replicas(again) == 4
    healed = loaded(6.0, 3, extra=(pod("lost", node_lost=True),))
    back = one(healed, replace(again.memory, samples=memory.samples))
    assert replicas(back) == 3
    assert back.pool is not None
    assert [name for name, _ in back.pool.victims] == ["lost"]


def test_failing_pods_and_errors_never_become_replicas():
    """A crash loop is reported; the load of three asks for no more than it did."""
    crashed = pod("bad", PodState.FAILED, trouble="CrashLoopBackOff")
    plan = one(loaded(8.0, 2, extra=(crashed,)), steady(8.0, 3))
    assert replicas(plan) == 3
    assert condition(plan, ConditionType.SLO_MET)[1] is ConditionReason.FAILING
    assert condition(plan, ConditionType.STALLED)[1] is ConditionReason.CRASH_LOOP


def test_a_blocked_roll_out_is_no_failing_service():
    """Pods of a new revision that cannot start get no requests: `Stalled` tells of them, `SLOMet` of the old ones."""
    new = pod("new", PodState.FAILED, trouble="ImagePullBackOff", revision="r2")
    busy = loaded(8.0, 3, extra=(new,), spec_replicas=3)
    rolling = replace(busy, pool=replace(busy.pool, revision="r2", rolling_out=True))
    plan = one(rolling, steady(8.0, 3))
    assert condition(plan, ConditionType.SLO_MET)[1] is ConditionReason.MEETING
    assert condition(plan, ConditionType.STALLED)[1] is ConditionReason.ROLLOUT_BLOCKED
    assert replicas(plan) == 3
    nobody = replace(rolling, pool=pool(new, spec_replicas=3, revision="r2", rolling_out=True))
    assert condition(one(nobody, steady(8.0, 3)), ConditionType.SLO_MET)[1] is ConditionReason.FAILING


def test_an_infeasible_slo_is_shown_and_does_not_drive_replicas():
    """TTFT below the bare prefill time: every request misses, and one replica stays one replica."""
    hopeless = replace(CHAT, ttft_seconds=0.02)
    samples = missed(steady(1.0, 1).samples, 1.0)
    plan = one(loaded(1.0, 1, objective=hopeless), steady(1.0, 1, samples=samples, objective=(0.02, 0.05, None)))
    assert replicas(plan) == 1
    assert condition(plan, ConditionType.SLO_MET) == (ConditionStatus.FALSE, ConditionReason.SLO_INFEASIBLE)


def test_without_a_router_demand_is_a_named_lower_bound():
    """First tokens, growth of the queue and rejections stand in for arrivals."""
    memory = steady(0.0, 1, samples=NO_SAMPLES, marks=engine_mark("pod-0", START - 15.0))
    busy = counters("pod-0", START, first_tokens=30.0, ttft_within=30.0, waiting=12.0, rejected=3.0)
    model = view(pool(pod("pod-0")), telemetry(busy, requests=None), routing=RoutingMode.NONE)
    plan = one(model, memory)
    assert plan.figures.offered_delta == 45.0
    assert plan.figures.demand_rps == pytest.approx(3.0)
    assert "lower bound" in plan.decision.message


def test_a_falling_counter_is_a_restart_not_negative_load():
    """After a restart of the router its value is what came since."""
    memory = steady(3.0, 1, router_marks=(PodMark(pod="router-0", scraped_at=START - 15.0, values=(5000.0, 3.0, 0.0)),))
    metrics = telemetry(counters("pod-0", START), requests=40.0, at=START)
    assert one(view(pool(pod("pod-0")), metrics), memory).figures.offered_delta == 40.0


def test_start_up_is_learned_from_pods_but_not_from_a_wait_for_gpus():
    """p90 of what was seen; a pod that was unschedulable first is left out."""
    memory = replace(steady(3.0, 2), startup_seconds=())
    pods = (
        pod("a", created_at=START - 100.0, ready_at=START - 55.0),
        pod("b", created_at=START - 900.0, ready_at=START - 1.0),
    )
    metrics = telemetry(counters("a", START), counters("b", START), requests=1000.0, at=START)
    plan = one(view(pool(*pods), metrics), replace(memory, pods_seen_ready=("uid-b",)))
    assert plan.memory.startup_seconds == (45.0,)
    assert plan.figures.startup_seconds == 45.0


def test_rejected_options_name_their_numbers():
    """Why not one fewer, why not one more."""
    plan = one(loaded(9.0, 3), steady(9.0, 3))
    fewer, more = plan.decision.rejected
    assert (fewer.option, more.option) == ("2 replicas", "4 replicas")
    assert "requests/s" in fewer.reason
    assert "requests/s" in more.reason


def test_admission_limits_do_not_move_with_live_metrics():
    """They are rendered into pods: whatever was learned, the placement is the same."""
    idle = one(view(pool(exists=False), None)).pool
    busy = one(loaded(12.0, 1), steady(12.0, 1, correction=0.7, trim=0.8)).pool
    assert idle is not None
    assert busy is not None
    assert busy.placement == replace(idle.placement, rejected=())
    assert idle.placement.max_num_queued_requests is not None
    assert idle.placement.max_num_queued_tokens is not None
    off = one(view(pool(exists=False), None, admission=False)).pool
    assert off is not None
    assert off.placement.max_num_queued_requests is None


def test_what_was_decided_depends_on_no_time_but_now():
    """The same input a second time gives the same plan."""
    assert one(loaded(6.0, 3), steady(6.0, 3)) == one(loaded(6.0, 3), steady(6.0, 3), policy=Policy())
    assert intent() == intent()
