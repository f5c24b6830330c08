"""What live counters teach: acceptance of drafts, and the speed of prefill."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.decide.builders import START, gpu, intent, one
from tests.decide.test_explained import PROMPT, serving
from tests.decide.test_replicas import steady

from goodput.decide import Policy
from goodput.decide.correction import Observation, acceptance, for_placement, prefill_speed
from goodput.decide.placement import place
from goodput.domain.change import fingerprint
from goodput.domain.memory import LoopMemory
from goodput.domain.observed import GpuSupply, ModelView, PoolView
from goodput.domain.plan import Placement
from goodput.domain.speculation import DraftMethod, Speculation, SpeculationMode
from goodput.perfmodel import Lengths, Shape
from goodput.perfmodel.observed import observed_prefill

POLICY = Policy()
LLAMA = intent().architecture
assert LLAMA is not None
LENGTHS = Lengths(PROMPT, 211.0)
LOOKUP = Speculation(method=DraftMethod.NGRAM, mode=SpeculationMode.ALWAYS, tokens=4)


def seen(**changes: object) -> Observation:
    base = Observation(itl_seconds=0.03, itl_count=3000.0, batch=20.0, rps=2.0, seconds=15.0, warm=True)
    return replace(base, **changes)


def counted(drafts: float, accepted: float, **changes: object) -> Observation:
    return seen(drafts=drafts, accepted_tokens=accepted, **changes)


def test_what_is_counted_first_is_taken_as_it_is_and_then_smoothed():
    first = acceptance(LoopMemory(), counted(1500.0, 4500.0), POLICY)
    assert first == (3.0, 0.5)
    memory = LoopMemory(accepted_per_draft=3.0, draft_coverage=0.5)
    later = acceptance(memory, counted(3000.0, 0.0), POLICY)
    assert 2.8 < later[0] < 3.0  # type: ignore[operator]
    assert 0.5 < later[1] < 0.55  # type: ignore[operator]


@pytest.mark.parametrize(
    "nothing",
    [
        counted(0.0, 0.0),
        counted(49.0, 49.0),
        counted(1500.0, 4500.0, warm=False),
        counted(1500.0, 4500.0, itl_count=0.0),
    ],
)
def test_few_drafts_and_moving_fleets_teach_nothing(nothing):
    memory = LoopMemory(accepted_per_draft=2.0, draft_coverage=1.0)
    assert acceptance(memory, nothing, POLICY) == (2.0, 1.0)
    assert acceptance(LoopMemory(), nothing, POLICY) == (None, None)


def time_of(speed: float, batch: float = 20.0, rps: float = 2.0) -> float:
    """A prefill time at which the model says `speed`, found by halving."""
    low, high = 1e-3, 10.0
    for _ in range(60):
        middle = math.sqrt(low * high)
        at = observed_prefill(LLAMA, gpu("l40s"), Shape(), LENGTHS, batch=batch, rps=rps, prefill_seconds=middle)
        low, high = (middle, high) if at.speed > speed else (low, middle)
    return high


def learn(memory: LoopMemory, **changes: object) -> float:
    observation = seen(prefill_count=30.0, **changes)
    return prefill_speed(
        memory, LLAMA, gpu("l40s"), Shape(), LENGTHS, observation=observation, correction=1.0, policy=POLICY
    )


@given(st.floats(0.6, 1.8), st.floats(1.0, 60.0), st.floats(0.0, 3.0))
def test_prompts_that_take_longer_are_taken_in_slower(speed, batch, rps):
    """The same load: the longer prompts took, the slower the prefill, and its share stays a share."""
    taken = time_of(speed, batch, rps)
    longer, same = (
        observed_prefill(LLAMA, gpu("l40s"), Shape(), LENGTHS, batch=batch, rps=rps, prefill_seconds=seconds)
        for seconds in (1.2 * taken, taken)
    )
    assert same.speed == pytest.approx(speed, rel=1e-6)
    assert longer.speed < same.speed
    assert 0.0 < same.share < 1.0


def test_the_learned_speed_of_prefill_goes_to_the_true_one():
    memory = LoopMemory()
    for _ in range(200):
        memory = replace(memory, prefill_correction=learn(memory, prefill_seconds=time_of(0.8)))
    assert memory.prefill_correction == pytest.approx(0.8, rel=0.01)


@pytest.mark.parametrize("outlier", [1e-6, 0.001, 5.0, 600.0])
def test_an_outlier_moves_it_by_little(outlier):
    """One interval in which a mean of ten requests is off by any factor: under 2 %."""
    assert learn(LoopMemory(), prefill_seconds=outlier) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(
    "nothing",
    [
        {"prefill_seconds": None},
        {"prefill_seconds": 0.0},
        {"prefill_seconds": 0.5, "prefill_count": 3.0},
        {"prefill_seconds": 0.5, "warm": False},
        {"prefill_seconds": 0.5, "waiting": 5.0},
        {"prefill_seconds": 0.5, "batch": 0.5},
        {"prefill_seconds": 0.5, "seconds": 600.0},
    ],
)
def test_what_says_nothing_of_prefill_teaches_nothing(nothing):
    """Few requests, a queue, pods that just came, a gap in looking."""
    observation = replace(seen(prefill_count=30.0), **nothing)
    memory = LoopMemory(prefill_correction=1.2)
    found = prefill_speed(
        memory, LLAMA, gpu("l40s"), Shape(), LENGTHS, observation=observation, correction=1.0, policy=POLICY
    )
    assert found == 1.2


def test_prompts_that_hide_behind_weight_reads_say_nothing_of_arithmetic():
    short = Lengths(20.0, 211.0)
    found = observed_prefill(LLAMA, gpu("l40s"), Shape(), short, batch=20.0, rps=2.0, prefill_seconds=0.1)
    assert found.share < 0.3


def drafting(now: float, drafts: float, accepted: float) -> ModelView:
    """Two pods that speculate, at so many drafts and accepted tokens a second."""
    model = serving(now, ("pod-0", "pod-1"))
    assert model.telemetry is not None
    assert model.telemetry.pool is not None
    since = 100.0 + now - START
    engines = replace(model.telemetry.pool, drafts=drafts * since, accepted_tokens=accepted * since)
    wanted = replace(model.intent, speculation=LOOKUP)
    found = place(wanted, PoolView(name="serve", exists=False), {"l40s": gpu("l40s")}, {"l40s": _many("l40s")}, POLICY)
    assert found.placement is not None
    assert found.placement.speculative_tokens == 4
    return replace(
        model,
        intent=wanted,
        pool=replace(model.pool, placement=found.placement),
        telemetry=replace(model.telemetry, pool=engines),
    )


def _many(name: str) -> GpuSupply:
    return GpuSupply(type=name, nodes=1, installed=8, used=0)


@pytest.mark.parametrize(("accepted_share", "per_step"), [(0.0, 1.0), (0.5, 3.0), (1.0, 5.0)])
def test_counted_drafts_size_the_replica_and_are_told(accepted_share, per_step):
    """Every step of 1,266 tokens a second has a draft of four tokens: what is accepted of them is what a step gains."""
    memory = replace(steady(6.0, 2), born_at=START - 36_000.0)
    plan = one(drafting(START, 1266.0, 1266.0 * 4.0 * accepted_share), memory, START)
    plan = one(drafting(START + 15.0, 1266.0, 1266.0 * 4.0 * accepted_share), plan.memory, START + 15.0)
    assert plan.memory.accepted_per_draft == pytest.approx(4.0 * accepted_share, abs=1e-3)
    assert plan.memory.draft_coverage == pytest.approx(1.0, abs=1e-2)
    told = next(each for each in plan.decision.inputs if each.name == "tokens per step")
    assert told.value == pytest.approx(per_step)


def test_more_accepted_drafts_make_a_replica_able_to_more():
    def able(accepted: float) -> float:
        memory = replace(steady(6.0, 2), born_at=START - 36_000.0, accepted_per_draft=accepted, draft_coverage=1.0)
        memory = replace(memory, shape="l40s/1/1/ngram 4")
        found = one(drafting(START, 0.0, 0.0), memory, START).figures.capacity_rps_per_replica
        assert found is not None
        return found

    assert able(3.0) > 1.02 * able(0.5)


def _placement(tokens: int) -> Placement:
    found = place(
        intent(speculation=replace(LOOKUP, tokens=tokens)),
        PoolView(name="serve", exists=False),
        {"l40s": gpu("l40s")},
        {"l40s": _many("l40s")},
        POLICY,
    )
    assert found.placement is not None
    return found.placement


def test_other_drafts_are_learned_of_anew():
    """Three tokens at a time are accepted otherwise than four; without drafts nothing of them is believed."""
    asked = intent(speculation=LOOKUP)
    mark = f"l40s/1/1/{fingerprint(asked.quality)}"
    four = for_placement(LoopMemory(accepted_per_draft=2.0, draft_coverage=0.5), _placement(4), asked)
    assert (four.shape, four.accepted_per_draft) == (f"{mark}/ngram 4", 2.0)
    three = for_placement(four, _placement(3), intent(speculation=replace(LOOKUP, tokens=3)))
    assert (three.shape, three.accepted_per_draft, three.draft_coverage) == (f"{mark}/ngram 3", None, None)
    none = for_placement(four, replace(_placement(4), speculative_tokens=0), intent())
    assert (none.shape, none.accepted_per_draft) == (mark, None)
